"""Actions of a timeline while a load runs: on nodes, drives, hosts and the links between them.

In comes the timeline of a plan, and a target that can be acted on. Out go events, and at the end a cluster as it was
before.
"""
