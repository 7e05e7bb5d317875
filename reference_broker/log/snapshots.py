"""Snapshots: one format for the file on disk and for the stream that InstallSnapshot carries.

Theory of operation
-------------------
A snapshot is a head (group, index, term, the live ranges), the machine's state, and, if it came from another member,
the live entries. A member's own snapshot leaves its live entries where they are, in the WAL. To send one, the sender
appends the live entries to the same octets; the receiver stores the stream as it comes, checks it, and renames the
file, which installs state and entries in one step.

The newest snapshot wins. A member that installed a snapshot and later takes its own may still need live entries that
came with the installed snapshot. Then the new head names the installed snapshot (``kept``), and its file stays.

Invariants: a ``.snapshot`` name appears only after the content is synced; a file is checked in full before it is
believed; the files that a sender reads stay pinned until they are released.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Protocol

from reference_broker.checksum import crc32
from reference_broker.log.errors import DamagedSnapshotError
from reference_broker.log.extents import Extents, Place, Ranges, checked
from reference_broker.storage.files import File
from reference_broker.types import Entry, GroupId

CHUNK_BYTES: Final = 1 << 20
KEPT_FILE: Final = 0
"""File number of places in a snapshot file; WAL files count from 1."""
SUFFIX: Final = ".snapshot"
INCOMING: Final = "incoming.tmp"
OUTGOING: Final = "taking.tmp"

_MAGIC: Final = b"QSNP"
_VERSION: Final = 2
_INSTALLED: Final = 1
# magic, version, flags, group, log_uid, index, term, kept index, kept term, octets of state, CRC of state, ranges
_HEAD: Final = Struct(">4sHHQQQQQQQII")
_CRC_SIZE: Final = 4
_FIXED_SIZE: Final = _HEAD.size + _CRC_SIZE
_RANGE: Final = Struct(">QQ")
_ENTRY: Final = Struct(">QQIIB")  # index, term, octets of payload, CRC of payload, entry kind; CRC of these
_RECORD_SIZE: Final = _ENTRY.size + _CRC_SIZE
_READ_BYTES: Final = 1 << 20

Read = Callable[[int, int], bytes]
"""Function that reads ``size`` octets at ``offset``, and fewer only at the end."""


class SnapshotKey(NamedTuple):
    """The name of a snapshot within its group."""

    last_index: int
    last_term: int

    @property
    def name(self) -> str:
        """The file's name; names sort by index."""
        return f"{self.last_index:016x}_{self.last_term:016x}{SUFFIX}"


NO_SNAPSHOT: Final = SnapshotKey(0, 0)


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """All of a snapshot but its state and entries. ``kept`` names the file with live entries, (0, 0): none.

    ``log_uid`` tells a group from an earlier group of the same id, as in the meta log; it is 0 in a stream that is
    sent.
    """

    group: GroupId
    log_uid: int
    key: SnapshotKey
    installed: bool
    kept: SnapshotKey
    state_size: int
    state_crc: int
    live: Ranges

    @property
    def size(self) -> int:
        """Octets of the encoded head: where the state starts."""
        return _FIXED_SIZE + len(self.live) * _RANGE.size + _CRC_SIZE

    @property
    def entries_offset(self) -> int:
        """The offset of the entries, if there are any."""
        return self.size + self.state_size

    def encode(self) -> bytes:
        """The octets before the state."""
        fields = _HEAD.pack(
            _MAGIC,
            _VERSION,
            _INSTALLED if self.installed else 0,
            self.group,
            self.log_uid,
            *self.key,
            *self.kept,
            self.state_size,
            self.state_crc,
            len(self.live),
        )
        body = _with_crc(fields) + b"".join(_RANGE.pack(*pair) for pair in self.live)
        return _with_crc(body)


def _with_crc(octets: bytes) -> bytes:
    return octets + crc32(octets).to_bytes(_CRC_SIZE)


def _passes(octets: bytes) -> bool:
    return len(octets) > _CRC_SIZE and _with_crc(octets[:-_CRC_SIZE]) == octets


