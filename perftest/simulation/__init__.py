"""Simulated runs: production nodes and the production generator at virtual time, on modelled drives and machines.

In come a plan, a calibration and a setup. Out comes a run directory that says that it was simulated.
"""
