"""What can go wrong in the pipeline."""

from __future__ import annotations

from reports.errors import ReportError


class PipelineError(ReportError):
    """Base of every error of the pipeline that a person can act on."""


class RunDirectoryError(PipelineError):
    """A directory is no run directory, or one of a version or shape that this reader does not know."""


class DamagedRunError(RunDirectoryError):
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
