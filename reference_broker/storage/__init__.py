"""The means by which every store of a node uses its drives, and nothing about any one store.

``files`` is the port to a file system (``memory_files`` stands in for it in tests and in the simulator), ``executor``
decides in which thread blocking I/O runs, ``errors`` says in words what went wrong with a drive. The log of the Raft
groups (:mod:`reference_broker.log`) is built on these ports. Stores of other kinds of queues stand beside the log and
use the same ports: no store knows another store.
"""
