"""The figures of one run, computed from the octets of its files: Arrow tables of :mod:`reports.store.schema`. Pure.

:func:`reports.compute.run.run_tables` is the whole way. The pipeline calls this package in Spark's Python workers;
tests call the package directly.
"""
