"""HDR histograms of nanoseconds that merge exactly.

A histogram has one counter per bucket; merging is adding counters, so the merge of any set of intervals, workers and
hosts is the histogram of the union, bucket by bucket. Percentiles are read from the merged counters, never averaged.

The layout of 1 ns .. 1 h with 3 significant figures: buckets of 1024 counters each, the first 2048 values exact, then
every 1024 counters cover twice the range of the 1024 before. Counter ``i >= 1024`` with exponent ``e = i // 1024 - 1``
holds the values from ``(1024 + i % 1024) << e`` up to the next one less 1.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

from perftest.results.errors import DamagedHistogramError

LOWEST_NS: Final = 1
HIGHEST_NS: Final = 3_600_000_000_000
SIGNIFICANT_FIGURES: Final = 3

PERCENTILES: Final = {
    "p50_ns": 50.0,
    "p75_ns": 75.0,
    "p95_ns": 95.0,
    "p99_ns": 99.0,
    "p999_ns": 99.9,
    "p9999_ns": 99.99,
}

_OUTER: Final = struct.Struct(">II")
_INNER: Final = struct.Struct(">IIIIQQd")
_OUTER_COOKIE: Final = 0x1C849314
_INNER_COOKIE: Final = 0x1C849313
_DECOMPRESSED_MAX: Final = _INNER.size + 9 * (1 << 16)
"""A varint has at most 9 octets, and there are fewer than 2^16 counters: more is no histogram of ours."""

Counts = npt.NDArray[np.int64]


class Merged:
    """The union of any number of histograms."""

    def __init__(self) -> None:
        self._counts: Counts = np.zeros(0, dtype=np.int64)
        self._max_ns = 0

    def add(self, payload: str, max_ns: int | None = None) -> None:
        """Add a V2 payload; ``max_ns`` is its exact maximum where it is known. Raises DamagedHistogramError."""
        counts = decode(payload)
        if max_ns is None and len(counts):
            max_ns = int(_HIGHEST[len(counts) - 1])
        self._add(counts, max_ns or 0)

    def merge(self, other: Merged) -> None:
        """Add what another one has."""
        self._add(other.counts, other.max_ns)

    def _add(self, counts: Counts, max_ns: int) -> None:
        if len(counts) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(counts) - len(self._counts)))
        self._counts[: len(counts)] += counts
        self._max_ns = max(self._max_ns, max_ns)

    @property
    def counts(self) -> Counts:
        """The counters up to the last one in use."""
        return self._counts

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return int(self._counts.sum())

    @property
    def max_ns(self) -> int:
        """The largest value: exact where every part told its own, else the top of its bucket."""
        return self._max_ns

    @property
    def min_ns(self) -> int:
        """The lowest value of the lowest bucket in use; 0 when nothing was recorded."""
        used = np.flatnonzero(self._counts)
        return int(_LOWEST[used[0]]) if len(used) else 0

    @property
    def mean_ns(self) -> float:
        """The mean, each value taken as the middle of its bucket; 0 when nothing was recorded."""
        total = self.count
        if not total:
            return 0.0
        size = len(self._counts)
        middle = (_LOWEST[:size] + _HIGHEST[:size]) / 2
        return float((middle * self._counts).sum() / total)

    def percentile_ns(self, percent: float) -> int:
        """The highest value equivalent to the one that ``percent`` of all values do not exceed; 0 when empty."""
        if not len(self._counts):
            return 0
        cumulated = np.cumsum(self._counts)
        target = max(int(percent / 100 * int(cumulated[-1]) + 0.5), 1)
        index = int(np.searchsorted(cumulated, target))
        return int(_HIGHEST[index]) if index < len(self._counts) else 0

    def summary(self) -> dict[str, int | float]:
        """One entry of a result row's ``latency``. A percentile is the top of its bucket, never above the maximum."""
        percentiles = {name: min(self.percentile_ns(percent), self.max_ns) for name, percent in PERCENTILES.items()}
        return {"count": self.count, **percentiles, "max_ns": self.max_ns, "mean_ns": round(self.mean_ns, 1)}


def bucket_values(length: int) -> Counts:
    """The value that a percentile reports for each of the first ``length`` counters: the highest equivalent one, ns."""
    return _HIGHEST[:length].copy()


def decode(payload: str) -> Counts:
    """The counters of a V2 payload, up to the last one in use.

    Cookies, lengths and settings are checked first, because the decoder is C and the text may come from a damaged
    file. Raises :class:`DamagedHistogramError`.
    """
    _check(payload)
    try:
        histogram: Any = HdrHistogram.decode(payload.encode())
    except Exception as error:  # the decoder's own exceptions share no base class
        raise DamagedHistogramError(f"its counters cannot be decoded: {error}") from error
    counts = np.frombuffer(histogram.counts, dtype=np.uint64).astype(np.int64)
    used = np.flatnonzero(counts)
    return counts[: used[-1] + 1] if len(used) else counts[:0]


def _check(payload: str) -> None:
    try:
        raw = base64.b64decode(payload.encode("ascii"), validate=True)
        cookie, length = _OUTER.unpack_from(raw)
        if cookie != _OUTER_COOKIE or length != len(raw) - _OUTER.size:
            raise DamagedHistogramError("its outer header is not that of a V2 histogram")
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(raw[_OUTER.size :], _DECOMPRESSED_MAX)
        inner = _INNER.unpack_from(data)
    except (UnicodeEncodeError, binascii.Error, struct.error, zlib.error) as error:
        raise DamagedHistogramError(f"it cannot be unpacked: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise DamagedHistogramError("its compressed part is cut short or too long")
    if inner[0] != _INNER_COOKIE or inner[1] != len(data) - _INNER.size or inner[2] != 0:
        raise DamagedHistogramError("its inner header is not that of a V2 histogram")
    if inner[3:6] != (SIGNIFICANT_FIGURES, LOWEST_NS, HIGHEST_NS):
        raise DamagedHistogramError("it was not recorded from 1 ns to 1 h with 3 significant figures")


def _table(length: int) -> tuple[Counts, Counts]:
    """The lowest and the highest value of every counter."""
    index = np.arange(length, dtype=np.int64)
    exponent = np.maximum((index >> 10) - 1, 0)
    mantissa = np.where(index < 1024, index, (index & 1023) + 1024)
    lowest: Counts = mantissa << exponent
    return lowest, lowest + (np.int64(1) << exponent) - 1


_LENGTH: Final = int(HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES).counts_len)
_LOWEST, _HIGHEST = _table(_LENGTH)
