"""The messages of the kernel's FUSE protocol that a file system of one file needs. Pure: octets in, octets out.

The kernel asks with a header of 40 octets and a body; the answer has a header of 16 octets, with the negative errno.
Numbers and layouts: ``include/uapi/linux/fuse.h`` of the Linux kernel, protocol 7.31.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

FILE_NODE: Final = 2
FILE_NAME: Final = "disk"
WRITE_BYTES_MAX: Final = 1 << 20
REQUEST_BYTES_MAX: Final = WRITE_BYTES_MAX + (64 << 10)
"""Room for the longest request: a write of ``WRITE_BYTES_MAX`` with its headers."""

_REQUEST: Final = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extensions, padding
_ANSWER: Final = struct.Struct("<IiQ")  # length, negative errno, unique
_SPAN: Final = struct.Struct("<QQI")  # file handle, offset, octets: the start of READ and WRITE
_WRITE_HEADER_BYTES: Final = 40
_INIT_IN: Final = struct.Struct("<IIII")  # major, minor, read-ahead, flags
_INIT_OUT: Final = struct.Struct("<IIIIHHIIHHI28x")
_ATTRIBUTES: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_MAJOR: Final = 7
_MINOR: Final = 31
_ASYNC_READ: Final = 1 << 0
_BIG_WRITES: Final = 1 << 5
_ASYNC_DIO: Final = 1 << 15
_MAX_PAGES: Final = 1 << 22
_DIRECT_IO: Final = 1 << 0
_PARALLEL_DIRECT_WRITES: Final = 1 << 6
_VALID_S: Final = 3600
_PAGE_BYTES: Final = 4096
_SECTOR_BYTES: Final = 512
_MODE_FILE: Final = 0o100600
_MODE_FOLDER: Final = 0o040700


class Op(IntEnum):
    """The requests that the kernel sends for a file system of one file."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


UNANSWERED: Final = frozenset({Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT})
"""Requests to which the kernel expects no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: ``op`` as the kernel numbers it, ``unique`` to answer to, ``node`` in question, and its body."""

    op: int
    unique: int
    node: int
    body: bytes


def read_request(octets: bytes) -> Request:
    """The request in what one read of ``/dev/fuse`` gave. Raises ValueError if the octets are no whole request."""
    if len(octets) < _REQUEST.size:
        raise ValueError(f"a FUSE request has at least {_REQUEST.size} octets, not {len(octets)}")
    length, op, unique, node, *_ = _REQUEST.unpack_from(octets)
    if length != len(octets):
        raise ValueError(f"a FUSE request says {length} octets and has {len(octets)}")
    return Request(op=op, unique=unique, node=node, body=octets[_REQUEST.size :])


def read_span(body: bytes) -> tuple[int, int]:
    """Offset and number of octets of a READ or WRITE."""
    _, offset, octets = _SPAN.unpack_from(body)
    return offset, octets


def write_data(body: bytes, octets: int) -> bytes:
    """The octets that a WRITE carries."""
    return body[_WRITE_HEADER_BYTES : _WRITE_HEADER_BYTES + octets]


def answer(unique: int, body: bytes = b"", errno: int = 0) -> bytes:
    """The answer to a request, with a body or with an errno."""
    return _ANSWER.pack(_ANSWER.size + len(body), -errno, unique) + body


def written(octets: int) -> bytes:
    """The body of the answer to WRITE."""
    return struct.pack("<II", octets, 0)


def initialised(body: bytes) -> bytes:
    """The body of the answer to INIT: asynchronous reads and writes of up to ``WRITE_BYTES_MAX``."""
    _, minor, read_ahead, flags = _INIT_IN.unpack_from(body)
    ours = flags & (_ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES)
    pages = WRITE_BYTES_MAX // _PAGE_BYTES
    return _INIT_OUT.pack(_MAJOR, min(minor, _MINOR), read_ahead, ours, 64, 48, WRITE_BYTES_MAX, 1, pages, 0, 0)


def opened(op: int) -> bytes:
    """The body of the answer to OPEN and OPENDIR. The file is read and written past the page cache, in parallel."""
    flags = _DIRECT_IO | _PARALLEL_DIRECT_WRITES if op == Op.OPEN else 0
    return struct.pack("<QII", 1, flags, 0)


def found(size_bytes: int) -> bytes:
    """The body of the answer to a LOOKUP of the one file."""
    return struct.pack("<QQQQII", FILE_NODE, 0, _VALID_S, _VALID_S, 0, 0) + _attributes(FILE_NODE, size_bytes)


def attributes(node: int, size_bytes: int) -> bytes:
    """The body of the answer to GETATTR and SETATTR."""
    return struct.pack("<QII", _VALID_S, 0, 0) + _attributes(node, size_bytes)


def space(size_bytes: int) -> bytes:
    """The body of the answer to STATFS: a full file system of two files."""
    pages = size_bytes // _PAGE_BYTES
    return struct.pack("<QQQQQIIII24x", pages, 0, 0, 2, 0, _PAGE_BYTES, 255, _PAGE_BYTES, 0)


def _attributes(node: int, size_bytes: int) -> bytes:
    size = size_bytes if node == FILE_NODE else 0
    mode = _MODE_FILE if node == FILE_NODE else _MODE_FOLDER
    times = (0,) * 6  # seconds of access, change and status change, then their nanoseconds
    return _ATTRIBUTES.pack(node, size, size // _SECTOR_BYTES, *times, mode, 1, 0, 0, 0, _PAGE_BYTES, 0)
