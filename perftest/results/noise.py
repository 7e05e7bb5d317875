"""How much the figures of a step vary by chance, at each averaging time: Allan variances of the logarithms.

The intervals of a step are not independent: a slow second follows a slow one. A variance of all intervals would hide
this. The two-sample variance does not (D. W. Allan, "Statistics of atomic frequency standards", 1966): it is the mean
square of the difference between neighbouring averages over ``m`` intervals, for m = 1, 2, 4 and so on. Noise without
memory falls with 1/m, and a drift grows with m. :mod:`reports.stats.contrasts` reads both from these figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perftest.results.steadiness import SteadySlot

Scales = list[list[float]]
"""For each averaging time: intervals averaged, mean square of the differences, number of the differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNoise:
    """The scales of a figure in one step of one round, the length of its intervals, and the time of the step."""

    scales: Scales
    interval_s: float
    start_s: float
    length_s: float


FIGURES: Final = ("delivered_per_s", "published_per_s", "p50_ns", "p95_ns", "p99_ns")
"""Figures of an interval. The percentiles are those of the latency to lead with."""


def noise_of(slots: Sequence[SteadySlot]) -> dict[str, Scales]:
    """The scales of each figure that every interval of a step has, and none is 0."""
    columns = {name: [getattr(slot, name) or 0.0 for slot in slots] for name in FIGURES}
    return {name: scales_of(values) for name, values in columns.items() if len(values) > 1 and min(values) > 0}


def scales_of(values: Sequence[float]) -> Scales:
    """The scales of positive values, at most 9 digits each."""
    logs, found = np.log(np.asarray(values, np.float64)), Scales()
    averaged = 1
    while 2 * averaged <= len(logs):
        means = logs[: len(logs) // averaged * averaged].reshape(-1, averaged).mean(axis=1)
        differences = np.diff(means)
        found.append([averaged, float(f"{np.mean(differences**2):.9g}"), len(differences)])
        averaged *= 2
    return found
