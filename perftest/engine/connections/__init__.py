"""Connections, exchanges and queues: opened, declared, made again when they are lost, and closed."""
