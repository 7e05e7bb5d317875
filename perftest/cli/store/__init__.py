"""The commands on a store of results: list, ask, follow over time; and the archive for the executors that fill it."""
