"""Parts: the unit in which messages lie in message files, and how a run is cut into parts. Pure.

A part is a stretch of one published run whose messages all go the same way: all small or all large, all persistent or
all transient, and all in one index segment. A part is written as a header and the encoded run
(:mod:`reference_broker.message_run`), in one write.

The header has all facts of the index records of the part's messages, and a check of the whole part. So a start finds a
part without its records, and needs no synced index (:func:`headers`). The header also names the queue and the first
sequence number: an old record of the index that points to octets of a newer file never finds its part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from reference_broker import message_run
from reference_broker.checksum import crc32
from reference_broker.classic.index_codec import SEGMENT_MESSAGES
from reference_broker.message_run import MessageRun
from reference_broker.records import record
from reference_broker.storage.files import File
from reference_broker.types import GroupId

MAGIC: Final = b"QCP2"
_HEADER: Final = Struct(">4sQQHIQH")
"""Magic with the version, queue, first sequence number, messages, octets of the run, expiry, flags of the records."""
_CHECK: Final = Struct(">I")
"""The CRC of header and run, between the two."""
HEADER_SIZE: Final = _HEADER.size + _CHECK.size
PLACED: Final = np.dtype(
    [("file", ">u4"), ("offset", ">u8"), ("magic", "S4"), ("group", ">u8"), ("seq", ">u8"), ("messages", ">u2"),
     ("octets", ">u4"), ("expires", ">u8"), ("flags", ">u2"), ("check", ">u4")]
)  # fmt: skip
"""A header with its place before it: shared file (0: the queue's own message file) and offset."""
PlacedHeaders = npt.NDArray[Any]
"""An array of :data:`PLACED`."""
_PLACE: Final = Struct(">IQ")
_RUN_OCTETS: Final = Struct(">22xI")
_SEARCH_BYTES: Final = 1 << 16
LARGE_BYTES: Final = 4096
"""Least octets of a message, properties included, that goes to the shared store: RabbitMQ's limit."""


class DamagedPartError(Exception):
    """The octets are not the part that was asked for."""


@record
class PartStretch:
    """Messages ``start..start + count - 1`` of a run, which form a part."""

    start: int
    count: int
    is_large: bool
    is_persistent: bool


def stretches(run: MessageRun, seq: int, persistent: bool | npt.NDArray[np.bool_]) -> Iterator[PartStretch]:
    """Cut a run whose first message gets the sequence number ``seq`` into parts."""
    if run.ends is None and isinstance(persistent, bool):
        bounds = [0, *_segment_bounds(seq, run.count), run.count]
        large = run.stride >= LARGE_BYTES
        for start, end in itertools.pairwise(bounds):
            yield PartStretch(start, end - start, large, persistent)
        return
    is_large = _sizes(run) >= LARGE_BYTES
    is_persistent = np.broadcast_to(np.asarray(persistent), run.count)
    kinds = is_large.astype(np.uint8) * 2 + is_persistent
    changes = np.flatnonzero(np.diff(kinds)) + 1
    bounds = sorted({0, run.count, *changes.tolist(), *_segment_bounds(seq, run.count)})
    for start, end in itertools.pairwise(bounds):
        yield PartStretch(start, end - start, bool(is_large[start]), bool(is_persistent[start]))


def _segment_bounds(seq: int, count: int) -> range:
    return range(SEGMENT_MESSAGES - seq % SEGMENT_MESSAGES, count, SEGMENT_MESSAGES)


def _sizes(run: MessageRun) -> npt.NDArray[np.int64]:
    if run.ends is None:
        return np.full(run.count, run.stride, np.int64)
    ends = run.ends.astype(np.int64)
    return ends - np.concatenate((np.zeros(1, np.int64), ends[:-1]))


def cut(run: MessageRun, start: int, count: int) -> MessageRun:
    """Messages ``start..start + count - 1`` of a run as a run of their own; the octets are a view."""
    if count == run.count:
        return run
    view = memoryview(run.data)
    if run.ends is None:
        return MessageRun(count, run.route, view[start * run.stride : (start + count) * run.stride], run.stride)
    before = int(run.ends[start - 1]) if start else 0
    ends = run.ends[start : start + count]
    return MessageRun(count, run.route, view[before : int(ends[-1])], 0, ends - np.uint32(before))


class PartHeader(NamedTuple):
    """The header of a part: ``size`` is the octets of the whole part."""

    group: GroupId
    seq: int
    messages: int
    size: int
    expires: int
    flags: int
    check: int


def encode_part(
    group: GroupId, seq: int, run: MessageRun, expires: int, flags: int
) -> tuple[list[bytes | memoryview], int, int]:
    """The buffers of a part, its octets and its check."""
    body = run.buffers()
    size = sum(map(len, body))
    header = _HEADER.pack(MAGIC, group, seq, run.count, size, expires, flags)
    check = crc32(header)
    for buffer in body:
        check = crc32(buffer, check)
    return [header + _CHECK.pack(check), *body], HEADER_SIZE + size, check


def read_header(octets: bytes) -> PartHeader:
    """Read the header of a part. Raises :class:`DamagedPartError` if the octets are no header."""
    if len(octets) < HEADER_SIZE or not octets.startswith(MAGIC):
        raise DamagedPartError("no part begins there")
    _, group, seq, count, size, expires, flags = _HEADER.unpack_from(octets)
    (check,) = _CHECK.unpack_from(octets, _HEADER.size)
    return PartHeader(GroupId(group), seq, count, HEADER_SIZE + size, expires, flags, check)


def decode_part(octets: bytes, group: GroupId, seq: int, check: int) -> MessageRun:
    """Read a part back. Raises :class:`DamagedPartError` unless it is the part with this check."""
    header = read_header(octets)
    found = crc32(memoryview(octets)[HEADER_SIZE:], crc32(octets[: _HEADER.size]))
    if found != check or header.check != check:
        raise DamagedPartError("the part fails its check")
    if (header.group, header.seq) != (group, seq):
        raise DamagedPartError(f"the part is of queue {header.group:x}, message {header.seq}")
    return message_run.decode(octets, HEADER_SIZE)


def headers(file: File, number: int) -> Iterator[bytes]:
    """The headers of a file of parts, one after the other, each as the octets of a :data:`PLACED`. ``number`` is that
    of the shared file, or 0.

    A header that is damaged may tell a wrong size. So wherever no part begins, the search goes back to the last header
    and on to the next octets that look like one. What is no part is found out by its check.
    """
    at = search = 0
    size = file.size()
    while at != size:
        octets = file.read(at, HEADER_SIZE) if at < size else b""
        if len(octets) == HEADER_SIZE and octets.startswith(MAGIC):
            yield _PLACE.pack(number, at) + octets
            search = at + len(MAGIC)
            at += HEADER_SIZE + _RUN_OCTETS.unpack_from(octets)[0]
        else:
            at = _next_magic(file, search, size)
            search = at + 1


def _next_magic(file: File, at: int, size: int) -> int:
    """The offset of the next octets that look like the beginning of a part; ``size`` if there are none."""
    while at < size:
        octets = file.read(at, _SEARCH_BYTES)
        if (found := octets.find(MAGIC)) >= 0:
            return at + found
        at += max(len(octets) - len(MAGIC) + 1, 1)
    return size
