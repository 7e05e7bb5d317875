"""A metric over time: one value of each run, in series of runs that measured the same; pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from perftest.metrics.names import COMPARED, RATES, SHORT_NAMES, STATISTICS, metric_named, spelled
from perftest.results.integrity import Damages
from perftest.results.trust import Check
from perftest.results.trust_list import recorded_list
from reports.stats.change_points import LEVEL, PART_MIN, PERMUTATIONS, RUNS_MAX, ChangePoint, change_points
from reports.stats.foreign import without_unknown
from reports.stats.lead import with_lead
from reports.store.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMetric:
    """A figure of a step: its column in ``steps`` (after :func:`reports.stats.lead.with_lead`). ``latency`` says that
    the column is in nanoseconds."""

    name: str
    column: str
    unit: str
    more_is_better: bool = False
    latency: bool = False


def _metric(name: str) -> HistoryMetric:
    latency, dot, percentile = name.partition(".")
    if dot:
        column = f"{latency}_lead_{STATISTICS[percentile]}"
        return HistoryMetric(name=name, column=column, unit="ms", latency=True)
    if name in RATES:
        return HistoryMetric(name=name, column=f"{name}_per_s", unit="msg/s", more_is_better=True)
    return HistoryMetric(name=name, column=f"{name}_us_per_message", unit="µs/msg")


METRICS: Final = tuple(map(_metric, COMPARED))
"""The metrics of ``perftest compare``. A latency counts from the intended time where there was a schedule."""
_LEAD: Final = "_lead_"
"""The part of a column's name that stands for the series to lead with."""
COLUMNS: Final = {
    "runs": ("run_id", "name", "started_ns", "loop", "product", "broker_version", "tool_commit", "manifest"),
    "steps": (
        *("run_id", "step", "group", "label", "settings", "length_s", "e2e_series"),
        *("delivered_per_s", "published_per_s", "broker_cpu_us_per_message"),
        *(each.column.replace(_LEAD, series) for each in METRICS if each.latency for series in ("_", "_sched_")),
    ),
}
"""Columns with a history, by table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """The runs of one step (and group of load) over time. ``runs`` has the columns ``run_id``, ``started_ns``,
    ``value``, ``broker``, ``commit``; ``changes`` are places among its rows."""

    name: str
    runs: pd.DataFrame
    changes: tuple[ChangePoint, ...]

    @property
    def testable(self) -> bool:
        """Whether there are enough runs to find a change."""
        return len(self.runs) >= 2 * PART_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricHistory:
    """A metric over time; ``level`` is for each series, so that all of them together keep the wanted level. ``lists``
    has the trust list of each run with a value; a run that recorded none has none."""

    metric: HistoryMetric
    series: tuple[MetricSeries, ...]
    level: float
    lists: tuple[Sequence[Check] | None, ...] = ()


def history_metric(text: str) -> HistoryMetric:
    """The metric of that name, or of that short name.

    :raises MetricNameError: there is none; the error says which name is near, or which there are
    """
    return METRICS[COMPARED.index(metric_named(SHORT_NAMES.get(spelled(text), text), COMPARED))]


def history(tables: Tables, metric: HistoryMetric, *, level: float = LEVEL, seed: int = 1) -> MetricHistory:
    """The metric over all runs in ``tables``, and its changes. A run without a value of the metric is left out; of more
    than RUNS_MAX runs, the latest count."""
    found = [
        (name, runs.sort_values(["started_ns", "run_id"], kind="stable", ignore_index=True).tail(RUNS_MAX))
        for name, runs in _values(tables, metric).groupby("name", sort=True)
    ]
    tested = sum(len(runs) >= 2 * PART_MIN for _, runs in found)
    each_level = level / max(tested, 1)
    shuffles = max(PERMUTATIONS, round(10 / each_level) - 1)
    series = [
        MetricSeries(
            name=str(name),
            runs=runs.reset_index(drop=True),
            changes=tuple(change_points(runs["value"].tolist(), level=each_level, permutations=shuffles, seed=seed)),
        )
        for name, runs in found
    ]
    counted = {run_id for each in series for run_id in each.runs["run_id"]}
    return MetricHistory(metric=metric, series=tuple(series), level=each_level, lists=tuple(_lists(tables, counted)))


def _lists(tables: Tables, counted: Collection[str]) -> Iterator[Sequence[Check] | None]:
    """The trust list that each of these runs recorded."""
    for run_id, manifest in zip(tables.runs["run_id"], tables.runs["manifest"], strict=True):
        if run_id in counted:
            yield recorded_list(json.loads(manifest or "{}"), Damages())


def _values(tables: Tables, metric: HistoryMetric) -> pd.DataFrame:
    steps = with_lead(without_unknown(replace(tables, timeline=tables.timeline.head(0)))).steps
    columns = ["run_id", "started_ns", "broker", "commit"]
    runs = tables.runs.assign(
        broker=(tables.runs["product"] + " " + tables.runs["broker_version"]).str.strip(),
        commit=tables.runs["tool_commit"].str[:12],
    )[columns]
    frame = steps[steps["length_s"] > 0].merge(runs, on="run_id")
    frame = frame.assign(value=frame[metric.column].astype(float), name=_names(frame))
    # A latency or a cost of 0 was not measured; a rate of 0 was.
    known = frame["value"].notna() & ((frame["value"] > 0) | metric.more_is_better)
    return frame[known][[*columns, "name", "value"]]


def _names(frame: pd.DataFrame) -> list[str]:
    """The step and its group of load in words."""
    pairs = zip(frame["group"], frame["label"], strict=True)
    return [": ".join(filter(None, (str(group), str(label)))) for group, label in pairs]


def origin(series: MetricSeries, change: ChangePoint) -> str:
    """The circumstances of a change: versions and commits of the runs beside it."""
    before, after = series.runs.iloc[change.index - 1], series.runs.iloc[change.index]
    told = [_told(before, after, "broker", "broker"), _told(before, after, "commit", "commit")]
    return "; ".join(filter(None, told)) or "broker and commit as before, as far as they are known"


def _told(before: pd.Series[Any], after: pd.Series[Any], column: str, word: str) -> str:
    old, new = (str(of[column]) or "unknown" for of in (before, after))
    return f"{word} {old} → {new}" if old != new else ""
