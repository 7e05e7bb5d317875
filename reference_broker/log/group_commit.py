"""Group commit: one write and one sync for everything that waits.

Theory of operation
-------------------
The writer takes all waiting operations as one batch: one write, one sync, one list of notices. It works in a thread of
its own or, for small batches on a fast drive, in the event loop (:meth:`reference_broker.log.system.LogSystem.write`
decides). Operations that arrive meanwhile wait for the next batch. So a slow disk makes the batches larger, and an
operation does not wait for more syncs.

Order within one turn: the meta log first (a new group, a new term), then the WAL, then the operations that must come
after (snapshots, removal of groups). So an entry is never on disk before its group or its term is.

Back of the envelope, one entry: wake-up 5 us, batch 5 us, tables 2 us, notice 2 us of CPU beside the sync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reference_broker.log.extents import Place
from reference_broker.log.meta import MetaLog
from reference_broker.log.notices import GroupCreated, GroupDeleted, HardStateSynced, Notice, RolledOver, Written
from reference_broker.log.operations import (
    Append,
    CreateGroup,
    DeleteGroup,
    HousekeeperOp,
    PrepareFile,
    RemoveGroup,
    Reset,
    StoreChunk,
    StoreHardState,
    Sweep,
    TakeSnapshot,
    Truncate,
    WriterOp,
)
from reference_broker.log.state import Group, LogState
from reference_broker.log.wal import Wal
from reference_broker.log.wal_codec import RowKind, pack_row
from reference_broker.types import Entry, LogIndex

BATCH_BYTES: Final = 16 << 20
"""Payload at which a batch is closed, so that one sync never covers an unbounded queue."""
_ENTRY: Final = int(RowKind.ENTRY)


@dataclass(slots=True)
class _Batch:
    """``octets`` of payload are to be written. ``backlog`` octets were handed over, including the payloads of groups
    that were deleted since, which are not written."""

    rows: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    operations: list[Append | Truncate | Reset] = field(default_factory=list)
    octets: int = 0
    backlog: int = 0
    entries: int = 0


class Writer:
    """Handles :data:`~reference_broker.log.operations.WriterOp` lists, in the writer thread."""

    def __init__(self, state: LogState, wal: Wal, meta: MetaLog, housekeeping: Callable[[HousekeeperOp], None]) -> None:
        self._state = state
        self._wal = wal
        self._meta = meta
        self._housekeeping = housekeeping
        self._prepared_for = 0

    def handle(self, operations: list[WriterOp]) -> None:
        """Make a list of operations durable. Raises :class:`OSError` if the disk does not."""
        are_appends = True
        for operation in operations:
            are_appends = are_appends and type(operation) is Append
        if not are_appends:
            self._write_meta(operations)
        batch = _Batch()
        for operation in operations:
            match operation:
                case Append(group, entries, octets):
                    batch.backlog += octets
                    if not group.deleted:
                        batch.octets += octets
                        _add_entries(batch, group, entries)
                        batch.operations.append(operation)
                case Truncate(group, index):
                    _add_control(batch, operation, group, index, 0, RowKind.TRUNCATE)
                case Reset(group, index, term):
                    _add_control(batch, operation, group, index, term, RowKind.RESET)
                case _:
                    continue
            if batch.octets >= BATCH_BYTES:
                self._commit(batch)
                batch = _Batch()
        if batch.rows:
            self._commit(batch)
        elif batch.backlog:
            self._update_tables(batch, 0)
        if not are_appends:
            self._pass_on(operations)

    def _write_meta(self, operations: list[WriterOp]) -> None:
        notices: list[Notice] = []
        for operation in operations:
            match operation:
                case StoreHardState(group, term, voted_for, forgetful):
                    self._meta.hard_state(group.id, term, voted_for, forgetful=forgetful)
                    notices.append(HardStateSynced(group.id, term, voted_for, group.log_uid))
                case CreateGroup(group, meta):
                    self._meta.create_group(group.id, meta, self._wal.last_batch, group.log_uid)
                    notices.append(GroupCreated(group.id))
                case DeleteGroup(group):
                    self._meta.delete_group(group.id)
                    notices.append(GroupDeleted(group.id))
                case _:
                    pass
        if notices:
            self._meta.flush()
            with self._state.lock:
                self._state.leaving -= {
                    operation.group for operation in operations if isinstance(operation, DeleteGroup)
                }
            self._state.publish(notices)
            self._state.synced("meta", self._meta.sync_ns)

    def _pass_on(self, operations: list[WriterOp]) -> None:
        for operation in operations:
            match operation:
                case TakeSnapshot() | StoreChunk():
                    self._housekeeping(operation)
                case DeleteGroup(group):
                    self._housekeeping(RemoveGroup(group.id))
                case _:
                    pass

    def _commit(self, batch: _Batch) -> None:
        """Write and sync one batch, bring the tables up to the disk, and tell the owner."""
        wal = self._wal
        notices: list[Notice] = []
        if wal.roll_if_full(len(batch.rows), batch.octets):
            notices.append(RolledOver(wal.current.number))
            self._housekeeping(Sweep())
        offset = wal.append(batch.rows, batch.payloads, batch.octets)
        counters = self._state.counters
        counters.wal_entries += batch.entries
        wal.current.entries += batch.entries
        counters.wal_batch_entries_max = max(counters.wal_batch_entries_max, batch.entries)
        notices += self._update_tables(batch, offset)
        with self._state.notify_lock:
            if notices and not self._state.failed:
                self._state.notify(notices)
        half_is_written = 2 * wal.offset >= wal.current.size
        if half_is_written and self._prepared_for != wal.current.number:
            self._prepared_for = wal.current.number
            self._housekeeping(PrepareFile())

    def _update_tables(self, batch: _Batch, offset: int) -> list[Written]:
        state = self._state
        file = self._wal.current.number
        last: dict[Group, Entry] = {}
        with state.lock:
            for operation in batch.operations:
                group = operation.group
                if isinstance(operation, Append):
                    disk = group.table.disk
                    for entry in operation.entries:
                        size = len(entry.payload)
                        disk.add(entry.index, Place(file, offset, size, entry.crc, entry.term, entry.kind))
                        offset += size
                    state.memory.written(group.table, operation.entries[-1])
                    last[group] = operation.entries[-1]
                else:
                    _apply_control(operation)
            state.counters.backlog_bytes -= batch.backlog
            if state.memory.bytes > state.memory.budget:
                state.memory.shrink()
        written: list[Written] = []
        for group, entry in last.items():
            if not group.deleted:
                written.append(Written(group.id, entry.index, entry.term, *self._wal.times, group.log_uid))
        return written


def _add_entries(batch: _Batch, group: Group, entries: Sequence[Entry]) -> None:
    rows, payloads, group_id = batch.rows, batch.payloads, group.id
    for entry in entries:
        payload = entry.payload
        size = len(payload)
        rows.append(pack_row(group_id, entry.index, entry.term, size, entry.crc, _ENTRY, entry.kind, 0))
        payloads.append(payload)
    batch.entries += len(entries)


def _add_control(
    batch: _Batch, operation: Truncate | Reset, group: Group, index: LogIndex, term: int, kind: RowKind
) -> None:
    batch.rows.append(pack_row(group.id, index, term, 0, 0, kind, 0, 0))
    batch.operations.append(operation)


def _apply_control(operation: Truncate | Reset) -> None:
    table = operation.group.table
    if isinstance(operation, Truncate):
        table.disk.truncate_from(operation.index)
    else:
        table.disk.clear()
        table.resets -= 1
