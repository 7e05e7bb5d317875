"""From the octets of WAL and meta files back to logs. Pure.

Segments come first; the remaining WAL files are replayed on top, in ascending order. Each sound batch is replayed row
by row through the same operations that the running log uses. The numbers decide about the end of the sound batches in a
file (:mod:`reference_broker.log.wal_codec`). If a batch is missing and a later one exists, the missing batch had been
synced. This is damage: recovery refuses, and names file and offset. For a batch that is missing at the very end, the
high-water mark and the inventory decide (:mod:`~reference_broker.log.high_water`,
:mod:`~reference_broker.log.inventory`): either it was synced, and the members of all groups have forgotten entries; or
its entries were never noticed, and it is dropped.

Invariants: nothing that was noticed as written is dropped without a word (I10); the log above the snapshot has no hole,
and every live entry is there, or recovery refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reference_broker.log.errors import DamagedLogError, MissingEntriesError
from reference_broker.log.extents import Extent, Extents, Place, Ranges
from reference_broker.log.wal_codec import (
    BEGUN,
    FIRST_BATCH,
    HEAD_SIZE,
    META_MAGIC,
    SECTOR,
    Batch,
    Row,
    RowKind,
    Tail,
    Windows,
    batches,
    check_file_header,
    file_flags,
    find_later,
    mark_of,
    next_sector,
    read_batch,
)
from reference_broker.storage.findings import StartFinding
from reference_broker.types import GroupId

_RECOVERS: Final = (
    "nothing, while the other nodes can elect leaders: this node neither votes nor leads until they have brought it up "
    "to date. If they cannot, start the nodes that are down, or make one node the truth: perftest broker recover"
)


@dataclass(slots=True)
class WalRecovery:
    """Replays WAL files. ``groups`` are the groups that exist; rows of others are skipped, and so are rows in batches
    up to ``since`` of a group, which were there before it was created."""

    store: bytes
    groups: Mapping[GroupId, Extents]
    since: Mapping[GroupId, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    """The number of log entries in each file, of groups that exist."""
    files_with_batches: set[int] = field(default_factory=set)
    """The files that hold a batch, even of a group that is gone."""
    missing_end: list[StartFinding] = field(default_factory=list)
    """Evidence that synced batches are missing at the end of the WAL."""
    last_batch: int = 0
    torn_tails: int = 0
    octets: int = 0
    _first_file: int = 0
    _last_file: int = 0

    def replay(self, name: str, number: int, file: Windows) -> int:
        """Replay one file whose header is sound. Returns the number of batches in it."""
        if self._last_file and number != self._last_file + 1:
            raise DamagedLogError(name, 0, f"WAL file {self._last_file + 1} is missing, yet file {number} is there")
        self._first_file = self._first_file or number
        self.entries.setdefault(number, 0)
        count = 0
        for found in batches(file, mark_of(self.store, number)):
            if isinstance(found, Tail):
                self._judge_tail(name, found)
                break
            if not count:
                self._check_chain(name, found)
            count += 1
            self.files_with_batches.add(number)
            self._replay_batch(number, found)
            self.last_batch = found.number
        self._last_file = number
        self.octets += file.size
        return count

    def _check_chain(self, name: str, batch: Batch) -> None:
        """Batches are numbered through all files: a torn tail was written again under its number."""
        if self.last_batch and batch.number != self.last_batch + 1:
            reason = f"batch {self.last_batch + 1} is missing, yet batch {batch.number} follows it"
            raise DamagedLogError(name, batch.offset, reason)

    def judge_end(self, directory: str, newest: int, noted_file: int, noted_batch: int) -> None:
        """Compare the end of the WAL with the notes: file ``newest`` was there, and batch ``noted_batch`` was synced in
        file ``noted_file``. A noted file older than all files was removed as dead."""
        if self._last_file < newest:
            self.misses(directory, f"the WAL ends with file {self._last_file}, but file {newest} was there")
        elif noted_file < self._first_file:
            self.last_batch = max(self.last_batch, noted_batch)
        if self.last_batch < noted_batch:
            self.misses(directory, f"the WAL ends at batch {self.last_batch}, but batch {noted_batch} was synced")

    def misses(self, where: str, what: str) -> None:
        """Note evidence."""
        self.missing_end.append(StartFinding(what=what, where=where, fix=_RECOVERS))

    def _judge_tail(self, name: str, tail: Tail) -> None:
        if tail.later >= 0:
            reason = f"a batch fails its check, and a sound one follows it at offset {tail.later}"
            raise DamagedLogError(name, tail.end if tail.damage < 0 else tail.damage, reason)
        self.torn_tails += tail.damage >= 0

    def _replay_batch(self, number: int, batch: Batch) -> None:
        at, entries = batch.payload, 0
        for row in batch.rows:
            group = GroupId(row.group)
            extents = self.groups.get(group)
            if extents is not None and batch.number > self.since.get(group, 0):
                replay_row(extents, row, number, at)
                entries += row.kind == RowKind.ENTRY
            at += row.size
        self.entries[number] += entries


def replay_row(extents: Extents, row: Row, file: int, offset: int) -> None:
    """Carry out one row."""
    if row.kind == RowKind.ENTRY:
        extents.add(row.log_index, Place(file, offset, row.size, row.crc, row.term, row.entry_kind))
    elif row.kind == RowKind.TRUNCATE:
        extents.truncate_from(row.log_index)
    elif row.kind == RowKind.RESET:
        extents.clear()


def replay_segment(extents: Extents, truncates: int, runs: Iterable[Extent]) -> None:
    """Carry out one segment: first its truncation, then its runs of entries."""
    if truncates:
        extents.truncate_from(truncates)
    for run in runs:
        extents.add_run(run)


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Recovery's facts about a group's newest sound snapshot. ``kept`` holds the live entries up to ``kept_floor``;
    ``damaged`` is the last index of a newer snapshot that cannot be used or is missing (0: there is none)."""

    index: int = 0
    term: int = 0
    live: Ranges = ()
    installed: bool = False
    kept: Extents = field(default_factory=Extents)
    kept_floor: int = 0
    damaged: int = 0


