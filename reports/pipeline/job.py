"""One call of the pipeline: which runs, into which store, with which Spark; and the order of its steps.

Runs are listed and the store is read before Spark is started: a wrong place is told at once, and runs that the store
has are not read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from reports.errors import RunChoiceError, StoreError
from reports.pipeline import source
from reports.pipeline.masters import LOCAL
from reports.pipeline.run import PipelineResult, Say, Write, run_sources, write_here
from reports.pipeline.source import RunDirectory
from reports.store.store import Store, damaged_runs
from reports.store.transactions import probe

HERE_BYTES: Final = 32 * 1024**2
"""Octets of runs that this process reads sooner than a Spark has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The request. ``places`` are paths and URIs of runs, or of directories that hold runs."""

    places: Sequence[str]
    store: str | None = None
    """The store that a person chose; None: the store in the folder that holds the runs."""
    beside: str | None = None
    """A store on this machine for the page, in place of a store beside the runs that cannot be used."""
    master: str
    conf: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A store, and the runs that it lacks. ``note``: why another store was not used."""

    store: Store
    unread: Sequence[RunDirectory]
    note: str = ""

    @property
    def where(self) -> str:
        return self.store.location.where


class SparkNeeded(Exception):  # noqa: N818 - no error, but an answer
    """The runs are too much for this process, or a Spark was named."""


def run(job: Job, say: Say, *, may_start_spark: bool = True) -> dict[str, object]:
    """Bring the runs into a store, and tell about it: ``pages`` is the store that a page can read, ``runs`` are the
    runs asked for, by their ids, and ``damaged`` says what is damaged of them, by their directories. ``start_s`` is the
    time until the first run was read, ``run_s`` the time of reading and publishing.

    :raises PipelineError: as :func:`reports.pipeline.run.run_sources`
    :raises RunDirectoryError: as :func:`reports.pipeline.source.find_runs`
    :raises SparkNeeded: nothing was read, because this call may not start a Spark
    """
    began = time.monotonic()
    listed = source.find_runs(job.places)
    target = _target(job, listed)
    known = _known(target, listed)
    told: dict[str, object] = {"store": target.where, "listed": len(listed), "read": len(target.unread)}
    left_out = _left_out(target, listed)
    told |= {"note": target.note, "runs": known, "left_out": left_out, "rows": {}, "run_s": 0.0, "start_s": 0.0}
    if target.unread:
        if not may_start_spark and not _is_small(job, target.unread):
            raise SparkNeeded
        published = _read(job, target, known, say)
        told |= {
            "publication": published.version,
            "runs": [*known, *published.runs],
            "left_out": left_out | {each.source: each.reason for each in published.left_out},
            "rows": dict(published.rows),
            "run_s": round(published.seconds, 3),
            "start_s": round(time.monotonic() - began - published.seconds, 3),
        }
    told["damaged"] = damaged_runs(target.store.location, told["runs"])  # type: ignore[arg-type]
    told["pages"] = target.where
    return told


def _target(job: Job, runs: Sequence[RunDirectory]) -> _Target:
    """The store that takes the runs.

    :raises StoreError: it cannot be used, and there is none in its place
    """
    if job.store is not None:
        return _usable(Store.open(job.store), runs)
    first = source.store_beside(runs)
    note = ""
    if first is not None:
        try:
            return _usable(Store.open(first), runs)
        except StoreError as error:
            if job.beside is None:
                raise
            note = f"the tables lie beside the page, and not in {first}: {error.what}"
    if job.beside is None:
        raise StoreError("no store was named", ", ".join(job.places), "name one: --store PLACE")
    return replace(_usable(Store.open(job.beside), runs), note=note)


def _usable(store: Store, runs: Sequence[RunDirectory]) -> _Target:
    target = _Target(store=store, unread=source.unread(runs, store.known()))
    if not target.unread and not _known(target, runs):
        # Unusable runs are not read again unchanged, unless there is no other: then the user asks why.
        target = replace(target, unread=runs)
    if target.unread:
        probe(store.location)  # An unwritable store is told before anything is computed.
    return target


def _known(target: _Target, runs: Sequence[RunDirectory]) -> list[str]:
    """The ids of the runs that the store has as they are now."""
    listed = _not_read(target, runs)
    return [run.run_id for run in target.store.runs.values() if listed.get(run.source) == run.signature]


def _left_out(target: _Target, runs: Sequence[RunDirectory]) -> dict[str, str]:
    """Why the store has nothing of some of the runs, which are not read again; by their sources."""
    listed = _not_read(target, runs)
    return {each.source: each.reason for each in target.store.left_out.values() if each.source in listed}


def _not_read(target: _Target, runs: Sequence[RunDirectory]) -> dict[str, str]:
    """The signatures of the runs that the store does not lack, by their sources."""
    unread = {each.source for each in target.unread}
    return {each.source: each.signature for each in runs if each.source not in unread}


def _read(job: Job, target: _Target, known: Sequence[str], say: Say) -> PipelineResult:
    many = f"reading {len(target.unread)} run{'s' if len(target.unread) > 1 else ''}"
    with ExitStack() as stack:
        write = write_here if _is_small(job, target.unread) else stack.enter_context(_spark(job, target, say))
        say(many)
        published = run_sources(target.unread, target.store.location, write, say, others=bool(known))
    if twice := set(known) & set(published.runs):
        what = f"two directories hold the run {min(twice)}"
        raise RunChoiceError(what, target.where, "give one of them; the store has the one that was read last")
    return published


def _is_small(job: Job, runs: Sequence[RunDirectory]) -> bool:
    """Whether this process reads the runs before a Spark has started. Whoever names a Spark gets it."""
    return job.master == LOCAL and not job.conf and sum(each.octets for each in runs) <= HERE_BYTES


@contextmanager
def _spark(job: Job, target: _Target, say: Say) -> Iterator[Write]:
    """Tasks on a Spark, which is started now and stopped afterwards."""
    say("starting Java")
    from reports.pipeline.executors import environment
    from reports.pipeline.session import parse_conf, spark_session
    from reports.pipeline.spark_jobs import by_spark

    settings = environment([*job.places, job.store or ""], os.environ) | parse_conf(job.conf)
    octets = sum(each.octets for each in target.unread)
    with spark_session(job.master, settings, octets) as session:
        yield by_spark(session)
