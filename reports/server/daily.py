"""The charts over the list: p99 and rate of one workload by day. Pure.

Only runs whose figures may be used are drawn: valid runs, and runs that recorded no trust list. A line has the runs of
one broker, type of queue and layout: a median over several of these would be the figure of nothing that was measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import pandas as pd

from reports.charts import daily as chart_of_days
from reports.pages import words
from reports.pages.model import Chart, Column, Kind
from reports.pages.tables import latency_column, table_of
from reports.server.listed_run import ListedRun, ListedVerdict

LINES_MAX: Final = 4
"""Lines of a chart: the kinds with the most runs."""
_USABLE: Final = (ListedVerdict.VALID, ListedVerdict.UNJUDGED)
_KindOfRun = tuple[str, str, str]
"""Broker, types of queues, and layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyCharts:
    """The charts of one workload, none if no run can be drawn. ``remark`` says what is not drawn, and why."""

    workload: str = ""
    charts: tuple[Chart, ...] = ()
    remark: str = ""


def daily_charts(runs: Iterable[ListedRun]) -> DailyCharts:
    """The charts of the workload with the most runs among these."""
    found = list(runs)
    counted = Counter(run.workload for run in found if run.workload)
    if not counted:
        return DailyCharts()
    workload, count = counted.most_common(1)[0]
    own = [run for run in found if run.workload == workload]
    drawn = [run for run in own if run.verdict in _USABLE and run.day and run.delivered_per_s]
    kinds = [kind for kind, _ in Counter(map(_kind, drawn)).most_common()]
    shown = [run for run in drawn if _kind(run) in kinds[:LINES_MAX]]
    remark = " ".join(_remarks(len(found) - count, count - len(drawn), len(kinds) - LINES_MAX))
    return DailyCharts(workload=workload, charts=tuple(_charts(shown)), remark=remark)


def _remarks(others: int, unusable: int, kinds: int) -> Iterator[str]:
    if others:
        yield f"{words.plural(others, 'run')} of other workloads {_are(others)} not drawn: choose a name above."
    if unusable:
        yield f"{words.plural(unusable, 'run')} without figures to use {_are(unusable)} not drawn."
    if kinds > 0:
        yield f"{words.plural(kinds, 'more kind')} of runs {_are(kinds)} not drawn: choose a broker, queue or layout."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _kind(run: ListedRun) -> _KindOfRun:
    return run.broker, ", ".join(run.queues), run.layout


def _charts(runs: Sequence[ListedRun]) -> Iterator[Chart]:
    names = _names(sorted(set(map(_kind, runs))))
    figures: list[tuple[str, str, str, Callable[[ListedRun], float | None]]] = [
        ("p99", "End-to-end p99", "ms", lambda run: run.p99_ns and run.p99_ns / 1e6),
        ("rate", "Delivered rate", "msg/s", lambda run: run.delivered_per_s),
    ]
    for anchor, title, unit, value in figures:
        points = _points(runs, names, value)
        if not points.empty:
            yield _chart(points, anchor, title, unit)


def _names(kinds: Sequence[_KindOfRun]) -> dict[_KindOfRun, str]:
    """Each kind by the parts in which the kinds differ."""
    apart = [at for at in range(3) if len({kind[at] for kind in kinds}) > 1] or [0]
    unknown = ("unknown broker", "unknown queue", "no layout")
    return {kind: ", ".join(kind[at] or unknown[at] for at in apart) for kind in kinds}


def _points(
    runs: Sequence[ListedRun], names: dict[_KindOfRun, str], value: Callable[[ListedRun], float | None]
) -> pd.DataFrame:
    """A row for each kind and day, in the order of kinds and days, as :mod:`reports.charts.daily` takes them."""
    found: defaultdict[tuple[_KindOfRun, str], list[float]] = defaultdict(list)
    for run in runs:
        measured = value(run)
        if measured:
            found[_kind(run), run.day].append(measured)
    rows: list[dict[str, Any]] = [
        {
            "kind": names[kind],
            "broker": kind[0],
            "queue": kind[1],
            "layout": kind[2],
            "day": day,
            "runs": len(values),
            "median": median(values),
            "lowest": min(values),
            "highest": max(values),
        }
        for (kind, day), values in sorted(found.items())
    ]
    return pd.DataFrame(rows)


def _chart(points: pd.DataFrame, anchor: str, title: str, unit: str) -> Chart:
    latency = unit == "ms"
    figures = ("median", "lowest", "highest")
    exact = points.assign(**{f"{name}_ns": points[name] * 1e6 for name in figures}) if latency else points
    measured = [
        latency_column(f"{name}_ns", name) if latency else Column(name=name, title=name, kind=Kind.RATE, unit=unit)
        for name in figures
    ]
    columns = (
        *(Column(name="day", title="day (UTC)"), Column(name="kind", title="runs of")),
        *(Column(name="runs", title="runs", kind=Kind.COUNT), *measured),
    )
    return Chart(
        anchor=f"daily-{anchor}",
        title=f"{title} by day",
        unit=unit,
        latency=latency,
        how_to_read="A point is the median of a day's runs; the thin line reaches from the lowest to the highest run.",
        finding="",
        figure=chart_of_days.figure(points, quantity=title, unit=unit, latency=latency),
        table=table_of(exact, columns, caption=f"{title} by day", file=f"{anchor}-by-day.csv"),
    )
