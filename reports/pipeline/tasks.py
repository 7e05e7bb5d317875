"""The work of Spark's Python workers: runs in, Parquet files of their tables out, and a few words for the driver.

No PySpark is imported here, which would cost each worker seconds, and nothing of delta-rs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from perftest.errors import HelpfulError
from perftest.results.errors import DamagedRunError, NewerRunError, NotARunError
from reports.compute.run import run_tables
from reports.compute.run_files import RunFiles
from reports.errors import EmptyRunError, PlaceError
from reports.pipeline.source import RunDirectory
from reports.store.columns import Batches, Row
from reports.store.locations import StoreLocation
from reports.store.part_files import PartFile, PartFiles
from reports.store.places import advice, cause_of, place_of
from reports.store.run_tables import LeftOut, RunTables


class Listed(NamedTuple):
    """The driver's facts about a run directory: its files are those that the reports read."""

    source: str
    signature: str
    files: tuple[str, ...] = ()
    octets: int = 0


def listed(run: RunDirectory) -> Listed:
    """The facts about a run directory that a task needs."""
    return Listed(run.source, run.signature, tuple(run.sizes), run.octets)


class PartTarget(NamedTuple):
    """Where the files of a publication lie."""

    location: StoreLocation
    publication: str


RESULT: Final = pa.schema([("told", pa.string())])
"""What a task tells the driver: a :class:`TaskResult` as JSON."""

_PROBLEMS: Final[dict[str, type[HelpfulError]]] = {
    kind.__name__: kind for kind in (DamagedRunError, NewerRunError, NotARunError, EmptyRunError, PlaceError)
}
"""Why a run has no tables."""


class TaskResult(NamedTuple):
    """What a task tells: runs whose rows are in its files, runs without tables, its files, and why it stopped early."""

    runs: list[Row]
    """Each with ``run_id``, ``source``, and ``rows``: the number of rows in each table that has any."""
    left_out: list[Row]
    """Each with ``source``, ``signature``, and the error: ``kind``, ``what``, ``where``, ``fix``."""
    files: list[PartFile]
    unwritable: str | None = None
    """The cause, if the store could not be written."""

    @classmethod
    def of(cls, row: Row) -> TaskResult:
        """The words in a row of RESULT."""
        told = json.loads(row["told"])
        told["files"] = [PartFile._make([*each[:5], tuple(each[5]), each[6]]) for each in told["files"]]
        return cls(**told)

    @property
    def errors(self) -> list[tuple[LeftOut, HelpfulError]]:
        """The runs without tables, each with its error."""
        found = []
        for each in self.left_out:
            error = _PROBLEMS[each["kind"]](each["what"], each["where"], each["fix"])
            found.append((LeftOut(source=each["source"], signature=each["signature"], reason=each["what"]), error))
        return found


def write_runs(runs: Iterable[Listed], target: PartTarget) -> Batches:
    """Compute and write the tables of whole runs; one row of RESULT."""
    task = RunsTask(target)
    for known in runs:
        task.take(known, lambda known=known: run_tables(_files_of(known)))  # type: ignore[misc]
    yield task.result()


def _files_of(known: Listed) -> RunFiles:
    contents = {}
    folder = place_of(known.source)
    for name in known.files:
        try:
            with folder.open(name) as file:
                contents[name] = file.read()
        except OSError as error:
            what = f"its files cannot be read: {cause_of(error)}"
            raise PlaceError(what, f"{known.source}/{name}", advice(known.source, error)) from error
    return RunFiles(source=known.source, contents=contents)


class RunsTask:
    """Computes runs one after the other, and writes their tables. One run that cannot be used stops no other run; a
    store that cannot be written stops the task."""

    def __init__(self, target: PartTarget) -> None:
        self._files = PartFiles(target.location, target.publication)
        self._told = TaskResult([], [], [])

    def take(self, known: Listed, compute: Callable[[], Mapping[str, pa.Table]]) -> None:
        """Compute the tables of a run and write them."""
        if self._told.unwritable is not None:
            return
        try:
            run = _run(known, compute())
        except HelpfulError as error:
            self.leave_out(known, error)
            return
        except (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"its files hold what no version writes: {type(error).__name__}: {error}"
            fix = "copy the directory again from the host that made the run"
            self.leave_out(known, DamagedRunError(what, known.source, fix))
            return
        try:
            rows = self._files.add(run)
        except OSError as error:
            self._stop(error)
            return
        self._told.runs.append({"run_id": run.run_id, "source": run.source, "rows": rows})

    def leave_out(self, known: Listed, error: HelpfulError) -> None:
        """Tell of a run without tables."""
        kind = next((name for name, each in _PROBLEMS.items() if type(error) is each), NotARunError.__name__)
        problem = {"kind": kind, "what": error.what, "where": error.where, "fix": error.fix}
        self._told.left_out.append({"source": known.source, "signature": known.signature, **problem})

    def _stop(self, error: OSError) -> None:
        self._files.discard()
        self._told = TaskResult([], [], [], cause_of(error))

    def result(self) -> pa.RecordBatch:
        """The row of RESULT."""
        try:
            files = self._files.finish() if self._told.unwritable is None else []
            told = self._told._replace(files=files)
        except OSError as error:
            self._stop(error)
            told = self._told
        return pa.RecordBatch.from_pylist([{"told": json.dumps(told._asdict())}], RESULT)


def _run(known: Listed, tables: Mapping[str, pa.Table]) -> RunTables:
    (run,) = tables["runs"].select(["run_id", "started_ns"]).to_pylist()
    return RunTables(source=known.source, signature=known.signature, tables=tables, **run)
