"""Checks how well this machine can measure: clock, processors, drives, network, and the load generator's own limit.

Each check measures something and says what the figure means for a result. The thresholds stand beside the checks.
"""
