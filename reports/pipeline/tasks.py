"""The work of Spark's Python workers: files of runs in, their tables out, as one row for each table of some runs.

No PySpark is imported here, which would cost each worker seconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc as ipc

from perftest.errors import HelpfulError
from perftest.results.errors import DamagedRunError, NewerRunError, NotARunError
from reports.compute.run import run_tables
from reports.compute.run_files import RunFiles
from reports.errors import EmptyRunError
from reports.store.columns import Batches, Row
from reports.store.run_tables import LeftOut, RunTables


class Listed(NamedTuple):
    """The driver's facts about a run directory."""

    source: str
    signature: str
    empty: tuple[str, ...] = ()
    """The files without an octet, which Spark does not read."""


CONTENTS: Final = pa.schema([("path", pa.string()), ("content", pa.binary())])
"""A file of a run."""

RESULT: Final = pa.schema(
    [("runs", pa.string()), ("table", pa.string()), ("content", pa.binary()), ("problem", pa.string())]
)
"""The rows of some runs in one table, as an Arrow stream, with ``runs``: a JSON list of what :func:`_told` says of each
run. Or a run without tables, with the problem as JSON."""

LOT_RUNS: Final = 16
"""Most runs whose rows travel together: a table of its own costs a run of seconds more than the rows in it."""
LOT_ROWS: Final = 4096
"""Number of rows from which on nothing is added to a lot."""

PROBLEMS: Final[dict[str, type[HelpfulError]]] = {
    kind.__name__: kind for kind in (DamagedRunError, NewerRunError, NotARunError, EmptyRunError)
}
"""Why a run has no tables."""


# --- workers ---------------------------------------------------------------------------------------------------------


def compute_runs(batches: Batches, runs: Mapping[str, Listed]) -> Batches:
    """The tables of whole runs.

    :param batches: files (CONTENTS), each run's one after the other
    :param runs: the run directories by :func:`directory_of` their files
    """
    lot = Lot()
    for directory, contents in _by_run(batches):
        known = runs[directory]
        run = RunFiles(source=known.source, contents=contents | dict.fromkeys(known.empty, b""))
        problem = lot.take(known, lambda run=run: run_tables(run))  # type: ignore[misc]
        if problem is not None:
            yield problem
        if lot.is_full:
            yield lot.result()
            lot = Lot()
    if lot.runs:
        yield lot.result()


def _by_run(batches: Batches) -> Iterator[tuple[str, dict[str, bytes]]]:
    at: str | None = None
    contents: dict[str, bytes] = {}
    for batch in batches:
        for path, content in zip(batch.column("path").to_pylist(), batch.column("content"), strict=True):
            directory, _, name = path.rpartition("/")
            if at is not None and directory != at:
                yield directory_of(at), contents
                contents = {}
            at = directory
            contents[name] = content.as_py()
    if at is not None:
        yield directory_of(at), contents


