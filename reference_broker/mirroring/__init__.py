"""Mirrored classic queues: a master, and copies on other nodes that follow it along a ring. Pure.

Read :mod:`~reference_broker.mirroring.ring` first.
"""