def join_snapshot(group: GroupId, extents: Extents, snapshot: SnapshotFacts) -> bool:
    """Bring the replayed log in line with the snapshot, and check that log and live entries are whole.

    A snapshot that was installed right before a crash may meet a log that knows nothing of it. If that log has
    another term at the snapshot's index, it is a dead branch and is dropped (Figure 13, step 7); then the
    result is True, and a reset must be written before anything is appended, or the branch would return.

    Raises :class:`MissingEntriesError` if an entry is missing.
    """
    dropped = False
    if snapshot.installed:
        place = extents.find(snapshot.index)
        if place is not None and place.term != snapshot.term:
            extents.clear()
            dropped = True
    extents.keep(snapshot.index, snapshot.live)
    last = extents.last
    hole = extents.missing(snapshot.index + 1, last) if last > snapshot.index else 0
    if hole:
        raise MissingEntriesError(group, hole, last, f"the log should go on behind entry {hole - 1}")
    if max(last, snapshot.index) < snapshot.damaged:
        reason = f"snapshot {snapshot.damaged} is damaged or missing, and what it covered is gone"
        raise MissingEntriesError(group, max(last, snapshot.index) + 1, snapshot.damaged, reason)
    for first, end in snapshot.live:
        _check_live(group, extents, snapshot, first, end)
    return dropped


def _check_live(group: GroupId, extents: Extents, snapshot: SnapshotFacts, first: int, last: int) -> None:
    boundary = min(last, snapshot.kept_floor)
    hole = snapshot.kept.missing(first, boundary) or extents.missing(max(first, boundary + 1), last)
    if hole:
        reason = f"snapshot {snapshot.index} still needs the entry {hole}"
        raise MissingEntriesError(group, first, last, reason)