def read_head(read: Read, name: str) -> SnapshotHead:
    """Read and check a head. Raises :class:`DamagedSnapshotError`, which names ``name``.

    The part that says how many ranges follow has a check of its own: a damaged count must not decide the octets to
    read.
    """
    fixed = read(0, _FIXED_SIZE)
    if not _passes(fixed):
        raise DamagedSnapshotError(f"a snapshot's head fails its check\n  {name}, offset 0\n  it is not used")
    fields = _HEAD.unpack_from(fixed)
    magic, version, flags, group, log_uid, index, term, kept_index, kept_term, state_size, state_crc, count = fields
    if (magic, version) != (_MAGIC, _VERSION):
        raise DamagedSnapshotError(f"a snapshot of another format\n  {name}, offset 0\n  it is not used")
    rest = read(_FIXED_SIZE, count * _RANGE.size + _CRC_SIZE)
    if not _passes(fixed + rest):
        raise DamagedSnapshotError(
            f"a snapshot's live ranges fail their check\n  {name}, offset {_FIXED_SIZE}\n  it is not used"
        )
    live = tuple(_RANGE.iter_unpack(rest[:-_CRC_SIZE]))
    key, kept = SnapshotKey(index, term), SnapshotKey(kept_index, kept_term)
    return SnapshotHead(GroupId(group), log_uid, key, bool(flags & _INSTALLED), kept, state_size, state_crc, live)


def read_state(read: Read, head: SnapshotHead, name: str) -> bytes:
    """Read and check the state. Raises :class:`DamagedSnapshotError`."""
    state = read(head.size, head.state_size)
    if len(state) != head.state_size or crc32(state) != head.state_crc:
        raise DamagedSnapshotError(
            f"a snapshot's state fails its check\n  {name}, offset {head.size}\n  it is not used"
        )
    return state


def read_entries(read: Read, size: int, head: SnapshotHead, name: str) -> Extents:
    """Read and check the entries of an installed snapshot of ``size`` octets: exactly the live entries, in order.

    Payloads are checked and not kept. Raises :class:`DamagedSnapshotError`.
    """
    places = Extents()
    live = checked(head.live, head.key.last_index)
    wanted = (index for first, last in live for index in range(first, last + 1))
    end = head.entries_offset
    for index, place, end in _records(read, head.entries_offset, size):
        if next(wanted, 0) != index:
            raise _damaged_entry(name, end, index)
        places.add(index, place)
    if end != size or next(wanted, 0):
        raise _damaged_entry(name, end, places.last + 1)
    return places


def _damaged_entry(name: str, offset: int, index: int) -> DamagedSnapshotError:
    return DamagedSnapshotError(
        f"a snapshot's entries are not the live ones, or fail their check\n  {name}, before offset {offset}, "
        f"entry {index}\n  it is not used"
    )


def _records(read: Read, offset: int, end: int) -> Iterator[tuple[int, Place, int]]:
    """Index, place and end of each sound entry from ``offset`` to ``end``, read in large pieces."""
    window, start = b"", offset
    while True:
        record = offset - start
        if len(window) - record < _RECORD_SIZE:
            window, start, record = read(offset, _READ_BYTES), offset, 0
        if not _passes(window[record : record + _RECORD_SIZE]):
            return
        index, term, size, crc, kind = _ENTRY.unpack_from(window, record)
        payload = record + _RECORD_SIZE
        if offset + _RECORD_SIZE + size > end:
            return
        if payload + size > len(window):
            window, start, payload = read(offset, _RECORD_SIZE + size), offset, _RECORD_SIZE
        octets = memoryview(window)[payload : payload + size]
        if len(octets) != size or crc32(octets) != crc:
            return
        place = Place(KEPT_FILE, start + payload, size, crc, term, kind)
        offset = start + payload + size
        yield index, place, offset


class Entries(Protocol):
    """A source's access to the live entries."""

    def places(self, first: int, last: int) -> list[Place]:
        """Sizes and checks of entries from ``first`` on, up to ``last`` or fewer; at least one."""

    def entry(self, index: int) -> Entry:
        """A whole entry."""

    def read(self, index: int, offset: int, size: int) -> bytes:
        """A piece of an entry's payload."""


