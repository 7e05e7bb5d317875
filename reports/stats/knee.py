"""Where a sweep bends: the knee, the smallest setting that is enough, what is gained and what it costs.

The knee is the step with the highest power, rate / p99 (Kleinrock): before it, more load buys rate cheaply; after it,
latency grows faster than the rate. Beside it stands a rule that asks for rate first: the smallest setting with at least
95 % of the peak. The two differ when the curve bends slowly, and then both are worth saying.

A step is compared with its neighbours in the order of the plan, which is the order of the swept setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

ENOUGH: Final = 0.95
"""Part of the peak rate that counts as enough."""

SATURATED: Final = 0.05
"""A sweep is saturated when the last doubling or step of its setting gains less than this part of the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The rise of the rate from one step to the next: ``factor`` is after / before."""

    before: int
    after: int
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a sweep shows. ``peak``, ``knee``, ``enough`` and the ends of ``biggest_gain`` are rows of ``steps``.

    ``steps`` are the steps that have a rate and a latency, in order; rates are messages per second, latencies
    nanoseconds. ``beyond_rate`` and ``beyond_latency`` are the factors from the knee to the last step: what the
    settings past the knee gain, and what they cost; both 1.0 when the knee is the last step.
    """

    steps: pd.DataFrame
    rate: str
    latency: str
    peak: int
    knee: int
    enough: int
    biggest_gain: Gain
    saturated: bool
    beyond_rate: float
    beyond_latency: float

    def label(self, row: int) -> str:
        """The step in words."""
        return str(self.steps["label"].iloc[row])

    def rate_at(self, row: int) -> float:
        """Messages per second."""
        return float(self.steps[self.rate].iloc[row])

    def latency_ns_at(self, row: int) -> float:
        """The latency the knee was found by."""
        return float(self.steps[self.latency].iloc[row])


def sweep(steps: pd.DataFrame, *, latency: str, rate: str = "delivered_per_s") -> Sweep | None:
    """The knee of a sweep; None with fewer than two steps that have a rate and a latency.

    :param steps: rows of the table ``steps`` of one run, in any order
    :param latency: a column of p99 latencies, such as that of the series to lead with (:mod:`reports.stats.lead`)
    :param rate: a column of rates; ``confirmed_per_s`` to judge by confirms
    """
    usable = steps[steps[latency].notna() & (steps[latency] > 0) & (steps[rate] > 0)]
    ordered = usable.sort_values("step", kind="stable", ignore_index=True)
    if len(ordered) < 2:
        return None
    rates, latencies = _values(ordered, rate), _values(ordered, latency)
    knee, last = int(np.argmax(rates / latencies)), len(ordered) - 1
    return Sweep(
        steps=ordered,
        rate=rate,
        latency=latency,
        peak=int(np.argmax(rates)),
        knee=knee,
        enough=int(np.argmax(rates >= ENOUGH * rates.max())),
        biggest_gain=_biggest_gain(rates),
        saturated=bool(rates[last] < (1 + SATURATED) * rates[last - 1]),
        beyond_rate=float(rates[last] / rates[knee]),
        beyond_latency=float(latencies[last] / latencies[knee]),
    )


def _biggest_gain(rates: npt.NDArray[np.float64]) -> Gain:
    factors = rates[1:] / rates[:-1]
    after = int(np.argmax(factors)) + 1
    return Gain(before=after - 1, after=after, factor=float(factors[after - 1]))


def _values(frame: pd.DataFrame, column: str) -> npt.NDArray[np.float64]:
    return frame[column].to_numpy(dtype=np.float64)
