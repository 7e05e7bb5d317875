"""Transactions of the store's tables, by delta-rs: a commit is a file of a log that is put if its name is free.

Appends need nothing else. A change that depends on what a table holds (``runs``, ``left_out``) also carries the table's
*turn*, a number of delta-rs' application transactions: of two that read the same turn, one commits, and the other reads
again. Nothing is locked, and no process waits for another.
"""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow.compute import Expression
from pyarrow.dataset import Dataset

from reports.errors import StoreError
from reports.store.columns import ColumnSpec, TableSpec, Type
from reports.store.locations import StoreLocation
from reports.store.part_files import PartFile, write_rows
from reports.store.place_errors import plain_error
from reports.store.schema import RUN_ID, RUNS, STORE_VERSION
from reports.store.stored import DATE, STORED, partition_of
from reports.store.writable import check_writable

TURNS: Final = "perftest"
"""Name of the application whose transactions take turns."""
TRIES: Final = 100
"""Most attempts to commit. Each lost attempt means that another writer has committed."""
VERSION: Final = "perftest.version"
"""Property of each table: the version of its schema."""
KEPT_DAYS: Final = 30
"""Days for which the history of a table is kept, and the files that it needs."""
_KEPT: Final = "kept"
"""Begin of the name of a file with rows of several publications."""
REMAKE: Final = "remove the store, or choose another place, and make the report again"

