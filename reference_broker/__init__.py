"""A three-node quorum-queue broker to measure, to read and to break.

The pure cores (``raft``, ``machines``, ``routing`` and the protocol part of ``amqp``) take values and
give values back; ``log`` and ``node`` are the shells that own files, sockets, threads and time.
``ARCHITECTURE.md`` draws the way of one message through them.
"""

__version__ = "1.0.0"
