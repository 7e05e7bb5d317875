"""The properties of messages that queues read: whether a message is persistent, its priority, its headers. Pure.

A run of equal content headers is looked at once. In any other run each header is looked up by its octets, without the
size of the body, so a publisher of messages of many sizes costs one reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple

from reference_broker.message_run import MessageRun

_PERSISTENT: Final = 2
"""The delivery mode of a persistent message."""
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000
_DELIVERY_MODE: Final = 0x1000
_PRIORITY: Final = 0x0800

_LONG: Final = Struct(">I")
_FLAGS: Final = Struct(">H")
_SIZE_AT: Final = 3  # in a content header frame: behind frame type and channel
_PROPERTIES_AT: Final = 19  # the flags; behind frame head, class, weight and size of the body
_CACHE_HEADERS: Final = 4096


class Sort(NamedTuple):
    """The properties by which a queue sorts messages."""

    is_persistent: bool
    priority: int


PLAIN: Final = Sort(is_persistent=False, priority=0)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages ``start..start + count - 1`` of a run, all of one sort."""

    start: int
    count: int
    sort: Sort


def stretches(run: MessageRun) -> list[Stretch]:
    """The messages of a run, cut where their sort changes."""
    if run.ends is None:
        return [Stretch(0, run.count, sort_of(run.data, 0))]
    begins = [0, *run.ends[:-1].tolist()]
    sorts = [sort_of(run.data, begin) for begin in begins]
    found: list[Stretch] = []
    start = 0
    for sort, group in groupby(sorts):
        count = sum(1 for _ in group)
        found.append(Stretch(start, count, sort))
        start += count
    return found


def sort_of(data: bytes | memoryview, begin: int) -> Sort:
    """The sort of the message whose content begins at octet ``begin``. Without a header, as in tests: plain."""
    if len(data) < begin + _PROPERTIES_AT + _FLAGS.size:
        return PLAIN
    (size,) = _LONG.unpack_from(data, begin + _SIZE_AT)
    return _sort(bytes(data[begin + _PROPERTIES_AT : begin + 7 + size]))


@lru_cache(_CACHE_HEADERS)
def _sort(properties: bytes) -> Sort:
    """The sort, from flags and properties. They were checked when the message was published."""
    if len(properties) < _FLAGS.size:
        return PLAIN
    (flags,) = _FLAGS.unpack_from(properties)
    at = _behind_content_type(properties, _FLAGS.size, flags)
    if flags & _HEADERS:
        at += _LONG.size + int(_LONG.unpack_from(properties, at)[0])
    is_persistent = False
    if flags & _DELIVERY_MODE:
        is_persistent = properties[at] == _PERSISTENT
        at += 1
    return Sort(is_persistent, properties[at] if flags & _PRIORITY else 0)


def headers_of(run: MessageRun) -> list[bytes]:
    """The headers of each message as a raw table, which begins with its length; empty for a message without headers. A
    list of one for a run of equal content headers."""
    if run.ends is None:
        return [_headers(run.data, 0)]
    return [_headers(run.data, begin) for begin in (0, *run.ends[:-1].tolist())]


def _headers(data: bytes | memoryview, begin: int) -> bytes:
    if len(data) < begin + _PROPERTIES_AT + _FLAGS.size:
        return b""
    (flags,) = _FLAGS.unpack_from(data, begin + _PROPERTIES_AT)
    if not flags & _HEADERS:
        return b""
    at = _behind_content_type(data, begin + _PROPERTIES_AT + _FLAGS.size, flags)
    return bytes(data[at : at + _LONG.size + int(_LONG.unpack_from(data, at)[0])])


def _behind_content_type(data: bytes | memoryview, at: int, flags: int) -> int:
    """The offset of the properties behind content type and content encoding."""
    for short_string in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & short_string:
            at += 1 + data[at]
    return at
