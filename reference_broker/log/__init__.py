"""The log of a node: one WAL for all its Raft groups, their hard state, and their snapshots.

The node shell sees only :class:`~reference_broker.log.system.LogSystem`. Two threads do all the file work: the writer
appends to the WAL and the meta log (group commit), and the housekeeper does the slow work (snapshots, segments, new and
recycled WAL files). ``docs/internals/wal-format.md`` draws the files octet by octet.
"""
