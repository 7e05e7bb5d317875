"""The stages of a message's way through the broker, between stamps, as histograms. Pure: times are arguments.

Start with :mod:`~reference_broker.anatomy.stages`; docs/internals/latency-anatomy.md draws the stages.
"""
