"""The options of ``perftest run``, in one table.

The command, its help, the environment variables, the page ``docs/cli.md`` and the names in error messages are all made
from this table (:mod:`~perftest.options.table`). ``tokens`` reads a command line and the environment as PerfTest
does. ``choices`` holds the values of the options, and ``plan`` makes a plan of them. No module here imports
anything heavy, nor click.
"""
