"""The measured figures: one value of each metric from each repetition.

A *side* of a comparison is one run or several repetitions of it. A run gives one value of a metric, whatever its
length: its intervals are not independent of each other, and say nothing about how runs differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perftest.metrics.interval import Series
from perftest.metrics.names import BROKER_CPU
from perftest.results.reader import Run
from perftest.results.trust import supports

PERCENTS: Final = (50.0, 99.0, 99.9)
_SERIES: Final = {"e2e": (Series.E2E_SCHED, Series.E2E), "confirm": (Series.CONFIRM_SCHED, Series.CONFIRM)}
"""The series of each latency; the first recorded series counts."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a step: ``series`` and ``percent`` for a percentile, ``column`` for any other figure in its row."""

    name: str
    unit: str
    more_is_better: bool
    series: Series | None = None
    percent: float = 0.0
    column: str = ""


class Side:
    """One or several runs of one plan."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.rows = [{row["label"]: row for row in (run.result or {}).get("steps", ())} for run in runs]

    @property
    def labels(self) -> list[str]:
        """The steps that every repetition has, in order."""
        return [label for label in self.rows[0] if all(label in rows for rows in self.rows)]

    @property
    def begun(self) -> set[str]:
        """The steps that any repetition has."""
        return set().union(*self.rows)

    def series(self, label: str) -> set[str]:
        """The latency series of a step."""
        return set.intersection(*(set(rows[label]["latency"]) for rows in self.rows))

    def values(self, label: str, metric: Metric) -> list[float]:
        """The metric of a step in each repetition; empty if a repetition lacks the metric."""
        values = [_of_row(rows[label], metric) for rows in self.rows]
        return [] if None in values else [value for value in values if value is not None]

    def doubt(self, label: str, metric: Metric) -> str:
        """Why the metric says little; empty if there is no doubt."""
        zeros = self.values(label, metric).count(0)
        if zeros:
            return f"{zeros} of {len(self.rows)} repetitions measured 0"
        if metric.series is None:
            return ""
        count = min(rows[label]["latency"][metric.series]["count"] for rows in self.rows)
        return "" if supports(count, metric.percent) else f"only {count:,} samples"


def metrics_of(series: set[str]) -> Iterator[Metric]:
    """The metrics of :data:`~perftest.metrics.names.COMPARED` of a step that has these latency series.

    With a schedule, latency counts from the intended time, because the latency from the send leaves out the wait of a
    message before it left.
    """
    yield Metric("delivered", "msg/s", True, column="delivered_per_s")
    yield Metric("published", "msg/s", True, column="published_per_s")
    for latency, candidates in _SERIES.items():
        chosen = next((each for each in candidates if each in series), None)
        if chosen is not None:
            for percent in PERCENTS:
                yield Metric(f"{latency}.p{percent:g}", "ms", False, series=chosen, percent=percent)
    yield Metric(BROKER_CPU, "µs/msg", False, column="broker_cpu_us_per_message")


def _of_row(row: dict[str, Any], metric: Metric) -> float | None:
    if metric.series is not None:
        found = row["latency"].get(metric.series, {}).get(f"p{metric.percent:g}_ns".replace(".", ""))
    else:
        found = row.get(metric.column)
    return None if found is None else float(found)
