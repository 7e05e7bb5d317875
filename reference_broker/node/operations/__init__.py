"""Operators' requests to the cluster: status, members, policies, users, and the figures of all nodes.

In come requests as plain values, from any node. Out go answers as plain values: every failure has what, where and fix.
How a request reaches the node is decided in :mod:`reference_broker.node.endpoints`.
"""
