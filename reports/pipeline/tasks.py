"""What Spark's Python workers do: files of runs in, the tables of each run out, as one row for each table.

No PySpark is imported here, which would cost each worker seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
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
    """What the driver knows of a run directory."""

    source: str
    signature: str


CONTENTS: Final = pa.schema([("path", pa.string()), ("content", pa.binary())])
"""A file of a run."""

RESULT: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("source", "signature", "run_id", "date", "experiment")),
        *(("started_ns", pa.int64()), ("table", pa.string()), ("rows", pa.int64())),
        *(("content", pa.binary()), ("problem", pa.string())),
    ]
)
"""A table of a run as an Arrow stream; or a run without tables, with the problem as JSON."""

PROBLEMS: Final[dict[str, type[HelpfulError]]] = {
    kind.__name__: kind for kind in (DamagedRunError, NewerRunError, NotARunError, EmptyRunError)
}
"""Why a run has no tables."""


# --- workers ---------------------------------------------------------------------------------------------------------


def compute_runs(batches: Batches, runs: Mapping[str, Listed]) -> Batches:
    """The tables of whole runs.

    :param batches: files (CONTENTS), those of a run one after the other
    :param runs: the run directories by :func:`directory_of` their files
    """
    for directory, contents in _by_run(batches):
        known = runs[directory]
        run = RunFiles(source=known.source, contents=contents)
        yield result_of(known, lambda run=run: run_tables(run))  # type: ignore[misc]


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


def result_of(known: Listed, compute: Callable[[], Mapping[str, pa.Table]]) -> pa.RecordBatch:
    """The rows of RESULT of one run: its tables, or its problem. One run that cannot be used stops no other run."""
    try:
        rows = [known._asdict() | row for row in _table_rows(compute())]
    except HelpfulError as error:
        return problem_of(known, error)
    except (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"its files hold what no version writes: {type(error).__name__}: {error}"
        fix = "copy the directory again from the host that made the run"
        return problem_of(known, DamagedRunError(what, known.source, fix))
    return pa.RecordBatch.from_pylist(rows, RESULT)


def problem_of(known: Listed, error: HelpfulError) -> pa.RecordBatch:
    """The row of RESULT of a run without tables."""
    kind = next((name for name, each in PROBLEMS.items() if type(error) is each), NotARunError.__name__)
    problem = json.dumps({"kind": kind, "what": error.what, "where": error.where, "fix": error.fix})
    return pa.RecordBatch.from_pylist([known._asdict() | {"problem": problem}], RESULT)


def _table_rows(tables: Mapping[str, pa.Table]) -> Iterator[Row]:
    (run,) = tables["runs"].select(["run_id", "started_ns", "name"]).to_pylist()
    of_run = {
        "run_id": run["run_id"],
        "started_ns": run["started_ns"],
        "experiment": run["name"],
        "date": f"{datetime.fromtimestamp(run['started_ns'] // 10**9, UTC):%Y-%m-%d}",
    }
    for name, table in tables.items():
        if not len(table):
            continue
        yield of_run | {"table": name, "rows": len(table), "content": octets_of(table)}


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
    """The runs of rows of RESULT, those of a run one after the other; of a run without tables, also the error."""
    tables: dict[str, pa.Table] = {}
    last: Row | None = None
    for row in rows:
        if last is not None and row["source"] != last["source"]:
            yield _run_of(last, tables)
            tables, last = {}, None
        if row["problem"] is not None:
            yield _left_out(row)
            continue
        last = row
        tables[row["table"]] = table_of(row["content"])
    if last is not None:
        yield _run_of(last, tables)


def _run_of(row: Row, tables: Mapping[str, pa.Table]) -> RunTables:
    return RunTables(
        run_id=row["run_id"],
        source=row["source"],
        signature=row["signature"],
        started_ns=row["started_ns"],
        experiment=row["experiment"],
        tables=tables,
    )


def _left_out(row: Row) -> tuple[LeftOut, HelpfulError]:
    problem = json.loads(row["problem"])
    error = PROBLEMS[problem["kind"]](problem["what"], problem["where"], problem["fix"])
    return LeftOut(source=row["source"], signature=row["signature"], reason=error.what), error
