"""Opens the log: reads the identity of the directories, the meta log, the snapshots, the segments and the WAL.

Nothing is written and nothing removed before everything was read and found usable: a refused start leaves the log as it
was, for a person who can mend it, or for the version of the broker that wrote it.

All octets that were read are synced again before they count as written. A process that was killed between a write and
its sync leaves octets that the kernel has and the disk has not; the same holds for a rename.

If the end of the WAL is missing (:mod:`~reference_broker.log.high_water` and :mod:`~reference_broker.log.inventory`
tell), the members of all groups become *forgetful*: each begins in a term that no other member knows, and neither votes
nor leads until it has learnt again (:class:`reference_broker.raft.core.RaftCore`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final

from reference_broker.log import high_water as high_water_file
from reference_broker.log import inventory as inventory_file
from reference_broker.log.config import LogConfig
from reference_broker.log.counters import Counters
from reference_broker.log.errors import (
    DamagedLogError,
    DamagedSnapshotError,
    ForeignDirectoryError,
    InvalidLogConfigError,
)
from reference_broker.log.high_water import HighWater, Mark, open_mark, read_mark
from reference_broker.log.housekeeper import group_directory
from reference_broker.log.housekeeping import first_file_bytes
from reference_broker.log.inventory import Inventory, InventoryFile, check_segments, read_inventory
from reference_broker.log.memtable import Table
from reference_broker.log.meta import MetaLog
from reference_broker.log.notices import Notice
from reference_broker.log.recovery import GroupRecord, SnapshotFacts, WalRecovery, join_snapshot, replay_segment
from reference_broker.log.segment_codec import HEADER_SIZE, DamagedSegmentError, decode_head, decode_index, describe
from reference_broker.log.segments import SUFFIX as SEGMENT_SUFFIX
from reference_broker.log.segments import SegmentFiles, remove_directory
from reference_broker.log.snapshots import (
    NO_SNAPSHOT,
    SUFFIX,
    SnapshotHead,
    read_entries,
    read_head,
    read_state,
)
from reference_broker.log.state import Group, LogState
from reference_broker.log.wal import SUFFIX as WAL_SUFFIX
from reference_broker.log.wal import TEMPORARY, Wal, WalFiles, file_name
from reference_broker.log.wal_codec import (
    NOTED,
    SECTOR,
    STORE_ID_SIZE,
    WAL_MAGIC,
    Windows,
    check_file_header,
    file_flags,
    named_bytes,
)
from reference_broker.storage.errors import START_BLANK
from reference_broker.storage.files import Files, read_whole, write_whole
from reference_broker.storage.findings import StartFinding
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

IDENTITY: Final = "identity"
META: Final = "meta"
_FIRST_TERM: Final = 1


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """The last index and term that a snapshot covers."""

    index: LogIndex
    term: Term


@dataclass(frozen=True, slots=True)
class RecoveredGroup:
    """The state of a group after a start, for its owner.

    The log holds ``first_index..last_index`` (empty if ``last_index`` is lower); ``terms`` gives their terms as pairs
    of (first index of the term, term). ``state`` is the machine's state at ``snapshot``, and ``live`` are the earlier
    entries that the state refers to. ``special`` are the entries of the log that Raft itself must know of, no-ops and
    configurations, in order. ``create_group`` was called with ``meta`` and returned ``log_uid``. ``forgetful``:
    entries may be missing at the end of the log although they were noticed as written.
    """

    meta: bytes
    term: Term
    voted_for: NodeId
    snapshot: SnapshotRef | None
    state: bytes
    live: tuple[tuple[int, int], ...]
    first_index: LogIndex
    last_index: LogIndex
    terms: list[tuple[LogIndex, Term]]
    special: tuple[Entry, ...] = ()
    log_uid: int = 0
    forgetful: bool = False


@dataclass(slots=True)
class Opened:
    """The parts of a log that was just read. ``resets`` must be written before anything else is. ``missing_end`` is the
    evidence that synced batches are missing at the end of the WAL."""

    state: LogState
    meta: MetaLog
    wal: Wal
    wal_files: WalFiles
    high_water: HighWater
    inventory: InventoryFile
    data_dir: str
    recovered: dict[GroupId, RecoveredGroup]
    resets: list[Group]
    missing_end: list[StartFinding]


def open_parts(
    config: LogConfig,
    files: Files,
    notify: Callable[[list[Notice]], None],
    new_store: Callable[[], bytes],
    clock: Callable[[], int],
) -> Opened:
    """Read the directories, then begin to write. ``clock`` times all syncs, and the reading itself.

    Raises :class:`InvalidLogConfigError`, :class:`ForeignDirectoryError`, :class:`DamagedLogError`,
    :class:`~reference_broker.log.errors.MissingEntriesError`, or :class:`OSError`.
    """
    started = clock()
    problems = config.validate()
    if problems:
        raise InvalidLogConfigError("\n".join(str(problem) for problem in problems))
    opening = _Opening(config, files, notify, new_store, clock)
    opening.read()
    opened = opening.begin()
    opened.state.counters.recovery_ns = clock() - started
    return opened


def look(config: LogConfig, files: Files) -> tuple[dict[GroupId, RecoveredGroup], list[StartFinding]]:
    """The groups and findings of a start, without any change. Raises as :func:`open_parts`."""
    opening = _Opening(config, files, lambda _notices: None, lambda: bytes(STORE_ID_SIZE), monotonic_ns)
    opening.read()
    opening.close()
    return opening.recovered, opening.findings


class _Opening:
    """One start of a log: :meth:`read` changes nothing, :meth:`begin` writes."""

    def __init__(
        self,
        config: LogConfig,
        files: Files,
        notify: Callable[[list[Notice]], None],
        new_store: Callable[[], bytes],
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._files = files
        self._clock = clock
        self._wal_dir, self._data_dir = os.fspath(config.wal_dir), os.fspath(config.data_dir)
        self._store, self._unmarked = _identify(files, config, new_store)
        segment_files = SegmentFiles(files, config.segment_path, self._store, clock)
        self._state = LogState(Counters(), config.memtable_bytes, notify, segment_files, clock)
        counters = self._state.counters
        self._meta = MetaLog(files, f"{self._data_dir}/{META}", self._store, counters, sync=config.sync, clock=clock)
        self._wal_files = WalFiles(files, self._wal_dir, self._store, counters, config.recycle_files)
        self._mark = read_mark(files, self._wal_dir, self._store)
        self._inventory = read_inventory(files, self._data_dir, self._store)
        self._short: list[int] = []
        """The WAL files that are shorter than they were."""
        self._stale: list[str] = []
        """Files of former groups, and files that were not finished."""

    def read(self) -> None:
        """Read everything. Raises :class:`~reference_broker.log.errors.LogError` for a log that cannot be used."""
        mark, inventory = self._mark or Mark(), self._inventory or Inventory()
        names = self._files.names(self._wal_dir)
        expected = inventory.newest > 0 or any(name.endswith(WAL_SUFFIX) for name in names)
        noted = (mark.meta_file, mark.meta_batch)
        self._records = records = self._meta.recover(expected=expected, noted=noted)
        snapshots = {id_: self._read_newest(id_, record, inventory) for id_, record in records.items()}
        groups = self._state.groups
        for group in groups.values():
            self._read_segments(group, inventory)
        self._recovery = recovery = self._read_wal(names, inventory.oldest)
        recovery.judge_end(self._wal_dir, inventory.newest, mark.file, mark.batch)
        forgetful = sum(record.forgetful for record in records.values())
        self._resets = [
            group for id_, group in groups.items() if join_snapshot(id_, group.table.disk, snapshots[id_][0])
        ]
        for id_, record in records.items():
            self._make_agree(groups[id_], record)
        if forgetful and not recovery.missing_end:
            recovery.misses(self._wal_dir, f"{forgetful} logs are not up to date since an earlier start lost their end")
        recovery.last_batch = max(recovery.last_batch, *(record.since for record in records.values()), 0)
        self.recovered = {id_: _describe(self._state, groups[id_], records[id_], snapshots[id_][1]) for id_ in records}

    def begin(self) -> Opened:
        """Mark new directories, write down the found files, remove unneeded ones, and begin a WAL file."""
        files, state, recovery = self._files, self._state, self._recovery
        for path in self._stale:
            files.remove(path)
        for directory in self._unmarked:
            _mark_directory(files, self._config, directory, self._store)
        files.make_dir(f"{self._data_dir}/{META}")
        meta = self._meta.begin()
        for directory in (self._data_dir, self._config.segment_path):
            _remove_foreign_groups(files, directory, self._records)
        for number in self._short:
            self._wal_files.accept(state.wal_files[number])
        mark = Mark(recovery.last_batch, max(recovery.files_with_batches, default=0), *meta)
        high_water = open_mark(files, self._wal_dir, self._store, mark)
        self._meta.note_in(high_water)
        inventory = InventoryFile(files, self._data_dir, self._store, state)
        if self._inventory is None:
            inventory.write()
        wal = _start_wal(state, self._wal_files, recovery, high_water, self._config, self._clock)
        inventory.write()
        parts = (state, self._meta, wal, self._wal_files, high_water, inventory, self._data_dir)
        return Opened(*parts, self.recovered, self._resets, recovery.missing_end)

    @property
    def findings(self) -> list[StartFinding]:
        """The losses at the end of the WAL."""
        return self._recovery.missing_end

    def close(self) -> None:
        """Close the files that were opened to be read."""
        for group in self._state.groups.values():
            group.close()
        for wal_file in self._state.wal_files.values():
            wal_file.file.close()

    # Snapshots

    def _read_newest(self, id_: GroupId, record: GroupRecord, inventory: Inventory) -> tuple[SnapshotFacts, bytes]:
        """Put a group behind its newest valid snapshot. Older and unfinished snapshots are stale.

        Damaged snapshots stay: if the log needs such a snapshot, a person may be able to mend it.
        """
        group = self._state.groups[id_] = Group(Table(id_), log_uid=record.log_uid)
        directory = group_directory(self._data_dir, id_)
        names = self._files.names(directory)
        machine_state, damaged = b"", inventory.of(group).snapshot
        for name in sorted((name for name in names if name.endswith(SUFFIX)), reverse=True):
            found = _read_snapshot(self._files, f"{directory}/{name}", group)
            if found is not None and found[0].log_uid != group.log_uid:
                self._stale.append(f"{directory}/{name}")  # of an earlier group of the same id
                names.remove(name)
            elif found is not None:
                group.snapshot, machine_state = found
                break
            else:
                damaged = max(damaged, int(name.partition("_")[0], 16))
        if group.snapshot is not None:
            self._files.sync_dir(directory)
            group.table.start_at(*group.snapshot.key, group.snapshot.live)
            group.kept = group.snapshot.kept
            group.table.kept_floor = group.kept.last_index
        needed = {key.name for key in group.snapshot_keys()}
        for name in names:
            if name not in needed and (not name.endswith(SUFFIX) or name < max(needed)):
                self._stale.append(f"{directory}/{name}")
        return _facts(group, damaged), machine_state

    # Segments and the WAL

    def _read_segments(self, group: Group, inventory: Inventory) -> None:
        """Replay the indexes of a group's segments in order of number. Payloads are checked when they are read."""
        segment_files = self._state.segment_files
        directory = segment_files.group_directory(group.id)
        names = self._files.names(directory)
        if names:
            self._files.sync_dir(directory)
        for name in names:
            if not name.endswith(SEGMENT_SUFFIX):
                self._stale.append(f"{directory}/{name}")
            elif not self._read_segment(group, int(name.removesuffix(SEGMENT_SUFFIX))):
                self._stale.append(f"{directory}/{name}")  # of an earlier group of the same id
        check_segments(directory, group, inventory.of(group))
        if group.segments:
            self._state.segmented.add(group)

    def _read_segment(self, group: Group, number: int) -> bool:
        """Replay the index of a segment. False if it is not this group's."""
        path = self._state.segment_files.path(group.id, number)
        file = self._files.open(path)
        try:
            head = decode_head(file.read(0, HEADER_SIZE), self._store, group.id, number)
            if head.log_uid != group.log_uid:
                return False
            runs = decode_index(head, file.read(HEADER_SIZE, head.index_size))
            if file.size() != head.size:
                raise DamagedSegmentError(file.size(), f"a segment should have {head.size} octets")
        except DamagedSegmentError as error:
            raise DamagedLogError(path, error.offset, str(error)) from error
        finally:
            file.close()
        replay_segment(group.table.disk, head.truncates, runs)
        group.segments.append(describe(number, head.truncates, runs))
        return True

    def _read_wal(self, names: list[str], oldest: int) -> WalRecovery:
        """Replay every WAL file in order of number, and sync the files that were read."""
        tables = {id_: group.table.disk for id_, group in self._state.groups.items()}
        recovery = WalRecovery(self._store, tables, {id_: record.since for id_, record in self._records.items()})
        if names:
            self._files.sync_dir(self._wal_dir)
        self._stale += [self._wal_files.path(name) for name in names if name.endswith(TEMPORARY)]
        numbers = sorted(int(name.removesuffix(WAL_SUFFIX)) for name in names if name.endswith(WAL_SUFFIX))
        if numbers and numbers[0] > oldest > 0:
            raise DamagedLogError(self._wal_files.path(file_name(oldest)), 0, f"WAL file {oldest} is missing")
        for number in numbers:
            self._read_wal_file(recovery, number)
        counters = self._state.counters
        counters.recovery_bytes = recovery.octets
        counters.recovery_torn_tails += recovery.torn_tails
        return recovery

    def _read_wal_file(self, recovery: WalRecovery, number: int) -> None:
        path = self._wal_files.path(file_name(number))
        file = self._files.open(path)
        octets = Windows(file.read, file.size())
        header = bytes(octets.part(0, SECTOR))
        wrong = check_file_header(path, header, WAL_MAGIC, number, self._store)
        if wrong:
            file.close()
            raise DamagedLogError(path, 0, wrong)
        if octets.size < named_bytes(header):
            what = f"the file has {octets.size} octets, and had {named_bytes(header)} when it was begun"
            recovery.misses(path, what)
            self._short.append(number)
        if file_flags(header) & NOTED and (self._mark is None or self._inventory is None) and not recovery.missing_end:
            missing = high_water_file.NAME if self._mark is None else inventory_file.NAME
            what = f"the file {missing!r} is missing or damaged, so nobody knows whether the end of the WAL is there"
            recovery.misses(path, what)
        found = self._state.wal_files[number] = self._wal_files.opened(number, file)
        if recovery.replay(path, number, octets):
            file.datasync()
        found.entries = recovery.entries[number]

    # What the owner gets

    def _make_agree(self, group: Group, record: GroupRecord) -> None:
        """Make the table agree with the disk. If the end of the WAL is missing, the group's member is forgetful from
        now on, and begins in a term that no member knows."""
        table, recovery = group.table, self._recovery
        table.last = table.synced = max(table.floor, table.disk.last)
        if recovery.missing_end:
            terms = [term for _first, term in table.disk.terms(table.floor)]
            record.term = max(record.term, table.floor_term, _FIRST_TERM, *terms) + 1
            record.voted_for, record.forgetful = NOBODY, True
            record.since = min(record.since, recovery.last_batch)


