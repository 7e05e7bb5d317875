"""A store's tables of one run, and its memory of a run that cannot be reported.

The computing side makes one :class:`RunTables` per run and hands it to a publication. The signature is its own:
the store gives the signature back (:meth:`reports.store.store.Store.known`), so that a run whose files have not changed
need not be computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTables:
    """All that the store keeps of one run.

    ``tables`` holds Arrow tables by the names of :data:`reports.store.schema.TABLES`, quarantine included, each with
    the columns of its schema; a table without rows may be missing. All rows are rows of ``run_id``.
    """

    run_id: str
    source: str
    """URI or path of the run directory."""
    signature: str
    """Of the files of the run directory: changes when one of the files changes."""
    started_ns: int
    """Unix time."""
    tables: Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A run directory that cannot be reported, and why."""

    source: str
    """URI or path of the run directory."""
    signature: str
    reason: str
