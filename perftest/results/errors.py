"""The errors of a run directory."""

from __future__ import annotations

from perftest.errors import HelpfulError


class RunDirectoryError(HelpfulError):
    """A run directory that cannot be written or read."""


class RunNotWritableError(RunDirectoryError):
    """The drive is full, read-only, or gone. What was written before is still a readable run directory."""


class NotARunError(RunDirectoryError):
    """The path is no run directory."""


class DamagedRunError(NotARunError):
    """A file without which nothing can be said of a run is damaged."""


class NewerRunError(RunDirectoryError):
    """The run directory was written by a newer version, which this one would misread."""


class LineError(ValueError):
    """A line of a file that cannot be used; the text says why."""
