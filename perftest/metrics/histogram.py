"""Histograms of nanoseconds that merge exactly: HdrHistogram's buckets from 1 ns to 1 hour, 3 significant figures.

Theory of operation. A histogram has one counter per bucket. The bucket of a value follows from the bit length of the
value: up to 2047 every value has a bucket of its own, and each further power of two is cut into 1024 buckets. For an
array of values that is a shift and an addition, about 0.02 µs a value against 1.2 µs for ``record_value`` in Python.
The bit length comes from the exponent of the value as a double, which is exact because values stay below 2**53.

Merging adds counters, so the merge of any set of intervals, workers and hosts is the histogram of the union, bucket by
bucket. Percentiles are read from merged counters, never averaged. The generator, the run directory and the reports all
use this module.

A payload is a histogram as text: HdrHistogram's compressed V2 encoding in base64. ``hdrhistogram`` writes and reads the
counters of a payload. Its decoder is C and trusts its caller, so a payload from a file is checked first (cookies,
lengths, settings, a bound on the unpacked size), and totals are summed here in 64 bits, because ``hdrhistogram`` keeps
32.

Invariants, tested bucket by bucket against ``hdrhistogram``: the same value lands at the same index, percentiles are
the same numbers, and a merged payload is the payload that ``decode_and_add`` gives. ``max_ns`` is exact where every
part told its own maximum. A value above one hour is counted in the bucket of one hour, never dropped.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram
from pyhdrh import decode as decode_counters

LOWEST_NS: Final = 1
HIGHEST_NS: Final = 3_600_000_000_000
SIGNIFICANT_FIGURES: Final = 3

_HALF_BITS: Final = 10
"""log2 of half the sub-buckets: 2048 sub-buckets hold 3 significant figures."""
_HALF: Final = 1 << _HALF_BITS
_SUB_MASK: Final = 2 * _HALF - 1
_DOUBLE_FRACTION_BITS: Final = 52
_DOUBLE_BIAS: Final = 1023
BUCKETS: Final = (HIGHEST_NS.bit_length() - _HALF_BITS + 1) << _HALF_BITS
"""Number of buckets, as HdrHistogram has them for this range."""

_OUTER: Final = struct.Struct(">II")
_INNER: Final = struct.Struct(">IIiIQQd")
_OUTER_COOKIE: Final = 0x1C849314
_INNER_COOKIE: Final = 0x1C849313
_UNPACKED_MAX: Final = _INNER.size + 9 * (1 << 16)
"""Octets of the longest payload that is unpacked: a counter takes at most 9 octets, and there are fewer than 2^16
counters."""

Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.int64]


class DamagedHistogramError(ValueError):
    """A payload that is not a histogram of this project; the text says why."""


def bucket_index(values: Values) -> Values:
    """The bucket of each of ``values`` (nanoseconds, 0 .. HIGHEST_NS)."""
    exponent = (values | _SUB_MASK).astype(np.float64).view(np.int64) >> _DOUBLE_FRACTION_BITS
    bucket = exponent - (_DOUBLE_BIAS + _HALF_BITS)
    return (bucket << _HALF_BITS) + (values >> bucket)


def _edges() -> tuple[Values, Values]:
    index = np.arange(BUCKETS, dtype=np.int64)
    exponent = np.maximum((index >> _HALF_BITS) - 1, 0)
    mantissa = np.where(index < _HALF, index, (index & (_HALF - 1)) + _HALF)
    lowest: Values = mantissa << exponent
    return lowest, lowest + (np.int64(1) << exponent) - 1


BUCKET_LOWEST_NS, BUCKET_HIGHEST_NS = _edges()
"""The least and the greatest value of each bucket. A percentile reports the greatest value of its bucket."""


@dataclass(frozen=True, slots=True)
class SparseCounts:
    """The non-empty buckets of a histogram: what travels between processes, and what an interval carries.

    ``payload`` is the histogram encoded where it was recorded, on another host; empty: nobody has encoded it yet.
    """

    indexes: npt.NDArray[np.int32]
    counts: Counts
    max_ns: int
    payload: str = ""

    @property
    def total(self) -> int:
        """How many values were recorded."""
        return int(self.counts.sum())

    @property
    def min_ns(self) -> int:
        """The least value of the lowest bucket in use; 0 when nothing was recorded."""
        return int(BUCKET_LOWEST_NS[self.indexes[0]]) if len(self.indexes) else 0

    def percentiles_ns(self, wanted: Sequence[float]) -> list[int]:
        """As :meth:`Histogram.percentiles_ns`, without a look at the empty buckets."""
        if not len(self.indexes):
            return [0] * len(wanted)
        below = np.cumsum(self.counts)
        ranks = [rank(percentile, int(below[-1])) for percentile in wanted]
        return BUCKET_HIGHEST_NS[self.indexes[np.searchsorted(below, ranks)]].tolist()  # type: ignore[no-any-return]


class Histogram:
    """Counts of nanosecond values: ``counts`` of each bucket, their ``total``, and the greatest value ``max_ns``.

    ``counts`` reaches as far as the highest bucket that was ever in use, so a histogram of short latencies is small.
    """

    __slots__ = ("counts", "max_ns", "total")

    def __init__(self) -> None:
        self.counts: Counts = np.zeros(0, np.int64)
        self.total = 0
        self.max_ns = 0

    @classmethod
    def of(cls, counts: SparseCounts) -> Histogram:
        """The histogram with these counts."""
        made = cls()
        made.add_sparse(counts)
        return made

    def record(self, values: Values) -> None:
        """Count each of ``values``; none may be negative."""
        if not len(values):
            return
        assert int(values.min()) >= 0, "negative latencies are counted apart"
        top = int(values.max())
        index = bucket_index(np.minimum(values, HIGHEST_NS) if top > HIGHEST_NS else values)
        self._add_counts(np.bincount(index), len(values), top)

    def add(self, other: Histogram) -> None:
        """Become the histogram of the union."""
        self._add_counts(other.counts, other.total, other.max_ns)

    def add_sparse(self, other: SparseCounts) -> None:
        """Become the histogram of the union."""
        if len(other.indexes):
            self._reach(int(other.indexes[-1]) + 1)
            self.counts[other.indexes] += other.counts
            self.total += int(other.counts.sum())
        self.max_ns = max(self.max_ns, other.max_ns)

    def add_payload(self, payload: str, max_ns: int | None = None) -> None:
        """Become the histogram of the union with a payload; ``max_ns`` is its exact maximum where that is known.

        Raises :class:`DamagedHistogramError`.
        """
        first, counts = decode_span(payload)
        if max_ns is None:
            max_ns = int(BUCKET_HIGHEST_NS[first + len(counts) - 1]) if len(counts) else 0
        self._add_counts(counts, int(counts.sum()), max_ns, first)

    def sparse(self) -> SparseCounts:
        """The non-empty buckets."""
        indexes = _used(self.counts)
        return SparseCounts(indexes.astype(np.int32), self.counts[indexes], self.max_ns)

    def clear(self) -> None:
        """Forget every value."""
        self.counts[:] = 0
        self.total = self.max_ns = 0

    @property
    def min_ns(self) -> int:
        """The least value of the lowest bucket in use; 0 when nothing was recorded."""
        used = _used(self.counts)
        return int(BUCKET_LOWEST_NS[used[0]]) if len(used) else 0

    @property
    def mean_ns(self) -> float:
        """The mean, each value taken as the middle of its bucket, as HdrHistogram does; 0 when nothing was recorded."""
        used = _used(self.counts)
        if not len(used):
            return 0.0
        middles = BUCKET_LOWEST_NS[used] + (BUCKET_HIGHEST_NS[used] - BUCKET_LOWEST_NS[used] + 1 >> 1)
        counts = self.counts[used]
        if counts.sum(dtype=np.float64) * float(middles[-1]) < 2.0**62:
            return float(int(np.dot(counts, middles)) / self.total)
        # Python integers: counts times nanoseconds leave 64 bits at about 2.5 million samples of one hour.
        weighted = sum(count * middle for count, middle in zip(counts.tolist(), middles.tolist(), strict=True))
        return float(weighted / self.total)

    def percentiles_ns(self, wanted: Sequence[float]) -> list[int]:
        """The value at each percentile (0 < p <= 100), as HdrHistogram reads it; 0 when nothing was recorded."""
        if not self.total:
            return [0] * len(wanted)
        ranks = [rank(percentile, self.total) for percentile in wanted]
        return [int(value) for value in BUCKET_HIGHEST_NS[np.searchsorted(np.cumsum(self.counts), ranks)]]

    def capped_percentiles_ns(self, wanted: Sequence[float]) -> list[int]:
        """The value at each percentile, to be shown beside the maximum.

        A percentile is the top of its bucket, and the maximum is exact: a percentile must not look greater.
        """
        return [min(value, self.max_ns) for value in self.percentiles_ns(wanted)]

    def encode(self) -> str:
        """The payload."""
        target = _encoder()
        used = _used(self.counts)
        counters = np.ctypeslib.as_array(target.counts)
        counters[: len(self.counts)] = self.counts
        counters[len(self.counts) :] = 0
        target.total_count = self.total
        target.max_value = int(BUCKET_HIGHEST_NS[used[-1]]) if len(used) else 0
        target.min_value = int(BUCKET_LOWEST_NS[used[0]]) if len(used) else 0
        return target.encode().decode("ascii")

    def check_maximum(self) -> None:
        """Check that the maximum lies in the highest bucket in use. Raises :class:`DamagedHistogramError`."""
        used = _used(self.counts)
        if len(used):
            check_maximum(int(used[-1]), self.max_ns)

    def add_counts(self, first: int, counts: Counts, max_ns: int) -> None:
        """Become the histogram of the union with the counts of the buckets from ``first`` on."""
        self._add_counts(counts, int(counts.sum()), max_ns, first)

    def _add_counts(self, counts: Counts, total: int, max_ns: int, first: int = 0) -> None:
        end = first + len(counts)
        self._reach(end)
        self.counts[first:end] += counts
        self.total += total
        self.max_ns = max(self.max_ns, max_ns)

    def _reach(self, length: int) -> None:
        if length > len(self.counts):
            longer = np.zeros(length, np.int64)
            longer[: len(self.counts)] = self.counts
            self.counts = longer


def rank(percentile: float, total: int) -> int:
    """Which of ``total`` values, counted from 1 in ascending order, a percentile is; HdrHistogram's very rounding."""
    return max(int(min(percentile, 100.0) * total / 100 + 0.5), 1)


