"""A histogram as the percentile distribution that HdrHistogram's plotter draws (``.hgrm``).

Lines and steps are those of HdrHistogram's ``outputPercentileDistribution``: five percentiles for each half of the
distance to 100 %, until the last recorded value, and a last line for 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from hdr_buckets import BUCKET_HIGHEST_NS, BUCKET_LOWEST_NS, BUCKETS
from perftest.metrics.histogram import Histogram

TICKS: Final = 5
"""Number of percentiles in each half of the distance to 100 %."""
_HEAD: Final = f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}\n\n"
_SUB_BUCKETS: Final = 2048
_HALVES: Final = BUCKETS // (_SUB_BUCKETS // 2) - 1


def distribution(histogram: Histogram, unit_ns: int) -> str:
    """The content of a ``.hgrm`` file, with values in units of ``unit_ns``."""
    lines = "".join(_line(*each, unit_ns) for each in _percentiles(histogram))
    mean, deviation = histogram.mean_ns / unit_ns, _deviation_ns(histogram) / unit_ns
    return (
        f"{_HEAD}{lines}#[Mean    = {mean:12.3f}, StdDeviation   = {deviation:12.3f}]\n"
        f"#[Max     = {histogram.max_ns / unit_ns:12.3f}, Total count    = {histogram.total:12d}]\n"
        f"#[Buckets = {_HALVES:12d}, SubBuckets     = {_SUB_BUCKETS:12d}]\n"
    )


def _line(value_ns: int, percentile: float, count: int, unit_ns: int) -> str:
    rest = f" {1 / (1 - percentile / 100):14.2f}" if percentile < 100 else ""
    return f"{value_ns / unit_ns:12.3f} {percentile / 100:2.12f} {count:10d}{rest}\n"


def _percentiles(histogram: Histogram) -> Iterator[tuple[int, float, int]]:
    """Value in ns, percentile, and the number of values up to that value."""
    if not histogram.total:
        return
    used = np.flatnonzero(histogram.counts)
    below = np.cumsum(histogram.counts[used])
    shares = 100.0 * below / histogram.total
    level, reached = 0.0, 0
    while reached < histogram.total:
        at = int(np.searchsorted(shares, level))
        reached = int(below[at])
        yield _value_ns(histogram, int(used[at])), level, reached
        level += _step(level)
    yield _value_ns(histogram, int(used[-1])), 100.0, histogram.total


def _step(level: float) -> float:
    """Distance to the next percentile."""
    halves = int(math.log2(100.0 / (100.0 - level))) + 1
    return 100.0 / (TICKS * 2.0**halves)


def _value_ns(histogram: Histogram, bucket: int) -> int:
    """The greatest value of a bucket, which is not beyond the exact maximum."""
    return min(int(BUCKET_HIGHEST_NS[bucket]), histogram.max_ns)


def _deviation_ns(histogram: Histogram) -> float:
    """The standard deviation, each value taken as the middle of its bucket."""
    if not histogram.total:
        return 0.0
    used = np.flatnonzero(histogram.counts)
    middles = (BUCKET_LOWEST_NS[used] + BUCKET_HIGHEST_NS[used] + 1) / 2
    apart = (middles - histogram.mean_ns) ** 2
    return math.sqrt(float(np.dot(histogram.counts[used], apart)) / histogram.total)
