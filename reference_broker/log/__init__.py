"""The log of a node: one WAL for all its Raft groups, their hard state, and their snapshots.

The node shell sees :class:`~reference_broker.log.system.LogSystem` and nothing else. Two threads do all the file
work: the writer appends to the WAL and the meta log (group commit), and the housekeeper does all that may take its time
(snapshots, segments, new and recycled WAL files). ``docs/internals/wal-format.md`` draws the files octet by octet.
"""