_TYPES: Final = {Type.TEXT: "string", Type.INT: "long", Type.FLOAT: "double", Type.BOOL: "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """The files that a transaction adds, and the paths of those that it removes."""

    added: Sequence[PartFile] = ()
    removed: Sequence[str] = ()


def find_table(location: StoreLocation, name: str) -> DeltaTable | None:
    """The newest state of a table; None if there is none.

    :raises StoreError: the table cannot be read, or is of another version
    """
    try:
        table = DeltaTable(location.table(name), storage_options=location.options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise _unreadable(location, error) from error
    version = table.metadata().configuration.get(VERSION)
    if version != str(STORE_VERSION):
        raise _other_version(location, f"version {version}" if version else "no version")
    return table


def has_tables(location: StoreLocation) -> bool:
    """Whether there is a store. Raises StoreError, also of a store of an earlier version."""
    if find_table(location, RUNS.name) is not None:
        return True
    names = location.names()
    if "manifests" in names or "manifest.json" in names:
        raise _other_version(location, "version 6 or older")
    return False


def create_tables(location: StoreLocation) -> None:
    """Create the tables that are not there. Raises StoreError."""
    # The store is there when `runs` is.
    for spec in sorted(STORED.values(), key=lambda spec: spec.name == RUNS.name):
        try:
            _create(location, spec)
        except (DeltaError, OSError, ValueError) as error:
            if find_table(location, spec.name) is None:  # and no other writer was faster
                raise unwritable(location, error) from error


def _create(location: StoreLocation, spec: TableSpec) -> None:
    kept = f"interval {KEPT_DAYS} days"
    properties = {VERSION: str(STORE_VERSION), "delta.logRetentionDuration": kept}
    properties["delta.deletedFileRetentionDuration"] = kept
    if RUN_ID in spec.columns:
        properties["delta.dataSkippingStatsColumns"] = RUN_ID.name
    DeltaTable.create(
        location.table(spec.name),
        Schema([_field(column) for column in spec.columns]),
        mode="ignore",
        partition_by=partition_of(spec.name),
        name=spec.name,
        description=spec.grain,
        configuration=properties,
        storage_options=location.options,
        raise_if_key_not_exists=False,
        commit_properties=told({}),
    )


def _field(column: ColumnSpec) -> Field:
    about = {"comment": column.doc} | ({"unit": column.unit} if column.unit else {})
    return Field(column.name, PrimitiveType(_TYPES[column.type]), nullable=column.nullable, metadata=about)


def probe(location: StoreLocation) -> None:
    """Whether the store can be written; its tables are there afterwards.

    :raises StoreError: it cannot
    """
    check_writable(location)
    if not has_tables(location):
        create_tables(location)


def append(location: StoreLocation, name: str, files: Sequence[PartFile], about: Mapping[str, Any]) -> None:
    """Add files to a table.

    :raises StoreError: the table cannot be written
    """
    for _ in range(TRIES):
        try:
            _commit(_table(location, name), TableChange(added=files), about, [])
        except CommitFailedError:
            continue  # Another transaction removed rows meanwhile.
        except (DeltaError, OSError) as error:
            raise unwritable(location, error) from error
        return
    raise _overtaken(location)


def commit(
    location: StoreLocation, name: str, make: Callable[[DeltaTable], TableChange | None], about: Mapping[str, Any]
) -> int:
    """Commit a change of a table that follows from what the table holds; the version of the table after it.

    :param make: makes the change, again after each lost attempt; None: there is nothing to change
    :raises StoreError: the table cannot be written, or other writers were faster TRIES times
    """
    for _ in range(TRIES):
        table = _table(location, name)
        try:
            change = make(table)
            if change is None:
                return int(table.version())
            _take_turn(table, change, about)
        except CommitFailedError:
            continue  # Files of a lost attempt are left to vacuum.
        except (DeltaError, OSError) as error:
            raise unwritable(location, error) from error
        table.update_incremental()
        return int(table.version())
    raise _overtaken(location)


def _overtaken(location: StoreLocation) -> StoreError:
    what = f"other writers committed {TRIES} times while this one tried to"
    return StoreError(what, location.where, "let fewer writers publish at once, and try again")


def delete_rows(location: StoreLocation, name: str, condition: Expression) -> None:
    """Remove the rows of a table that meet a condition. Files that have such rows are written again without them.

    The delete of delta-rs writes texts as string views, which Arrow's conditions on strings cannot read.

    :raises StoreError: the table cannot be read or written
    """

    def without(table: DeltaTable) -> TableChange | None:
        added: list[PartFile] = []
        removed: list[str] = []
        for fragment in dataset_of(location, table).get_fragments():
            if fragment.count_rows(filter=condition):
                removed.append(fragment.path)
                kept = fragment.to_table(schema=STORED[name].arrow, filter=~condition)
                added += write_rows(location, name, kept, _KEPT)
        return TableChange(added=added, removed=removed) if removed else None

    commit(location, name, without, {})


def rows_of(location: StoreLocation, table: DeltaTable, condition: Any, columns: Sequence[str]) -> pa.Table:
    """Rows of a table, some columns of them. ``condition`` is an expression of Arrow, or None for all rows.

    :raises OSError: a file cannot be read; FileNotFoundError if it is gone
    """
    return dataset_of(location, table).to_table(columns=list(columns), filter=condition)


def dataset_of(location: StoreLocation, table: DeltaTable) -> Dataset:
    """A table as it is now, with nothing read of its files yet."""
    name = table.metadata().name
    return table.to_pyarrow_dataset(filesystem=location.system_of(name), schema=STORED[name].arrow)


def files_of(table: DeltaTable) -> list[dict[str, Any]]:
    """The files of a table: path, size_bytes, num_records, and the least and greatest run."""
    found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found


def told(about: Mapping[str, Any]) -> CommitProperties:
    """The properties of a commit that tell its history: who, where, and what besides."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return CommitProperties(custom_metadata={"userName": f"{user}@{socket.gethostname()}", **about})


def unwritable(location: StoreLocation, error: Exception) -> StoreError:
    """The error for people when a commit fails."""
    return location.unwritable(plain_error(error, is_local=location.is_local))


def _unreadable(location: StoreLocation, error: Exception) -> StoreError:
    if isinstance(error, ValueError) or "Invalid JSON" in str(error):
        return StoreError(f"the store is damaged: {str(error).splitlines()[0]}", location.where, REMAKE)
    return location.unreadable(plain_error(error, is_local=location.is_local))


def _table(location: StoreLocation, name: str) -> DeltaTable:
    table = find_table(location, name)
    if table is None:
        what = f"the table {name} is not there, although others of the store are"
        raise StoreError(what, f"{location.where}/{name}", REMAKE)
    return table


def _take_turn(table: DeltaTable, change: TableChange, about: Mapping[str, Any]) -> None:
    turn = (table.transaction_version(TURNS) or 0) + 1
    _commit(table, change, about, [Transaction(TURNS, turn, time.time_ns() // 10**6)])


def _commit(table: DeltaTable, change: TableChange, about: Mapping[str, Any], turns: list[Transaction]) -> None:
    properties = told(about)
    properties.app_transactions = turns
    properties.max_commit_retries = 0 if turns else TRIES
    now_ms = time.time_ns() // 10**6
    actions: list[AddAction | RemoveAction] = [
        *(_added(file) for file in change.added),
        *(RemoveAction(path, data_change=True, deletion_timestamp=now_ms) for path in change.removed),
    ]
    partition = partition_of(table.metadata().name)
    table.create_write_transaction(actions, "append", table.schema(), partition, commit_properties=properties)


def _added(file: PartFile) -> AddAction:
    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.runs != ("", ""):
        least, greatest = file.runs
        stats |= {"minValues": {"run_id": least}, "maxValues": {"run_id": greatest}, "nullCount": {"run_id": 0}}
    return AddAction(
        path=file.path,
        size=file.octets,
        partition_values={DATE.name: file.date} if file.date else {},
        modification_time=file.modified_ms,
        data_change=True,
        stats=json.dumps(stats),
    )


def _other_version(location: StoreLocation, which: str) -> StoreError:
    return StoreError(
        f"the store is of {which}, which is not known here",
        location.where,
        f"this tool knows version {STORE_VERSION}: {REMAKE}; a newer store needs a newer perftest",
    )
