"""The meta log: which groups exist, and the term and vote of each.

The meta log is an append-only log of small batches in the format of the WAL. When a file is full, the rows that are
still true are written into the next file, which gets its name only once it is synced; then the old file is removed.
Each start does the same, so nothing is ever written behind a torn tail.

A member that forgets its vote could vote twice, and no other member has a copy of the vote. So each batch is written
twice, at the same offset of both halves of the file, and synced once. After the sync both copies are sound, and damage
to one copy leaves the other. Both copies can be unsound only if the sync never returned (``docs/decisions``, 9).

Invariants: a term never goes back across a crash, and never comes without its vote (one row holds both, I6);
a group's creation is on disk before any of its entries, because the writer thread syncs this log before the WAL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from reference_broker.checksum import crc32
from reference_broker.log.counters import Counters
from reference_broker.log.errors import DamagedLogError
from reference_broker.log.high_water import HighWater
from reference_broker.log.recovery import GroupRecord, replay_meta
from reference_broker.log.wal_codec import (
    BEGUN,
    FIRST_BATCH,
    META_MAGIC,
    RowKind,
    batch_size,
    encode_batch_head,
    encode_file_header,
    mark_of,
    next_sector,
    pack_row,
)
from reference_broker.storage.files import File, Files, read_whole, sync_ns
from reference_broker.types import GroupId, NodeId, Term

SUFFIX: Final = ".meta"
HALF_BYTES: Final = 256 * 1024
"""Octets of half a file: room for 500 elections between two rewrites. The file is small, because each start fills one
with zeros."""
_APART: Final = 4096
"""Size of a physical sector, to which each half is rounded. A drive that reports sectors of 512 octets has larger ones,
mostly of this size, and damage takes a whole physical sector."""


class MetaLog:
    """Writes the meta log. Used by the writer thread."""

    def __init__(
        self, files: Files, directory: str, store: bytes, counters: Counters, *, sync: bool, clock: Callable[[], int]
    ) -> None:
        self._files = files
        self._directory = directory
        self._store = store
        self._counters = counters
        self._sync = sync
        self._clock = clock
        self._number = 0
        self._batch = 0
        self._offset = 0
        self._half = 0
        self._file: File | None = None
        self._high_water: HighWater | None = None
        self.sync_ns = 0
        """Duration of the last sync."""
        self.records: dict[GroupId, GroupRecord] = {}
        self._rows: list[bytes] = []
        self._payloads: list[bytes] = []

    def recover(self, *, expected: bool, noted: tuple[int, int]) -> dict[GroupId, GroupRecord]:
        """Read the newest file, and change nothing.

        ``expected`` says that there must be one, ``noted`` which file and batch of it was synced for certain. Raises
        :class:`DamagedLogError` if the file is damaged or missing, or an older copy.
        """
        numbers = [int(name.removesuffix(SUFFIX)) for name in self._names() if name.endswith(SUFFIX)]
        if numbers:
            self._number = max(numbers)
            self.records = self._read(self._number)
        elif expected:
            raise DamagedLogError(self._directory, 0, "the meta log is missing, yet there is a WAL that belongs to it")
        if (self._number, self._batch) < noted:
            reason = f"the meta log ends at batch {self._batch}, but batch {noted[1]} of file {noted[0]} was synced"
            raise DamagedLogError(self._path(self._number), self._offset, reason)
        return self.records

    def begin(self) -> tuple[int, int]:
        """Write the records into a new file, and remove every other file. Returns the new file and its last batch."""
        self._compact()
        return self._number, self._batch

    def note_in(self, high_water: HighWater) -> None:
        """From now on, note synced batches there."""
        self._high_water = high_water

    def _names(self) -> list[str]:
        return self._files.names(self._directory)

    def _path(self, number: int, suffix: str = SUFFIX) -> str:
        return f"{self._directory}/{number:08d}{suffix}"

    def _read(self, number: int) -> dict[GroupId, GroupRecord]:
        path = self._path(number)
        found = replay_meta(path, read_whole(self._files, path), number, self._store)
        self._counters.recovery_torn_tails += found.torn
        self._counters.recovery_meta_single += found.single
        self._batch, self._offset = found.batches, found.end
        return found.records

    def create_group(self, group: GroupId, meta: bytes, since: int, log_uid: int) -> None:
        """Note a new group, whose entries come in WAL batches after ``since``; :meth:`flush` makes it durable."""
        record = self.records[group] = GroupRecord(meta, since=since, log_uid=log_uid)
        self._add(_group_row(group, record), meta)

    def delete_group(self, group: GroupId) -> None:
        """Note that a group is gone."""
        if self.records.pop(group, None) is not None:
            self._add(pack_row(group, 0, 0, 0, 0, RowKind.GROUP_DELETED, 0, 0), b"")

    def hard_state(self, group: GroupId, term: Term, voted_for: NodeId, *, forgetful: bool) -> None:
        """Note term and vote of a group that exists, and whether its member is forgetful."""
        record = self.records.get(group)
        if record is not None:
            record.term, record.voted_for, record.forgetful = term, voted_for, forgetful
            self._add(_hard_state_row(group, record), b"")

    def _add(self, row: bytes, payload: bytes) -> None:
        self._rows.append(row)
        self._payloads.append(payload)

    def flush(self) -> bool:
        """Write and sync the rows that were noted. False if there are none."""
        if not self._rows:
            return False
        octets = sum(map(len, self._payloads))
        if self._offset + batch_size(len(self._rows), octets) > self._half:
            self._compact()
        else:
            self._append(self._rows, self._payloads, octets)
        self._rows, self._payloads = [], []
        if self._high_water is not None:
            self._high_water.meta_synced(self._number, self._batch)
        return True

    def _append(self, rows: list[bytes], payloads: list[bytes], octets: int) -> None:
        head = encode_batch_head(mark_of(self._store, self._number), self._batch + 1, rows, octets)
        self._write([head, *payloads], self._offset)
        self._datasync()
        self._batch += 1
        self._offset = next_sector(self._offset + len(head) + octets)
        self._counters.meta_writes += 1

    def _write(self, buffers: list[bytes], offset: int) -> None:
        assert self._file is not None
        for base in (0, self._half):
            self._file.write(buffers, base + offset)

    def _datasync(self) -> None:
        if self._sync and self._file is not None:
            self.sync_ns = sync_ns(self._file, self._clock)

    def _compact(self) -> None:
        """Write the rows that are still true into a new file, then remove the others."""
        rows, payloads = _all_rows(self.records)
        octets = sum(map(len, payloads))
        self.close()
        self._number += 1
        self._batch = 0
        self._offset = FIRST_BATCH
        self._half = max(HALF_BYTES, -(-2 * (FIRST_BATCH + batch_size(len(rows), octets)) // _APART) * _APART)
        temporary = self._path(self._number, ".tmp")
        self._file = self._files.create(temporary, 2 * self._half)
        self._write([encode_file_header(META_MAGIC, self._number, self._store, BEGUN if rows else 0)], 0)
        if rows:
            self._append(rows, payloads, octets)
        self.sync_ns = sync_ns(self._file, self._clock)
        self._files.rename(temporary, self._path(self._number))
        self._files.sync_dir(self._directory)
        self._counters.meta_compactions += 1
        for name in self._names():
            if name != f"{self._number:08d}{SUFFIX}":
                self._files.remove(f"{self._directory}/{name}")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _group_row(group: GroupId, record: GroupRecord) -> bytes:
    return pack_row(group, record.since, record.log_uid, len(record.meta), crc32(record.meta), RowKind.GROUP, 0, 0)


def _hard_state_row(group: GroupId, record: GroupRecord) -> bytes:
    return pack_row(group, record.voted_for, record.term, 0, 0, RowKind.HARD_STATE, record.forgetful, 0)


def _all_rows(records: Mapping[GroupId, GroupRecord]) -> tuple[list[bytes], list[bytes]]:
    rows: list[bytes] = []
    payloads: list[bytes] = []
    for group, record in records.items():
        rows += [_group_row(group, record), _hard_state_row(group, record)]
        payloads += [record.meta, b""]
    return rows, payloads
