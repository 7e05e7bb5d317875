"""Runs in the formats of other programs.

A run as :func:`perftest.results.reader.read_run` gives it comes in, and the text of a file goes out. Nothing here reads
or writes a file; ``perftest export`` does.
"""
