"""The command ``perftest workload``: list, show and check workload files, and import those of other tools."""
