"""Exact arithmetic on HdrHistogram payloads.

A payload is a V2 compressed histogram in base64, with values in nanoseconds from 1 ns and 3 significant figures.
Counts live in a numpy array; hdrhistogram's C decoder fills it and its encoder writes it, so a merged payload is
the one that hdrhistogram's own ``decode_and_add`` over the same lines gives, bit for bit.

The C decoder trusts its caller, and a decoded histogram of hdrhistogram keeps its total in 32 bits. Hence: cookies,
lengths and settings are checked here before the decoder sees anything from a file, a payload may not unfold into more
than a fixed number of octets, and totals are summed here, in 64 bits.

Bucket ``i`` holds the values from ``lowest[i]`` to ``highest[i]``. With 3 figures the first 2048 buckets hold one value
each; from there on every doubling has 1024 buckets. The arithmetic, percentile targets included, is hdrhistogram's own
order of operations.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram
from pyhdrh import decode as decode_counts

LOWEST: Final = 1
HIGHEST: Final = 3_600_000_000_000
FIGURES: Final = 3

_OUTER = struct.Struct(">II")
_HEADER = struct.Struct(">IIiIQQd")
_COMPRESSED_COOKIE = 0x1C849304
_ENCODED_COOKIE = 0x1C849303
_COOKIE_MASK = ~0xF0
_WORD_MASK = 0xF0
_V2_WORD = 0x10
_BUCKETS_MAX = 64 * 1024
_BITS = 11
"""Values of so many bits have a bucket each."""
_PAYLOAD_MAX = _HEADER.size + 9 * _BUCKETS_MAX

Counts = npt.NDArray[np.uint64]


class PayloadError(ValueError):
    """A payload that is not a histogram of our kind; the text says in what."""


class Buckets(NamedTuple):
    """The values a bucket stands for, one entry per bucket."""

    lowest: npt.NDArray[np.int64]
    highest: npt.NDArray[np.int64]
    middle: npt.NDArray[np.int64]


@cache
def buckets() -> Buckets:
    """The edges of every bucket, in nanoseconds."""
    index = np.arange(bucket_count(), dtype=np.int64)
    exponent = np.maximum((index >> 10) - 1, 0)
    mantissa = np.where(index < 1024, index, (index & 1023) + 1024)
    width = np.left_shift(np.int64(1), exponent)
    lowest = mantissa << exponent
    return Buckets(lowest, lowest + width - 1, lowest + (width >> 1))


@cache
def bucket_count() -> int:
    """Entries of the counts array."""
    return int(HdrHistogram(LOWEST, HIGHEST, FIGURES).counts_len)


def decode(payload: str) -> Counts:
    """The counts of a payload, one per bucket.

    :raises PayloadError: when it is not a whole histogram of 1 ns and 3 significant figures
    """
    data = _unfold(payload)
    _check_header(data)
    counts = np.zeros(bucket_count(), dtype=np.uint64)
    if len(data) > _HEADER.size:
        try:
            decode_counts(data, _HEADER.size, counts.ctypes.data, len(counts), counts.itemsize)
        except (IndexError, ValueError, OverflowError) as error:
            raise PayloadError(f"counts cannot be decoded: {error}") from error
    return counts


def encode(counts: Counts) -> str:
    """The payload of these counts, as hdrhistogram writes it."""
    histogram = HdrHistogram(LOWEST, HIGHEST, FIGURES)
    np.ctypeslib.as_array(histogram.counts)[:] = counts
    used = np.flatnonzero(counts)
    if used.size:
        histogram.set_internal_tacking_values(int(used[0]), int(used[-1]), total(counts))
    text: str = histogram.encode().decode("ascii")
    return text


def total(counts: Counts) -> int:
    """Number of samples."""
    return int(counts.sum())


def bucket_of(value_ns: int) -> int:
    """The bucket that counts a value; the last one counts what is beyond all."""
    exponent = max(value_ns.bit_length() - _BITS, 0)
    return min((exponent << (_BITS - 1)) + (value_ns >> exponent), bucket_count() - 1)


def check_maximum(counts: Counts, max_ns: int) -> None:
    """That a recorded maximum belongs to a histogram: its bucket is the highest in use.

    :raises PayloadError: when it is not
    """
    at = bucket_of(max_ns)
    if (not counts[at] or counts[at + 1 :].any()) and counts.any():
        raise PayloadError(f"its highest value is not in the bucket of the maximum, {max_ns} ns")


def mean(counts: Counts) -> float:
    """Mean of the buckets' middles, weighted by their counts; exact until the last division."""
    used = np.flatnonzero(counts)
    if not used.size:
        return 0.0
    # Python integers: counts times nanoseconds leave 64 bits at about 2.5 million samples of one hour.
    weighted = sum(int(n) * int(value) for n, value in zip(counts[used], buckets().middle[used], strict=True))
    return weighted / total(counts)


