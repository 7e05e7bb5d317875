"""The percentile spectrum: a distribution read from its tail."""

from __future__ import annotations

from math import log10
from typing import Any, Final

import pandas as pd

from reports.charts import theme

TICKS: Final = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


def nines(percentile: float) -> float:
    """The place of a percentile (0 <= p < 100) on the axis: 90 at 1, 99 at 2, 99.9 at 3."""
    return log10(100.0 / (100.0 - percentile))


def figure(spectrum: pd.DataFrame, *, quantity: str, height: int = 440) -> theme.Figure:
    """Latency (logarithmic) over percentiles, a line per step.

    ``spectrum`` has the columns ``step``, ``setting`` (text), ``series`` (text; the second and later are dashed),
    ``percentile``, ``value_ns`` and ``supported``. Where fewer samples lie above a point than a percentile needs, the
    line is dotted and the points are hollow.
    """
    points = spectrum[spectrum["percentile"] < 100.0]
    steps = list(dict.fromkeys(points["step"].tolist()))
    series = list(dict.fromkeys(points["series"].tolist()))
    traces = [
        trace
        for position, step in enumerate(steps)
        for number, name in enumerate(series)
        for trace in _lines(
            points[(points["step"] == step) & (points["series"] == name)],
            colour=theme.scale_token(position, len(steps)),
            marker=theme.marker(position),
            dash=theme.DASHES[number % 2],
            suffix=f", {name}" if len(series) > 1 else "",
        )
    ]
    return {"data": traces, "layout": _layout(points, quantity, height)}


def _layout(points: pd.DataFrame, quantity: str, height: int) -> dict[str, Any]:
    furthest = nines(float(points["percentile"].max())) if len(points) else 3.0
    shown = [tick for tick in TICKS if nines(tick) <= furthest + 0.05]
    return theme.layout(
        height=height,
        latency_axes=("yaxis",),
        margin={"l": 64, "r": 24, "t": 40, "b": 52},
        xaxis=theme.axis(
            "percentile",
            tickangle=0,
            tickvals=[round(nines(tick), 4) for tick in shown],
            ticktext=[f"{tick:g}" for tick in shown],
            range=[0, round(furthest + 0.08, 3)],
        ),
        yaxis=theme.latency_axis(quantity, points["value_ns"]),
    )


def _lines(points: pd.DataFrame, *, colour: str, marker: str, dash: str, suffix: str) -> list[dict[str, Any]]:
    """The supported stretch of one line and, from its last point on, the unsupported one."""
    if points.empty:
        return []
    ordered = points.sort_values("percentile")
    setting = str(ordered["setting"].iloc[0])
    solid = ordered[ordered["supported"].astype(bool)]
    thin = ordered[~ordered["supported"].astype(bool)]
    style = {"colour": colour, "name": theme.plain(f"{setting}{suffix}")}
    lines = [_line(solid, **style, marker=marker, dash=dash, legend=True)] if len(solid) else []
    if len(thin):
        tail = pd.concat([solid.tail(1), thin])
        lines.append(_line(tail, **style, marker=f"{marker}-open", dash="dot", legend=solid.empty))
    return lines


def _line(points: pd.DataFrame, *, name: str, colour: str, marker: str, dash: str, legend: bool) -> dict[str, Any]:
    percentiles = points["percentile"].tolist()
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "legendgroup": name,
        "showlegend": legend,
        "x": [round(nines(percentile), 4) for percentile in percentiles],
        "y": (points["value_ns"] / 1e6).round(6).tolist(),
        "customdata": [f"{percentile:.6g} %" for percentile in percentiles],
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {"color": colour, "size": 6, "symbol": marker},
        "hovertemplate": f"<b>{name}</b><br>%{{customdata}}: %{{y:,.4~r}} {{unit}}<extra></extra>",
        "meta": {"latency": ["y"]},
    }
