"""One node: sockets, timers, threads and files, and the wiring of the pure cores to them.

On this floor are the process (:mod:`~reference_broker.node.server`), the shard that makes and connects all parts, the
turns in which they work, and the settings that all of them may read. Everything else is in a room, named for what it is
about; each room knows only the rooms below it.
"""
