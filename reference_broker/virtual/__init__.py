"""Production nodes at virtual time: machines with cores, drives and links that take as long as they are said to take.

Other than :mod:`reference_broker.sim`, which looks for errors by chance and trouble, this package looks for figures:
every callback costs CPU time, every sync the time of a modelled drive, every octet the time of a link.
"""