# Whose directories these are


def _identify(files: Files, config: LogConfig, new_store: Callable[[], bytes]) -> tuple[bytes, list[str]]:
    """The id that ties the directories together, and the directories that are not marked with it yet.

    The data directory is marked last. So a marked data directory beside another one without a mark means that the
    other one's drive is missing, and starting would silently forget confirmed messages.
    """
    owner = _owner(config)
    wal_dir, data_dir = os.fspath(config.wal_dir), os.fspath(config.data_dir)
    others = {"WAL": wal_dir, "segment directory": config.segment_path}
    stores = {what: _read_identity(files, directory, owner) for what, directory in others.items()}
    data_store = _read_identity(files, data_dir, owner)
    if data_store is None and stores["WAL"] and any(name.endswith(WAL_SUFFIX) for name in files.names(wal_dir)):
        raise ForeignDirectoryError(data_dir, "nothing", f"the data that belongs to {wal_dir}", _mounted("data drive"))
    known = data_store or stores["WAL"] or stores["segment directory"]
    for what, directory in others.items():
        belonging = f"the {what} that belongs to {data_dir}"
        if data_store is not None and stores[what] is None:
            raise ForeignDirectoryError(directory, "nothing", belonging, _mounted(f"{what}'s drive"))
        if stores[what] not in (None, known):
            advice = "name the directories that were used together"
            raise ForeignDirectoryError(directory, "another log's data", belonging, advice)
    unmarked = [directory for what, directory in others.items() if stores[what] is None]
    return known or new_store(), unmarked + [data_dir] * (data_store is None)


