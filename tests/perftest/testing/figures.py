"""What tests read from the bucket counts of an interval."""

from __future__ import annotations

from dataclasses import dataclass

from perftest.metrics.histogram import Histogram, SparseCounts


@dataclass(frozen=True)
class Figures:
    """Percentiles as HdrHistogram reads them, and the exact maximum."""

    count: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    payload: str


def figures(counts: SparseCounts) -> Figures:
    """The figures of a histogram."""
    histogram = Histogram.of(counts)
    p50, p95, p99 = histogram.percentiles_ns((50.0, 95.0, 99.0))
    return Figures(histogram.total, p50, p95, p99, histogram.max_ns, histogram.encode())
