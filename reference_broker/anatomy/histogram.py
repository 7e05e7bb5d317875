"""Histograms with HdrHistogram's very buckets, several side by side: 1 ns to 1 hour, 3 significant figures.

Up to 2047 every value has a bucket of its own, and each further power of two is cut into 1024 buckets. The bucket of a
value follows from the exponent of the value as a double (exact, because values stay below 2**53), so a few numpy
operations bucket an array of values. The format on the wire is left to ``hdrhistogram``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

LOWEST: Final = 1
HIGHEST: Final = 3_600_000_000_000
FIGURES: Final = 3

_HALF_BITS: Final = 10
_SUB_MASK: Final = (1 << (_HALF_BITS + 1)) - 1
_FRACTION_BITS: Final = 52
_BIAS: Final = 1023
BUCKETS: Final = (HIGHEST.bit_length() - _HALF_BITS + 1) << _HALF_BITS
"""Length of HdrHistogram's counts array for this range."""

Values = npt.NDArray[np.int64]


def bucket_index(values: Values) -> Values:
    """Index into the counts array for each of ``values`` (0 .. HIGHEST)."""
    exponent = (values | _SUB_MASK).astype(np.float64).view(np.int64) >> _FRACTION_BITS
    bucket = exponent - (_BIAS + _HALF_BITS)
    return (bucket << _HALF_BITS) + (values >> bucket)


def lowest_value(index: int) -> int:
    """The least value counted at ``index``."""
    bucket = (index >> _HALF_BITS) - 1
    return index if bucket < 0 else ((index & ((1 << _HALF_BITS) - 1)) + (1 << _HALF_BITS)) << bucket


def highest_value(index: int) -> int:
    """The greatest value counted at ``index``, which a percentile reports."""
    return lowest_value(index) + (1 << max((index >> _HALF_BITS) - 1, 0)) - 1


class Histograms:
    """``rows`` histograms of the same occasions, in one array; ``sums`` are exact, for means and Prometheus."""

    __slots__ = ("counts", "sums")

    def __init__(self, rows: int) -> None:
        self.counts: Values = np.zeros((rows, BUCKETS), np.int64)
        self.sums: Values = np.zeros(rows, np.int64)

    def record(self, values: Values, weights: Values, first: int = 0) -> None:
        """Count column ``i`` of ``values``, shape (n, columns), in row ``first + i``, each ``weights`` (n) times.

        Values above HIGHEST are counted in its bucket.
        """
        columns = values.shape[1]
        index = bucket_index(np.minimum(values, HIGHEST)) + np.arange(first, first + columns) * BUCKETS
        np.add.at(self.counts.reshape(-1), index, weights[:, None])
        self.sums[first : first + columns] += weights @ values


def encode(counts: Values) -> str:
    """The V2 compressed payload, in base64, of one row of counts. Not thread-safe against changes of ``counts``."""
    target: Any = HdrHistogram(LOWEST, HIGHEST, FIGURES)
    used = np.flatnonzero(counts)
    if len(used):
        np.ctypeslib.as_array(target.counts)[: len(counts)] = counts
        target.total_count = int(counts.sum())
        target.max_value, target.min_value = highest_value(int(used[-1])), lowest_value(int(used[0]))
    text: str = target.encode().decode("ascii")
    return text
