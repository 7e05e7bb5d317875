"""The endpoints for operators and machines: the control port, and HTTP for metrics and management.

In come lines and HTTP requests. Out go the answers of :mod:`reference_broker.node.operations`, and figures. This room
lies above the shard and reads it; no other room knows this one.
"""