def _owner(config: LogConfig) -> str:
    return f"cluster={config.cluster}\nnode={config.node}\n"


def _mark_directory(files: Files, config: LogConfig, directory: str, store: bytes) -> None:
    files.make_dir(directory)
    write_whole(files, f"{directory}/{IDENTITY}", f"{_owner(config)}store={store.hex()}\n".encode())


def _read_identity(files: Files, directory: str, owner: str) -> bytes | None:
    if IDENTITY not in files.names(directory):
        return None
    files.sync_dir(directory)
    text = read_whole(files, f"{directory}/{IDENTITY}").decode(errors="replace")
    found, _, store = text.partition("store=")
    try:
        id_ = bytes.fromhex(store)
    except ValueError:
        id_ = b""
    if found != owner or len(id_) != STORE_ID_SIZE:
        advice = "use this node's own directory, or an empty one"
        raise ForeignDirectoryError(directory, _one_line(text if found == owner else found), _one_line(owner), advice)
    return id_


def _mounted(drive: str) -> str:
    return f"is the {drive} mounted? if it is lost: {START_BLANK}"


def _one_line(owner: str) -> str:
    return repr(" ".join(owner.split()))


# Groups and their snapshots


def _remove_foreign_groups(files: Files, parent: str, records: dict[GroupId, GroupRecord]) -> None:
    """Directories of groups that were deleted while the node was about to stop."""
    for name in files.names(parent):
        is_group = len(name) == 16 and all(digit in "0123456789abcdef" for digit in name)
        if is_group and GroupId(int(name, 16)) not in records:
            remove_directory(files, parent, name)


