"""The log of a node, as the node shell sees it.

Theory of operation
-------------------
One thread, the owner's (the event loop), calls the methods below. No method waits for a disk, except to read an entry
that is no longer in memory, or a chunk of a snapshot. All methods raise UnknownGroupError for a group that does not
exist. Notices from the log's own threads tell what became durable, in lists: one call of ``notify`` per sync. The owner
passes a function that hands the list to its loop.

The owner can rely on the order: the operations on one group become durable in the order of the calls, so the notice for
a later operation implies all earlier operations. After a failed write or sync comes one ``Failed`` and no other notice.
From then on the log accepts operations and never confirms them, as if the node had stopped already.

The invariants are I9 to I12 of the design: no gap is ever accepted; entries that were noticed as written are there
after any crash; no WAL file goes while an entry in it can be asked for; every entry from the snapshot to the end, and
every live entry, can be read at any time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, Self

from reference_broker.log.config import LogConfig
from reference_broker.log.errors import SnapshotGoneError, UnknownGroupError
from reference_broker.log.extents import Ranges, checked
from reference_broker.log.group_commit import Writer
from reference_broker.log.housekeeper import Housekeeper, group_directory
from reference_broker.log.housekeeping import snapshots_due
from reference_broker.log.live_entries import LiveEntries
from reference_broker.log.memtable import Table, check_readable, check_still_live, size_of
from reference_broker.log.notices import Notice
from reference_broker.log.opening import Opened, RecoveredGroup, SnapshotRef, open_parts
from reference_broker.log.operations import (
    Append,
    CreateGroup,
    DeleteGroup,
    HousekeeperOp,
    Reset,
    StoreChunk,
    StoreHardState,
    Sweep,
    TakeSnapshot,
    Truncate,
    WriterOp,
)
from reference_broker.log.snapshots import SnapshotKey, SnapshotSource
from reference_broker.log.state import Group, Pinned, disk_usage
from reference_broker.storage.executor import DedicatedThread, Executor, IoPolicy, guarded
from reference_broker.storage.files import Files
from reference_broker.types import Entry, GroupId, LogIndex, NodeId, Term

__all__ = ["LogSystem", "RecoveredGroup", "SnapshotRef"]


def _new_store() -> bytes:
    return uuid.uuid4().bytes


class LogSystem:
    """One node's log. Made by :meth:`open`; used by one thread."""

    def __init__(
        self, config: LogConfig, files: Files, parts: Opened, policy: IoPolicy, gather: Callable[[], None] | None
    ) -> None:
        self._config = config
        self._files = files
        self._parts = parts
        self._state = parts.state
        housekeeper = Housekeeper(
            parts.state,
            files,
            parts.wal,
            parts.wal_files,
            parts.inventory,
            parts.data_dir,
            config,
            lambda op: self._housekeeping.submit(op),
        )
        self._housekeeper = housekeeper
        directories = f"{parts.data_dir}, {config.segment_path}, {parts.wal_files.directory}"
        self._housekeeping: Executor[HousekeeperOp] = policy(
            "log-housekeeper", guarded(parts.state, directories, housekeeper.handle)
        )
        writer = Writer(parts.state, parts.wal, parts.meta, self._housekeeping.submit)
        self._writing: Executor[WriterOp] = policy(
            "log-writer", guarded(parts.state, parts.wal_files.directory, writer.handle), gather
        )
        self.findings = parts.missing_end
        """The losses that :meth:`open` found at the end of the WAL. If there is any, all members that were there are
        forgetful."""
        self._closed = False
        self._newest_log_uid = max([group.log_uid for group in parts.state.groups.values()], default=0)

    @classmethod
    def open(
        cls,
        config: LogConfig,
        files: Files,
        notify: Callable[[list[Notice]], None],
        *,
        policy: IoPolicy = DedicatedThread,
        gather: Callable[[], None] | None = None,
        new_store: Callable[[], bytes] = _new_store,
        clock: Callable[[], int] = monotonic_ns,
    ) -> tuple[Self, dict[GroupId, RecoveredGroup]]:
        """Read an existing log, or make a new log, and begin to write.

        ``policy`` says in which threads the log works (default: threads of its own), and ``notify`` is called from
        these threads. If the policy has none, the owner drives the log with :meth:`run_pending`, or its
        :attr:`executors` one by one. With ``gather``, which is called when something begins to wait, the owner says by
        :meth:`write` when to write. ``new_store`` gives the 16 octets that mark a new pair of directories,
        ``clock`` the nanoseconds by which syncs are timed.

        Raises a :class:`~reference_broker.log.errors.LogError` that says what to do, or :class:`OSError`.
        """
        parts = open_parts(config, files, notify, new_store, clock)
        system = cls(config, files, parts, policy, gather)
        system._write_resets(parts.resets)
        system._housekeeping.submit(Sweep())
        for executor in system.executors:
            executor.start()
        return system, parts.recovered

    def _write_resets(self, resets: list[Group]) -> None:
        """Write down that recovery dropped dead branches, so that they do not come back at the next start."""
        for group in resets:
            table = group.table
            table.resets += 1
            self._writing.submit(Reset(group, LogIndex(table.floor), Term(table.floor_term)))
        self._writing.run_pending()

    def write(self) -> None:
        """Have the waiting operations written. The calling thread writes a small batch itself while the disk is fast,
        and notices come during the call then. Otherwise the log's own thread writes.
        """
        config = self._config
        quick = self._parts.wal.recent_ns <= 1000 * config.inline_us_max
        self._writing.go(here=quick and self._state.counters.backlog_bytes <= config.inline_bytes_max)

    def run_pending(self) -> bool:
        """Without threads: do all waiting work in the calling thread. False if there was none."""
        worked = False
        while self._writing.run_pending() or self._housekeeping.run_pending():
            worked = True
        return worked

    @property
    def executors(self) -> tuple[Executor[Any], ...]:
        """Without threads: the executors whose ``run_pending`` the owner may call one by one, each when it likes."""
        return self._writing, self._housekeeping

    def close(self) -> None:
        """Make the waiting operations durable, stop the threads, close the files. Notices come until this returns."""
        if self._closed:
            return
        self._closed = True
        self._writing.close()
        self._housekeeping.close()
        self._housekeeper.close()
        self._parts.meta.close()
        self._close_mark()
        self._state.segment_files.close()
        for group in self._state.groups.values():
            group.close()
        for wal_file in self._state.wal_files.values():
            wal_file.file.close()

    def _close_mark(self) -> None:
        try:
            self._parts.high_water.close()
        except OSError as error:  # the mark that is on the drive is older, and true
            self._state.fail(self._parts.wal_files.directory, error)

    # Groups

    @property
    def durability(self) -> str:
        """The meaning of "written", in words, for status pages and results."""
        return "fdatasync before each notice" if self._config.sync else "NOT SYNCED: confirmed messages can be lost"

    def _group(self, group: GroupId) -> Group:
        found = self._state.groups.get(group)
        if found is None:
            raise UnknownGroupError(group)
        return found

    def create_group(self, group: GroupId, meta: bytes) -> int:
        """A new group; ``meta`` is the owner's. Use it at once: nothing about it is noticed before it is on disk.

        Returns the log uid, a number that no other group has since the node started, and that no group which still
        exists has. The files of groups that were deleted before the node started were removed at the start.
        Raises :class:`ValueError` for a group that exists.
        """
        if group in self._state.groups:
            raise ValueError(f"group {group:016x} exists: each declaration of a queue needs an id of its own")
        self._newest_log_uid += 1
        created = Group(Table(group), log_uid=self._newest_log_uid)
        with self._state.lock:
            self._state.groups[group] = created
        self._writing.submit(CreateGroup(created, meta))
        return created.log_uid

    def delete_group(self, group: GroupId) -> None:
        """Forget a group. :class:`GroupDeleted` comes when it is gone for good; its files go in the background."""
        deleted = self._group(group)
        with self._state.lock:
            deleted.deleted = True
            del self._state.groups[group]
            self._state.segmented.discard(deleted)
            self._state.leaving.add(deleted)
            self._state.memory.forget(deleted.table)
            deleted.close()
        self._writing.submit(DeleteGroup(deleted))

    def store_hard_state(self, group: GroupId, term: Term, voted_for: NodeId, *, forgetful: bool = False) -> None:
        """Store term and vote, and whether the member is forgetful; :class:`HardStateSynced` comes when they are on
        disk."""
        self._writing.submit(StoreHardState(self._group(group), term, voted_for, forgetful))

    # The log

    def append(self, group: GroupId, entries: Sequence[Entry]) -> None:
        """Append consecutive entries. Existing entries at and above the first index are gone.

        Readable at once; :class:`Written` comes when they are on disk. The entries are shared, never copied.
        Raises :class:`~reference_broker.log.errors.AppendGapError` for entries that do not fit (I9).
        """
        if not entries:
            return
        found = self._state.groups.get(group) or self._group(group)
        found.table.check_append(entries)
        octets = 0
        for entry in entries:
            octets += len(entry.payload)
        with self._state.lock:
            self._state.memory.append(found.table, entries)
            self._state.counters.backlog_bytes += octets
        self._writing.submit(Append(found, entries, octets))

    def truncate_from(self, group: GroupId, index: LogIndex) -> None:
        """Drop ``index`` and everything above. Raises :class:`ValueError` for an entry that a snapshot covers: such an
        entry is final."""
        found = self._group(group)
        table = found.table
        if index <= table.asked_floor:
            raise ValueError(f"group {group:016x}: entry {index} is covered by a snapshot and final")
        if index > table.last:
            return
        with self._state.lock:
            self._state.memory.truncate(found.table, index)
        self._writing.submit(Truncate(found, index))

    def reset(self, group: GroupId, index: LogIndex, term: Term) -> None:
        """Start the log again behind the snapshot that was just installed: the next entry is ``index + 1``.

        Raises :class:`ValueError` if no such snapshot was noticed as installed.
        """
        found = self._group(group)
        installed = found.installed
        if installed is None or installed.head.key != SnapshotKey(index, term):
            raise ValueError(f"group {group:016x}: no snapshot at {index} (term {term}) was installed")
        with self._state.lock:
            found.release()
            former, found.kept_file = found.kept_file, installed.file
            found.snapshot, found.kept, found.installed = installed.head, installed.head.key, None
            table = found.table
            self._state.memory.forget(table)
            table.start_at(index, term, installed.head.live)
            table.kept, table.kept_floor = installed.places, index
            table.resets += 1
        if former is not None:
            former.close()
        self._writing.submit(Reset(found, index, term))

    def entries(self, group: GroupId, first: LogIndex, last: LogIndex, max_bytes: int) -> list[Entry]:
        """The entries from ``first`` on, up to ``last``, whose payloads fit into ``max_bytes``; at least one.

        Raises :class:`~reference_broker.log.errors.EntryGoneError` for one that a snapshot covers or that was never
        appended.
        """
        found = self._state.groups.get(group) or self._group(group)
        table, memory = found.table, found.table.memory
        result: list[Entry] = []
        for index in range(first, last + 1):
            if not table.floor < index <= table.last:
                check_readable(table, index)
            entry = memory.get(index)
            if entry is None:
                if result and self._size_on_disk(table, index) > max_bytes:
                    break
                entry = self._state.read(found, index)
            max_bytes -= len(entry.payload)
            if max_bytes < 0 and result:
                break
            result.append(entry)
        return result

    def _size_on_disk(self, table: Table, index: int) -> int:
        """Octets of an entry that is not in memory; 0 if it came back there."""
        with self._state.lock:
            return 0 if index in table.memory else size_of(table, index)

    def payload(self, group: GroupId, index: LogIndex) -> bytes:
        """The payload of one entry of the log, or of a live one below the snapshot. Errors as :meth:`entries`."""
        found = self._group(group)
        check_readable(found.table, index)
        entry = found.table.memory.get(index) or self._state.read(found, index)
        return entry.payload

    def drop_payloads(self, group: GroupId, below_index: LogIndex) -> None:
        """The owner rarely needs payloads below ``below_index``: free their memory once they are on disk.

        They stay readable until a snapshot covers them.
        """
        found = self._group(group)
        with self._state.lock:
            self._state.memory.drop_payloads(found.table, below_index)

    # Snapshots

    def take_snapshot(self, group: GroupId, index: LogIndex, term: Term, state: bytes, live: Ranges) -> None:
        """Store the machine's state at ``index``. Entries up to ``index`` outside ``live`` die with the notice.

        ``live`` are ranges of indexes, both ends included; they may reach back below the former snapshot only to
        entries that were live there. Ignored if there is a newer snapshot. Raises :class:`ValueError` for bad ranges
        and for an index that is not in the log, :class:`EntryGoneError` for a live entry that is already gone.
        """
        found = self._group(group)
        ranges = checked(live, index)
        table = found.table
        if index <= table.asked_floor:
            return
        if index > table.last:
            raise ValueError(f"group {group:016x}: a snapshot at {index}, but the log ends at {table.last}")
        for first, last in ranges:
            if first <= table.asked_floor:
                check_still_live(table, first, min(last, table.asked_floor))
        table.asked_floor, table.asked_live = index, ranges
        self._writing.submit(TakeSnapshot(found, SnapshotKey(index, term), state, ranges))

    def snapshot_due(self, live: Callable[[GroupId], Ranges | None] | None = None) -> list[GroupId]:
        """The groups for which a snapshot pays now, largest saving first. Ask on ``RolledOver``.

        ``live`` gives the ranges of the entries that a group's state refers to, and of its unapplied entries; without
        ``live`` (or if it returns None) the live ranges of the last snapshot count, and nothing above it.
        :func:`~reference_broker.log.housekeeping.snapshots_due` has the rule.
        """
        closed = range(1, self._parts.wal.current.number)
        usages = []
        for group, found in self._state.groups.items():
            table = found.table
            if table.last > table.asked_floor:
                ranges = live(group) if live is not None else None
                with self._state.lock:
                    usages.append(disk_usage(found, table.live if ranges is None else ranges, closed))
        with self._state.lock:
            waiting = sum(number in closed for number in self._state.wal_files)
        return snapshots_due(usages, waiting, self._config.wal_file_bytes)

    def snapshot_chunk(self, group: GroupId, number: int) -> tuple[LogIndex, Term, bytes, bool]:
        """Chunk ``number`` (from 1) of the newest snapshot: its index and term, the octets, and whether it is the last.

        Chunk 1 pins the snapshot until :meth:`release_snapshot`; a pinned one serves any number of receivers.
        Raises :class:`~reference_broker.log.errors.SnapshotGoneError` if there is none or the chunk is behind its end.
        """
        found = self._group(group)
        if found.pinned is None or found.pinned.source is None:
            if number != 1 or found.snapshot is None:
                raise SnapshotGoneError(group, number)
            source = self._pin(found)
        else:
            source = found.pinned.source
        chunk = source.chunk(number)
        if chunk is None:
            raise SnapshotGoneError(group, number)
        data, last = chunk
        return LogIndex(source.key.last_index), Term(source.key.last_term), data, last

    def _pin(self, found: Group) -> SnapshotSource:
        """Make sure that neither the snapshot's file nor its live entries go away while it is sent."""
        with self._state.lock:
            head = found.snapshot
            assert head is not None
            found.table.pinned = head.live
            pinned = found.pinned = Pinned(head, frozenset((head.key, found.kept)))
        file = pinned.file = self._files.open(f"{group_directory(self._parts.data_dir, found.id)}/{head.key.name}")
        pinned.source = SnapshotSource(
            head, lambda offset, size: file.read(head.size + offset, size), LiveEntries(self._state, found)
        )
        return pinned.source

    def release_snapshot(self, group: GroupId) -> None:
        """All receivers are done: the snapshot may be replaced."""
        found = self._group(group)
        with self._state.lock:
            found.release()
        self._housekeeping.submit(Sweep(found))

    def receive_chunk(self, group: GroupId, index: LogIndex, term: Term, number: int, last: bool, data: bytes) -> bool:
        """Take one chunk of a snapshot that another member sends. True if it is the one expected next.

        Chunk 1 starts anew. After the last one comes :class:`SnapshotInstalled` or :class:`SnapshotRejected`. A chunk
        of a snapshot that is older than this member's own is refused.
        """
        found = self._group(group)
        key = SnapshotKey(index, term)
        if number == 1:
            found.expected = (key, 1)
        if found.expected != (key, number) or index <= found.table.floor:
            return False
        found.expected = None if last else (key, number + 1)
        self._writing.submit(StoreChunk(found, key, number, last, data))
        return True

    def counters(self) -> dict[str, int]:
        """The current figures, as :data:`~reference_broker.log.counters.COUNTERS` explains them."""
        counters = self._state.counters
        counters.memtable_bytes = self._state.memory.bytes
        counters.wal_files = len(self._state.wal_files)
        counters.groups = len(self._state.groups)
        with self._state.lock:
            counters.segment_files = sum(len(group.segments) for group in self._state.segmented)
        return counters.as_dict()
