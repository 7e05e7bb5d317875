"""Small runs for tests of the store: two tables of a run are enough to see which publication a reader has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from reports.store import schema
from reports.store.columns import TableSpec, Type
from reports.store.locations import Place
from reports.store.publication import Published
from reports.store.run_tables import LeftOut, RunTables
from reports.store.store import Store, arrow_table

DAY_NS = 24 * 3600 * 10**9
BEGAN_NS = 1_790_000_000 * 10**9
"""Of all runs; 2026-09-21, UTC."""


def rows_of(table: TableSpec, run_id: str, value: int, count: int = 1) -> pa.Table:
    row = {c.name: {Type.INT: value, Type.FLOAT: value, Type.BOOL: True}.get(c.type, "x") for c in table.columns}
    of_run = {"run_id": run_id} | ({"path": f"runs/{run_id}"} if table.name == "runs" else {})
    return pa.Table.from_pylist([row | of_run] * count, table.arrow)


def small_run(run_id: str, lost: int, *, day: int = 0, tables: Sequence[TableSpec] = (schema.LEDGER,)) -> RunTables:
    """A run with one row in ``runs`` and in each of these tables, whose whole numbers are all ``lost``."""
    return RunTables(
        run_id=run_id,
        source=f"runs/{run_id}",
        signature=f"{run_id}-{lost}",
        started_ns=BEGAN_NS + day * DAY_NS,
        tables={table.name: rows_of(table, run_id, lost) for table in (schema.RUNS, *tables)},
    )


def publish(place: Place, *runs: RunTables | LeftOut) -> Published:
    with Store.open(place).publication() as publication:
        for run in runs:
            publication.add(run)
        return publication.land()


def lost(place: Place, runs: Sequence[str] | None = None) -> Mapping[str, int]:
    """What a reader sees: the whole number of each run."""
    rows = arrow_table(place, "ledger", runs, ["run_id", "lost"]).to_pylist()
    found = {row["run_id"]: row["lost"] for row in rows}
    assert len(found) == len(rows), "a row twice"
    return found
