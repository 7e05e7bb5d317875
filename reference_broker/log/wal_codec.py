"""The octets of a WAL file: a header, then batches. Pure.

Theory of operation
-------------------
A *batch* is what one group commit wrote: a head, a table with one row per record, and then the payloads, back to
back in the order of the rows. One batch is written with one call and made durable with one sync, and the next
batch is written only after that sync returned. Four decisions follow from what recovery must be able to tell apart:

* Every batch starts on a 512-octet sector. A sector that was synced is never written again, so a torn write cannot
  reach back into it; and recovery can look for a batch behind a damaged one by trying sectors only.
* Batches are numbered through all files. A batch that is missing although a later one exists was synced once:
  that is damage, and recovery refuses. A batch that is missing at the very end was never synced: that is a torn
  tail, and recovery drops it.
* The head's CRC covers head and rows and is seeded with the store's id and the file's number. A recycled file is full
  of old batches; none of them has a valid head under the new number.
* A payload's CRC is the entry's own, computed once by the leader; writing checksums only the rows.

Back of the envelope: a batch of one entry costs one pack, one CRC over 56 octets and one system call, about
3 us before the kernel's copy; each further entry costs 0.6 us.

All integers are big endian.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from reference_broker.log.windows import Windows

SECTOR: Final = 512
WAL_MAGIC: Final = b"QWAL"
META_MAGIC: Final = b"QMET"
_VERSIONS: Final = {WAL_MAGIC: 1, META_MAGIC: 2}
BEGUN: Final = 1
"""Flag of a file: its first batch was synced before the file got its name."""
FIRST_BATCH: Final = SECTOR
"""Where the first batch starts: the file header has a sector to itself."""

_FILE: Final = Struct(">4sHHQ16sI")  # magic, version, flags, file number, store id, CRC of what stands before
_HEAD: Final = Struct(">IIQQ")  # CRC of the rest of the head and the rows, rows, batch number, octets of payload
_BODY: Final = Struct(">IQQ")
_ROW: Final = Struct(">QQQIIBBH")  # group, index, term, octets of payload, CRC of payload, kind, entry kind, 0
HEAD_SIZE: Final = _HEAD.size
ROW_SIZE: Final = _ROW.size
STORE_ID_SIZE: Final = 16
_MISSING: Final = -1


class RowKind(IntEnum):
    """What a row says. The first three stand in WAL files, the others in the meta log."""

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
    """``term`` and, in place of the index, the node voted for (0: nobody)."""


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


class Tail(NamedTuple):
    """Where the sound batches of a file end, and what was found there.

    ``damage`` is the offset of a batch, or of a payload within one, that fails its check (-1: nothing there
    looks like a batch). ``later`` is the offset of a sound batch behind it (-1: none), which proves that what is
    missing had been synced.
    """

    end: int
    damage: int
    later: int


pack_row = _ROW.pack


def seed_of(store: bytes, number: int) -> int:
    """The seed of all head CRCs in file ``number`` of a store."""
    return zlib.crc32(store + number.to_bytes(8))


def next_sector(offset: int) -> int:
    """The first sector boundary at or behind ``offset``."""
    return (offset + SECTOR - 1) & -SECTOR


def encode_file_header(magic: bytes, number: int, store: bytes, flags: int = 0) -> bytes:
    """The first sector of a file."""
    fields = _FILE.pack(magic, _VERSIONS[magic], flags, number, store, 0)[:-4]
    return (fields + zlib.crc32(fields).to_bytes(4)).ljust(SECTOR, b"\0")


def check_file_header(data: bytes | memoryview, magic: bytes, number: int, store: bytes) -> str | None:
    """What is wrong with a file header; None if it is the one that belongs to this name and store."""
    if len(data) < SECTOR:
        return "the file is shorter than its header"
    found_magic, version, _flags, found_number, found_store, crc = _FILE.unpack_from(data)
    if crc != zlib.crc32(data[: _FILE.size - 4]):
        return "the file header fails its check"
    if found_magic != magic or version != _VERSIONS[magic]:
        return f"the file has format {found_magic!r} version {version}, not {magic!r} version {_VERSIONS[magic]}"
    if found_number != number:
        return f"the file says it has number {found_number}: it was renamed"
    if found_store != store:
        return "the file belongs to another node's log"
    return None


def file_flags(data: bytes | memoryview) -> int:
    """The flags in a file header that passed :func:`check_file_header`."""
    flags: int = _FILE.unpack_from(data)[2]
    return flags


def encode_batch_head(seed: int, number: int, rows: list[bytes], payload_octets: int) -> bytes:
    """Head and rows of a batch; the payloads follow as they are."""
    body = _BODY.pack(len(rows), number, payload_octets) + b"".join(rows)
    return zlib.crc32(body, seed).to_bytes(4) + body


def batch_size(rows: int, payload_octets: int) -> int:
    """Octets that a batch takes, without the rest of its last sector."""
    return HEAD_SIZE + rows * ROW_SIZE + payload_octets


def read_batch(file: Windows, offset: int, seed: int) -> Batch | int:
    """The batch at ``offset``; if it fails a check, the offset of what is damaged, or -1 if its head is not sound."""
    if offset + HEAD_SIZE > file.size:
        return _MISSING
    head: tuple[int, int, int, int] = _HEAD.unpack(file.part(offset, offset + HEAD_SIZE))
    crc, count, number, octets = head
    payload = offset + HEAD_SIZE + count * ROW_SIZE
    if not count or payload + octets > file.size or file.crc(offset + 4, payload, seed) != crc:
        return _MISSING
    data = file.part(offset, payload + octets)
    rows = [Row(*fields) for fields in _ROW.iter_unpack(data[HEAD_SIZE : payload - offset])]
    at = payload - offset
    for row in rows:
        if zlib.crc32(data[at : at + row.size]) != row.crc:
            return offset + at
        at += row.size
    return Batch(number, offset, rows, payload, offset + at) if at == len(data) else offset


def batches(file: Windows, seed: int) -> Iterator[Batch | Tail]:
    """Every sound batch of a file in order, and last the :class:`Tail` that says why there are no more."""
    offset = FIRST_BATCH
    number = 0
    while isinstance(found := read_batch(file, offset, seed), Batch):
        if number and found.number != number + 1:
            break
        yield found
        number = found.number
        offset = next_sector(found.end)
    damage = offset if isinstance(found, Batch) else found
    yield Tail(offset, damage, find_later(file, offset, seed, number))


def find_later(file: Windows, offset: int, seed: int, number: int) -> int:
    """The offset of a batch with a sound head and a number behind the one that should stand at ``offset``, or -1.

    The first batch of a file may have any number, so with ``number`` 0 every sound head behind ``offset`` counts.
    """
    wanted = number + 2 if number else 1
    for at in _heads(file, offset, wanted):
        crc, count, _found, _octets = _HEAD.unpack(file.part(at, at + HEAD_SIZE))
        end = at + HEAD_SIZE + count * ROW_SIZE
        if (number or at != offset) and end <= file.size and file.crc(at + 4, end, seed) == crc:
            return at
    return _MISSING


def _heads(file: Windows, offset: int, wanted: int) -> Iterator[int]:
    """The offsets of all sectors from ``offset`` on that may hold the head of batch ``wanted`` or a later one."""
    for start, piece in file.pieces(offset, file.size):
        for at in range(0, len(piece) - HEAD_SIZE + 1, SECTOR):
            _crc, count, found, _octets = _HEAD.unpack_from(piece, at)
            if found >= wanted and count:
                yield start + at
