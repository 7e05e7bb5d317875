"""What was measured, in a form that can be drawn again.

A *side* of a comparison is one run or several repetitions of it. From three repetitions on each side the repetitions
are what is drawn; with fewer, the intervals of the steady phases are, which know nothing of how runs differ from each
other, and the comparison says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perftest.metrics.interval import Phase, Series
from perftest.results.histograms import bucket_values, decode
from perftest.results.reader import Run
from reports.stats import bootstrap
from reports.stats.bootstrap import Floats

REPEATS_MIN: Final = 3
PERCENTS: Final = (50.0, 99.0, 99.9)
INTERVALS_MIN: Final = 8
"""With fewer intervals a block bootstrap has nothing to choose from."""
BEYOND_MIN: Final = 10
"""Values beyond a percentile that make it more than an anecdote."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a step: ``series`` and ``percent`` for a percentile, ``counter`` for a rate, ``column`` for one that
    stands in the rows of results alone."""

    name: str
    unit: str
    more_is_better: bool
    counter: str = ""
    series: Series | None = None
    percent: float = 0.0
    column: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One figure of one side: its value, and what it was in each draw; why it says little, if it does."""

    value: float
    draws: Floats
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady phase of one step of one run, interval by interval: messages, seconds, histograms by series."""

    length_s: Floats
    counters: dict[str, Floats]
    histograms: dict[Series, Counts]


class Side:
    """One or several runs of one plan."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = tuple(runs)
        self.rows = [{row["label"]: row for row in (run.result or {}).get("steps", ())} for run in runs]
        self._steady: dict[tuple[int, int], Steady] = {}
        self._percentiles: dict[tuple[str, Series], tuple[Floats, Floats]] = {}

    @property
    def labels(self) -> list[str]:
        """The steps that every repetition has, in order."""
        return [label for label in self.rows[0] if all(label in rows for rows in self.rows)]

    def series(self, label: str) -> set[str]:
        """The latency series of a step."""
        return set.intersection(*(set(rows[label]["latency"]) for rows in self.rows))

    def by_repeats(self, label: str, metric: Metric, rng: np.random.Generator) -> Drawn | None:
        """The median of the repetitions; None where one of them lacks the figure."""
        values = [_of_row(rows[label], metric) for rows in self.rows]
        if any(value is None for value in values):
            return None
        found = np.array(values, np.float64)
        weight = bootstrap.weights(len(found), 1, rng)
        return Drawn(float(np.median(found)), bootstrap.medians(found, weight), self._doubt(label, metric))

    def by_intervals(self, label: str, metric: Metric, rng: np.random.Generator) -> Drawn | None:
        """The figure over all steady intervals; None where they cannot tell it."""
        steady = self._joined(label)
        if steady is None or metric.column or (metric.series and metric.series not in steady.histograms):
            return None
        items = len(steady.length_s)
        doubt = f"only {items} steady intervals" if items < INTERVALS_MIN else self._doubt(label, metric)
        whole, weight = np.ones((1, items), np.int64), bootstrap.weights(items, bootstrap.block_length(items), rng)
        if metric.series is None:
            counted = steady.counters[metric.counter]
            value, draws = (bootstrap.ratios(counted, steady.length_s, each) for each in (whole, weight))
            return Drawn(float(value[0]), draws, doubt)
        key = (label, metric.series)
        if key not in self._percentiles:
            counts = steady.histograms[metric.series]
            values = bucket_values(counts.shape[1]).astype(np.float64)
            one, many = (bootstrap.percentiles(counts, values, PERCENTS, each) for each in (whole, weight))
            self._percentiles[key] = one, many
        at = PERCENTS.index(metric.percent)
        return Drawn(float(self._percentiles[key][0][at, 0]), self._percentiles[key][1][at], doubt)

    def _doubt(self, label: str, metric: Metric) -> str:
        if metric.series is None:
            return ""
        count = min(rows[label]["latency"][metric.series]["count"] for rows in self.rows)
        beyond = count * (1 - metric.percent / 100)
        return f"only {count} samples" if beyond < BEYOND_MIN else ""

    def _joined(self, label: str) -> Steady | None:
        """The steady phases of all repetitions, one after the other."""
        parts = [self._steady_of(number, rows[label]["step"]) for number, rows in enumerate(self.rows)]
        if any(not len(part.length_s) for part in parts):
            return None
        names = set.intersection(*(set(part.histograms) for part in parts))
        return Steady(
            np.concatenate([part.length_s for part in parts]),
            {name: np.concatenate([part.counters[name] for part in parts]) for name in parts[0].counters},
            {name: _stacked([part.histograms[name] for part in parts]) for name in names},
        )

    def _steady_of(self, number: int, step: int) -> Steady:
        if (number, step) not in self._steady:
            self._steady[number, step] = steady_of(self.runs[number], step)
        return self._steady[number, step]


