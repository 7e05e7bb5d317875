"""The files of a batch: rows of many runs in one Parquet file per table, written and read.

All rows of a run lie together. A row group ends between two runs, at most a few runs after it has GROUP_ROWS rows or
GROUP_BYTES octets in memory. So the statistics of ``run_id`` say which groups a reader of one run needs, and a file of
thousands of small runs does not consist of thousands of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from perftest.results.folder import Folder
from reports.store.columns import TableSpec
from reports.store.manifest import StoredBatch
from reports.store.schema import TABLES

GROUP_ROWS: Final = 8192
GROUP_BYTES: Final = 1024 * 1024
GROUP_ROWS_MAX: Final = 256 * 1024
"""Most rows of a row group: a larger run has several groups."""

SCHEMAS: Final[dict[str, TableSpec]] = {table.name: table for table in TABLES}


def conformed(rows: pa.Table | None, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows with exactly the columns of their table, or with some of its columns, in the types of the schema; None is no
    row. A column that may be null may be missing.

    :raises ValueError: the rows lack a column, or have one of another type
    """
    wanted = SCHEMAS[table].arrow if columns is None else SCHEMAS[table].part(*columns)
    if rows is None:
        return wanted.empty_table()
    if rows.schema == wanted:
        return rows
    present = set(rows.column_names)
    for column in wanted:
        if column.nullable and column.name not in present:
            rows = rows.append_column(column.name, pa.nulls(len(rows), column.type))
    missing = [column.name for column in wanted if column.name not in present and not column.nullable]
    if missing:
        raise ValueError(f"rows of {table} lack the columns {', '.join(missing)}")
    return rows.select(wanted.names).cast(wanted)


def write_file(path: Path, table: str, runs: Iterable[pa.Table]) -> int:
    """Write the rows of runs, whole runs in each Arrow table, to a local file; its size in octets."""
    with parquet.ParquetWriter(path, SCHEMAS[table].arrow, compression="zstd", write_page_index=False) as writer:
        for group in _groups(runs):
            writer.write_table(group, row_group_size=GROUP_ROWS_MAX)
    return path.stat().st_size


def _groups(runs: Iterable[pa.Table]) -> Iterator[pa.Table]:
    group: list[pa.Table] = []
    rows = octets = 0
    for run in runs:
        group.append(run)
        rows, octets = rows + len(run), octets + run.nbytes
        if rows >= GROUP_ROWS or octets >= GROUP_BYTES:
            yield pa.concat_tables(group)
            group, rows, octets = [], 0, 0
    if rows:
        yield pa.concat_tables(group)


def batch_rows(
    folder: Folder, batch: StoredBatch, table: str, runs: Sequence[str], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of some runs of a batch in one table. Reads only the row groups that can have rows of these runs.

    :raises OSError: the file cannot be read; FileNotFoundError if it is gone
    """
    if table not in batch.octets:
        return conformed(None, table, columns)
    wanted = None if columns is None else list(dict.fromkeys(["run_id", *columns]))
    with folder.open(batch.file(table)) as octets, parquet.ParquetFile(octets) as file:
        present = None if wanted is None else [name for name in wanted if name in file.schema_arrow.names]
        if len(runs) == batch.runs:
            return conformed(file.read(columns=present), table, columns)
        rows = file.read_row_groups(groups_with(file.metadata, runs), columns=present)
    chosen = rows.filter(compute.is_in(rows["run_id"], pa.array(runs, pa.string())))
    return conformed(chosen, table, columns)


def groups_with(metadata: parquet.FileMetaData, runs: Sequence[str]) -> list[int]:
    """The row groups that can have rows of these runs, by the statistics of ``run_id``."""
    at = metadata.schema.names.index("run_id")
    found = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(at).statistics
        known = statistics is not None and statistics.has_min_max
        if not known or any(statistics.min <= run <= statistics.max for run in runs):
            found.append(number)
    return found
