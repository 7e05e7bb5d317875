"""Histograms of nanoseconds that merge exactly, in the buckets of :mod:`hdr_buckets`.

Merging adds counters, so the merge of any set of intervals, workers and hosts is the histogram of the union, bucket by
bucket. Percentiles are read from merged counters, never averaged. The generator, the run directory and the reports all
use this module.

The decoder of ``hdrhistogram`` is C and trusts its caller, so a payload from a file is checked first (cookies, lengths,
settings, a bound on the unpacked size), and totals are summed here in 64 bits, because ``hdrhistogram`` keeps 32.

Invariants, tested bucket by bucket against ``hdrhistogram``: the same value lands at the same index, percentiles are
the same numbers, and a merged payload is the payload that ``decode_and_add`` gives. ``max_ns`` is exact where every
part told its own maximum. A value above one hour is counted in the bucket of one hour, never dropped.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from pyhdrh import decode as decode_counters

from hdr_buckets import (
    BUCKET_HIGHEST_NS,
    BUCKET_LOWEST_NS,
    BUCKETS,
    CUT,
    HIGHEST_NS,
    INNER,
    LOWEST_NS,
    SIGNIFICANT_FIGURES,
    Counts,
    PayloadError,
    Values,
    bucket_index,
    bucket_of,
    encode,
    encoder,
    inflated,
    raw_octets,
)

_OUTER_COOKIE: Final = 0x1C849314
_INNER_COOKIE: Final = 0x1C849313
_UNPACKED_MAX: Final = INNER.size + 9 * (1 << 16)
"""Octets of the longest payload that is unpacked: a counter takes at most 9 octets, and there are fewer than 2^16
counters."""


@dataclass(frozen=True, slots=True)
class SparseCounts:
    """The non-empty buckets of a histogram, as they travel between processes, and as an interval carries them.

    ``payload`` is the histogram encoded where it was recorded, on another host; empty: it is not encoded yet.
    """

    indexes: npt.NDArray[np.int32]
    counts: Counts
    max_ns: int
    payload: str = ""

    @property
    def total(self) -> int:
        """Number of recorded values."""
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

        Raises :class:`PayloadError`.
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

    def figures(self, wanted: Mapping[str, float]) -> dict[str, int | float]:
        """Count, mean, maximum, and the percentiles to be shown beside it, by the names of ``wanted``."""
        percentiles_ns = zip(wanted, self.capped_percentiles_ns(tuple(wanted.values())), strict=True)
        return {"count": self.total, **dict(percentiles_ns), "max_ns": self.max_ns, "mean_ns": self.mean_ns}

    def encode(self) -> str:
        """The payload."""
        return encode(self.counts, _of_thread.encoder)

    def check_maximum(self) -> None:
        """Check that the maximum lies in the highest bucket in use. Raises :class:`PayloadError`."""
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
    """Check that a maximum lies in the bucket ``last``, the highest in use. Raises :class:`PayloadError`."""
    bucket = bucket_of(min(max_ns, HIGHEST_NS))
    if last != bucket and not (max_ns > HIGHEST_NS and last > bucket):
        raise PayloadError(f"its highest value is not in the bucket of the maximum, {max_ns} ns")


def decode(payload: str) -> Counts:
    """The counters of a payload, up to the last one in use. Raises :class:`PayloadError`."""
    first, span = decode_span(payload)
    counts = np.zeros(first + len(span), np.int64)
    counts[first:] = span
    return counts


def decode_span(payload: str) -> tuple[int, Counts]:
    """The counters of a payload from the first one in use to the last one, and the index of the first one.

    A histogram of latencies uses some 2000 neighbours of 33,792 counters, so nothing here looks at all of them.

    :raises PayloadError: the payload is not a histogram of this project
    """
    data = _unpacked(payload)
    if len(data) == INNER.size:
        return 0, np.zeros(0, np.int64)
    scratch = _free_counters.pop() if _free_counters else _Counters()
    try:
        found = decode_counters(data, INNER.size, scratch.address, BUCKETS, 8)
    except (IndexError, ValueError, OverflowError) as error:
        raise PayloadError(f"its counters cannot be decoded: {error}") from error
    first, end = max(found["min_nonzero_index"], 0), found["max_nonzero_index"] + 1
    span = scratch.counts[first:end].copy()
    scratch.counts[first:end] = 0
    _free_counters.append(scratch)
    return (first, span) if span.any() else (0, span[:0])


class _Counters:
    """An array for all counters, which the decoder fills. The array is zero while unused."""

    __slots__ = ("address", "counts")

    def __init__(self) -> None:
        self.counts: Counts = np.zeros(BUCKETS, np.int64)
        self.address: int = self.counts.ctypes.data


_free_counters: Final[list[_Counters]] = []
"""Unused arrays: one per thread that ever decoded. A damaged payload takes its array away with it."""


def _used(counts: Counts) -> npt.NDArray[np.intp]:
    """The indexes of counters in use; a third of the time that numpy takes for whole numbers."""
    return np.flatnonzero(counts != 0)


def _unpacked(payload: str) -> bytes:
    """The inner part of a payload, with everything checked that the decoder takes for granted."""
    data, rest = inflated(raw_octets(payload), {_OUTER_COOKIE}, _UNPACKED_MAX)
    if rest:
        raise PayloadError(CUT)
    try:
        inner = INNER.unpack_from(data)
    except struct.error as error:
        raise PayloadError(f"it cannot be unpacked: {error}") from error
    if inner[0] != _INNER_COOKIE or inner[1] != len(data) - INNER.size:
        raise PayloadError("its inner header is not that of a V2 histogram")
    if inner[2:] != (0, SIGNIFICANT_FIGURES, LOWEST_NS, HIGHEST_NS, 1.0):
        raise PayloadError("it was not recorded from 1 ns to 1 h with 3 significant figures")
    return data


class _OfThread(threading.local):
    """The encoder of a thread. Two threads that share one mix their payloads: its compression lets others run."""

    def __init__(self) -> None:
        self.encoder = encoder()


_of_thread: Final = _OfThread()
