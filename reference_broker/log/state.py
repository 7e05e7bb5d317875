"""The state that the owner's thread and the two log threads share, under one lock that is held for microseconds.

File work never happens under the lock. A read from disk takes a place under the lock and reads without the lock. If the
entry is moved to a segment in between, or its file goes, the payload's CRC and a second look at the table tell.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from reference_broker.checksum import crc32
from reference_broker.log.counters import Counters
from reference_broker.log.errors import DamagedLogError, EntryGoneError
from reference_broker.log.extents import Extents, Place, Ranges, clipped
from reference_broker.log.housekeeping import DiskUsage, rewrites_kept
from reference_broker.log.memtable import Memory, Table
from reference_broker.log.notices import Failed, Notice, StorageRole, Synced
from reference_broker.log.segment_codec import Segment
from reference_broker.log.segments import SegmentFiles
from reference_broker.log.snapshots import KEPT_FILE, NO_SNAPSHOT, SnapshotHead, SnapshotKey, SnapshotSource
from reference_broker.log.wal import WalFile
from reference_broker.storage.errors import StorageError, drive_failure, lacks_files
from reference_broker.storage.files import File
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, Term

READS: Final = 3
"""Number of reads that may return other octets than were written before that counts as damage. Once or twice the file
may have been closed under the reader."""


@dataclass(slots=True, eq=False)
class Installed:
    """A received snapshot that is on disk, until ``reset`` makes the log start behind it."""

    head: SnapshotHead
    places: Extents
    file: File


@dataclass(slots=True, eq=False)
class Pinned:
    """A snapshot that is being sent, and the snapshot files that must stay for it. ``source`` and the ``file`` with the
    state belong to the owner's thread, which opens them after the lock."""

    head: SnapshotHead
    keys: frozenset[SnapshotKey]
    source: SnapshotSource | None = None
    file: File | None = None

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()


@dataclass(slots=True, eq=False)
class Group:
    """One group: its table and its snapshots.

    ``expected`` is the chunk to come next (its snapshot and number) and belongs to the owner's thread. ``kept`` names
    the snapshot file that holds live entries, and ``kept_file`` is open on it. ``segments`` ascend by number; the
    housekeeping thread alone changes the list. ``log_uid`` tells the group from an earlier group of the same id.
    """

    table: Table
    snapshot: SnapshotHead | None = None
    kept: SnapshotKey = NO_SNAPSHOT
    kept_file: File | None = None
    installed: Installed | None = None
    pinned: Pinned | None = None
    segments: list[Segment] = field(default_factory=list)
    log_uid: int = 0
    expected: tuple[SnapshotKey, int] | None = None
    deleted: bool = False
    id: GroupId = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.table.group

    def snapshot_keys(self) -> set[SnapshotKey]:
        """The snapshot files that are needed."""
        keys = {self.kept}
        if self.snapshot is not None:
            keys.add(self.snapshot.key)
        if self.installed is not None:
            keys.add(self.installed.head.key)
        if self.pinned is not None:
            keys |= self.pinned.keys
        return keys

    def release(self) -> None:
        """Let go of a snapshot being sent."""
        if self.pinned is not None:
            self.pinned.close()
            self.pinned = None
            self.table.pinned = ()
            self.table.prune()

    def close(self) -> None:
        """Close all files."""
        self.release()
        if self.installed is not None:
            self.installed.file.close()
        if self.kept_file is not None:
            self.kept_file.close()


