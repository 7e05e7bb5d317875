"""AMQP 0-9-1, the server's side, without I/O: :class:`~reference_broker.amqp.connection.ServerConnection`.

``connection`` is the connection itself, with ``channel_table`` for its channels and ``handshake`` for its beginning.
``fastpath`` reads and ``deliveries`` writes runs of messages; ``events`` are for the broker.
"""