@dataclass(slots=True)
class GroupRecord:
    """The meta log's record of a group. The group's entries are in WAL batches after ``since``, and its ``log_uid``
    stands in its snapshots and segments. So the files of an earlier group of the same id are never taken for its
    own."""

    meta: bytes
    term: int = 0
    voted_for: int = 0
    since: int = 0
    log_uid: int = 0
    forgetful: bool = False
    """The member may have forgotten entries that it had on disk (:class:`reference_broker.raft.core.RaftCore`)."""


@dataclass(slots=True)
class MetaRecovery:
    """The contents of a meta file: which groups exist, and how sound the file was.

    ``torn`` tells of a batch at the end that was never synced; ``single`` counts batches with only one sound copy.
    ``batches`` is the number of batches read, and ``end`` the end of the last one.
    """

    records: dict[GroupId, GroupRecord] = field(default_factory=dict)
    torn: bool = False
    single: int = 0
    batches: int = 0
    end: int = FIRST_BATCH


def replay_meta(name: str, octets: bytes, number: int, store: bytes) -> MetaRecovery:
    """Read meta file ``number``, whose two halves say the same.

    If one half lost a batch, the other half has it. Raises :class:`DamagedLogError` if both halves lost a synced batch,
    or if it is another file. A batch at the very end that neither half holds whole was never synced, and is dropped.
    """
    half = len(octets) // 2
    halves = [Windows.of(octets[:half]), Windows.of(octets[half:])]
    wrong = [check_file_header(name, copy.part(0, SECTOR), META_MAGIC, number, store) for copy in halves]
    if wrong[0] and wrong[1]:
        raise DamagedLogError(name, 0, f"{wrong[0]}; in its second half, from {half} on: {wrong[1]}")
    found = MetaRecovery(single=sum(map(bool, wrong)))
    flags = file_flags(halves[1 if wrong[0] else 0].part(0, SECTOR))
    mark, offset, batch = mark_of(store, number), FIRST_BATCH, 1
    while sound := [
        (copy, read)
        for copy in halves
        if isinstance(read := read_batch(copy, offset, mark), Batch) and read.number == batch
    ]:
        found.single += len(sound) == 1
        _replay_meta_batch(found.records, *sound[0])
        offset, batch = next_sector(sound[0][1].end), batch + 1
    found.batches, found.end = batch - 1, offset
    found.torn = _judge_meta_end(name, halves, offset, mark, batch, begun=bool(flags & BEGUN))
    return found


def _judge_meta_end(name: str, halves: list[Windows], offset: int, mark: bytes, batch: int, *, begun: bool) -> bool:
    """Whether a batch was torn at ``offset``, where neither half holds a sound one."""
    where = f"both copies of a batch fail their check, here and at offset {offset + halves[0].size}"
    if batch == 1 and begun:
        raise DamagedLogError(name, offset, f"{where}; it was synced before the file got its name")
    for copy, base in zip(halves, (0, halves[0].size), strict=True):
        later = find_later(copy, offset, mark, batch - 1)
        if later >= 0:
            raise DamagedLogError(name, offset, f"{where}, and a sound one follows at offset {base + later}")
    return any(any(copy.part(offset, offset + HEAD_SIZE)) for copy in halves)


def _replay_meta_batch(records: dict[GroupId, GroupRecord], copy: Windows, batch: Batch) -> None:
    at = batch.payload
    for row in batch.rows:
        _replay_meta_row(records, row, bytes(copy.part(at, at + row.size)))
        at += row.size


def _replay_meta_row(records: dict[GroupId, GroupRecord], row: Row, payload: bytes) -> None:
    group = GroupId(row.group)
    if row.kind == RowKind.GROUP:
        records[group] = GroupRecord(payload, since=row.log_index, log_uid=row.term)
    elif row.kind == RowKind.GROUP_DELETED:
        records.pop(group, None)
    elif row.kind == RowKind.HARD_STATE and group in records:
        records[group].term = row.term
        records[group].voted_for = row.log_index
        records[group].forgetful = bool(row.entry_kind)
