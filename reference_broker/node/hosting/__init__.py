"""Hosting: what this node runs for the cluster: its queues, exchanges and virtual hosts, as the metadata wants them.

In come changes of the metadata and the questions of clients. Out go started and stopped members, owners and mirrors,
and requests to change the metadata. What a client may ask is decided in :mod:`reference_broker.node.clients`.
"""
