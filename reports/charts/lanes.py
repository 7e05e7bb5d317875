"""Lanes over time: quantities below each other on one time axis, in each a line per name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from reports.charts import theme
from reports.charts.bars import LOOKS

LANE_PX: Final = 170
POINTS_MAX: Final = 600


def figure(lanes: Mapping[str, pd.DataFrame]) -> theme.Figure:
    """Lanes by their title with unit. Each frame has the columns ``t_s``, ``name`` and ``value``; names keep their
    colour and dash in all lanes."""
    names = sorted({str(name) for frame in lanes.values() for name in frame["name"]})
    share = 1 / len(lanes)
    axes: dict[str, Any] = {"xaxis": theme.axis("time since the start (s)", anchor="free", position=0)}
    for number, title in enumerate(lanes):
        top = 1 - number * share
        axes[f"yaxis{number + 1 if number else ''}"] = theme.axis(
            title, domain=[max(top - share * 0.86, 0.0), top], rangemode="tozero", tickformat="~s"
        )
    traces = [
        _trace(frame[frame["name"] == name], name, names, number)
        for number, frame in enumerate(lanes.values())
        for name in names
    ]
    height = LANE_PX * len(lanes) + 76
    margin = {"l": 72, "r": 24, "t": 36, "b": 52}
    return {"data": traces, "layout": theme.layout(height=height, margin=margin, **axes)}


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
