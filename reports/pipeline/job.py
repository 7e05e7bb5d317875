"""One call of the pipeline: which runs, into which store, with which Spark; and the order of its steps.

As far as possible, runs are listed and the store is read before Spark is started: a wrong place is told at once, and
runs that the store has are not read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.compute as compute

from reports.errors import RunChoiceError, StoreError
from reports.pipeline import source
from reports.pipeline.places import PipelineFolders, check_readable, hadoop_settings
from reports.pipeline.source import RunDirectory
from reports.store.places import needs_jvm
from reports.store.run_tables import RunTables
from reports.store.schema import TABLES
from reports.store.store import Store, arrow_table, damaged_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reports.pipeline.run import PipelineResult

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The request. ``places`` are paths and URIs of runs, or of directories that hold runs."""

    places: Sequence[str]
    store: str | None = None
    """The store that a person chose; None: the store in the folder that holds the runs."""
    beside: str | None = None
    """A store on this machine for the page, in place of a store that cannot be used or that no page can read."""
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
        return self.store.folder.where


def run(job: Job, say: Say) -> dict[str, object]:
    """Bring the runs into a store, and tell about it: ``pages`` is the store that a page can read, ``runs`` are the
    runs asked for, by their ids, and ``damaged`` says what is damaged of them, by their directories.

    :raises PipelineError: as :func:`reports.pipeline.run.run`
    :raises RunDirectoryError: as :func:`reports.pipeline.source.find_runs`
    """
    began = time.monotonic()
    with ExitStack() as stack:
        session = _SparkOnDemand(job, stack, say)
        places = PipelineFolders(session.get)
        listed = source.find_runs(job.places, places.folder, places.run_files)
        target = _target(job, listed, places)
        known = _known(target, listed)
        told: dict[str, object] = {"store": target.where, "listed": len(listed), "read": len(target.unread)}
        left_out = _left_out(target, listed)
        told |= {"note": target.note, "runs": known, "left_out": left_out, "rows": {}, "run_s": 0.0, "train": False}
        if target.unread:
            published = _read(target, session.get(source.input_bytes(target.unread)), known, say)
            told |= {
                "publication": published.number,
                "runs": [*known, *published.runs],
                "left_out": left_out | {each.source: each.reason for each in published.left_out},
                "rows": dict(published.rows),
                "run_s": round(published.seconds, 3),
                "train": session.lacks_archive,
            }
        told["damaged"] = damaged_runs(target.store.folder, told["runs"])  # type: ignore[arg-type]
        told["start_s"] = round(max(session.started - began, 0.0), 3)
        told["pages"] = _for_pages(job, target, told["runs"])  # type: ignore[arg-type]
        return told


class _SparkOnDemand:
    """The session of Spark, which is started at its first use and stopped with the stack."""

    def __init__(self, job: Job, stack: ExitStack, say: Say) -> None:
        self._job = job
        self._stack = stack
        self._say = say
        self._session: SparkSession | None = None
        self.started = 0.0
        """When it was there, by the monotonic clock."""
        self.lacks_archive = False
        """Whether it would have started faster with a class-data archive that is not made yet."""

    def get(self, input_bytes: int | None = None) -> SparkSession:
        """The session. Without a size of the input it is a session for large input."""
        if self._session is None:
            self._say("starting Java")
            from reports.pipeline.session import SMALL_JOB_BYTES, class_data, parse_conf, spark_session

            job = self._job
            settings = hadoop_settings([*job.places, job.store or ""], os.environ) | parse_conf(job.conf)
            octets = SMALL_JOB_BYTES + 1 if input_bytes is None else input_bytes
            self._session = self._stack.enter_context(spark_session(job.master, settings, octets))
            self.started = time.monotonic()
            archive = class_data(job.master, settings, octets)
            self.lacks_archive = archive is not None and archive.wanted()
        return self._session


def _target(job: Job, runs: Sequence[RunDirectory], places: PipelineFolders) -> _Target:
    """The store that takes the runs.

    :raises StoreError: it cannot be used, and there is none in its place
    """
    if job.store is not None:
        return _usable(Store.open(places.folder(job.store)), runs)
    first = source.store_beside(runs)
    note = ""
    # Readers of a catalogue have no JVM: the folder of runs gets no store that only Spark can read.
    if first is not None and not needs_jvm(first):
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
        with store.writer():
            pass  # An unwritable store is told before anything is computed.
    return target


def _known(target: _Target, runs: Sequence[RunDirectory]) -> list[str]:
    """The ids of the runs that the store has as they are now."""
    listed = _not_read(target, runs)
    return [run.run_id for run in target.store.manifest.runs.values() if listed.get(run.source) == run.signature]


def _left_out(target: _Target, runs: Sequence[RunDirectory]) -> dict[str, str]:
    """Why the store has nothing of some of the runs, which are not read again; by their sources."""
    listed = _not_read(target, runs)
    return {each.source: each.reason for each in target.store.manifest.left_out.values() if each.source in listed}


def _not_read(target: _Target, runs: Sequence[RunDirectory]) -> dict[str, str]:
    """The signatures of the runs that the store does not lack, by their sources."""
    unread = {each.source for each in target.unread}
    return {each.source: each.signature for each in runs if each.source not in unread}


def _read(target: _Target, session: SparkSession, known: Sequence[str], say: Say) -> PipelineResult:
    from reports.pipeline.run import run_sources

    check_readable(session, target.unread)
    say(f"reading {len(target.unread)} run{'s' if len(target.unread) > 1 else ''}")
    published = run_sources(session, target.unread, target.store.folder, say=say, others=bool(known))
    if twice := set(known) & set(published.runs):
        what = f"two directories hold the run {min(twice)}"
        raise RunChoiceError(what, target.where, "give one of them; the store has the one that was read last")
    return published


def _for_pages(job: Job, target: _Target, runs: Sequence[str]) -> str:
    """The store that a page of these runs reads: the target, or a copy beside the page if that needs a JVM."""
    if job.beside is None or not needs_jvm(target.where):
        return target.where
    copy_runs(target.store, runs, job.beside)
    return job.beside


def copy_runs(store: Store, runs: Sequence[str], target: str) -> None:
    """Publish a store's rows of some runs in another store."""
    manifest = Store.open(store.folder).manifest
    tables = {table.name: arrow_table(store.folder, table.name, runs) for table in TABLES}
    with Store.open(target).writer() as writer:
        for stored in (manifest.runs[run_id] for run_id in runs):
            own = {name: rows.filter(compute.equal(rows["run_id"], stored.run_id)) for name, rows in tables.items()}
            writer.add(
                RunTables(
                    run_id=stored.run_id,
                    source=stored.source,
                    signature=stored.signature,
                    started_ns=stored.started_ns,
                    experiment=manifest.batches[stored.batch].experiment,
                    tables=own,
                )
            )
        writer.publish()
