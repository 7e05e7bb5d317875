"""The figures of a run: the data that each figure draws, how to read it, its finding, and its table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from reports.charts import knee, spectrum, theme, timeline
from reports.pages import settings, words
from reports.pages.model import Chart, Column, Kind, Table
from reports.pages.tables import latency_column, supports, table_of
from reports.stats.knee import SweepShape
from reports.stats.lead import lead_series

MARKED: Final = (
    "connection_lost",
    "channel_closed",
    "reconnected",
    "blocked",
    "unblocked",
    "consumer_cancelled",
    "node_lost",
    "node_back",
    "nacked",
    "action",
    "action_failed",
    "background_started",
    "background_changed",
    "background_ended",
    "drain_timeout",
    "interrupted",
    "error",
)
"""Kinds of events that get a line in the timeline; steps have their bands."""

MARKS_MAX: Final = 60
KNEE_RULE: Final = "knee: highest<br>rate ÷ p99"
SERIES_WORDS: Final[Mapping[str, str]] = {
    "e2e": "from the send",
    "e2e_sched": "from the intended time",
    "confirm": "from the send",
    "confirm_sched": "from the intended time",
}


def knee_paths(run: pd.Series[Any], sweep: SweepShape, **look: Any) -> list[knee.Path]:
    """The steps of a run as lines of the knee curve, each named by the settings that it holds fixed. Steps that share
    no line are points."""
    names, lines = settings.swept(run), sweep.lead_lines
    fixed = settings.long(sweep.steps, tuple(name for name in sweep.varied if name != sweep.lead))
    points = pd.DataFrame(
        {
            "step": sweep.steps["step"],
            "setting": settings.short(sweep.steps, (sweep.lead,) if sweep.lead else names),
            "settings": settings.short(sweep.steps, names),
            "delivered_per_s": sweep.steps["delivered_per_s"],
            "latency_ns": sweep.steps[sweep.latency],
            **_bounds(sweep),
        }
    )
    shared = look | {"knee": int(points["step"].iloc[sweep.knee])}
    many = len(sweep.varied) > 1
    paths = [knee.Path(name=fixed[rows[0]] if many else "", points=points.iloc[list(rows)], **shared) for rows in lines]
    alone = points.iloc[[row for row in range(len(points)) if not any(row in rows for rows in lines)]]
    if len(alone):
        alone = alone.assign(setting=alone["settings"])
        paths.append(knee.Path(name=settings.words_of(names), points=alone, joined=False, **shared))
    return paths


def _bounds(sweep: SweepShape) -> dict[str, pd.Series[float]]:
    """The columns of the intervals over rounds; none of steps of one round."""
    names = {f"{sweep.rate}_low": "rate_low", f"{sweep.rate}_high": "rate_high"}
    names |= {f"{sweep.latency}_low": "latency_low", f"{sweep.latency}_high": "latency_high"}
    return {name: sweep.steps[column] for column, name in names.items() if column in sweep.steps}


def knee_chart(run: pd.Series[Any], sweep: SweepShape, *, finding: str, prefix: str, ringed: bool = True) -> Chart:
    """The knee curve of one run. Without a ring, the curve only shows the latency at each rate."""
    queue = str(run["queue_types"]).split(",")[0]
    paths = knee_paths(
        run, sweep, rule=KNEE_RULE, colour=theme.queue_token(queue), marker=theme.QUEUE_MARKERS.get(queue, "circle")
    )
    paths = paths if ringed else [replace(path, knee=None) for path in paths]
    if len(paths) > 1:
        knee_step = int(sweep.steps["step"].iloc[sweep.knee])
        paths = [
            replace(
                path,
                colour=theme.scale_token(at, len(paths)),
                marker=theme.marker(at),
                labelled=knee_step in set(path.points["step"]),
            )
            for at, path in enumerate(paths)
        ]
    return Chart(
        anchor=f"{prefix}knee",
        title="End-to-end p99 against delivered rate",
        unit="ms",
        latency=True,
        how_to_read=f"Each point is a step, {_knee_labels(sweep)}. To the right the rate is higher, and further up the "
        f"latency is longer. {_knee_turn(sweep) if ringed else ''}{_RING if ringed else ''}".rstrip(),
        finding=finding,
        figure=knee.figure(paths, quantity="end-to-end p99"),
        table=_knee_table(run, paths),
    )


_RING: Final = "The ring marks the knee: the setting with the highest delivered rate per unit of p99."


def _knee_labels(sweep: SweepShape) -> str:
    if sweep.lead is None or len(sweep.varied) == 1:
        return f"labelled by its {settings.words_of(sweep.varied)}"
    others = settings.words_of(tuple(name for name in sweep.varied if name != sweep.lead))
    return f"labelled by its {settings.words_of((sweep.lead,))}, and each line holds {others} fixed"


def _knee_turn(sweep: SweepShape) -> str:
    return "Where a line turns upward, a higher setting buys waiting instead of messages. " if sweep.lines else ""


def _knee_table(run: pd.Series[Any], paths: Sequence[knee.Path]) -> Table:
    columns = (
        Column(name="setting", title=settings.words_of(settings.swept(run))),
        Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
        latency_column("latency_ns", "end-to-end p99"),
    )
    frame = pd.concat([path.points.assign(setting=path.points["settings"]) for path in paths])
    return table_of(frame, columns, caption="Delivered rate and p99 by setting", file=f"{run['run_id']}-knee.csv")


def spectrum_chart(
    run: pd.Series[Any], steps: pd.DataFrame, points: pd.DataFrame, *, kind: str, prefix: str
) -> Chart | None:
    """The percentile spectrum of end-to-end or confirm latency, a line per step in the order of ``steps``; None when
    nothing of it was recorded."""
    shown = [name for name in (f"{kind}_sched", kind) if (points["series"] == name).any()]
    if not shown:
        return None
    by_step = dict(zip(steps["step"], settings.short(steps, settings.swept(run)), strict=True))
    chosen = points[points["series"].isin(shown) & points["step"].isin(by_step)]
    chosen = chosen.assign(
        setting=chosen["step"].map(by_step),
        place=chosen["step"].map({step: n for n, step in enumerate(by_step)}),
        order=chosen["series"].map({name: n for n, name in enumerate(shown)}),
    ).sort_values(["place", "order", "percentile"])
    drawn = chosen.assign(series=chosen["series"].map(SERIES_WORDS))
    word = {"e2e": "End-to-end", "confirm": "Confirm"}[kind]
    return Chart(
        anchor=f"{prefix}{kind}-spectrum",
        title=f"{word} latency by percentile",
        unit="ms",
        latency=True,
        how_to_read="Every nine more to the right is a ten times rarer message. A flat line is predictable, a rising "
        "end is a tail. Where the line is dotted and the points are hollow, fewer than ten samples lie above, so a "
        "point may be chance."
        + (" Dashed lines count from the send, which hides the wait for a turn." if len(shown) > 1 else ""),
        finding=_spectrum_finding(steps, lead_series(run, kind), settings.long(steps, settings.swept(run))),
        figure=spectrum.figure(drawn, quantity=f"{word.lower()} latency"),
        table=_spectrum_table(run, chosen, kind),
    )


def _spectrum_finding(steps: pd.DataFrame, series: str, names: Sequence[str]) -> str:
    """Where the tail is longest in proportion: p99 over p50, of the steps with enough samples for a p99."""
    enough = steps[f"{series}_count"].map(lambda samples: supports(samples, "p99"))
    ratio = (steps[f"{series}_p99_ns"] / steps[f"{series}_p50_ns"]).where(enough)
    if ratio.dropna().empty:
        return ""
    at = int(ratio.argmax())
    row = steps.iloc[at]
    p50, p99 = words.latency(row[f"{series}_p50_ns"]), words.latency(row[f"{series}_p99_ns"])
    where = f"The tail is longest in proportion at {names[at]}: " if len(steps) > 1 else ""
    return f"{where}p99 is {words.times(float(ratio.iloc[at]))} the median ({p99} against {p50})."


def _spectrum_table(run: pd.Series[Any], points: pd.DataFrame, kind: str) -> Table:
    columns = (
        Column(name="setting", title="setting"),
        Column(name="series", title="series"),
        Column(name="percentile", title="percentile", kind=Kind.NUMBER, unit="%"),
        latency_column("value_ns", "latency"),
        Column(name="count_above", title="samples above", kind=Kind.COUNT),
        Column(name="supported", title="supported"),
    )
    frame = points.assign(
        supported=points["supported"].map({True: "yes", False: "no"}),
        percentile=[float(f"{percentile:.6g}") for percentile in points["percentile"]],
    )
    file = f"{run['run_id']}-{kind}-spectrum.csv"
    return table_of(frame, columns, caption="Points of the percentile spectrum", file=file)


def timeline_chart(
    run: pd.Series[Any],
    steps: pd.DataFrame,
    intervals: pd.DataFrame,
    events: pd.DataFrame,
    brokers: pd.DataFrame,
    *,
    prefix: str,
) -> Chart | None:
    """The timeline of a run; None for a run without intervals."""
    if intervals.empty:
        return None
    series = lead_series(run, "e2e")
    shown, size = timeline.thin(_timeline_frame(intervals, series, _rates(run)))
    names = settings.swept(run)
    marks = _marks(events)
    figure = timeline.figure(
        shown.assign(t_s=shown["t_s"] + shown["length_s"] / 2),
        bands=_bands(intervals, dict(zip(steps["step"], settings.short(steps, names), strict=True))),
        marks=marks[:MARKS_MAX],
        panels=_lanes(brokers),
    )
    return Chart(
        anchor=f"{prefix}timeline",
        title="Rates, latency and broker over time",
        unit="",
        how_to_read=_timeline_how(names, marks, size),
        finding=_timeline_finding(marks, intervals),
        figure=figure,
        table=_timeline_table(run, shown, series),
    )


def _timeline_frame(intervals: pd.DataFrame, series: str, rates: Sequence[str]) -> pd.DataFrame:
    rename = {f"{series}_{name}_ns": f"{name}_ns" for name in ("p50", "p95", "p99", "max")}
    kept = ["step", "label", "phase", "t_s", "length_s", *rates, *rename]
    return intervals[kept].rename(columns=rename).sort_values("t_s", kind="stable").reset_index(drop=True)


def _rates(run: pd.Series[Any]) -> list[str]:
    """The rates to draw. A closed loop has no intended rate of its own."""
    return [name for name, *_ in timeline.RATES if run["loop"] != "closed" or name != "intended_per_s"]


def _bands(intervals: pd.DataFrame, by_step: Mapping[int, str]) -> list[timeline.Band]:
    bands = []
    for step, rows in intervals[intervals["phase"] != "drain"].groupby("step", sort=True):
        steady = rows.loc[rows["phase"] == "steady", "t_s"]
        end_s = float((rows["t_s"] + rows["length_s"]).max())
        bands.append(
            timeline.Band(
                label=by_step.get(int(str(step)), str(rows["label"].iloc[0])),
                start_s=float(rows["t_s"].min()),
                steady_s=float(steady.min()) if len(steady) else end_s,
                end_s=end_s,
            )
        )
    return bands


def _marks(events: pd.DataFrame) -> list[timeline.EventMark]:
    marked = events[events["kind"].isin(MARKED)]
    return [
        timeline.EventMark(t_s=float(at), kind=str(kind), text=str(text or ""))
        for at, kind, text in zip(marked["t_s"], marked["kind"], marked["text"], strict=True)
    ]


def _lanes(brokers: pd.DataFrame) -> list[timeline.Panel]:
    lanes = (
        ("cpu_share", "CPU (cores)"),
        ("wal_syncs_per_s", "WAL syncs (1/s)"),
        ("messages", "messages in queues"),
        ("memory_mib", "memory (MiB)"),
    )
    brokers = _told_over_http(brokers)
    return [
        timeline.Panel(title=title, values=_lane_values(brokers, column))
        for column, title in lanes
        if brokers[column].notna().any()
    ]


def _told_over_http(brokers: pd.DataFrame) -> pd.DataFrame:
    """Samples with the figures of a broker that was asked over HTTP: the depth of its queues, and its memory."""
    told = [json.loads(text or "{}").get("messages") for text in brokers["metrics"]]
    messages = pd.Series(told, index=brokers.index, dtype="float64")
    memory = (brokers["rss_bytes"] / 2**20).where(messages.notna())
    return brokers.assign(messages=messages, memory_mib=memory)


def _lane_values(brokers: pd.DataFrame, column: str) -> pd.DataFrame:
    """At most about :data:`timeline.COLUMNS_MAX` points a node, each the mean of its group: rates come from counts."""
    values = brokers[brokers[column].notna()][["t_s", "node", column]].rename(columns={column: "value"})
    size = -(-int(values.groupby("node").size().max()) // timeline.COLUMNS_MAX)
    group = values.groupby("node").cumcount() // size
    grouped = values.assign(group=group).groupby(["node", "group"], sort=True)
    return grouped.agg({"t_s": "first", "value": "mean"}).reset_index()


def _timeline_how(names: tuple[str, ...], marks: Sequence[timeline.EventMark], size: int) -> str:
    parts = [
        f"Bands are steps, labelled by {settings.words_of(names)}; grey is warm-up and counts for nothing."
        if names
        else "Grey is warm-up and counts for nothing.",
        "All lanes share the time axis: drag to zoom, double-click to go back. The filled band goes from p50 to p99.",
    ]
    if marks:
        parts.append(
            "Dotted vertical lines are events" + (f", the first {MARKS_MAX}." if len(marks) > MARKS_MAX else ".")
        )
    if size > 1:
        parts.append(f"Each point stands for {size} intervals: mean rates, and the worst interval's latencies.")
    return " ".join(parts)


def _timeline_finding(marks: Sequence[timeline.EventMark], intervals: pd.DataFrame) -> str:
    length = float((intervals["t_s"] + intervals["length_s"]).max() - intervals["t_s"].min())
    intro = f"{words.duration(length)} in {words.plural(intervals['step'].nunique(), 'step')}"
    if not marks:
        return f"{intro}; no connection was lost, blocked or cancelled."
    kinds = pd.Series([mark.kind.replace("_", " ") for mark in marks]).value_counts()
    return f"{intro}, with {', '.join(f'{count} × {kind}' for kind, count in kinds.items())}."


def _timeline_table(run: pd.Series[Any], shown: pd.DataFrame, series: str) -> Table:
    columns = (
        Column(name="label", title="step"),
        Column(name="phase", title="phase"),
        Column(name="t_s", title="start", kind=Kind.NUMBER, unit="s"),
        *(
            Column(name=name, title=name.removesuffix("_per_s"), kind=Kind.RATE, unit="msg/s")
            for name in map(str, shown.columns)
            if name.endswith("_per_s")
        ),
        *(latency_column(f"{name}_ns", name) for name in ("p50", "p95", "p99", "max")),
    )
    caption = f"Intervals of {run['run_id']} ({series})"
    return table_of(shown, columns, caption=caption, file=f"{run['run_id']}-timeline.csv")


def manifest_of(run: pd.Series[Any]) -> dict[str, Any]:
    """The run's manifest; empty when the store has none."""
    loaded = json.loads(run["manifest"] or "{}")
    return loaded if isinstance(loaded, dict) else {}


def broker_of(run: pd.Series[Any]) -> str:
    """The broker of a run with its version; empty if the run did not get to know its broker."""
    return f"{run['product']} {run['broker_version']}".strip()


def is_simulated(run: pd.Series[Any]) -> bool:
    """Whether the figures of the run come from a simulation."""
    return bool(manifest_of(run).get("simulated"))
