"""AMQP 0-9-1, the server's side, without I/O: :class:`~reference_broker.amqp.connection.ServerConnection`.

``connection`` reads and closes, ``outbound`` speaks for the broker, ``channel`` keeps what a channel is, ``fastpath``
and ``deliveries`` move runs of messages, ``events`` is what the broker gets to see.
"""
