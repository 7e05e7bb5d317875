"""The store of classic queues: an index and messages for each queue, and a shared store for large messages.

The store stands beside the log of the Raft groups (:mod:`reference_broker.log`) on the same ports
(:mod:`reference_broker.storage`). Start reading at :mod:`~reference_broker.classic.store`. The files are drawn in
docs/internals/classic-store.md.
"""