class LogState:
    """Shared by :class:`~reference_broker.log.system.LogSystem`, the writer and the housekeeper."""

    def __init__(
        self,
        counters: Counters,
        memtable_bytes: int,
        notify: Callable[[list[Notice]], None],
        segment_files: SegmentFiles,
        clock: Callable[[], int],
    ) -> None:
        self.lock = threading.Lock()
        self.clock = clock
        """Times all syncs, in ns."""
        self.counters = counters
        self.memory = Memory(memtable_bytes)
        self.groups: dict[GroupId, Group] = {}
        self.leaving: set[Group] = set()
        """Deleted groups whose deletion is not on disk yet: a start would still need their files."""
        self.segmented: set[Group] = set()
        """Groups that have segments, of those in ``groups``."""
        self.wal_files: dict[int, WalFile] = {}
        self.segment_files = segment_files
        self.failed = False
        self.notify = notify
        """Tells the owner. The caller holds the lock below, and has seen that the log has not failed."""
        self.notify_lock = threading.Lock()

    def publish(self, notices: list[Notice]) -> None:
        """Tell the owner; nothing after a failure."""
        with self.notify_lock:
            if notices and not self.failed:
                self.notify(notices)

    def synced(self, role: StorageRole, ns: int) -> None:
        """Count a sync that took ``ns``, and tell the owner."""
        counters = self.counters
        match role:
            case "meta":
                counters.meta_syncs += 1
                counters.meta_sync_ns_total += ns
            case "snapshot":
                counters.snapshot_syncs += 1
                counters.snapshot_sync_ns_total += ns
            case "segment":
                counters.segment_syncs += 1
                counters.segment_sync_ns_total += ns
        self.publish([Synced(role, ns)])

    def fail(self, where: str, error: Exception) -> None:
        """Stop for good and say so, once."""
        with self.notify_lock:
            if not self.failed:
                self.failed = True
                self.notify([Failed(_describe(where, error))])

    def read(self, group: Group, index: int) -> Entry:
        """A readable or pinned entry, from memory or disk.

        Raises :class:`EntryGoneError` if it is neither, and :class:`DamagedLogError` if the disk returns other octets
        than were written.
        """
        failures: Counter[Place] = Counter()
        while True:
            entry, place, file = self.find(group, index)
            if entry is not None:
                return entry
            if place is None:
                raise EntryGoneError(group.id, index)
            payload = self.read_at(group, file, place, 0, place.size)
            if len(payload) == place.size and crc32(payload) == place.crc:
                return Entry(LogIndex(index), Term(place.term), EntryKind(place.kind), place.crc, payload)
            failures[place] += 1
            if failures[place] == READS:
                raise DamagedLogError(self.path_of(group, place.file), place.offset, "an entry fails its check")

    def find(self, group: Group, index: int) -> tuple[Entry | None, Place | None, File | None]:
        """An entry that is in memory; otherwise where it is on disk, and the file unless that is a segment."""
        with self.lock:
            entry = group.table.memory.get(index)
            place = group.table.place(index) if entry is None else None
            return entry, place, self._file_of(group, place)

    def _file_of(self, group: Group, place: Place | None) -> File | None:
        if place is None or place.file < KEPT_FILE:
            return None
        if place.file == KEPT_FILE:
            return group.kept_file
        wal_file = self.wal_files.get(place.file)
        return wal_file.file if wal_file else None

    def read_at(self, group: Group, file: File | None, place: Place, offset: int, size: int) -> bytes:
        """Octets ``offset..offset + size`` of a place. Fewer or other octets if the file is unreadable, or was closed
        because it went. Raises :class:`StorageError` if there are too many open files: that is no damage."""
        try:
            if place.file < KEPT_FILE:
                file = self.segment_files.opened(group.id, -place.file)
            octets = file.read(place.offset + offset, size) if file is not None else b""
        except OSError as error:
            if lacks_files(error):
                raise StorageError(drive_failure("the log", self.path_of(group, place.file), error)) from error
            return b""
        if offset == 0:
            self.counters.disk_reads += 1
            self.counters.segment_reads += place.file < KEPT_FILE
        return octets

    def path_of(self, group: Group, file: int) -> str:
        """Which file a place's file number stands for, in words for an error message."""
        if file < KEPT_FILE:
            return self.segment_files.path(group.id, -file)
        wal_file = self.wal_files.get(file)
        return wal_file.path if wal_file else f"{group.kept.name} of group {group.id:016x}"

    def needed_files(self) -> set[int]:
        """The WAL files with an entry that the owner, or a start, can ask for. Call with the lock held."""
        needed: set[int] = set()
        for group in (*self.groups.values(), *self.leaving):
            needed |= group.table.disk.files()
        return {file for file in needed if file > KEPT_FILE}


def _describe(where: str, error: Exception) -> str:
    if isinstance(error, StorageError):
        return str(error)
    if isinstance(error, OSError):
        return drive_failure("the log", where, error)
    return f"the log failed: {type(error).__name__}: {error}\n  {where}\n  this is a bug; the node stops"


def disk_usage(group: Group, live: Ranges, closed: range) -> DiskUsage:
    """The disk usage of a group. Call with the lock held."""
    table, disk = group.table, group.table.disk
    above = list(clipped(live, table.floor + 1, table.last))
    replayed = disk.octets(table.floor)
    kept = table.kept.octets(0) if table.kept_floor else 0
    needed = list(clipped(live, 1, table.last))
    left = disk.octets_within(needed) + table.kept.octets_within(needed) if kept else 0
    return DiskUsage(
        group=group.id,
        unflushed=disk.octets(table.floor, closed),
        unflushed_live=disk.octets_within(above, closed),
        total=replayed + disk.octets_within(table.live) + kept,
        live=left if rewrites_kept(kept, left) else disk.octets_within(needed) + kept,
        replayed=replayed,
        snapshot=group.snapshot.state_size if group.snapshot else 0,
    )
