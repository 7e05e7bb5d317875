"""How a queue keeps its messages: positions in the log, as ranges, in the order in which they are delivered. Pure."""
