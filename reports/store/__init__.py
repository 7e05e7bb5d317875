"""The store of report tables: its tables, how attempts are published, and how a reader gets them.

:mod:`reports.store.schema` names the tables. No module of this package starts a JVM.
"""