def _facts(group: Group, damaged: int) -> SnapshotFacts:
    head, table = group.snapshot, group.table
    key = head.key if head else NO_SNAPSHOT
    installed = head is not None and head.installed
    return SnapshotFacts(*key, table.live, installed, table.kept, table.kept_floor, damaged)


def _read_snapshot(files: Files, path: str, group: Group) -> tuple[SnapshotHead, bytes] | None:
    """Head and state of a snapshot, with the places of live entries in its kept file. None if it is damaged."""
    file = files.open(path)
    try:
        head = read_head(file.read, path)
        machine_state = read_state(file.read, head, path)
        if head.kept != NO_SNAPSHOT:
            _open_kept(files, os.path.dirname(path), head, group)  # noqa: PTH120 - the port speaks strings
        return head, machine_state
    except DamagedSnapshotError:
        return None
    finally:
        file.close()


def _open_kept(files: Files, directory: str, head: SnapshotHead, group: Group) -> None:
    path = f"{directory}/{head.kept.name}"
    if head.kept.name not in files.names(directory):
        raise DamagedSnapshotError(f"a snapshot needs the entries in a file that is missing\n  {path}\n  restore it")
    kept = files.open(path)
    try:
        group.table.kept = read_entries(kept.read, kept.size(), read_head(kept.read, path), path)
    except DamagedSnapshotError:
        kept.close()
        raise
    group.kept_file = kept


