"""Statistics on the tables of a store: pure functions of frames, no I/O, no Spark."""
