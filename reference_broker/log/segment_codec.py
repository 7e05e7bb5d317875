"""The octets of a segment: a header, an index in columns, and the payloads. Pure.

A segment holds entries of one group that are still needed when their WAL file goes. A segment is written once, gets its
name when all of it is synced, and never changes. A group's segments, replayed in order of number, give the log of the
group at the moment when the last segment was written. A run of entries replaces earlier entries at or above its first
index, and a segment that *truncates* first drops entries at or above an index. The rows of the WAL do the same, so the
remaining WAL files are replayed on top, whether they were copied into segments already or not.

The index stands in columns, so that a million entries are read with five copies of memory instead of a million steps.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from reference_broker.checksum import crc32
from reference_broker.log.extents import Extent
from reference_broker.log.wal_codec import next_sector
from reference_broker.records import record
from reference_broker.types import GroupId

MAGIC: Final = b"QSEG"
VERSION: Final = 2
# magic, version, flags, group, number, store id, log_uid, truncates from, runs, entries, octets, CRC of index
_HEADER: Final = Struct(">4sHHQQ16sQQIIQI")
HEADER_SIZE: Final = _HEADER.size + 4
_RUN: Final = Struct(">QI")  # first index, entries
_COLUMNS: Final = 25
"""Octets of an entry in the index: offset 8, term 8, length 4, CRC 4, kind 1."""


class DamagedSegmentError(Exception):
    """A segment has changed since it was written; ``offset`` says where."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


@record
class SegmentHead:
    """All of a segment except its entries. ``truncates`` is the index from which on older segments' entries are gone
    (0: none); ``log_uid`` tells a group from an earlier group of the same id, as in the meta log."""

    group: GroupId
    number: int
    log_uid: int
    truncates: int
    runs: int
    entries: int
    octets: int
    index_crc: int

    @property
    def index_size(self) -> int:
        """Octets of the index, which stands behind the header."""
        return self.runs * _RUN.size + self.entries * _COLUMNS

    @property
    def size(self) -> int:
        """Octets of the file."""
        return data_offset(self.runs, self.entries) + self.octets


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The facts about a segment file that stay in memory. ``first`` and ``last`` are 0 if it has no entries."""

    number: int
    truncates: int
    first: int
    last: int
    entries: int
    octets: int

    @property
    def lowest(self) -> int:
        """The index from which on this segment replaces older segments."""
        return self.truncates or self.first


def describe(number: int, truncates: int, runs: Sequence[Extent]) -> Segment:
    """The facts of a segment with these runs."""
    first, last = (runs[0].first, runs[-1].last) if runs else (0, 0)
    entries, octets = sum(len(run.sizes) for run in runs), sum(sum(run.sizes) for run in runs)
    return Segment(number, truncates, first, last, entries, octets)


def chain_last(segments: Iterable[Segment]) -> int:
    """The last index of the log that a start would find in these segments, which ascend; 0 if there is none."""
    last = 0
    for segment in segments:
        if segment.truncates:
            last = min(last, segment.truncates - 1)
        if segment.entries:
            last = segment.last
    return last


def file_of(number: int) -> int:
    """The file number of segment ``number`` in a place. It is negative, because WAL files count from 1 upwards."""
    return -number


def data_offset(runs: int, entries: int) -> int:
    """The offset of the first payload."""
    return next_sector(HEADER_SIZE + runs * _RUN.size + entries * _COLUMNS)


def placed(number: int, runs: Sequence[Extent]) -> list[Extent]:
    """The same entries, at the places that they get in segment ``number``: back to back, in order."""
    result = []
    offset = data_offset(len(runs), sum(len(run.sizes) for run in runs))
    for run in runs:
        copy = run.part(run.first, run.last)
        copy.file = file_of(number)
        for at, size in enumerate(run.sizes):
            copy.offsets[at] = offset
            offset += size
        result.append(copy)
    return result


def encode(store: bytes, group: GroupId, number: int, log_uid: int, truncates: int, runs: Sequence[Extent]) -> bytes:
    """Header and index, up to the first payload, of a segment whose entries were :func:`placed`."""
    index = b"".join(
        [
            *(_RUN.pack(run.first, len(run.sizes)) for run in runs),
            *(_big_endian(run.offsets) for run in runs),
            *(_big_endian(run.terms) for run in runs),
            *(_big_endian(run.sizes) for run in runs),
            *(_big_endian(run.crcs) for run in runs),
            *(bytes(run.kinds) for run in runs),
        ]
    )
    entries, octets = sum(len(run.sizes) for run in runs), sum(sum(run.sizes) for run in runs)
    crc = crc32(index)
    header = _HEADER.pack(MAGIC, VERSION, 0, group, number, store, log_uid, truncates, len(runs), entries, octets, crc)
    return (header + crc32(header).to_bytes(4) + index).ljust(data_offset(len(runs), entries), b"\0")


def decode_head(octets: bytes, store: bytes, group: GroupId, number: int) -> SegmentHead:
    """Read and check a header. Raises :class:`DamagedSegmentError`."""
    if len(octets) < HEADER_SIZE or crc32(octets[: _HEADER.size]) != int.from_bytes(octets[_HEADER.size :]):
        raise DamagedSegmentError(0, "the header of a segment fails its check")
    magic, version, _flags, *fields = _HEADER.unpack_from(octets)
    found_group, found_number, found_store, log_uid, truncates, runs, entries, size, crc = fields
    if (magic, version) != (MAGIC, VERSION):
        raise DamagedSegmentError(
            0, f"the file has format {magic!r} version {version}, not {MAGIC!r} version {VERSION}"
        )
    if found_store != store:
        raise DamagedSegmentError(0, "the segment belongs to another node's log")
    if (found_group, found_number) != (group, number):
        raise DamagedSegmentError(0, f"the segment is number {found_number} of group {found_group:016x}: it was moved")
    return SegmentHead(group, number, log_uid, truncates, runs, entries, size, crc)


def decode_index(head: SegmentHead, octets: bytes) -> list[Extent]:
    """Read and check an index. Raises :class:`DamagedSegmentError`."""
    if len(octets) != head.index_size or crc32(octets) != head.index_crc:
        raise DamagedSegmentError(HEADER_SIZE, "the index of a segment fails its check")
    view = memoryview(octets)
    count, at = head.entries, head.runs * _RUN.size
    offsets, terms = _column("Q", view[at : at + 8 * count]), _column("Q", view[at + 8 * count : at + 16 * count])
    at += 16 * count
    sizes, crcs = _column("I", view[at : at + 4 * count]), _column("I", view[at + 4 * count : at + 8 * count])
    kinds = bytearray(view[at + 8 * count :])
    runs, start = [], 0
    for first, length in _RUN.iter_unpack(view[: head.runs * _RUN.size]):
        run, end = Extent(file_of(head.number), first), start + length
        run.offsets, run.terms, run.sizes = offsets[start:end], terms[start:end], sizes[start:end]
        run.crcs, run.kinds = crcs[start:end], kinds[start:end]
        runs.append(run)
        start = end
    return runs


def _column(code: str, octets: memoryview) -> array[int]:
    column: array[int] = array(code)
    column.frombytes(octets)
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _big_endian(column: array[int]) -> bytes:
    if sys.byteorder == "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()
