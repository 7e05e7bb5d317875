"""The log of a node: one WAL for all its Raft groups, their hard state, and their snapshots.

The node shell sees :class:`~reference_broker.log.system.LogSystem` and nothing else. Two threads do all the file
work: one appends to the WAL and the meta log (group commit), one does what may take its time (snapshots, new and
recycled WAL files). ``docs/internals/wal-format.md`` draws the files octet by octet.
"""
