"""The octets of a WAL file: a header, then batches. Pure.

Theory of operation
-------------------
A *batch* is what one group commit wrote: a head, a table with one row per record, and then the payloads, back to back
in the order of the rows. One batch is written with one call and made durable with one sync, and the next batch is
written only after that sync returned. Four decisions let recovery tell damage, torn writes and old octets apart:

* Every batch starts on a 512-octet sector. A sector that was synced is never written again, so a torn write cannot
  reach back into it; and recovery can look for a batch behind a damaged one by trying sectors only.
* Batches are numbered through all files. A batch that is missing although a later one exists was synced once:
  that is damage, and recovery refuses. A batch that is missing at the very end was never synced: that is a torn
  tail, and recovery drops it.
* Each head carries the *mark* of its file's use, a keyed hash of the file's number under the store's id, and a CRC of
  its own. A recycled file is full of old batches, and a payload may be anything; no head among them has the mark. So
  recovery never believes a length that the log did not write: it reads and checks each octet of a file a few times
  at most, whatever stands there.
* A payload's CRC is the entry's own, computed once by the leader; writing checksums only head and rows.

The mark also protects against payloads that are made to look like batches: publishers choose octets, but the broker
never tells them the store's id. The id is in the identity files and in segments, and is never sent.

Back of the envelope: a batch of one entry costs one pack, two CRCs over 68 octets and one system call, about
3 us before the kernel's copy; each further entry costs 0.6 us.

All integers are big endian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from reference_broker.checksum import crc32
from reference_broker.log.errors import OtherFormatError

SECTOR: Final = 512
WAL_MAGIC: Final = b"QWAL"
META_MAGIC: Final = b"QMET"
_VERSIONS: Final = {WAL_MAGIC: 2, META_MAGIC: 3}
BEGUN: Final = 1
"""Flag of a meta file: its first batch was synced before the file got its name."""
NOTED: Final = 2
"""Flag of a WAL file: the high-water mark and the inventory were on disk before the file got its name."""
FIRST_BATCH: Final = SECTOR
"""Offset of the first batch: the file header has a sector to itself."""

_FILE: Final = Struct(">4sHHQ16sI")  # magic, version, flags, file number, store id, CRC of what stands before
_HEAD: Final = Struct(">8sQQII")  # mark, batch number, octets of payload, rows, CRC of the rows; behind it its own CRC
_CRC_SIZE: Final = 4
_LENGTH: Final = Struct(">QI")  # behind the file's fields: octets that the file had when it got its name, and their CRC
_ROW: Final = Struct(">QQQIIBBH")  # group, index, term, octets of payload, CRC of payload, kind, entry kind, 0
HEAD_SIZE: Final = _HEAD.size + _CRC_SIZE
ROW_SIZE: Final = _ROW.size
STORE_ID_SIZE: Final = 16
MARK_SIZE: Final = 8
_MISSING: Final = -1
WINDOW_BYTES: Final = 4 << 20
"""Size of a window, a multiple of a sector. A small window gets its memory from the C library's heap: windows of 32 MiB
were mapped and unmapped each time, and a start took twice the CPU. A batch larger than a window is read whole."""


class RowKind(IntEnum):
    """The meaning of a row. The first three are in WAL files, the others in the meta log."""

    ENTRY = 1
    """Entry ``index`` with ``term``; entries at and above ``index`` that stand before it are gone."""
    TRUNCATE = 2
    """Entries at and above ``index`` are gone."""
    RESET = 3
    """A snapshot at ``index`` was installed: every entry that stands before this row is gone."""
    GROUP = 4
    """The group exists; the payload is its owner's."""
    GROUP_DELETED = 5
    """The group is gone for good."""
    HARD_STATE = 6
    """``term`` and, in place of the index, the node voted for (0: none)."""


class Row(NamedTuple):
    """One record of a batch, without its payload."""

    group: int
    log_index: int
    term: int
    size: int
    crc: int
    kind: int
    entry_kind: int = 0
    reserved: int = 0


class Batch(NamedTuple):
    """One batch as found in a file: ``payload`` is where its first payload starts, ``end`` where its last ends."""

    number: int
    offset: int
    rows: list[Row]
    payload: int
    end: int


class Head(NamedTuple):
    """The head of a batch: its number, the octets of its payloads, the number of rows, and the CRC of the rows."""

    number: int
    octets: int
    rows: int
    crc: int


class Tail(NamedTuple):
    """The end of the sound batches in a file, and its reason.

    ``damage`` is the offset of a batch, or of a payload within one, that fails its check (-1: no sound head stands
    there). ``later`` is the offset of a later batch's sound head behind it (-1: none), which proves that the missing
    batch was synced.
    """

    end: int
    damage: int
    later: int


pack_row = _ROW.pack


def mark_of(store: bytes, number: int) -> bytes:
    """The mark of the batches in file ``number`` of a store. It cannot be made without the store's id."""
    return blake2b(number.to_bytes(8), key=store, digest_size=MARK_SIZE).digest()


def next_sector(offset: int) -> int:
    """The first sector boundary at or behind ``offset``."""
    return (offset + SECTOR - 1) & -SECTOR


def encode_file_header(magic: bytes, number: int, store: bytes, flags: int = 0, size: int = 0) -> bytes:
    """The first sector of a file of ``size`` octets."""
    fields = _FILE.pack(magic, _VERSIONS[magic], flags, number, store, 0)[:-4]
    length = _LENGTH.pack(size, crc32(size.to_bytes(8)))
    return (fields + crc32(fields).to_bytes(4) + length).ljust(SECTOR, b"\0")


