"""A metric over runs: a point per run, a line for the level between changes, and a mark at each change."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from reports.charts import theme

HEIGHT_PX: Final = 360


def figure(points: pd.DataFrame, changes: pd.DataFrame, *, quantity: str, unit: str, latency: bool) -> theme.Figure:
    """Points over time; ``unit`` is the values' unit, for a latency the chosen unit.

    ``points`` has the columns ``run_id``, ``time`` (ISO text), ``value`` (latencies in ms), ``level`` (the median
    between the changes) and ``origin`` (version and commit), in the order of time. ``changes`` has ``time`` and
    ``name``, a short text.
    """
    unit = "{unit}" if latency else unit
    shapes = [
        {"type": "line", "x0": time, "x1": time, "yref": "paper", "y0": 0, "y1": 1}
        | {"line": {"color": "@warn", "width": 1.5, "dash": "dash"}}
        for time in changes["time"]
    ]
    notes = [
        theme.label(name, ink="@warn")
        | {"x": time, "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom", "textangle": 0}
        for time, name in zip(changes["time"], changes["name"], strict=True)
    ]
    scaled = {"meta": {"latency": ["y"]}} if latency else {}
    return {
        "data": [_levels(points) | scaled, _points(points, f"{theme.plain(quantity)} %{{y}} {unit}") | scaled],
        "layout": theme.layout(
            height=HEIGHT_PX,
            margin={"l": 72, "r": 24, "t": 48, "b": 52},
            latency_axes=("yaxis",) if latency else (),
            shapes=shapes,
            annotations=notes,
            legend=theme.legend(1.08),
            xaxis=theme.axis("start of the run (UTC)", type="date"),
            yaxis=theme.axis(
                f"{theme.plain(quantity)} ({unit})", rangemode="tozero", **({} if latency else {"tickformat": "~s"})
            ),
        ),
    }


def _points(points: pd.DataFrame, said: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "a run",
        "x": points["time"].tolist(),
        "y": points["value"].tolist(),
        "customdata": [
            [theme.plain(run), theme.plain(origin)]
            for run, origin in zip(points["run_id"], points["origin"], strict=True)
        ],
        "marker": {"color": "@accent", "symbol": "circle", "size": 8},
        "hovertemplate": f"<b>%{{customdata[0]}}</b><br>%{{customdata[1]}}<br>{said}<extra></extra>",
    }


def _levels(points: pd.DataFrame) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "median between changes",
        "x": points["time"].tolist(),
        "y": points["level"].tolist(),
        "line": {"color": "@soft", "width": 2, "shape": "hv"},
        "hoverinfo": "skip",
    }
