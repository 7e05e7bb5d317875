"""Where a sweep bends: the knee, the smallest setting that is enough, its gain and its cost.

The knee is the step with the highest power, rate / p99 (Kleinrock): before it, more load buys rate cheaply; after it,
latency grows faster than the rate. Beside it stands a rule that asks for rate first: the smallest setting with at least
95 % of the peak. The two differ when the curve bends slowly, and then both are worth saying.

The knee and the peak need no order. "Smaller", "next" and "beyond" speak of one setting while the others are held,
along the lines of :mod:`reports.stats.axes`.

A step in which the load generator was the limit says nothing about the broker. Such a step is left out; then the
figures of the other steps are a lower bound.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from reports.stats.axes import AxisLine, lines, order

ENOUGH: Final = 0.95
"""Part of the peak rate that counts as enough."""

SATURATED: Final = 0.05
"""Part of the rate below which the gain of the last step counts as saturation."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The rise of the rate from one step to the next of a line: ``added`` is after - before, and ``factor`` is after /
    before."""

    setting: str
    before: int
    after: int
    added: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """The step with the lowest value of ``setting`` that has enough of the peak, with the others as at the peak."""

    setting: str
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """The step with the highest value of ``setting``, with the others as at the knee. ``rate`` and ``latency`` are the
    factors from the knee to there; ``row`` is the knee itself when nothing lies beyond it. ``saturated``: the last step
    gained next to nothing."""

    setting: str
    row: int
    rate: float
    latency: float
    saturated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepShape:
    """The shape of a sweep. ``peak``, ``knee`` and all other rows are rows of ``steps``.

    ``steps`` are the steps that have a rate and a latency, in the order of their settings; of a setting that was
    measured several times, the step with the median rate. Rates are messages per second, latencies nanoseconds.
    ``varied`` are the settings that differ. ``enough`` and ``beyond`` have an entry for each of them along which the
    peak, or the knee, can be compared: several in a grid, none where settings change together; then ``biggest_gain`` is
    None, too. ``limited`` are the labels of the steps that were left out because the generator was the limit.
    """

    steps: pd.DataFrame
    rate: str
    latency: str
    varied: tuple[str, ...]
    lines: tuple[AxisLine, ...]
    peak: int
    knee: int
    enough: tuple[Enough, ...]
    biggest_gain: Gain | None
    beyond: tuple[Beyond, ...]
    limited: tuple[str, ...] = ()

    @property
    def advised(self) -> int:
        """The step with the lowest latency among the steps with :data:`ENOUGH` of the peak rate."""
        least = ENOUGH * self.rate_at(self.peak)
        return min((row for row in range(len(self.steps)) if self.rate_at(row) >= least), key=self.latency_ns_at)

    @property
    def lead(self) -> str | None:
        """The setting with the longest lines: the one to draw along. None without a line."""
        return max(self.lines, key=lambda line: len(line.rows)).setting if self.lines else None

    @property
    def lead_lines(self) -> list[tuple[int, ...]]:
        """The rows of each line along the leading setting."""
        return [line.rows for line in self.lines if line.setting == self.lead]

    def label(self, row: int) -> str:
        """The step in words."""
        return str(self.steps["label"].iloc[row])

    def rate_at(self, row: int) -> float:
        """Messages per second."""
        return float(self.steps[self.rate].iloc[row])

    def latency_ns_at(self, row: int) -> float:
        """The latency the knee was found by."""
        return float(self.steps[self.latency].iloc[row])


def sweep(
    steps: pd.DataFrame,
    values: pd.DataFrame,
    *,
    latency: str,
    rate: str = "delivered_per_s",
    limited: Collection[int] = (),
) -> SweepShape | None:
    """The knee of a sweep; None with fewer than two settings that have a rate and a latency.

    :param steps: rows of the table ``steps`` of one run, in any order
    :param values: the swept settings of these rows, in the same order (:func:`reports.stats.axes.axes`)
    :param latency: a column of p99 latencies, such as that of the series to lead with (:mod:`reports.stats.lead`)
    :param rate: a column of rates; ``confirmed_per_s`` to judge by confirms
    :param limited: numbers of the steps in which the load generator was the limit
    """
    own = steps["step"].isin(limited).to_numpy()
    usable = (steps[latency].notna() & (steps[latency] > 0) & (steps[rate] > 0)).to_numpy() & ~own
    measured, settings = steps[usable].reset_index(drop=True), values[usable].reset_index(drop=True)
    settings = settings[[name for name in settings.columns if settings[name].nunique() > 1]]
    typical = _typical(measured[rate].tolist(), settings)
    if len(typical) < 2:
        return None
    ordered, settings = (frame.iloc[typical].reset_index(drop=True) for frame in (measured, settings))
    rates, latencies = _column(ordered, rate), _column(ordered, latency)
    peak, knee = int(np.argmax(rates)), int(np.argmax(rates / latencies))
    found = lines(settings)
    return SweepShape(
        steps=ordered,
        rate=rate,
        latency=latency,
        varied=tuple(map(str, settings.columns)),
        lines=tuple(found),
        peak=peak,
        knee=knee,
        enough=tuple(_enough(line, rates) for line in found if peak in line.rows),
        biggest_gain=_biggest_gain(found, rates),
        beyond=tuple(
            _beyond(line, knee, rates, latencies, is_end=_is_end(line, settings, values[own]))
            for line in found
            if knee in line.rows
        ),
        limited=tuple(str(label) for label in steps[own].sort_values("step", kind="stable")["label"]),
    )


def _typical(rates: Sequence[float], settings: pd.DataFrame) -> list[int]:
    """A row per setting, from the lowest to the highest: of equal settings the one with the (lower) median rate, for
    the best of several is luck."""
    equal: dict[tuple[float, ...], list[int]] = {}
    found = settings.to_numpy().tolist()
    for row in order(settings):
        equal.setdefault(tuple(found[row]), []).append(row)
    return [sorted(rows, key=lambda row: rates[row])[(len(rows) - 1) // 2] for rows in equal.values()]


def _enough(line: AxisLine, rates: Floats) -> Enough:
    least = ENOUGH * rates.max()
    return Enough(setting=line.setting, row=next(row for row in line.rows if rates[row] >= least))


def _biggest_gain(found: Sequence[AxisLine], rates: Floats) -> Gain | None:
    """The largest in messages per second, which is what a gain means everywhere. Next to a gain that can be noticed,
    none counts that cannot."""
    gains = [
        Gain(
            setting=line.setting,
            before=before,
            after=after,
            added=float(rates[after] - rates[before]),
            factor=float(rates[after] / rates[before]),
        )
        for line in found
        for before, after in pairwise(line.rows)
    ]
    return max(gains, key=lambda gain: (gain.factor > 1 + SATURATED, gain.added), default=None)


def _is_end(line: AxisLine, settings: pd.DataFrame, left_out: pd.DataFrame) -> bool:
    """Whether no step further along was left out, so that the rest of the line is known."""
    return not (left_out[line.setting] > settings[line.setting].iloc[line.rows[-1]]).any()


def _beyond(line: AxisLine, knee: int, rates: Floats, latencies: Floats, *, is_end: bool) -> Beyond:
    *_, before, last = line.rows
    return Beyond(
        setting=line.setting,
        row=last,
        rate=float(rates[last] / rates[knee]),
        latency=float(latencies[last] / latencies[knee]),
        saturated=is_end and bool(rates[last] < (1 + SATURATED) * rates[before]),
    )


def _column(frame: pd.DataFrame, name: str) -> Floats:
    return frame[name].to_numpy(dtype=np.float64)