def check_file_header(path: str, data: bytes | memoryview, magic: bytes, number: int, store: bytes) -> str | None:
    """The fault of a file header; None if the header belongs to this name and store.

    Raises :class:`OtherFormatError` for a sound header of another version.
    """
    if len(data) < SECTOR:
        return "the file is shorter than its header"
    found_magic, version, _flags, found_number, found_store, crc = _FILE.unpack_from(data)
    if crc != crc32(data[: _FILE.size - 4]):
        return "the file header fails its check"
    if found_magic != magic:
        return f"the file has format {found_magic!r}, not {magic!r}"
    if version != _VERSIONS[magic]:
        raise OtherFormatError(path, version, _VERSIONS[magic])
    if found_number != number:
        return f"the file says it has number {found_number}: it was renamed"
    if found_store != store:
        return "the file belongs to another node's log"
    return None


def file_flags(data: bytes | memoryview) -> int:
    """The flags in a file header that passed :func:`check_file_header`."""
    flags: int = _FILE.unpack_from(data)[2]
    return flags


def named_bytes(data: bytes | memoryview) -> int:
    """The octets of a file when it got its name, by its sound header; 0 if the header does not say."""
    size: int
    size, crc = _LENGTH.unpack_from(data, _FILE.size)
    return size if crc == crc32(size.to_bytes(8)) else 0


def encode_batch_head(mark: bytes, number: int, rows: list[bytes], payload_octets: int) -> bytes:
    """Head and rows of a batch; the payloads follow as they are."""
    table = b"".join(rows)
    head = _HEAD.pack(mark, number, payload_octets, len(rows), crc32(table))
    return head + crc32(head).to_bytes(_CRC_SIZE) + table


def batch_size(rows: int, payload_octets: int) -> int:
    """Octets that a batch takes, without the rest of its last sector."""
    return HEAD_SIZE + rows * ROW_SIZE + payload_octets


def read_head(octets: memoryview, at: int, mark: bytes) -> Head | None:
    """The head of a batch at ``at``; None unless the log wrote a head there in this use of the file."""
    head, crc = octets[at : at + _HEAD.size], octets[at + _HEAD.size : at + HEAD_SIZE]
    if head[:MARK_SIZE] != mark or len(crc) < _CRC_SIZE or crc32(head) != int.from_bytes(crc):
        return None
    _mark, *fields = _HEAD.unpack(head)
    return Head(*fields)


class Windows:
    """A file of ``size`` as octets, with one window in memory at a time.

    A start reads WAL files from their first octet to their last. A file may have grown far beyond its usual size,
    because its successor was late; read whole, it would need as much memory as it has octets. ``read(offset, size)``
    gives fewer octets than asked only at the end of the file.
    """

    __slots__ = ("_read", "_start", "_step", "_window", "size")

    def __init__(self, read: Callable[[int, int], bytes], size: int, step: int = WINDOW_BYTES) -> None:
        self._read = read
        self._step = step
        self._start = 0
        self._window = memoryview(b"")
        self.size = size

    @classmethod
    def of(cls, octets: bytes) -> Windows:
        """Octets that are in memory anyway."""
        return cls(lambda offset, size: octets[offset : offset + size], len(octets))

    def part(self, start: int, end: int) -> memoryview:
        """Octets ``start`` to ``end``, or to the end of the file. A part that is kept keeps its window."""
        start, end = min(start, self.size), min(end, self.size)
        if start < self._start or end > self._start + len(self._window):
            self._window = memoryview(b"")  # let go of it before the next one comes
            self._window = memoryview(self._read(start, max(end - start, min(self._step, self.size - start))))
            self._start = start
        return self._window[start - self._start : end - self._start]

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """All octets from ``start`` to ``end``, in pieces of a window at most, each with its offset."""
        while start < min(end, self.size):
            piece = self.part(start, min(end, start + self._step))
            yield start, piece
            start += max(1, len(piece))


def read_batch(file: Windows, offset: int, mark: bytes) -> Batch | int:
    """The batch at ``offset``. If it fails a check, the offset of the damage, or -1 if its head is not sound."""
    head = read_head(file.part(offset, offset + HEAD_SIZE), 0, mark)
    if head is None:
        return _MISSING
    table = offset + HEAD_SIZE
    payload = table + head.rows * ROW_SIZE
    data = file.part(table, payload + head.octets)
    if len(data) < payload + head.octets - table or crc32(data[: payload - table]) != head.crc:
        return offset
    rows = [Row(*fields) for fields in _ROW.iter_unpack(data[: payload - table])]
    at = payload - table
    for row in rows:
        if crc32(data[at : at + row.size]) != row.crc:
            return table + at
        at += row.size
    return Batch(head.number, offset, rows, payload, table + at) if at == len(data) else offset


def batches(file: Windows, mark: bytes) -> Iterator[Batch | Tail]:
    """Every sound batch of a file in order, and last the :class:`Tail` that says why no batch follows."""
    offset = FIRST_BATCH
    number = 0
    while isinstance(found := read_batch(file, offset, mark), Batch):
        if number and found.number != number + 1:
            break
        yield found
        number = found.number
        offset = next_sector(found.end)
    damage = offset if isinstance(found, Batch) else found
    yield Tail(offset, damage, find_later(file, offset, mark, number))


def find_later(file: Windows, offset: int, mark: bytes, number: int) -> int:
    """The offset of a sound head with a number behind the one that should stand at ``offset``, or -1.

    The head alone is enough: it is written only after the sync of the batch before returned. The first batch of a file
    may have any number, so with ``number`` 0 every sound head behind ``offset`` counts.
    """
    wanted = number + 2 if number else 1
    for start, piece in file.pieces(offset, file.size):
        for at in range(0, len(piece), SECTOR):
            if piece[at : at + MARK_SIZE] == mark:
                head = read_head(piece, at, mark)
                if head is not None and head.number >= wanted and (number or start + at != offset):
                    return start + at
    return _MISSING
