"""Latencies in the fixed buckets of monitoring systems; pure.

Quantiles of several runs or hosts cannot be added up, and buckets can: Prometheus' ``histogram_quantile`` and backends
of OpenTelemetry make quantiles of the sums. A value lies within 0.1 % of the bound of its bucket or in its bucket,
because the run's own histogram has three significant figures.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hdr_buckets import BUCKET_HIGHEST_NS
from perftest.metrics.histogram import Histogram

BOUNDS_NS: Final = tuple(digit * 10**power for power in range(5, 11) for digit in (1, 2, 5))
"""Upper bounds of the buckets, from 100 µs to 50 s, three in each power of ten; greater values have a last bucket."""


def bucket_counts(histogram: Histogram) -> list[int]:
    """The number of values in each bucket, with one more number than there are bounds."""
    tops = np.searchsorted(BUCKET_HIGHEST_NS[: len(histogram.counts)], BOUNDS_NS, side="right")
    below = np.concatenate(([0], np.cumsum(histogram.counts)))[tops]
    return np.diff(np.concatenate(([0], below, [histogram.total]))).astype(int).tolist()  # type: ignore[no-any-return]
