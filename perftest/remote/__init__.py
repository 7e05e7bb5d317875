"""The hosts of a run: connected over SSH, supplied, observed, asked for workers and nodes, and left as they were.

In come an inventory and a plan. Out come workers and nodes on other hosts, behind the ports of
:mod:`perftest.measuring` and :mod:`perftest.actions`.
"""
