"""A load generator for AMQP 0-9-1 brokers that measures honestly, and the command ``perftest``."""

__version__ = "0.1.0"
