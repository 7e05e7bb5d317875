"""A load generator for AMQP 0-9-1 brokers that measures honestly, and the command ``perftest``."""

__version__ = "1.0.0"
