"""The timeline: the events of a run in panels over one time axis, with a band for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import pandas as pd

from reports.charts import theme

COLUMNS_MAX: Final = 600
"""Most points in time that are drawn; longer runs are grouped, see :func:`thin`."""

RATES: Final = (
    ("intended_per_s", "intended", "@soft", "dot", 1.5),
    ("published_per_s", "published", "@classic", "dash", 1.5),
    ("confirmed_per_s", "confirmed", "@mirrored", "dashdot", 1.5),
    ("delivered_per_s", "delivered", "@quorum", "solid", 2.25),
)
LABELS_MAX: Final = 16
"""Most bands with a label. If there are more bands, every second, third, ... band has a label."""

_GAP: Final = 0.06
_PANEL_PX: Final = {"rates": 220, "latency": 220, "broker": 130}
_LABELS_PX: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The time of one step, from ``start_s`` to ``end_s``; until ``steady_s`` it is warm-up."""

    label: str
    start_s: float
    steady_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMark:
    """An event worth a line through all panels."""

    t_s: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel of the broker: a quantity (with its unit) and a line per node.

    ``values`` has the columns ``t_s``, ``node`` and ``value``.
    """

    title: str
    values: pd.DataFrame


def thin(intervals: pd.DataFrame, *, columns_max: int = COLUMNS_MAX) -> tuple[pd.DataFrame, int]:
    """At most about ``columns_max`` rows, and how many intervals each row stands for.

    Rates come from counts, so the rate of a row is the mean over its intervals. A mean of percentiles would be the
    percentile of nothing, so the latency of a row is its worst interval's. No row spans two steps or two phases.
    """
    size = ceil(len(intervals) / columns_max) if len(intervals) else 1
    if size == 1:
        return intervals, 1
    group = intervals.groupby(["step", "phase"], sort=False).cumcount() // size
    how = {name: reduced for name in map(str, intervals.columns) if (reduced := _grouping(name)) is not None}
    grouped = intervals.assign(group=group).groupby(["step", "phase", "group"], sort=False)
    return grouped.agg(how).reset_index().drop(columns="group").sort_values("t_s"), size


def figure(
    intervals: pd.DataFrame,
    *,
    bands: Sequence[Band],
    marks: Sequence[EventMark] = (),
    panels: Sequence[Panel] = (),
    latency: str = "end-to-end latency",
) -> theme.Figure:
    """Rates, the latency band, and the broker's ``panels`` below each other.

    ``intervals`` has a row per interval, in order of time: ``t_s`` (since the start of the run), columns of
    :data:`RATES` as far as they are known, and ``p50_ns``, ``p99_ns``, ``max_ns``. A missing value is a gap.
    """
    whole = _with_gaps(intervals)
    domains = _domains(["rates", "latency"] + ["broker"] * len(panels))
    axis = theme.latency_axis(latency, pd.concat([whole["p50_ns"], whole["max_ns"]]).dropna().tolist())
    traces = [*_rate_traces(whole), *_latency_traces(whole), *_mark_traces(marks)]
    for number, panel in enumerate(panels):
        traces += _panel_traces(panel, axis_number=3 + number)
    return {"data": traces, "layout": _layout(bands, marks, panels, domains, axis, _time_range(whole, bands))}


def _grouping(column: str) -> str | None:
    """How a column is reduced over a group of intervals; None drops it."""
    if column.endswith("_per_s"):
        return "mean"
    if column.endswith("_ns"):
        return "max"
    return {"t_s": "first", "label": "first", "length_s": "sum"}.get(column)


def _with_gaps(intervals: pd.DataFrame) -> pd.DataFrame:
    """An empty row wherever time jumps, so that no line bridges what was not measured."""
    if len(intervals) < 3:
        return intervals
    jumps = intervals["t_s"].diff()
    after = intervals.index[jumps > 2.5 * float(jumps.median())]
    gaps = pd.DataFrame({"t_s": intervals.loc[after, "t_s"] - float(jumps.median()) / 2})
    if gaps.empty:
        return intervals
    return pd.concat([intervals, gaps], ignore_index=True).sort_values("t_s", kind="stable")


def _time_range(intervals: pd.DataFrame, bands: Sequence[Band]) -> list[float]:
    """From the first to the last thing that is drawn."""
    times = [*intervals["t_s"].tolist(), *(band.start_s for band in bands), *(band.end_s for band in bands)]
    return [round(min(times), 3), round(max(times), 3)]


def _domains(panels: Sequence[str]) -> list[tuple[float, float]]:
    """The vertical share of each panel, from the top."""
    heights = [_PANEL_PX[panel] for panel in panels]
    usable = 1 - _GAP * (len(panels) - 1)
    domains, top = [], 1.0
    for height in heights:
        bottom = top - usable * height / sum(heights)
        domains.append((round(max(bottom, 0.0), 4), round(top, 4)))
        top = bottom - _GAP
    return domains


def _values(column: pd.Series[float], digits: int) -> list[float | None]:
    """A column as JSON data: missing values are ``None``."""
    return [None if pd.isna(value) else round(float(value), digits) for value in column]


def _rate_traces(intervals: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": _values(intervals["t_s"], 3),
            "y": _values(intervals[column], 1),
            "line": {"color": colour, "dash": dash, "width": width},
            "hovertemplate": f"%{{y:,.0f}} msg/s {name}<extra></extra>",
            "connectgaps": False,
            "xaxis": "x",
            "yaxis": "y",
        }
        for column, name, colour, dash, width in RATES
        if column in intervals and intervals[column].notna().any()
    ]


def _latency_traces(intervals: pd.DataFrame) -> list[dict[str, Any]]:
    """Maximum as points, p99 and p50 as the edges of the band between them."""
    common: dict[str, Any] = {"type": "scatter", "x": _values(intervals["t_s"], 3), "xaxis": "x", "yaxis": "y2"}
    common |= {"legend": "legend2", "meta": {"latency": ["y"]}}

    def edge(name: str, **more: Any) -> dict[str, Any]:
        values = _values(intervals[f"{name}_ns"] / 1e6, 6)
        hover = {"hovertemplate": f"%{{y:,.3~r}} {{unit}} {name}<extra></extra>", "connectgaps": False}
        return common | {"name": name, "y": values} | hover | more

    dashed = {"color": "@quorum", "width": 2, "dash": "dash"}
    return [
        _band(intervals, common),
        edge("max", mode="markers", marker={"color": "@soft", "size": 4, "symbol": "line-ew-open"}),
        edge("p50", mode="lines", line={"color": "@quorum", "width": 1.25}),
        edge("p99", mode="lines", line=dashed),
    ]


def _band(intervals: pd.DataFrame, common: dict[str, Any]) -> dict[str, Any]:
    """The area between p50 and p99: a closed shape for each stretch without a gap, so that none lies over a gap."""
    known = intervals["p50_ns"].notna() & intervals["p99_ns"].notna()
    xs: list[float | None] = []
    ys: list[float | None] = []
    for _, rows in intervals[known].groupby((~known).cumsum()[known], sort=False):
        low, high = (_values(rows[f"{name}_ns"] / 1e6, 6) for name in ("p50", "p99"))
        times = _values(rows["t_s"], 3)
        xs += [*times, *times[::-1], None]
        ys += [*low, *high[::-1], None]
    return common | {
        "name": "p50 to p99",
        "x": xs,
        "y": ys,
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": "@band",
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _mark_traces(marks: Sequence[EventMark]) -> list[dict[str, Any]]:
    """Points at the edge that name, on hover, the event of each vertical line."""
    if not marks:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "event",
            "x": [round(mark.t_s, 3) for mark in marks],
            "y": [0] * len(marks),
            "marker": {"color": "@bad", "symbol": "triangle-up", "size": 10},
            "text": [theme.plain(f"{mark.kind.replace('_', ' ')}: {mark.text}".rstrip(": ")) for mark in marks],
            "hovertemplate": "%{text}<extra></extra>",
            "cliponaxis": False,
            "xaxis": "x",
            "yaxis": "y",
        }
    ]


def _panel_traces(panel: Panel, *, axis_number: int) -> list[dict[str, Any]]:
    nodes = list(dict.fromkeys(panel.values["node"].tolist()))
    colours = ("@strict-ordered", "@classic", "@mirrored", "@lazy", "@quorum")
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": theme.plain(str(node)),
            "legend": f"legend{axis_number}",
            "x": _values(panel.values.loc[panel.values["node"] == node, "t_s"], 3),
            "y": _values(panel.values.loc[panel.values["node"] == node, "value"], 3),
            "line": {
                "color": colours[number % len(colours)],
                "dash": theme.DASHES[number % len(theme.DASHES)],
                "width": 1.5,
            },
            "hovertemplate": f"%{{y:,.3~r}} {theme.plain(str(node))}<extra></extra>",
            "xaxis": "x",
            "yaxis": f"y{axis_number}",
        }
        for number, node in enumerate(nodes)
    ]


def _layout(
    bands: Sequence[Band],
    marks: Sequence[EventMark],
    panels: Sequence[Panel],
    domains: list[tuple[float, float]],
    latency_axis: dict[str, Any],
    time: list[float],
) -> dict[str, Any]:
    plotted_px = _PANEL_PX["rates"] + _PANEL_PX["latency"] + _PANEL_PX["broker"] * len(panels)
    axes: dict[str, Any] = {
        "yaxis": theme.rate_axis("messages", domain=list(domains[0])),
        "yaxis2": latency_axis | {"domain": list(domains[1])},
        "legend": _legend(1 + _LABELS_PX / plotted_px),
        "legend2": _legend(domains[1][1]),
    }
    for number, panel in enumerate(panels):
        axes[f"yaxis{3 + number}"] = theme.axis(panel.title, rangemode="tozero", domain=list(domains[2 + number]))
        axes[f"legend{3 + number}"] = _legend(domains[2 + number][1])
    return theme.layout(
        height=plotted_px + 130,
        latency_axes=("yaxis2",),
        hovermode="x unified",
        hoversubplots="axis",
        margin={"l": 68, "r": 16, "t": 70, "b": 52},
        xaxis=theme.axis(
            "time since the start of the run (s)",
            anchor=f"y{len(domains)}",
            showgrid=False,
            hoverformat=",.1f",
            range=time,
        ),
        shapes=[shape for number, band in enumerate(bands) for shape in _band_shapes(number, band)]
        + [_mark_shape(mark) for mark in marks],
        annotations=[_band_label(band) for band in bands[:: ceil(len(bands) / LABELS_MAX) or 1]],
        **axes,
    )


def _legend(y: float) -> dict[str, Any]:
    """A legend of one panel, on its upper edge."""
    look = {"font": {"size": 12}, "bgcolor": "rgba(0,0,0,0)", "traceorder": "normal"}
    return theme.legend(round(y, 4), x=1, xanchor="right", **look)


def _band_shapes(number: int, band: Band) -> list[dict[str, Any]]:
    """Every second step is tinted; warm-up is grey in each."""
    shapes = [_rectangle(band.start_s, band.end_s, "@stripe")] if number % 2 == 0 else []
    if band.steady_s > band.start_s:
        shapes.append(_rectangle(band.start_s, band.steady_s, "@warmup"))
    return shapes


def _rectangle(start_s: float, end_s: float, fill: str) -> dict[str, Any]:
    return _shape("rect", start_s, end_s, layer="below", fillcolor=fill, line={"width": 0})


def _mark_shape(mark: EventMark) -> dict[str, Any]:
    return _shape("line", mark.t_s, mark.t_s, line={"color": "@bad", "width": 1, "dash": "dot"})


def _shape(kind: str, start_s: float, end_s: float, **look: Any) -> dict[str, Any]:
    """A shape over all panels, between two instants."""
    place = {"xref": "x", "yref": "paper", "x0": round(start_s, 3), "x1": round(end_s, 3), "y0": 0, "y1": 1}
    return {"type": kind, **place, **look}


def _band_label(band: Band) -> dict[str, Any]:
    middle_s = round((band.start_s + band.end_s) / 2, 3)
    place = {"xref": "x", "yref": "paper", "x": middle_s, "y": 1.0, "yanchor": "bottom"}
    return theme.label(band.label, ink="@soft", size=12) | place
