"""Consumers: how they get messages, work on them, acknowledge them and leave."""
