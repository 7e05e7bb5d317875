"""The options of ``perftest run``: one table, of which the command, its help, the environment variables, the page of
the documentation and the names in error messages are made.

``table`` holds all options, ``tokens`` reads a command line as PerfTest does, ``planning`` makes a plan of the values.
Nothing here is heavier to import than click; what reads values imports :mod:`perftest.spec` when it is called.
"""
