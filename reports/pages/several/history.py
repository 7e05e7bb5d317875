"""The page of a metric over time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from perftest.results.trust import Status
from reports.charts import history as chart_of_history
from reports.pages import words
from reports.pages.model import Cell, Chart, Chip, Column, History, Kind, Page, Sentence, Table
from reports.pages.tables import latency_column, table_of
from reports.pages.trust_words import ledger_chip, runs_chip
from reports.stats.change_points import PART_MIN, ChangePoint
from reports.stats.history import HistoryMetric, MetricSeries, origin
from reports.stats.history import MetricHistory as Found


def history_page(found: Found, *, workload: str, generated: str) -> Page:
    """The page of a metric of a workload."""
    runs = len({run for series in found.series for run in series.runs["run_id"]})
    model = History(
        title=f"{found.metric.name} of {workload}",
        subtitle=f"{words.plural(runs, 'run')}, one value each" if runs else "not measured",
        chips=tuple(_chips(found)),
        sentences=tuple(Sentence(text=text) for text in [*_latest(found), *sentences(found)]),
        changes=_changes(found),
        charts=tuple(_chart(found.metric, series, number) for number, series in enumerate(_latest_first(found), 1)),
    )
    return Page(title=model.title, generated=generated, parts=(("history", model),))


def _chips(found: Found) -> Iterator[Chip]:
    """The worst ledger of the runs, and how many are valid, by the trust lists that the runs recorded."""
    known = [each for each in found.lists if each is not None]
    if known:
        ledgers = [check.status for each in known for check in each if check.check == "ledger"]
        worst = max(ledgers, key=lambda status: status.weight, default=Status.FAIL)
        yield ledger_chip([{Status.PASS: "ok", Status.WARN: "unknown", Status.FAIL: "violated"}.get(worst, "")])
        yield runs_chip(known)
    if missing := len(found.lists) - len(known):
        text = f"{missing} of {words.plural(len(found.lists), 'run')} recorded no trust list"
        yield Chip(name="Trust", value=text, status=Status.WARN)


def _latest(found: Found) -> list[str]:
    """The latest change as the answer of the page; nothing without a change."""
    series = _latest_first(found)[0] if found.series else None
    if series is None or not series.changes:
        return []
    change = series.changes[-1]
    before, after = (value_in_words(found.metric, value) for value in (change.before, change.after))
    verdict = "better" if (change.after > change.before) == found.metric.more_is_better else "worse"
    day = moment(int(series.runs["started_ns"].iloc[change.index])).partition(" ")[0]
    where = f" ({series.name})" if series.name else ""
    return [f"{found.metric.name}{where} is {verdict} since {day}: {after} instead of {before}, {_percent(change)}."]


def _latest_first(found: Found) -> list[MetricSeries]:
    """The series with the latest change first; the others as they were."""
    latest = max((s for s in found.series if s.changes), key=_last_change, default=None)
    return sorted(found.series, key=lambda series: series is not latest)


def _last_change(series: MetricSeries) -> int:
    return int(series.runs["started_ns"].iloc[series.changes[-1].index])


def sentences(found: Found) -> list[str]:
    """The verdict first: how often the metric changed, the latest change, and what could not be judged."""
    changes = [(series, change) for series in found.series for change in series.changes]
    said = [f"{found.metric.name}: {words.plural(len(changes), 'change')} found."] if changes else []
    for series, change in changes:
        said.append(f"{series.name}: {change_in_words(found.metric, change)}, with {_first_run(series, change)}.")
    tested = [series for series in found.series if series.testable]
    if tested and not changes:
        said.append(f"{found.metric.name}: no change found that could not be chance.")
    short = [series.name for series in found.series if not series.testable]
    if short:
        said.append(f"Too few runs to tell a change (under {2 * PART_MIN}): {', '.join(short)}.")
    if tested:
        said.append(
            f"A history without any change shows one with a probability of at most {found.level * len(tested):.0%}."
        )
    return said or [f"No run measured {found.metric.name}, so there is no value to follow."]


def change_in_words(metric: HistoryMetric, change: ChangePoint) -> str:
    """The medians before and after a change, and whether the change is better."""
    before, after = (value_in_words(metric, value) for value in (change.before, change.after))
    verdict = "better" if (change.after > change.before) == metric.more_is_better else "worse"
    return f"{before} → {after} ({_percent(change)}, {verdict}, p {change.p:.3f})"


def value_in_words(metric: HistoryMetric, value: float) -> str:
    """A value with its unit."""
    if metric.latency:
        return words.latency(value)
    return words.rate(value) if metric.unit == "msg/s" else f"{words.significant(value)} {metric.unit}"


def moment(unix_ns: int) -> str:
    """A Unix time in ns as a date and a time of day, UTC."""
    return datetime.fromtimestamp(unix_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _percent(change: ChangePoint) -> str:
    return f"{change.after / change.before - 1:+.1%}" if change.before else "from 0"


def _first_run(series: MetricSeries, change: ChangePoint) -> str:
    run = series.runs.iloc[change.index]
    return f"{run['run_id']} of {moment(int(run['started_ns']))}: {origin(series, change)}"


def _value_column(metric: HistoryMetric, name: str, title: str) -> Column:
    if metric.latency:
        return latency_column(f"{name}_ns", title)
    kind = Kind.RATE if metric.unit == "msg/s" else Kind.NUMBER
    return Column(name=name, title=title, kind=kind, unit=metric.unit)


def _changes(found: Found) -> Table:
    metric = found.metric
    return Table(
        caption=f"Changes of {metric.name}",
        file="changes.csv",
        columns=(
            Column(name="step", title="step"),
            Column(name="run", title="first run after it"),
            Column(name="started", title="of (UTC)"),
            _value_column(metric, "before", "median before"),
            _value_column(metric, "after", "median after"),
            Column(name="change", title="change"),
            Column(name="p", title="p", kind=Kind.NUMBER),
            Column(name="origin", title="what else changed"),
        ),
        rows=tuple(_change_rows(found)),
    )


def _change_rows(found: Found) -> Iterator[tuple[Cell, ...]]:
    for series in found.series:
        for change in series.changes:
            run = series.runs.iloc[change.index]
            place = (series.name, str(run["run_id"]), moment(int(run["started_ns"])))
            yield (*place, change.before, change.after, _percent(change), change.p, origin(series, change))


def _chart(metric: HistoryMetric, series: MetricSeries, number: int) -> Chart:
    points = _points(metric, series)
    marks = pd.DataFrame(
        {
            "time": [points["time"].iloc[change.index] for change in series.changes],
            "name": [_percent(change) for change in series.changes],
        }
    )
    columns = (
        Column(name="run_id", title="run"),
        Column(name="time", title="start (UTC)"),
        _value_column(metric, "exact", metric.name),
        Column(name="origin", title="broker, commit"),
    )
    frame = points.rename(columns={"exact": columns[2].name})
    found = "; ".join(change_in_words(metric, change) for change in series.changes)
    return Chart(
        anchor=f"history-{number}",
        title=f"{metric.name}: {series.name}",
        unit=metric.unit,
        latency=metric.latency,
        how_to_read="Each point is a run. The line is the median between changes; a dashed line marks the first run "
        "after a change.",
        finding=f"{found}." if found else "No change was found.",
        figure=chart_of_history.figure(points, marks, quantity=metric.name, unit=metric.unit, latency=metric.latency),
        table=table_of(frame, columns, caption=f"{metric.name} of every run: {series.name}", file=f"runs-{number}.csv"),
    )


def _points(metric: HistoryMetric, series: MetricSeries) -> pd.DataFrame:
    runs, scale = series.runs, 1e6 if metric.latency else 1.0
    levels = _levels(series)
    return pd.DataFrame(
        {
            "run_id": runs["run_id"],
            "time": [moment(int(started)) for started in runs["started_ns"]],
            "value": (runs["value"] / scale).round(6),
            "exact": runs["value"],
            "level": [round(level / scale, 6) for level in levels],
            "origin": [", ".join(filter(None, (str(a), str(b)))) for a, b in _origins(runs)],
        }
    )


def _origins(runs: pd.DataFrame) -> Iterator[tuple[Any, Any]]:
    return zip(runs["broker"], runs["commit"], strict=True)


def _levels(series: MetricSeries) -> list[float]:
    """The median between the changes, run by run."""
    bounds = [0, *(change.index for change in series.changes), len(series.runs)]
    levels: list[float] = []
    for begin, end in itertools.pairwise(bounds):
        levels += [float(series.runs["value"].iloc[begin:end].median())] * (end - begin)
    return levels