class SnapshotSource:
    """A snapshot as the stream that another member receives: any part of it, at any time, until released.

    The stream is never built as a whole, because it may be much larger than memory. The places of its entries are found
    only as far as chunks were asked for, so the first chunk costs the same however many entries are live.
    ``read_state(offset, size)`` reads the state's octets.
    """

    __slots__ = ("_end", "_entries", "_firsts", "_head", "_next", "_ordinals", "_read_state", "_starts", "key", "live")

    def __init__(self, head: SnapshotHead, read_state: Read, entries: Entries) -> None:
        self.key = head.key
        self.live = head.live
        self._head = SnapshotHead(
            head.group, 0, head.key, True, head.key, head.state_size, head.state_crc, head.live
        ).encode()
        self._read_state = read_state
        self._entries = entries
        self._firsts = array("Q")
        self._ordinals = array("Q")
        self._starts = array("Q")
        """Ranges of entries that are planned: the first index of each, and its ordinal; and where each entry starts."""
        self._end = len(self._head) + head.state_size
        """The end of the planned part in the stream."""
        self._next = (0, head.live[0][0]) if head.live else (0, 0)
        """The range, and the index in it, to be planned next."""

    def chunk(self, number: int) -> tuple[bytes, bool] | None:
        """Chunk ``number``, counted from 1, and whether it is the last. None behind the end."""
        start = (number - 1) * CHUNK_BYTES
        self._plan(start + CHUNK_BYTES)
        if number < 1 or start >= self._end:
            return None
        end = min(start + CHUNK_BYTES, self._end)
        return b"".join(self._parts(start, end)), end == self._end and self._is_planned

    def write(self, file: File) -> int:
        """Write the whole stream; returns its octets."""
        number, offset, last = 1, 0, False
        while not last and (chunk := self.chunk(number)) is not None:
            data, last = chunk
            file.write([data], offset)
            number, offset = number + 1, offset + len(data)
        return offset

    @property
    def _is_planned(self) -> bool:
        return self._next[0] == len(self.live)

    def _plan(self, octet: int) -> None:
        """Find out where entries start, until the stream is known beyond ``octet``."""
        while self._end <= octet and not self._is_planned:
            at, index = self._next
            first, last = self.live[at]
            if index == first:
                self._firsts.append(first)
                self._ordinals.append(len(self._starts))
            places = self._entries.places(index, last)
            for place in places:
                self._starts.append(self._end)
                self._end += _RECORD_SIZE + place.size
            index += len(places)
            if index <= last:
                self._next = (at, index)
            else:
                self._next = (at + 1, self.live[at + 1][0] if at + 1 < len(self.live) else 0)

    def _parts(self, start: int, end: int) -> Iterator[bytes]:
        head = self._head
        if start < len(head):
            yield head[start:end]
        state_end = self._starts[0] if self._starts else self._end
        first, last = max(start, len(head)), min(end, state_end)
        if first < last:
            yield self._read_state(first - len(head), last - first)
        if end <= state_end:
            return
        ordinal = bisect_right(self._starts, max(start, state_end)) - 1
        while ordinal < len(self._starts) and (at := self._starts[ordinal]) < end:
            ordinal += 1
            record_end = self._starts[ordinal] if ordinal < len(self._starts) else self._end
            if start <= at and record_end <= end:
                yield from _record(self._entries.entry(self._index(ordinal - 1)))
            else:
                yield from self._part(self._index(ordinal - 1), max(0, start - at), end - at)

    def _index(self, ordinal: int) -> int:
        group = bisect_right(self._ordinals, ordinal) - 1
        return self._firsts[group] + ordinal - self._ordinals[group]

    def _part(self, index: int, start: int, end: int) -> Iterator[bytes]:
        """Octets ``start..end`` of the record of an entry, or to its end."""
        [place] = self._entries.places(index, index)
        if start < _RECORD_SIZE:
            yield _with_crc(_ENTRY.pack(index, place.term, place.size, place.crc, place.kind))[start:end]
        first, last = max(start - _RECORD_SIZE, 0), min(end - _RECORD_SIZE, place.size)
        if first < last:
            yield self._entries.read(index, first, last - first)


def _record(entry: Entry) -> tuple[bytes, bytes]:
    fields = _ENTRY.pack(entry.index, entry.term, len(entry.payload), entry.crc, entry.kind)
    return _with_crc(fields), entry.payload
