"""Opens the log: reads the identity of the directories, the meta log, the snapshots, the segments and the WAL.

Whatever was read is synced again before it counts as written. A process that was killed between a write and its sync
leaves octets that the kernel knows and the disk does not; the same holds for a rename.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from reference_broker.log.config import LogConfig
from reference_broker.log.counters import Counters
from reference_broker.log.errors import (
    DamagedLogError,
    DamagedSnapshotError,
    ForeignDirectoryError,
    InvalidLogConfigError,
)
from reference_broker.log.housekeeper import group_directory
from reference_broker.log.memtable import Table
from reference_broker.log.meta import MetaLog
from reference_broker.log.notices import Notice
from reference_broker.log.plan import first_file_bytes
from reference_broker.log.recovery import GroupRecord, SnapshotFacts, WalRecovery, join_snapshot, replay_segment
from reference_broker.log.segment_codec import HEADER_SIZE, DamagedSegmentError, decode_head, decode_index, describe
from reference_broker.log.segments import SUFFIX as SEGMENT_SUFFIX
from reference_broker.log.segments import SegmentFiles, remove_directory
from reference_broker.log.snapshots import (
    NO_SNAPSHOT,
    SUFFIX,
    SnapshotHead,
    SnapshotKey,
    read_entries,
    read_head,
    read_state,
)
from reference_broker.log.state import Group, LogState
from reference_broker.log.wal import SUFFIX as WAL_SUFFIX
from reference_broker.log.wal import TEMPORARY, Wal, WalFiles, file_name
from reference_broker.log.wal_codec import SECTOR, STORE_ID_SIZE, WAL_MAGIC, Windows, check_file_header
from reference_broker.storage.errors import START_BLANK
from reference_broker.storage.files import Files, read_whole, write_whole
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term

IDENTITY: Final = "identity"
META: Final = "meta"


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
    configurations, in order. ``create_group`` was called with ``meta`` and returned ``log_uid``.
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


@dataclass(slots=True)
class Opened:
    """The parts of a log that was just read. ``resets`` must be written before anything else is."""

    state: LogState
    meta: MetaLog
    wal: Wal
    wal_files: WalFiles
    data_dir: str
    recovered: dict[GroupId, RecoveredGroup]
    resets: list[Group]


def open_parts(
    config: LogConfig,
    files: Files,
    notify: Callable[[list[Notice]], None],
    new_store: Callable[[], bytes],
    clock: Callable[[], int],
) -> Opened:
    """Read both directories. ``clock`` times all syncs, and the reading itself.

    Raises :class:`InvalidLogConfigError`, :class:`ForeignDirectoryError`, :class:`DamagedLogError`,
    :class:`~reference_broker.log.errors.MissingEntriesError`, or :class:`OSError`.
    """
    started = clock()
    problems = config.validate()
    if problems:
        raise InvalidLogConfigError("\n".join(str(problem) for problem in problems))
    wal_dir, data_dir = os.fspath(config.wal_dir), os.fspath(config.data_dir)
    counters = Counters()
    store = _identify(files, config, new_store)
    segment_files = SegmentFiles(files, config.segment_path, store, clock)
    state = LogState(counters, config.memtable_bytes, notify, segment_files, clock)
    files.make_dir(f"{data_dir}/{META}")
    meta = MetaLog(files, f"{data_dir}/{META}", store, counters, sync=config.sync, clock=clock)
    records = meta.recover(expected=any(name.endswith(WAL_SUFFIX) for name in files.names(wal_dir)))
    for directory in (data_dir, config.segment_path):
        _remove_foreign_groups(files, directory, records)
    facts, states = _read_snapshots(files, data_dir, state, records)
    wal_files = WalFiles(files, wal_dir, store, counters, config.recycle_files)
    for group in state.groups.values():
        _read_segments(files, segment_files, store, group)
    state.segmented.update(group for group in state.groups.values() if group.segments)
    recovery = _read_wal(files, state, wal_files, store, records)
    recovery.last_batch = max(recovery.last_batch, *(record.since for record in records.values()), 0)
    resets = [group for id_, group in state.groups.items() if join_snapshot(id_, group.table.disk, facts[id_])]
    recovered = {id_: _finish(state, group, records[id_], states[id_]) for id_, group in state.groups.items()}
    wal = _start_wal(state, wal_files, recovery, config, clock)
    counters.recovery_ns = clock() - started
    counters.recovery_bytes = recovery.octets
    counters.recovery_torn_tails += recovery.torn_tails
    return Opened(state, meta, wal, wal_files, data_dir, recovered, resets)


# Whose directories these are


def _identify(files: Files, config: LogConfig, new_store: Callable[[], bytes]) -> bytes:
    """The id that ties the directories together, made on first use.

    The data directory is marked last. So a marked data directory beside another one without a mark means that the
    other one's drive is missing, and starting would silently forget confirmed messages.
    """
    owner = f"cluster={config.cluster}\nnode={config.node}\n"
    wal_dir, data_dir = os.fspath(config.wal_dir), os.fspath(config.data_dir)
    others = {"WAL": wal_dir, "segment directory": config.segment_path}
    for directory in (*others.values(), data_dir):
        files.make_dir(directory)
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
    store = known or new_store()
    for directory, found in (
        (wal_dir, stores["WAL"]),
        (config.segment_path, stores["segment directory"]),
        (data_dir, data_store),
    ):
        if found is None:
            write_whole(files, f"{directory}/{IDENTITY}", f"{owner}store={store.hex()}\n".encode())
    return store


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


def _read_snapshots(
    files: Files, data_dir: str, state: LogState, records: dict[GroupId, GroupRecord]
) -> tuple[dict[GroupId, SnapshotFacts], dict[GroupId, bytes]]:
    facts: dict[GroupId, SnapshotFacts] = {}
    states: dict[GroupId, bytes] = {}
    for id_, record in records.items():
        group = Group(Table(id_), log_uid=record.log_uid)
        state.groups[id_] = group
        facts[id_], states[id_] = _read_newest(files, group_directory(data_dir, id_), group)
    return facts, states


def _read_newest(files: Files, directory: str, group: Group) -> tuple[SnapshotFacts, bytes]:
    """Put a group behind its newest valid snapshot, and remove older and unfinished snapshots.

    Damaged snapshots stay: if the log needs such a snapshot, somebody may be able to mend it.
    """
    table = group.table
    names = files.names(directory)
    machine_state, damaged = b"", 0
    for name in sorted((name for name in names if name.endswith(SUFFIX)), reverse=True):
        found = _read_snapshot(files, f"{directory}/{name}", group)
        if found is not None and found[0].log_uid != group.log_uid:
            files.remove(f"{directory}/{name}")  # of an earlier group of the same id
            names.remove(name)
            continue
        if found is not None:
            group.snapshot, machine_state = found
            break
        damaged = max(damaged, int(name.partition("_")[0], 16))
    if group.snapshot is not None:
        files.sync_dir(directory)
        table.start_at(*group.snapshot.key, group.snapshot.live)
        group.kept = group.snapshot.kept
        table.kept_floor = group.kept.last_index
    needed = {key.name for key in group.snapshot_keys()}
    for name in names:
        if name not in needed and (not name.endswith(SUFFIX) or name < max(needed)):
            files.remove(f"{directory}/{name}")
    head = group.snapshot
    installed = head is not None and head.installed
    return SnapshotFacts(*_key(head), table.live, installed, table.kept, table.kept_floor, damaged), machine_state


def _key(head: SnapshotHead | None) -> SnapshotKey:
    return head.key if head else NO_SNAPSHOT


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


# Segments and the WAL


def _read_segments(files: Files, segment_files: SegmentFiles, store: bytes, group: Group) -> None:
    """Replay the indexes of a group's segments in order of number. Payloads are checked when they are read."""
    directory = segment_files.group_directory(group.id)
    names = files.names(directory)
    if names:
        files.sync_dir(directory)
    for name in names:
        if not name.endswith(SEGMENT_SUFFIX):
            files.remove(f"{directory}/{name}")
            continue
        number = int(name.removesuffix(SEGMENT_SUFFIX))
        path = segment_files.path(group.id, number)
        file = files.open(path)
        try:
            head = decode_head(file.read(0, HEADER_SIZE), store, group.id, number)
            if head.log_uid != group.log_uid:
                files.remove(path)  # of an earlier group of the same id
                continue
            runs = decode_index(head, file.read(HEADER_SIZE, head.index_size))
            if file.size() != head.size:
                raise DamagedSegmentError(file.size(), f"a segment should have {head.size} octets")
        except DamagedSegmentError as error:
            raise DamagedLogError(path, error.offset, str(error)) from error
        finally:
            file.close()
        replay_segment(group.table.disk, head.truncates, runs)
        group.segments.append(describe(number, head.truncates, runs))


