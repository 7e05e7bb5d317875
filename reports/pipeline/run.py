"""Run the pipeline: run directories in, a published store out.

Tasks write the tables of runs to files (:mod:`reports.pipeline.tasks`): those of a Spark
(:mod:`reports.pipeline.spark_jobs`), or this process, which is quicker for small inputs than a Spark's start. The names
of the files are committed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perftest.errors import HelpfulError
from reports.errors import PlaceError
from reports.pipeline import tasks
from reports.pipeline.source import RunDirectory
from reports.store.locations import Place
from reports.store.publication import Publication
from reports.store.run_tables import LeftOut
from reports.store.store import Store

Say = Callable[[str], None]
Write = Callable[[Sequence[RunDirectory], tasks.PartTarget], Iterator[tasks.TaskResult]]
"""Writes the tables of runs, and tells what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The result of a run of the pipeline: rows per table in the store, of these runs only."""

    store: str
    version: int
    """Of the table ``runs``."""
    runs: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    rows: Mapping[str, int]
    seconds: float


def write_here(runs: Sequence[RunDirectory], target: tasks.PartTarget) -> Iterator[tasks.TaskResult]:
    """Writes runs in this process."""
    for row in tasks.write_runs(map(tasks.listed, runs), target):
        yield tasks.TaskResult.of(row.to_pylist()[0])


def run_sources(
    runs: Sequence[RunDirectory],
    target: Place,
    write: Write = write_here,
    say: Say = lambda _: None,
    others: bool = False,
) -> PipelineResult:
    """Compute every table of these runs and publish them in the store at ``target``. ``say`` gets the next step.

    A run that the store already has is replaced; other runs of the store stay as they are. A damaged, empty or newer
    run is left out, unless no other is left.

    :param others: the store has other runs that were asked for, so it is no error if none of these can be used
    :raises RunDirectoryError: the only run is damaged or newer
    :raises RunChoiceError: two directories hold the same run
    :raises EmptyRunError: no run has a usable interval
    :raises StoreError: the store cannot be written or is of another version
    :raises SparkError: a job failed
    """
    began = time.monotonic()
    store = Store.open(target)
    left_out: list[tuple[LeftOut, HelpfulError]] = []
    with store.publication() as publication:
        for told in write(runs, tasks.PartTarget(store.location, publication.id)):
            left_out += _taken(publication, told)
        if not publication.runs and not others:
            raise left_out[0][1]
        say("writing tables")
        done = publication.land()
    return PipelineResult(
        store=store.location.where,
        version=done.version,
        runs=done.runs,
        left_out=tuple(each for each, _ in left_out),
        rows=done.rows,
        seconds=time.monotonic() - began,
    )


def _taken(publication: Publication, told: tasks.TaskResult) -> list[tuple[LeftOut, HelpfulError]]:
    """Hand what a task tells to the publication; the runs without tables, each with its error."""
    publication.take_files(told.files)
    if told.unwritable is not None:
        raise publication.location.unwritable(OSError(told.unwritable))
    for run_ in told.runs:
        publication.take(run_["run_id"], run_["source"], run_["rows"])
    for each, error in told.errors:
        # A run that cannot be reached now is read again the next time.
        if not isinstance(error, PlaceError):
            publication.leave_out(each)
    return told.errors
