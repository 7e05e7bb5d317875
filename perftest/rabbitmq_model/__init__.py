"""A model of RabbitMQ 3.10, to predict its speed: Erlang processes on cores, Ra and classic queues on modelled drives.

In come publishes, acknowledgements and subscriptions of clients, at virtual times. Out come confirms and deliveries at
later times. The model says when something happens, and never what a message contains. Pure.
"""