def target_count(percentile: float, samples: int) -> int:
    """Which sample, counted from 1 in ascending order, a percentile is."""
    return max(int(min(percentile, 100.0) * samples / 100 + 0.5), 1)


def values_at(counts: Counts, percentiles: tuple[float, ...]) -> list[int]:
    """The highest equivalent value at each percentile (0..100), in their order; zeros without samples."""
    cumulative = np.cumsum(counts)
    samples = int(cumulative[-1])
    if not samples:
        return [0] * len(percentiles)
    targets = np.array([target_count(percentile, samples) for percentile in percentiles], dtype=np.uint64)
    return [int(value) for value in buckets().highest[np.searchsorted(cumulative, targets)]]


class CurvePoint(NamedTuple):
    """One point of a percentile curve; ``count_above`` samples are higher than ``value_ns``."""

    percentile: float
    nines: float
    value_ns: int
    count_above: int


POINTS_PER_NINE: Final = 10


def curve(counts: Counts, always: tuple[float, ...] = ()) -> list[CurvePoint]:
    """A percentile curve, evenly spaced in nines, as far as one sample lies beyond the percentile.

    :param always: percentiles (below 100) to include besides the even ones, so that tables and curve meet
    """
    cumulative = np.cumsum(counts)
    samples = int(cumulative[-1])
    if not samples:
        return []
    nines_max = float(np.log10(samples))
    even = np.arange(int(nines_max * POINTS_PER_NINE + 1e-9) + 1) / POINTS_PER_NINE
    wanted = {round(100.0 - 100.0 / 10.0**nines, 10) for nines in even.tolist()}
    wanted |= {percentile for percentile in always if nines_of(percentile) <= nines_max}
    points = []
    for percentile in sorted(wanted):
        at = int(np.searchsorted(cumulative, np.uint64(target_count(percentile, samples))))
        above = samples - int(cumulative[at])
        points.append(CurvePoint(percentile, nines_of(percentile), int(buckets().highest[at]), above))
    return points


def nines_of(percentile: float) -> float:
    """``-log10(1 - percentile / 100)``: 1 is p90, 2 is p99."""
    return float(-np.log10(1.0 - percentile / 100.0)) + 0.0


def _unfold(payload: str) -> bytes:
    """Base64 and zlib undone, with the outer cookie and length checked and the size bounded."""
    try:
        wire = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PayloadError(f"not base64: {error}") from error
    if len(wire) < _OUTER.size:
        raise PayloadError(f"only {len(wire)} octets")
    cookie, length = _OUTER.unpack_from(wire)
    if cookie & _COOKIE_MASK != _COMPRESSED_COOKIE or cookie & _WORD_MASK != _V2_WORD:
        raise PayloadError(f"cookie {cookie:#x} is not that of a V2 compressed histogram")
    if length != len(wire) - _OUTER.size:
        raise PayloadError(f"length says {length} octets, there are {len(wire) - _OUTER.size}")
    return _inflate(wire[_OUTER.size :])


def _inflate(compressed: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(compressed, _PAYLOAD_MAX)
    except zlib.error as error:
        raise PayloadError(f"cannot be decompressed: {error}") from error
    if stream.unconsumed_tail or not stream.eof or stream.unused_data:
        raise PayloadError("compressed part is cut short, too long or followed by something")
    return data


def _check_header(data: bytes) -> None:
    if len(data) < _HEADER.size:
        raise PayloadError(f"header is cut short: {len(data)} octets")
    cookie, length, offset, figures, lowest, _, ratio = _HEADER.unpack_from(data)
    if cookie & _COOKIE_MASK != _ENCODED_COOKIE or cookie & _WORD_MASK != _V2_WORD:
        raise PayloadError(f"inner cookie {cookie:#x} is not that of a V2 histogram")
    if length != len(data) - _HEADER.size:
        raise PayloadError(f"counts should have {length} octets, there are {len(data) - _HEADER.size}")
    if (figures, lowest, offset, ratio) != (FIGURES, LOWEST, 0, 1.0):
        raise PayloadError(f"{figures} figures from {lowest}: only {FIGURES} figures from {LOWEST} ns can be merged")
