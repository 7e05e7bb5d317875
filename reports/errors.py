"""The reasons for which a report cannot be made. The exit code is 2 for input that cannot be used, and 1 for an
environment that does not work."""

from __future__ import annotations

from collections.abc import Sequence

from perftest.errors import HelpfulError


class PageError(HelpfulError):
    """The page cannot be made or written."""


class UnlikeRunsError(PageError):
    """Two runs are too unlike to be compared: in each of ``facets``, as ``differences`` say in words."""

    def __init__(self, what: str, where: str, fix: str, facets: Sequence[str], differences: Sequence[str]) -> None:
        super().__init__(what, where, fix)
        self.facets = tuple(facets)
        self.differences = tuple(differences)


class PipelineError(HelpfulError):
    """Base of every error of the pipeline that a person can act on."""

    code = 2


class RunChoiceError(PipelineError):
    """No run was given, or two directories hold the same run."""


class EmptyRunError(PipelineError):
    """A run has no interval to report."""


class PlaceError(PipelineError):
    """A place of runs cannot be reached or listed."""

    code = 1


class StoreError(PipelineError):
    """A store cannot be read, or is of a version that this reader does not know."""


class AnnotationError(PipelineError):
    """A tag or a note that cannot be kept."""


class QueryError(PipelineError):
    """A query that cannot be answered."""


class SettingError(PipelineError):
    """A setting on the command line is malformed."""


class ArchiveError(PipelineError):
    """The archive for executors cannot be made."""

    code = 1


class JavaNotFoundError(PipelineError):
    """No Java that Spark can use."""

    code = 1


class SparkError(PipelineError):
    """Spark did not start, or a job of it failed."""

    code = 1