def _describe(state: LogState, group: Group, record: GroupRecord, machine_state: bytes) -> RecoveredGroup:
    """A group for its owner."""
    table = group.table
    ref = SnapshotRef(LogIndex(table.floor), Term(table.floor_term)) if group.snapshot else None
    terms = [(LogIndex(first), Term(term)) for first, term in table.disk.terms(table.floor)]
    return RecoveredGroup(
        record.meta,
        Term(record.term),
        NodeId(record.voted_for),
        ref,
        machine_state,
        tuple(table.live),
        LogIndex(table.floor + 1),
        LogIndex(table.last),
        terms,
        tuple(state.read(group, index) for index in table.disk.special(table.floor, EntryKind.COMMAND)),
        group.log_uid,
        record.forgetful,
    )


def _start_wal(
    state: LogState,
    wal_files: WalFiles,
    recovery: WalRecovery,
    high_water: HighWater,
    config: LogConfig,
    clock: Callable[[], int],
) -> Wal:
    """Go on in a file without batches: the prepared one if there is one, else a new one.

    A file that holds batches is never continued: behind its last batch may stand half of one that was torn.
    """
    newest = max(state.wal_files, default=0)
    if newest == 0 or newest in recovery.files_with_batches:
        newest += 1
        size = first_file_bytes(config.wal_file_bytes, config.node)
        state.wal_files[newest] = wal_files.prepare(newest, size)
    next_batch = recovery.last_batch + 1
    return Wal(state.wal_files[newest], next_batch, state.counters, high_water, sync=config.sync, clock=clock)
