"""The housekeeping thread: snapshots, segments and WAL files, which must be durable but may take their time.

Snapshots of dozens of groups are due at about the same moment, with two syncs each; a new WAL file is 64 MB of
zeros. None of this work may stand between an entry and its sync, so a thread of its own does it.

Order: a snapshot is durable before the entries that it covers count as dead. A segment is durable before the tables
point into it. The tables change before WAL files go, and the inventory before any file goes. WAL files go oldest
first, and each removal is synced before the next (:mod:`reference_broker.log.housekeeping`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reference_broker.checksum import crc32
from reference_broker.log.config import LogConfig
from reference_broker.log.errors import DamagedSnapshotError, LogError
from reference_broker.log.extents import Extents, intersects
from reference_broker.log.housekeeping import dead_files, files_to_flush, rewrites_kept
from reference_broker.log.inventory import InventoryFile
from reference_broker.log.live_entries import LiveEntries
from reference_broker.log.notices import Notice, SnapshotInstalled, SnapshotRejected, SnapshotTaken
from reference_broker.log.operations import (
    HousekeeperOp,
    PrepareFile,
    RemoveGroup,
    StoreChunk,
    Sweep,
    TakeSnapshot,
)
from reference_broker.log.segment_writer import SegmentWriter
from reference_broker.log.segments import remove_directory
from reference_broker.log.snapshots import (
    INCOMING,
    NO_SNAPSHOT,
    OUTGOING,
    SUFFIX,
    SnapshotHead,
    SnapshotKey,
    SnapshotSource,
    read_entries,
    read_head,
    read_state,
)
from reference_broker.log.state import Group, Installed, LogState
from reference_broker.log.wal import Wal, WalFiles
from reference_broker.storage.files import File, Files, sync_ns
from reference_broker.types import GroupId, LogIndex, Term


@dataclass(slots=True)
class _Incoming:
    key: SnapshotKey
    file: File
    size: int = 0


class Housekeeper:
    """Handles :data:`~reference_broker.log.operations.HousekeeperOp` lists, in the housekeeping thread."""

    def __init__(
        self,
        state: LogState,
        files: Files,
        wal: Wal,
        wal_files: WalFiles,
        inventory: InventoryFile,
        data_dir: str,
        config: LogConfig,
        submit: Callable[[HousekeeperOp], None],
    ) -> None:
        self._state = state
        self._files = files
        self._wal = wal
        self._wal_files = wal_files
        self._inventory = inventory
        self._data_dir = data_dir
        self._wal_file_bytes = config.wal_file_bytes
        self._wal_files_waiting = config.wal_files_waiting
        self._submit = submit
        self._segments = SegmentWriter(state, config.segment_bytes)
        self._touched: dict[Group, None] = {}  # a set, in the order of arrival
        self._incoming: dict[GroupId, _Incoming] = {}

    def handle(self, operations: list[HousekeeperOp]) -> None:
        """Carry out operations in order, then remove dead files. Raises :class:`OSError` if the disk fails.

        The files of deleted groups go first, before a group of the same id gets segments. Then comes the next WAL file,
        because the current file grows until the next is there.
        """
        for operation in sorted(operations, key=_urgency):
            match operation:
                case TakeSnapshot():
                    self._take(operation)
                case StoreChunk():
                    self._store_chunk(operation)
                case RemoveGroup(group):
                    self._remove_group(group)
                case PrepareFile():
                    self._prepare()
                case Sweep(Group() as swept):
                    self._sweep_snapshots(swept)
                case Sweep():
                    with self._state.lock:
                        self._touched.update(dict.fromkeys(self._state.groups.values()))
        if any(not isinstance(operation, StoreChunk) for operation in operations):
            self._sweep()

    def directory(self, group: GroupId) -> str:
        """Where a group's snapshots are."""
        return group_directory(self._data_dir, group)

    # Taking a snapshot

    def _take(self, operation: TakeSnapshot) -> None:
        group, key = operation.group, operation.key
        if group.deleted or key.last_index <= group.table.floor:
            return
        if self._rewrites_kept(group, operation):
            if self._take_whole(group, operation):
                self._taken(group, operation)
            return
        kept = group.kept if intersects(operation.live, 1, group.table.kept_floor) else NO_SNAPSHOT
        state = operation.state
        head = SnapshotHead(group.id, group.log_uid, key, False, kept, len(state), crc32(state), operation.live)
        self._write_snapshot(head, state)
        with self._state.lock:
            self._adopt(group, head)
        self._taken(group, operation)

    def _taken(self, group: Group, operation: TakeSnapshot) -> None:
        key = operation.key
        self._state.counters.snapshots += 1
        self._state.counters.snapshot_bytes += len(operation.state)
        self._state.publish([SnapshotTaken(group.id, LogIndex(key.last_index), Term(key.last_term), group.log_uid)])
        self._sweep_snapshots(group)

    def _rewrites_kept(self, group: Group, operation: TakeSnapshot) -> bool:
        """Whether few entries in the file of an installed snapshot are still needed: one old message must not keep the
        whole backlog of that day on disk."""
        with self._state.lock:
            table, live = group.table, operation.live
            if group.pinned is not None or not intersects(live, 1, table.kept_floor):
                return False
            octets = table.kept.octets_within(live) + table.disk.octets_within(live)
            return rewrites_kept(table.kept.octets(0), octets)

    def _take_whole(self, group: Group, operation: TakeSnapshot) -> bool:
        """Take a snapshot that brings its live entries along, as an installed snapshot does. False if there is none in
        the end, because the group is gone or a newer snapshot was installed meanwhile."""
        state, key, table = operation.state, operation.key, group.table
        head = SnapshotHead(group.id, group.log_uid, key, True, key, len(state), crc32(state), operation.live)
        name = f"{self.directory(group.id)}/{OUTGOING}"
        file = self._files.create(name)
        try:
            source = SnapshotSource(
                head, lambda offset, size: state[offset : offset + size], LiveEntries(self._state, group)
            )
            size = source.write(file)
            file.write([head.encode()], 0)
            places = read_entries(file.read, size, head, name)
        except LogError:
            file.close()
            if group.deleted or table.floor >= key.last_index:
                self._files.remove(name)
                return False
            raise
        self._state.synced("snapshot", sync_ns(file, self._state.clock))
        self._publish_name(self.directory(group.id), OUTGOING, key)
        with self._state.lock:
            former = self._exchange_kept(group, head, places, file)
        former.close()
        return True

    def _exchange_kept(self, group: Group, head: SnapshotHead, places: Extents, file: File) -> File:
        """Let the table point into the new file; returns the file that is not read any more. A file that is being sent
        stays, and the next snapshot tries again."""
        table = group.table
        is_newest = head.key.last_index > table.floor and not group.deleted
        if is_newest and group.pinned is None and group.kept_file is not None:
            former, group.kept_file, group.kept = group.kept_file, file, head.key
            table.kept, table.kept_floor = places, head.key.last_index
        else:
            former = file
        self._adopt(group, head)
        return former

    def _write_snapshot(self, head: SnapshotHead, state: bytes) -> None:
        directory = self.directory(head.group)
        self._files.make_dir(directory)
        file = self._files.create(f"{directory}/{OUTGOING}")
        try:
            file.write([head.encode(), state], 0)
            self._state.synced("snapshot", sync_ns(file, self._state.clock))
        finally:
            file.close()
        self._publish_name(directory, OUTGOING, head.key)

    def _publish_name(self, directory: str, temporary: str, key: SnapshotKey) -> None:
        self._files.rename(f"{directory}/{temporary}", f"{directory}/{key.name}")
        self._files.sync_dir(directory)

    def _adopt(self, group: Group, head: SnapshotHead) -> None:
        """The snapshot is durable. Entries that it covers and does not list as live are dead from now on."""
        table = group.table
        if head.key.last_index <= table.floor or group.deleted:
            return
        table.floor, table.floor_term = head.key
        table.live = head.live
        group.snapshot = head
        self._state.memory.forget_dead(table)
        table.prune()

    # Receiving a snapshot

    def _store_chunk(self, operation: StoreChunk) -> None:
        group = operation.group
        if group.deleted:
            return
        if operation.number == 1:
            self._start_receiving(group, operation.key)
        incoming = self._incoming.get(group.id)
        if incoming is None or incoming.key != operation.key:
            return
        incoming.file.write([operation.data], incoming.size)
        incoming.size += len(operation.data)
        if operation.last:
            del self._incoming[group.id]
            self._finish_receiving(group, incoming)

    def _start_receiving(self, group: Group, key: SnapshotKey) -> None:
        directory = self.directory(group.id)
        self._files.make_dir(directory)
        stale = self._incoming.pop(group.id, None)
        if stale is not None:
            stale.file.close()
        self._incoming[group.id] = _Incoming(key, self._files.create(f"{directory}/{INCOMING}"))

    def _finish_receiving(self, group: Group, incoming: _Incoming) -> None:
        try:
            notice = self._install(group, incoming)
        except DamagedSnapshotError as error:
            notice = self._reject(group, incoming, str(error))
        self._state.publish([notice])
        self._sweep_snapshots(group)

    def _install(self, group: Group, incoming: _Incoming) -> Notice:
        """Check the received snapshot, make it durable, and only then give it its name."""
        directory, key, file = self.directory(group.id), incoming.key, incoming.file
        name = f"{directory}/{INCOMING}"
        head = read_head(file.read, name)
        if (head.group, head.log_uid, head.key, head.installed, head.kept) != (group.id, 0, key, True, key):
            raise DamagedSnapshotError(f"a received snapshot is not the one announced\n  {name}\n  it is dropped")
        if key.last_index <= group.table.floor:
            return self._reject(group, incoming, f"there is a newer one, at {group.table.floor}")
        state = read_state(file.read, head, name)
        places = read_entries(file.read, incoming.size, head, name)
        head = replace(head, log_uid=group.log_uid)
        file.write([head.encode()], 0)
        self._state.synced("snapshot", sync_ns(file, self._state.clock))
        self._publish_name(directory, INCOMING, key)
        arrived = Installed(head, places, file)
        with self._state.lock:
            if group.deleted:
                unused: Installed | None = arrived
            else:
                unused, group.installed = group.installed, arrived
        if unused is not None:
            unused.file.close()
        self._state.counters.snapshots_installed += 1
        index, term = LogIndex(key.last_index), Term(key.last_term)
        return SnapshotInstalled(group.id, index, term, state, tuple(head.live), group.log_uid)

    def _reject(self, group: Group, incoming: _Incoming, reason: str) -> Notice:
        incoming.file.close()
        self._files.remove(f"{self.directory(group.id)}/{INCOMING}")
        index, term = LogIndex(incoming.key.last_index), Term(incoming.key.last_term)
        return SnapshotRejected(group.id, index, term, reason, group.log_uid)

    # Removing unneeded files

    def _sweep_snapshots(self, group: Group) -> None:
        """Remove the group's superseded snapshot files. A file that survives a crash does no harm."""
        with self._state.lock:
            if group.deleted:
                return
            closing = None
            if not group.table.kept_floor and group.pinned is None:
                closing, group.kept_file, group.kept = group.kept_file, None, NO_SNAPSHOT
            needed = {key.name for key in group.snapshot_keys()}
        if closing is not None:
            closing.close()
        self._touched[group] = None
        directory = self.directory(group.id)
        for name in self._files.names(directory):
            if name.endswith(SUFFIX) and name not in needed:
                self._files.remove(f"{directory}/{name}")

    def _remove_group(self, group: GroupId) -> None:
        incoming = self._incoming.pop(group, None)
        if incoming is not None:
            incoming.file.close()
        remove_directory(self._files, self._data_dir, f"{group:016x}")
        self._state.segment_files.remove_group(group)

    def _sweep(self) -> None:
        touched, self._touched = self._touched, {}
        for group in self._segments.sweep(touched):
            self._submit(Sweep(group))
        self._sweep_wal()

    def _sweep_wal(self) -> None:
        """Retire the WAL files without needed entries, oldest first."""
        state = self._state
        with state.lock:
            dead = dead_files(state.wal_files, state.needed_files(), self._wal.current.number)
        if dead:
            self._segments.settle()
        with state.lock:
            retired = [state.wal_files.pop(number) for number in dead]
        if retired or self._segments.gone:
            self._inventory.write()
        self._segments.remove_gone()
        for wal_file in retired:
            self._wal_files.retire(wal_file, self._wal_file_bytes)
            state.counters.segment_entries_skipped += max(0, wal_file.entries - wal_file.copied)

    def _prepare(self) -> None:
        number = max(self._state.wal_files) + 1
        prepared = self._wal_files.prepare(number, self._wal_file_bytes)
        with self._state.lock:
            self._state.wal_files[number] = prepared
        self._inventory.write()
        self._wal.offer(prepared)
        self._sweep_wal()
        for closed in files_to_flush(self._state.wal_files, self._wal.current.number, self._wal_files_waiting):
            self._segments.flush(closed)

    def close(self) -> None:
        """Close files of snapshots being received."""
        for incoming in self._incoming.values():
            incoming.file.close()


def _urgency(operation: HousekeeperOp) -> int:
    match operation:
        case RemoveGroup():
            return 0
        case PrepareFile():
            return 1
        case _:
            return 2


def group_directory(data_dir: str, group: GroupId) -> str:
    """Where a group's snapshots are."""
    return f"{data_dir}/{group:016x}"
