"""A store with a table of many rows, made at once: what asking for them costs does not depend on how they came."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from reports.store.part_files import PartFile, write_rows
from reports.store.schema import TIMELINE
from reports.store.store import Store
from reports.store.stored import DATE, PUBLICATION, STORED

SLOTS: Final = 500
"""Rows of ``timeline`` of each run."""
DAYS: Final = 30
_DAY_NS: Final = 86_400 * 10**9
_BEGIN_NS: Final = 1_793_491_200 * 10**9
"""2026-11-01."""
_AMOUNTS: Final = 1_000_000
"""Numbers are drawn below this, so that they do not compress to nothing."""


def make_store(folder: Path, runs: int) -> None:
    """A store of ``runs`` runs over a month, with SLOTS rows of ``timeline`` each."""
    draw = np.random.default_rng(1)
    store = Store.open(folder)
    with store.publication() as publication:
        for day, numbers in enumerate(np.array_split(np.arange(runs), DAYS)):
            names = [f"run-{number:06}" for number in numbers]
            for name in names:
                publication.take(name, f"runs/{name}", {TIMELINE.name: SLOTS})
            publication.take_files(_files(store, publication.id, names, day, draw))
        publication.land()


def _files(store: Store, publication: str, names: Sequence[str], day: int, draw: np.random.Generator) -> list[PartFile]:
    """The rows of a day's runs."""
    started_ns = _BEGIN_NS + day * _DAY_NS
    date = f"2026-11-{day + 1:02}"
    found = []
    for table, each in (("runs", 1), (TIMELINE.name, SLOTS)):
        rows = _rows(table, np.repeat(names, each), started_ns, date, publication, draw)
        found += write_rows(store.location, table, rows, publication)
    return found


def _rows(
    table: str, runs: np.ndarray, started_ns: int, date: str, publication: str, draw: np.random.Generator
) -> pa.Table:
    known = {DATE.name: date, PUBLICATION.name: publication, "started_ns": started_ns}
    columns = []
    for column in STORED[table].arrow:
        if column.name == "run_id":
            columns.append(pa.array(runs, column.type))
        elif column.name in known or not pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type):
            value = known.get(column.name, "x" if pa.types.is_string(column.type) else False)
            columns.append(pa.repeat(pa.scalar(value, column.type), len(runs)))
        else:
            columns.append(pa.array(draw.integers(0, _AMOUNTS, len(runs))).cast(column.type))
    return pa.table(columns, STORED[table].arrow)


if __name__ == "__main__":
    make_store(Path(sys.argv[1]), int(sys.argv[2]))
