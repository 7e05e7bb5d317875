"""What keeps a report from being made.

Each error has three lines for the person who asked for the report: what, where, and what to do.
"""

from __future__ import annotations


class ReportError(Exception):
    """``what`` went wrong, ``where`` (file, key or value), and what to do: ``fix``.

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


class PageError(ReportError):
    """The page cannot be made or written."""

    exit_code = 1


class PipelineError(ReportError):
    """Base of every error of the pipeline that a person can act on."""


class UnusableRunError(PipelineError):
    """A directory is no run directory, or one of a version or shape that this reader does not know."""


class DamagedRunError(UnusableRunError):
    """A file without which a run cannot be reported is damaged."""


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
