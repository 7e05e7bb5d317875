"""The versioned run directory: written as a run goes, read by whoever wants to know how it went.

:class:`~perftest.results.writer.RunWriter` writes, :func:`~perftest.results.reader.read_run` reads; both raise
:class:`~perftest.results.errors.RunDirectoryError` with what, where and what to do.
"""