def _read_wal(
    files: Files, state: LogState, wal_files: WalFiles, store: bytes, records: Mapping[GroupId, GroupRecord]
) -> WalRecovery:
    """Replay every WAL file in order of number, and sync the files that were read."""
    tables = {id_: group.table.disk for id_, group in state.groups.items()}
    recovery = WalRecovery(store, tables, {id_: record.since for id_, record in records.items()})
    names = files.names(wal_files.directory)
    if names:
        files.sync_dir(wal_files.directory)
    for name in names:
        if name.endswith(TEMPORARY):
            files.remove(wal_files.path(name))
    for number in sorted(int(name.removesuffix(WAL_SUFFIX)) for name in names if name.endswith(WAL_SUFFIX)):
        path = wal_files.path(file_name(number))
        file = files.open(path)
        octets = Windows(file.read, file.size())
        wrong = check_file_header(path, octets.part(0, SECTOR), WAL_MAGIC, number, store)
        if wrong:
            file.close()
            raise DamagedLogError(path, 0, wrong)
        found = state.wal_files[number] = wal_files.opened(number, file)
        if recovery.replay(path, number, octets):
            file.datasync()
        found.entries = recovery.entries[number]
    return recovery


def _finish(state: LogState, group: Group, record: GroupRecord, machine_state: bytes) -> RecoveredGroup:
    """Make the table agree with the disk, and describe it to the owner."""
    table = group.table
    table.last = table.synced = max(table.floor, table.disk.last)
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
    )


def _start_wal(
    state: LogState, wal_files: WalFiles, recovery: WalRecovery, config: LogConfig, clock: Callable[[], int]
) -> Wal:
    """Go on in a file without batches: the prepared one if there is one, else a new one.

    A file that holds batches is never continued: behind its last batch may stand half of one that was torn.
    """
    newest = max(state.wal_files, default=0)
    if newest == 0 or newest in recovery.files_with_batches:
        newest += 1
        size = first_file_bytes(config.wal_file_bytes, config.node)
        state.wal_files[newest] = wal_files.prepare(newest, size)
    return Wal(state.wal_files[newest], recovery.last_batch + 1, state.counters, sync=config.sync, clock=clock)
