"""The tables of runs as Spark writes them into a local directory, one below another, before a store takes them in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from reports.pipeline import source
from reports.store.columns import Table
from reports.store.run_tables import RunTables
from reports.store.schema import INTERVALS, TABLES


def write_rows(attempt: Path, table: Table, run_id: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows of one run that are known without Spark, as Spark would have written them."""
    if rows:
        content = pa.Table.from_pylist([dict(row) for row in rows], table.arrow).drop_columns(["run_id"])
        place = attempt / table.name / f"run_id={run_id}"
        place.mkdir(parents=True, exist_ok=True)
        parquet.write_table(content, place / "part-00000.parquet", compression="zstd")


def last_interval_ns(attempt: Path, run_id: str) -> int:
    """Unix time at which the last interval of a run in an attempt ended."""
    ends = [0]
    for file in _files(attempt, INTERVALS, run_id):
        part = file.read(columns=["start_ns", "length_ns"])
        ends.append(compute.max(compute.add(part["start_ns"], part["length_ns"])).as_py() or 0)
    return max(ends)


def attempt_rows(attempt: Path, table: Table, run_id: str) -> int:
    """Rows of one run in one table of an attempt, from the files' footers."""
    return sum(file.metadata.num_rows for file in _files(attempt, table, run_id))


def run_tables(attempt: Path, run: source.RunSource) -> RunTables:
    """All tables of one run, for a store."""
    tables = {table.name: _rows(attempt, table, run.run_id) for table in TABLES}
    plan = run.manifest.get("plan")
    return RunTables(
        run_id=run.run_id,
        source=str(run.path),
        signature=source.signature(run.path),
        started_ns=run.started_ns,
        experiment=str(plan.get("name", "")) if isinstance(plan, dict) else "",
        tables={name: rows for name, rows in tables.items() if rows is not None},
    )


def _rows(attempt: Path, table: Table, run_id: str) -> pa.Table | None:
    parts = [file.read() for file in _files(attempt, table, run_id)]
    if not parts:
        return None
    whole = pa.concat_tables(parts)
    return whole.add_column(0, table.arrow.field("run_id"), pa.array([run_id] * len(whole), pa.string()))


def _files(attempt: Path, table: Table, run_id: str) -> Iterator[parquet.ParquetFile]:
    place = attempt / table.name / f"run_id={run_id}"
    for path in sorted(place.glob("part-*")):
        with parquet.ParquetFile(path) as file:
            yield file
