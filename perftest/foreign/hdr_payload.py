"""Payloads of HdrHistogram V0, V1 and V2 with any bounds, counted into our buckets; pure.

A payload is base64 of a header and a zlib stream. In the stream are the settings of the histogram and its counters. In
V2 these are ZigZag LEB128 numbers, and a negative number -n stands for n empty buckets; in V0 and V1 words of 2, 4 or 8
octets. A histogram of doubles is one of whole numbers with a ratio, within one more header. The decoder is our own,
because the library's decoder trusts its caller, and these payloads come from strangers.

A bucket of the source that is wider than one of ours cannot be divided. So its whole count goes to the greatest value
of the source's bucket, which is the value that HdrHistogram itself states for a percentile. No percentile comes out
lower than the other tool states it, and none is higher by more than the width of one of our buckets, 0.1 %.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hdr_buckets import HIGHEST_NS, INNER, PayloadError, bounds, bucket_index, inflated, raw_octets
from perftest.foreign.measured import COUNT_MAX, LATENCY_MAX_NS
from perftest.metrics.histogram import SparseCounts

_COOKIE: Final = struct.Struct(">I")
_INNER_V0: Final = struct.Struct(">IIQQQ")
_DOUBLE: Final = struct.Struct(">IIQ")
_DOUBLE_COOKIE: Final = 0x0C72124F
_INNER_COOKIES: Final = {0x1C849308: 0, 0x1C849301: 1, 0x1C849303: 2}
_WORD_MASK: Final = 0xF0
"""The bits of a cookie that tell the octets of a word."""
_OUTER_COOKIES: Final = {
    cookie | octets << 4 for cookie in (0x1C849309, 0x1C849302, 0x1C849304) for octets in range(16)
}
"""The cookies of V0, V1 and V2 with any octets of a word."""
_WORDS: Final = {2: ">i2", 4: ">i4", 8: ">i8"}
_ONE_AS_INTEGER: Final = struct.unpack(">d", (1).to_bytes(8, "big"))[0]
"""Octets that some writers put where a ratio of 1.0 belongs."""
_BUCKETS_MAX: Final = 1 << 21
_UNPACKED_MAX: Final = 1 << 22
_FIGURES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class _Head:
    """The settings of a histogram, and where its counters begin. ``ratio``: the true value of 1."""

    version: int
    word_octets: int
    figures: int
    lowest: int
    highest: int
    ratio: float
    begin: int


def read_payload(payload: str, unit_ns: int) -> SparseCounts:
    """The counts of a payload whose values are in units of ``unit_ns``, in our buckets.

    ``max_ns`` is the greatest value of the highest bucket in use. Raises :class:`PayloadError`.
    """
    data = _unpacked(payload)
    head = _head(data)
    if head.figures > _FIGURES_MAX or not 1 <= head.lowest <= head.highest // 2 or head.highest >= 2**63:
        settings = f"{head.lowest} .. {head.highest}, {head.figures} significant figures"
        raise PayloadError(f"its bounds make no histogram: {settings}")
    counters = data[head.begin :]
    counts = _counters(counters) if head.version == 2 else _words(counters, head.word_octets)
    half_bits = (2 * 10**head.figures - 1).bit_length() - 1
    values = {bounds(each, half_bits, head.lowest.bit_length() - 1)[1]: count for each, count in counts.items()}
    return _counted(values, head.ratio * unit_ns)


def _head(data: bytes) -> _Head:
    (cookie,) = _unpack(_COOKIE, data)
    version, word_octets = _INNER_COOKIES.get(cookie & ~_WORD_MASK), (cookie & _WORD_MASK) >> 4
    if version is None or (version < 2 and word_octets not in _WORDS):
        raise PayloadError("its inner part is not that of a histogram")
    if version == 0:
        _cookie, figures, lowest, highest, _total = _unpack(_INNER_V0, data)
        return _Head(0, word_octets, figures, lowest, highest, 1.0, _INNER_V0.size)
    _cookie, length, _offset, figures, lowest, highest, ratio = _unpack(INNER, data)
    if length != len(data) - INNER.size:
        raise PayloadError("its inner part is cut short or too long")
    ratio = 1.0 if ratio == _ONE_AS_INTEGER else ratio
    if not 0 < ratio < math.inf:
        raise PayloadError(f"its values are scaled by {ratio}")
    return _Head(version, word_octets, figures, lowest, highest, ratio, INNER.size)


def _unpack(fields: struct.Struct, data: bytes) -> tuple[Any, ...]:
    if len(data) < fields.size:
        raise PayloadError("its compressed part is cut short")
    return fields.unpack_from(data)


def _unpacked(payload: str) -> bytes:
    raw = raw_octets(payload)
    if raw[:4] == _DOUBLE_COOKIE.to_bytes(4, "big"):
        raw = raw[_DOUBLE.size :]
    return inflated(raw, _OUTER_COOKIES, _UNPACKED_MAX)[0]


def _words(octets: bytes, size: int) -> dict[int, int]:
    """The counts by bucket of V0 and V1, without the empty ones."""
    counts = np.frombuffer(octets[: len(octets) // size * size], _WORDS[size])
    if len(counts) > _BUCKETS_MAX or (len(counts) and (counts.min() < 0 or counts.max() > COUNT_MAX)):
        raise PayloadError("its counters are beyond all bounds")
    used = np.flatnonzero(counts)
    return dict(zip(used.tolist(), counts[used].tolist(), strict=True))


def _counters(octets: bytes) -> dict[int, int]:
    """The counts by bucket of V2, without the empty ones."""
    found: dict[int, int] = {}
    place = bucket = 0
    while place < len(octets):
        number, place = _zigzag(octets, place)
        if number < 0:
            bucket -= number
        else:
            if number:
                found[bucket] = number
            bucket += 1
        if bucket > _BUCKETS_MAX or number > COUNT_MAX:
            raise PayloadError("its counters are beyond all bounds")
    return found


def _zigzag(octets: bytes, place: int) -> tuple[int, int]:
    """A ZigZag LEB128 number of 64 bits, and where the next one begins. The ninth octet has eight bits."""
    value = 0
    for turn in range(9):
        if place >= len(octets):
            raise PayloadError("its counters are cut short")
        octet = octets[place]
        place += 1
        value |= (octet if turn == 8 else octet & 0x7F) << (7 * turn)
        if octet < 0x80:
            break
    return (value >> 1) ^ -(value & 1), place


def _counted(values: dict[int, int], unit_ns: float) -> SparseCounts:
    """The counts in our buckets, of the greatest values of the source's buckets."""
    if not values:
        return SparseCounts(np.zeros(0, np.int32), np.zeros(0, np.int64), 0)
    if sum(values.values()) > COUNT_MAX:
        raise PayloadError("its counters are beyond all bounds")
    if max(values) > LATENCY_MAX_NS / unit_ns:
        raise PayloadError("its values are beyond all bounds: is the unit right?")
    greatest_ns = round(max(values) * unit_ns)
    nanoseconds = np.array([min(round(value * unit_ns), HIGHEST_NS) for value in values], np.int64)
    totals: dict[int, int] = {}
    for index, count in zip(bucket_index(nanoseconds).tolist(), values.values(), strict=True):
        totals[index] = totals.get(index, 0) + count
    used = sorted(totals)
    return SparseCounts(np.array(used, np.int32), np.array([totals[each] for each in used], np.int64), greatest_ns)