def check_maximum(last: int, max_ns: int) -> None:
    """Check that a maximum lies in the bucket ``last``, the highest in use. Raises :class:`DamagedHistogramError`."""
    bucket = _bucket_of(min(max_ns, HIGHEST_NS))
    if last != bucket and not (max_ns > HIGHEST_NS and last > bucket):
        raise DamagedHistogramError(f"its highest value is not in the bucket of the maximum, {max_ns} ns")


def decode(payload: str) -> Counts:
    """The counters of a payload, up to the last one in use. Raises :class:`DamagedHistogramError`."""
    first, span = decode_span(payload)
    counts = np.zeros(first + len(span), np.int64)
    counts[first:] = span
    return counts


def decode_span(payload: str) -> tuple[int, Counts]:
    """The counters of a payload from the first one in use to the last one, and the index of the first one.

    A histogram of latencies uses some 2000 neighbours of 33,792 counters, so nothing here looks at all of them.

    :raises DamagedHistogramError: the payload is not a histogram of this project
    """
    data = _unpacked(payload)
    if len(data) == _INNER.size:
        return 0, np.zeros(0, np.int64)
    scratch = _free_counters.pop() if _free_counters else _Counters()
    try:
        found = decode_counters(data, _INNER.size, scratch.address, BUCKETS, 8)
    except (IndexError, ValueError, OverflowError) as error:
        raise DamagedHistogramError(f"its counters cannot be decoded: {error}") from error
    first, end = max(found["min_nonzero_index"], 0), found["max_nonzero_index"] + 1
    span = scratch.counts[first:end].copy()
    scratch.counts[first:end] = 0
    _free_counters.append(scratch)
    return (first, span) if span.any() else (0, span[:0])


