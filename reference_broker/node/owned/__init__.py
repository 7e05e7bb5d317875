"""Queues that live on one node, without a log: their owner, and the mirrors of mirrored queues.

In come commands of clients and frames of the ring of mirrors. Out go results at once, and copies to the mirrors. The
metadata decides who becomes the owner (:mod:`reference_broker.node.hosting`).
"""
