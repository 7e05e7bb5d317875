"""Latencies as PerfTest tells them, to be read beside ours.

PerfTest measures from the actual send, and keeps a sample: Dropwizard's exponentially decaying reservoir of 1028 values
with alpha 0.015 (G. Cormode, V. Shkapenyuk, D. Srivastava, B. Xu, *Forward Decay*, ICDE 2009). So its summary covers
about the last five minutes, its minimum and maximum are the sample's, and a rare stall may not be in it at all.

This module fills that reservoir from the histograms of the intervals, which know each value to 0.1 % and its time to
the interval. In one thing the module differs. PerfTest takes the absolute value of a difference. So a delivery before
its send, by clocks that disagree, looks like a latency. Here such a delivery is counted, and fails the run.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hdr_buckets import BUCKET_HIGHEST_NS, Counts
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series

SIZE: Final = 1028
ALPHA_PER_S: Final = 0.015
QUANTILES: Final = {"median_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95, "p99_ns": 0.99}
_SHOWN: Final = {"consumer": Series.E2E, "confirm": Series.CONFIRM}

Floats = npt.NDArray[np.float64]


class Reservoir:
    """A sample that takes a value e^(0.015 t) times as likely if it comes t seconds later."""

    def __init__(self, seed: int) -> None:
        self.seen = 0
        self._random = np.random.default_rng(seed)
        self._values = np.empty(0, np.int64)
        self._times_s = np.empty(0)
        self._priorities = np.empty(0)

    def add(self, counts: Counts, t_s: float) -> None:
        """The values of a histogram, at ``t_s`` seconds since the start.

        A value's priority is its weight over a random number of (0, 1]; the 1028 highest stay. As logarithms, which do
        not overflow, so there is nothing to rescale.
        """
        total = int(counts.sum())
        if not total:
            return
        self.seen += total
        priorities = ALPHA_PER_S * t_s - np.log1p(-self._random.random(total))
        chosen = _highest(priorities)
        values = BUCKET_HIGHEST_NS[np.searchsorted(np.cumsum(counts), chosen, side="right")]
        self._priorities = np.append(self._priorities, priorities[chosen])
        self._values = np.append(self._values, values)
        self._times_s = np.append(self._times_s, np.full(len(chosen), t_s))
        kept = _highest(self._priorities)
        self._priorities, self._values, self._times_s = (
            self._priorities[kept],
            self._values[kept],
            self._times_s[kept],
        )

    def to_json(self) -> dict[str, int]:
        """Nanoseconds: minimum and maximum of the sample, quantiles weighted as Dropwizard's snapshot weights them."""
        if not len(self._values):
            return {"seen": 0, "kept": 0}
        order = np.argsort(self._values, kind="stable")
        values, times_s = self._values[order], self._times_s[order]
        weights = np.exp(ALPHA_PER_S * (times_s - times_s.max()))
        before = np.cumsum(weights / weights.sum()) - weights / weights.sum()
        found = {"min_ns": int(values[0])}
        for name, quantile in QUANTILES.items():
            found[name] = int(values[max(int(np.searchsorted(before, quantile, side="right")) - 1, 0)])
        return {"seen": self.seen, "kept": len(values), **found, "max_ns": int(values[-1])}


class LegacyLatency:
    """Both latencies that PerfTest has, over the whole run: PerfTest knows no warm-up."""

    def __init__(self, started_ns: int, seed: int = 1) -> None:
        self._started_ns = started_ns
        self._reservoirs = {name: Reservoir(seed) for name in _SHOWN}

    def interval(self, record: Interval) -> None:
        """Take an interval of one worker. Intervals of the drain after the last publish are left out."""
        if record.phase is Phase.DRAIN:
            return
        t_s = (record.start_ns + record.length_ns - self._started_ns) / 1e9
        for name, series in _SHOWN.items():
            if (counts := record.latencies.get(series)) is not None:
                self._reservoirs[name].add(Histogram.of(counts).counts, t_s)

    def to_json(self) -> dict[str, Any]:
        """``legacy_latency`` of ``result.json``; latencies without a value are left out."""
        found = {name: reservoir.to_json() for name, reservoir in self._reservoirs.items()}
        return {name: values for name, values in found.items() if values["seen"]}


def _highest(priorities: Floats) -> npt.NDArray[np.intp]:
    """The places of the 1028 highest, in order."""
    if len(priorities) <= SIZE:
        return np.arange(len(priorities))
    return np.sort(np.argpartition(priorities, len(priorities) - SIZE)[-SIZE:])
