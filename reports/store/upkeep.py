"""Upkeep of a store: small files are brought together, rows that no run names are removed, and files that no version of
a table needs any more. Readers and writers go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow.compute as compute
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from reports.store.locations import StoreLocation
from reports.store.part_files import FILE_BYTES, GROUP_ROWS
from reports.store.schema import INTERVALS, RUNS, TABLES
from reports.store.stored import DATE, PUBLICATION, STORED
from reports.store.transactions import KEPT_DAYS, delete_rows, files_of, find_table, rows_of, told, unwritable

SMALL_BYTES: Final = FILE_BYTES // 4
"""Octets below which a file counts as small."""
SMALL_FILES: Final = 64
"""Small files of one table and date that are left as they are."""
UNLANDED_S: Final = 24 * 3600
"""Age from which on a publication that no run names is taken for one whose writer died, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The files of all tables before and after, and the files that were removed from the place."""

    before: int
    after: int
    vacuumed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEvent:
    """A transaction of ``runs``: its version, when (Unix time, ns), by whom, what, and how many runs were added."""

    version: int
    t_ns: int
    who: str
    what: str
    runs: int | None


def has_many_small_files(location: StoreLocation) -> bool:
    """Whether a date of the store has more than SMALL_FILES small files in a table that every run adds to.

    :raises StoreError: the store cannot be read
    """
    small: dict[str, int] = {}
    table = find_table(location, INTERVALS.name)
    for file in files_of(table) if table is not None else ():
        date = file[f"partition.{DATE.name}"]
        small[date] = small.get(date, 0) + (file["size_bytes"] < SMALL_BYTES)
    return max(small.values(), default=0) > SMALL_FILES


def compact(location: StoreLocation, kept_days: float = KEPT_DAYS) -> Compacted:
    """Bring the small files of all tables together, and remove what no reader can need.

    :param kept_days: days for which files stay that the newest version of their table does not need
    :raises StoreError: the store cannot be read or written
    """
    before = after = vacuumed = 0
    _remove_unlanded(location)
    for name in STORED:
        table = find_table(location, name)
        if table is None:
            continue
        before += len(files_of(table))
        vacuumed += _compact_table(location, table, kept_days)
        after += len(files_of(table))
    return Compacted(before=before, after=after, vacuumed=vacuumed)


def _compact_table(location: StoreLocation, table: DeltaTable, kept_days: float) -> int:
    """Compact one table; the number of files that were removed from the place."""
    as_written = WriterProperties(compression="ZSTD", max_row_group_size=GROUP_ROWS)
    try:
        table.optimize.compact(target_size=FILE_BYTES, writer_properties=as_written, commit_properties=told({}))
    except CommitFailedError:
        table.update_incremental()  # Another writer was faster: the next upkeep does it.
    except (DeltaError, OSError) as error:
        raise unwritable(location, error) from error
    hours = round(kept_days * 24)
    try:
        gone = table.vacuum(
            hours, dry_run=False, enforce_retention_duration=False, full=True, commit_properties=told({})
        )
    except (DeltaError, OSError) as error:
        raise unwritable(location, error) from error
    table.update_incremental()
    return len(gone)


def _remove_unlanded(location: StoreLocation) -> None:
    """Remove the rows of publications that no run names and whose writers must have died."""
    runs = find_table(location, RUNS.name)
    if runs is None:
        return
    live = set(_publications(location, runs))
    limit = (datetime.now(UTC) - timedelta(seconds=UNLANDED_S)).strftime("%Y%m%dT%H%M%S")
    for spec in TABLES:
        table = find_table(location, spec.name)
        if table is None or spec.name == RUNS.name:
            continue
        dead = [each for each in _publications(location, table) if each not in live and each < limit]
        if dead:
            delete_rows(location, spec.name, compute.field(PUBLICATION.name).isin(dead))


def _publications(location: StoreLocation, table: DeltaTable) -> list[str]:
    try:
        rows = rows_of(location, table, None, [PUBLICATION.name])
    except OSError as error:
        raise location.unreadable(error) from error
    found: list[str] = compute.unique(rows[PUBLICATION.name]).to_pylist()
    return found


def history(location: StoreLocation, limit: int | None = None) -> Iterator[StoreEvent]:
    """The transactions of ``runs``, the newest first.

    :raises StoreError: the store cannot be read
    """
    table = find_table(location, RUNS.name)
    if table is None:
        return
    for each in table.history(limit):
        added = each.get("perftest.runs")
        yield StoreEvent(
            version=int(each["version"]),
            t_ns=int(each["timestamp"]) * 10**6,
            who=str(each.get("userName", "")),
            what=_what(each),
            runs=None if added is None else int(added),
        )


def _what(commit: dict[str, Any]) -> str:
    known = {"CREATE TABLE": "created", "OPTIMIZE": "compacted", "DELETE": "removed rows"}
    operation = str(commit.get("operation", ""))
    if operation.startswith("VACUUM"):
        return "removed files" if operation == "VACUUM END" else "began to remove files"
    return "added runs" if operation == "WRITE" else known.get(operation, operation.lower())
