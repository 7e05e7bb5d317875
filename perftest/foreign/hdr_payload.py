"""Payloads of HdrHistogram V2 with any bounds, counted into our buckets; pure.

A payload is base64 of a header and a zlib stream. In the stream are the settings of the histogram and its counters:
ZigZag LEB128 numbers, of which a negative one stands for so many empty buckets. The decoder is our own, because the
library's decoder trusts its caller, and these payloads come from anybody.

A bucket of the source that is wider than one of ours cannot be divided. So its whole count goes to the greatest value
of the source's bucket, which is the value that HdrHistogram itself states for a percentile. No percentile comes out
lower than the other tool states it, and none is higher by more than the width of one of our buckets, 0.1 %.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from perftest.foreign.measured import COUNT_MAX, LATENCY_MAX_NS
from perftest.metrics.histogram import HIGHEST_NS, SparseCounts, bucket_index

_OUTER: Final = struct.Struct(">II")
_INNER: Final = struct.Struct(">IIiIQQd")
_OUTER_COOKIE: Final = 0x1C849304
_INNER_COOKIE: Final = 0x1C849303
_BUCKETS_MAX: Final = 1 << 21
_UNPACKED_MAX: Final = 1 << 22
_FIGURES_MAX: Final = 5


class PayloadError(ValueError):
    """A payload that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a histogram by its settings: values per bucket and their bounds, in the log's own unit."""

    unit_bits: int
    half_bits: int

    @classmethod
    def of(cls, lowest: int, figures: int) -> Buckets:
        """The buckets of a histogram with this lowest value and so many significant figures."""
        return cls(unit_bits=lowest.bit_length() - 1, half_bits=(2 * 10**figures - 1).bit_length() - 1)

    def highest(self, index: int) -> int:
        """The greatest value of a bucket."""
        half = 1 << self.half_bits
        exponent = max((index >> self.half_bits) - 1, 0)
        mantissa = index if index < half else (index & (half - 1)) + half
        return ((mantissa + 1) << (exponent + self.unit_bits)) - 1


def read_payload(payload: str, unit_ns: int) -> SparseCounts:
    """The counts of a payload whose values are in units of ``unit_ns``, in our buckets.

    ``max_ns`` is the greatest value of the highest bucket in use. Raises :class:`PayloadError`.
    """
    data = _unpacked(payload)
    cookie, length, offset, figures, lowest, highest, ratio = _INNER.unpack_from(data)
    if cookie & ~0xF0 != _INNER_COOKIE & ~0xF0 or length != len(data) - _INNER.size:
        raise PayloadError("its inner part is not that of a V2 histogram")
    if offset or ratio != 1.0:
        raise PayloadError("its buckets are shifted or scaled, which is not supported")
    if figures > _FIGURES_MAX or not 1 <= lowest <= highest // 2 or highest >= 2**63:
        raise PayloadError(f"its bounds make no histogram: {lowest} .. {highest}, {figures} significant figures")
    return _counted(_counters(data[_INNER.size :]), Buckets.of(lowest, figures), unit_ns)


def _unpacked(payload: str) -> bytes:
    try:
        raw = base64.b64decode(payload.encode("ascii"), validate=True)
        cookie, length = _OUTER.unpack_from(raw)
        if cookie & ~0xF0 != _OUTER_COOKIE & ~0xF0 or length != len(raw) - _OUTER.size:
            raise PayloadError("its header is not that of a compressed V2 histogram")
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(raw[_OUTER.size :], _UNPACKED_MAX)
    except (UnicodeEncodeError, binascii.Error, struct.error, zlib.error) as error:
        raise PayloadError(f"it cannot be unpacked: {error}") from error
    if not unpacker.eof or len(data) < _INNER.size:
        raise PayloadError("its compressed part is cut short or too long")
    return data


def _counters(octets: bytes) -> dict[int, int]:
    """The counts by bucket, without the empty ones."""
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


def _counted(counters: dict[int, int], buckets: Buckets, unit_ns: int) -> SparseCounts:
    values = {buckets.highest(bucket): count for bucket, count in counters.items()}
    if not values:
        return SparseCounts(np.zeros(0, np.int32), np.zeros(0, np.int64), 0)
    if sum(values.values()) > COUNT_MAX:
        raise PayloadError("its counters are beyond all bounds")
    greatest_ns = max(values) * unit_ns
    if greatest_ns > LATENCY_MAX_NS:
        raise PayloadError("its values are beyond all bounds: is the unit right?")
    nanoseconds = np.array([min(value * unit_ns, HIGHEST_NS) for value in values], np.int64)
    totals: dict[int, int] = {}
    for index, count in zip(bucket_index(nanoseconds).tolist(), values.values(), strict=True):
        totals[index] = totals.get(index, 0) + count
    used = sorted(totals)
    return SparseCounts(np.array(used, np.int32), np.array([totals[each] for each in used], np.int64), greatest_ns)
