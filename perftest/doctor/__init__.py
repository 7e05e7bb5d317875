"""What this machine can show, before a run is trusted: clock, processors, drives, network, descriptors, and the load
generator's own ceiling.

Each check measures, and says what its figure means for a result; the thresholds stand beside the checks.
"""