def metrics_of(series: set[str]) -> Iterator[Metric]:
    """What is compared of a step that has these latency series: the latency from the intended time where there is a
    schedule, for the other one forgets the time that a message had to wait before it left."""
    yield Metric("delivered/s", "msg/s", True, counter="delivered")
    yield Metric("published/s", "msg/s", True, counter="published")
    for plain, scheduled in ((Series.E2E, Series.E2E_SCHED), (Series.CONFIRM, Series.CONFIRM_SCHED)):
        chosen = scheduled if scheduled in series else plain
        if chosen in series:
            for percent in PERCENTS:
                yield Metric(f"{chosen} p{percent:g}", "ms", False, series=chosen, percent=percent)
    yield Metric("broker CPU", "µs/msg", False, column="broker_cpu_us_per_message")


def steady_of(run: Run, step: int) -> Steady:
    """The steady intervals of a step; workers, which are cut at the same times, are added up."""
    mine = [each for each in run.intervals if each.step == step and each.phase is Phase.STEADY]
    places = _ordinals([(each.worker, each.start_ns) for each in mine])
    size = max(places, default=-1) + 1
    length_s, counters = np.zeros(size), {name: np.zeros(size) for name in ("delivered", "published")}
    for place, each in zip(places, mine, strict=True):
        length_s[place] = max(length_s[place], each.length_ns / 1e9)
        for name, counted in counters.items():
            counted[place] += getattr(each, name)
    return Steady(length_s, counters, _histograms(run, step, size))


def _histograms(run: Run, step: int, size: int) -> dict[Series, Counts]:
    found: dict[Series, Counts] = {}
    lines = [line for line in run.histograms if line.step == step and line.phase is Phase.STEADY]
    # An interval without a value of a series has no line: its place is found by its start, which all series share.
    starts: dict[tuple[str, str], list[int]] = {}
    for line in lines:
        starts.setdefault((line.host, line.worker), []).append(line.start_ns)
    order = {of: {start: at for at, start in enumerate(sorted(set(all_)))} for of, all_ in starts.items()}
    for line in lines:
        if isinstance(line.series, Series):
            counts = decode(line.payload)
            held = found.get(line.series, np.zeros((size, 0), np.int64))
            if len(counts) > held.shape[1]:
                held = np.pad(held, ((0, 0), (0, len(counts) - held.shape[1])))
            place = order[line.host, line.worker][line.start_ns]
            if place < size:
                held[place, : len(counts)] += counts
            found[line.series] = held
    return found


def _ordinals(keys: Sequence[tuple[str, int]]) -> list[int]:
    """The place of each interval among those of its worker, in the order of time."""
    of_worker: dict[str, list[int]] = {}
    for worker, start in keys:
        of_worker.setdefault(worker, []).append(start)
    order = {worker: {start: at for at, start in enumerate(sorted(all_))} for worker, all_ in of_worker.items()}
    return [order[worker][start] for worker, start in keys]


def _stacked(parts: Sequence[Counts]) -> Counts:
    width = max(part.shape[1] for part in parts)
    return np.vstack([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


def _of_row(row: dict[str, Any], metric: Metric) -> float | None:
    if metric.series is not None:
        found = row["latency"].get(metric.series, {}).get(f"p{metric.percent:g}_ns".replace(".", ""))
    else:
        found = row.get(metric.column or f"{metric.counter}_per_s")
    return None if found is None else float(found)
