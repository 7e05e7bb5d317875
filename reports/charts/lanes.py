"""Lanes over time: quantities below each other on one time axis, in each a line per name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from reports.charts import theme
from reports.charts.bars import LOOKS

LANE_PX: Final = 170
POINTS_MAX: Final = 600
_THOUSAND: Final = 1_000
"""Value from which on axes are marked with prefixes (1k); below, 0.2 cores are not 200m."""
NEAR: Final = 6.0
"""Multiple of the highest value below which a limit is drawn: a lane up to a far limit would be empty."""


def figure(
    lanes: Mapping[str, pd.DataFrame],
    *,
    limits: Mapping[str, float] | None = None,
    floating: Collection[str] = (),
    marks: Collection[float] = (),
) -> theme.Figure:
    """Lanes by their title with unit. Each frame has the columns ``t_s``, ``name`` and ``value``; names keep their
    colour and dash in all lanes. ``limits`` are drawn as dashed lines, if a value comes anywhere near. Axes begin at
    zero, except the ``floating`` ones. ``marks`` are moments (s) with a dotted line through all lanes."""
    names = sorted({str(name) for frame in lanes.values() for name in frame["name"]})
    share = 1 / len(lanes)
    near = {title: value for title, value in (limits or {}).items() if value < NEAR * lanes[title]["value"].max()}
    axes: dict[str, Any] = {"xaxis": theme.axis("time since the start (s)", anchor="free", position=0)}
    for number, title in enumerate(lanes):
        top = 1 - number * share
        axes[f"yaxis{number + 1 if number else ''}"] = theme.axis(
            title,
            domain=[max(top - share * 0.86, 0.0), top],
            rangemode="normal" if title in floating else "tozero",
            tickformat="~s" if lanes[title]["value"].max() >= _THOUSAND else "",
            **({"range": [0, 1.05 * max(near[title], lanes[title]["value"].max())]} if title in near else {}),
        )
    traces = [
        _trace(frame[frame["name"] == name], name, names, number)
        for number, frame in enumerate(lanes.values())
        for name in names
    ]
    height = LANE_PX * len(lanes) + 76
    margin = {"l": 72, "r": 24, "t": 36, "b": 52}
    places = {title: f"y{number + 1 if number else ''}" for number, title in enumerate(lanes)}
    shapes = [_limit(value, places[title]) for title, value in near.items()]
    shapes += [_mark(t_s) for t_s in marks]
    return {"data": traces, "layout": theme.layout(height=height, margin=margin, shapes=shapes, **axes)}


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """The points of each ``name``, thinned to the number that a chart takes."""
    size = -(-len(frame) // (POINTS_MAX * max(frame["name"].nunique(), 1)))
    place = frame.groupby("name").cumcount()
    return frame[place % size == 0].reset_index(drop=True) if size > 1 else frame.reset_index(drop=True)


def _limit(value: float, axis: str) -> dict[str, Any]:
    line = {"color": "@bad", "width": 1.5, "dash": "dash"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": axis, "y0": value, "y1": value, "line": line}


def _mark(t_s: float) -> dict[str, Any]:
    line = {"color": "@bad", "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "x0": t_s, "x1": t_s, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _trace(points: pd.DataFrame, name: str, names: Sequence[str], lane: int) -> dict[str, Any]:
    place = names.index(name)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": theme.plain(name),
        "legendgroup": name,
        "showlegend": lane == 0,
        "yaxis": f"y{lane + 1 if lane else ''}",
        "x": points["t_s"].round(3).tolist(),
        "y": points["value"].round(3).tolist(),
        "line": {"color": LOOKS[place % len(LOOKS)], "width": 2, "dash": theme.DASHES[place % len(theme.DASHES)]},
        "hovertemplate": f"<b>{theme.plain(name)}</b><br>%{{x:.1f}} s: %{{y:,.4~s}}<extra></extra>",
    }
