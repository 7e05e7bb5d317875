"""Where a message's time goes inside the broker: stages between stamps, kept as histograms. Pure: times are arguments.

Start with :mod:`~reference_broker.anatomy.stages`; docs/internals/latency-anatomy.md draws the stages.
"""
