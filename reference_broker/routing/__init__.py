"""Routing: exchanges, bindings, and the queues that a message goes to. Pure, and without a word of AMQP's octets."""