def directory_of(path: str) -> str:
    """One form of the path of a directory: Spark writes ``file:/runs/a``, people ``/runs/a`` or ``file:///runs/a``."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith(("file:", "/")) else path


class Lot:
    """Computed runs whose rows travel together."""

    def __init__(self) -> None:
        self.runs: list[Row] = []
        self._tables: dict[str, list[pa.Table]] = {}
        self._rows = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing should be added."""
        return len(self.runs) >= LOT_RUNS or self._rows >= LOT_ROWS

    def take(self, known: Listed, compute: Callable[[], Mapping[str, pa.Table]]) -> pa.RecordBatch | None:
        """Compute the tables of a run and add them; the row of RESULT of a run without tables. One run that cannot be
        used stops no other run."""
        try:
            tables = compute()
            told = _told(known, tables)
        except HelpfulError as error:
            return problem_of(known, error)
        except (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"its files hold what no version writes: {type(error).__name__}: {error}"
            fix = "copy the directory again from the host that made the run"
            return problem_of(known, DamagedRunError(what, known.source, fix))
        self.runs.append(told)
        for name, table in tables.items():
            self._tables.setdefault(name, []).append(table)
            self._rows += len(table)
        return None

    def result(self) -> pa.RecordBatch:
        """The rows of RESULT. A table without rows has none."""
        runs = json.dumps(self.runs)
        wholes = {name: pa.concat_tables(tables) for name, tables in self._tables.items()}
        rows = [
            {"runs": runs, "table": name, "content": octets_of(whole.combine_chunks())}
            for name, whole in wholes.items()
            if len(whole)
        ]
        return pa.RecordBatch.from_pylist(rows, RESULT)


def result_of(known: Listed, compute: Callable[[], Mapping[str, pa.Table]]) -> pa.RecordBatch:
    """The rows of RESULT of one run: its tables, or its problem."""
    lot = Lot()
    problem = lot.take(known, compute)
    return lot.result() if problem is None else problem


def problem_of(known: Listed, error: HelpfulError) -> pa.RecordBatch:
    """The row of RESULT of one run without tables."""
    kind = next((name for name, each in PROBLEMS.items() if type(error) is each), NotARunError.__name__)
    problem = json.dumps({"kind": kind, "what": error.what, "where": error.where, "fix": error.fix})
    return pa.RecordBatch.from_pylist([{"runs": json.dumps([known._asdict()]), "problem": problem}], RESULT)


def _told(known: Listed, tables: Mapping[str, pa.Table]) -> Row:
    """The store's facts about a run, and the number of rows of each of its tables."""
    (run,) = tables["runs"].select(["run_id", "started_ns", "name"]).to_pylist()
    of_run = {"run_id": run["run_id"], "started_ns": run["started_ns"], "experiment": run["name"]}
    of_run |= {"source": known.source, "signature": known.signature}
    return of_run | {"rows": {name: len(table) for name, table in tables.items() if len(table)}}


def octets_of(table: pa.Table) -> bytes:
    """The table as a compressed Arrow stream."""
    octets = pa.BufferOutputStream()
    # As a whole: most tables have many columns and few rows, which hardly shrink column by column.
    with pa.CompressedOutputStream(octets, "zstd") as packed, ipc.new_stream(packed, table.schema) as stream:
        stream.write_table(table)
    return octets.getvalue().to_pybytes()  # type: ignore[no-any-return]


def table_of(octets: bytes) -> pa.Table:
    """The table of a compressed Arrow stream."""
    with pa.CompressedInputStream(pa.BufferReader(octets), "zstd") as packed, ipc.open_stream(packed) as stream:
        return stream.read_all()


# --- driver ----------------------------------------------------------------------------------------------------------


def results(rows: Iterable[Row]) -> Iterator[RunTables | tuple[LeftOut, HelpfulError]]:
    """The runs of rows of RESULT, each lot's one after the other; for a run without tables, also the error."""
    for runs, of_lot in groupby(rows, itemgetter("runs")):
        lot = list(of_lot)
        told = json.loads(runs)
        if lot[0]["problem"] is not None:
            yield _left_out(told[0], json.loads(lot[0]["problem"]))
            continue
        yield from _runs_of(told, {row["table"]: table_of(row["content"]) for row in lot})


def _runs_of(told: Sequence[Row], wholes: Mapping[str, pa.Table]) -> Iterator[RunTables]:
    """The runs of a lot, each with its rows of each table."""
    begins = Counter[str]()
    for run in told:
        sizes = run.pop("rows")
        tables = {name: wholes[name].slice(begins[name], size) for name, size in sizes.items()}
        begins.update(sizes)
        yield RunTables(**run, tables=tables)


def _left_out(told: Row, problem: Row) -> tuple[LeftOut, HelpfulError]:
    error = PROBLEMS[problem["kind"]](problem["what"], problem["where"], problem["fix"])
    return LeftOut(source=told["source"], signature=told["signature"], reason=error.what), error
