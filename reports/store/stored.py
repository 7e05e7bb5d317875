"""The tables as they are stored: the columns of :mod:`reports.store.schema`, and a few by which a store is kept.

A row counts if the table ``runs`` names its publication for its run. So a run is visible when its row in ``runs`` is,
whatever other tables hold already, and a reader of another engine joins with ``runs`` over ``run_id`` and
``publication``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from reports.store.columns import TableSpec, integer, text
from reports.store.schema import RUN_ID, RUNS, TABLES

PUBLICATION: Final = text("publication", "id of the publication that wrote the row; a row counts if `runs` names it")
DATE: Final = text("date", "UTC date of the run's start; the partition")
SIGNATURE: Final = text("signature", "of the files of the run directory; another one when a file changes")
REPLACED: Final = text("replaced", "publications whose rows of this run no longer count, comma separated")

LEFT_OUT: Final = TableSpec(
    name="left_out",
    grain="one row per run directory that cannot be reported",
    order=("source",),
    columns=(text("source", "URI or path of the run directory"), SIGNATURE, text("reason", "why, in words")),
)

ANNOTATIONS: Final = TableSpec(
    name="annotations",
    grain="one row per change of a run's tags or note; the changes of a run in the order of t_ns give what holds",
    order=("run_id", "t_ns"),
    columns=(
        RUN_ID,
        integer("t_ns", "Unix time"),
        text("added", "JSON list of tags that were given"),
        text("removed", "JSON list of tags that were taken away"),
        text("note", "the new note; null: the note stays", True),
    ),
)


def _stored(table: TableSpec) -> TableSpec:
    own = (SIGNATURE, REPLACED) if table.name == RUNS.name else ()
    return replace(table, columns=(*table.columns, *own, PUBLICATION, DATE))


STORED: Final[dict[str, TableSpec]] = {
    **{table.name: _stored(table) for table in TABLES},
    LEFT_OUT.name: LEFT_OUT,
    ANNOTATIONS.name: ANNOTATIONS,
}
"""Every table of a store by its name, with all columns that it has there."""


def partition_of(table: str) -> list[str]:
    """The columns by which a table is partitioned."""
    return [DATE.name] if DATE in STORED[table].columns else []


def conformed(rows: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """Rows with exactly the columns of a schema, in its types; None is no row. A column that may be null may be
    missing.

    :raises ValueError: the rows lack a column, or have one of another type
    """
    if rows is None:
        return schema.empty_table()
    if rows.schema == schema:
        return rows
    present = set(rows.column_names)
    missing = [field.name for field in schema if field.name not in present and not field.nullable]
    if missing:
        raise ValueError(f"rows lack the columns {', '.join(missing)}")
    for field in schema:
        if field.name not in present:
            rows = rows.append_column(field.name, pa.nulls(len(rows), field.type))
    return rows.select(schema.names).cast(schema)


def part_of(table: str, columns: Sequence[str] | None) -> pa.Schema:
    """The Arrow schema of some columns of a table as readers get it, or of all columns of its specification."""
    names = columns if columns is not None else next(each.names for each in TABLES if each.name == table)
    return STORED[table].part(*names)


def date_of(started_ns: int) -> str:
    """The UTC date of a moment (Unix time)."""
    return datetime.fromtimestamp(started_ns // 10**9, UTC).strftime("%Y-%m-%d")