class _Counters:
    """An array for all counters, which the decoder fills. The array is zero whenever nobody uses it."""

    __slots__ = ("address", "counts")

    def __init__(self) -> None:
        self.counts: Counts = np.zeros(BUCKETS, np.int64)
        self.address: int = self.counts.ctypes.data


_free_counters: Final[list[_Counters]] = []
"""Arrays that nobody uses: one per thread that ever decoded. A damaged payload takes its array away with it."""


def _used(counts: Counts) -> npt.NDArray[np.intp]:
    """The indexes of counters in use; a third of the time that numpy takes for whole numbers."""
    return np.flatnonzero(counts != 0)


def _bucket_of(value_ns: int) -> int:
    """The bucket of one value; of many values see :func:`bucket_index`."""
    bucket = (value_ns | _SUB_MASK).bit_length() - _HALF_BITS - 1
    return (bucket << _HALF_BITS) + (value_ns >> bucket)


def _unpacked(payload: str) -> bytes:
    """The inner part of a payload, with everything checked that the decoder takes for granted."""
    try:
        raw = base64.b64decode(payload.encode("ascii"), validate=True)
        cookie, length = _OUTER.unpack_from(raw)
        if cookie != _OUTER_COOKIE or length != len(raw) - _OUTER.size:
            raise DamagedHistogramError("its outer header is not that of a V2 histogram")
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(raw[_OUTER.size :], _UNPACKED_MAX)
        inner = _INNER.unpack_from(data)
    except (UnicodeEncodeError, binascii.Error, struct.error, zlib.error) as error:
        raise DamagedHistogramError(f"it cannot be unpacked: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise DamagedHistogramError("its compressed part is cut short or too long")
    if inner[0] != _INNER_COOKIE or inner[1] != len(data) - _INNER.size:
        raise DamagedHistogramError("its inner header is not that of a V2 histogram")
    if inner[2:] != (0, SIGNIFICANT_FIGURES, LOWEST_NS, HIGHEST_NS, 1.0):
        raise DamagedHistogramError("it was not recorded from 1 ns to 1 h with 3 significant figures")
    return data


class _Encoder(Protocol):
    """The part of hdrhistogram's class that is used to encode."""

    counts: object
    total_count: int
    max_value: int
    min_value: int

    def encode(self) -> bytes: ...


@lru_cache(maxsize=1)
def _encoder() -> _Encoder:
    """One HdrHistogram that is filled anew for each encoding: its array is a quarter of a megabyte."""
    made = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    assert len(made.counts) == BUCKETS
    return cast(_Encoder, made)
