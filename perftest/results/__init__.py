"""The versioned run directory: written while a run goes, read afterwards.

:class:`~perftest.results.writer.RunWriter` writes, :func:`~perftest.results.reader.read_run` reads; both raise
:class:`~perftest.results.errors.RunDirectoryError` with what, where and what to do.
"""
