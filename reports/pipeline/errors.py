"""What can go wrong for the person who asked for a report, in three lines: what, where, what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of every error of the pipeline that a person can act on.

    ``exit_code`` is the command's: 2 for input that cannot be used, 1 for an environment that does not work.
    """

    exit_code = 2

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        return f"error: {self.what}\n  at   {self.where}\n  fix  {self.fix}"


class RunDirectoryError(PipelineError):
    """A directory is no run directory, or one of a version or shape that this reader does not know."""


class EmptyRunError(PipelineError):
    """A run has no interval to report."""


class StoreError(PipelineError):
    """A store cannot be read, or is of a version that this reader does not know."""


class SettingError(PipelineError):
    """A Spark setting on the command line is malformed."""


class JavaNotFoundError(PipelineError):
    """No Java that Spark can use."""

    exit_code = 1


class SparkError(PipelineError):
    """Spark did not start, or a job of it failed."""

    exit_code = 1
