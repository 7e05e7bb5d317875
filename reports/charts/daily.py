"""A figure of runs by day: a line per kind of run, with the median of each day and the span of the day's runs.

Colour is the type of the queues, the dash is the layout, and the marker is the broker.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from reports.charts import theme

HEIGHT_PX: Final = 280
DAYS_NAMED: Final = 6
"""Most days that each have a tick."""


def figure(points: pd.DataFrame, *, quantity: str, unit: str, latency: bool) -> theme.Figure:
    """Medians over days; ``unit`` is the values' unit, for a latency the chosen unit.

    ``points`` has the columns ``kind`` (the name of the line), ``broker``, ``queue``, ``layout``, ``day`` (ISO text),
    ``runs`` (their number), ``median``, ``lowest`` and ``highest`` (latencies in ms), in the order of days.
    """
    unit = "{unit}" if latency else unit
    layouts, brokers = (list(dict.fromkeys(points[name])) for name in ("layout", "broker"))
    traces: list[dict[str, Any]] = []
    for kind, rows in points.groupby("kind", sort=False):
        dash = theme.DASHES[layouts.index(rows["layout"].iloc[0]) % len(theme.DASHES)]
        marker = theme.marker(brokers.index(rows["broker"].iloc[0]))
        said = f"{theme.plain(quantity)} %{{y}} {unit}, the median of %{{customdata}}"
        hover = {"hovertemplate": f"<b>%{{x|%Y-%m-%d}}</b> {theme.plain(str(kind))}<br>{said}<extra></extra>"}
        traces += [_spans(rows), _medians(rows, dash, marker) | hover]
    scaled = {"meta": {"latency": ["y"]}} if latency else {}
    named = len(traces) > 2
    return {
        "data": [trace | scaled for trace in traces],
        "layout": theme.layout(
            height=HEIGHT_PX,
            margin={"l": 64, "r": 16, "t": 64 if named else 16, "b": 40},
            latency_axes=("yaxis",) if latency else (),
            legend=theme.legend(1.04),
            showlegend=named,
            xaxis=theme.axis("", type="date", **_days(points)),
            yaxis=theme.axis(
                f"{theme.plain(quantity)} ({unit})", rangemode="tozero", **({} if latency else {"tickformat": "~s"})
            ),
        ),
    }


def _days(points: pd.DataFrame) -> dict[str, Any]:
    """Ticks at whole days: each day of a few, and else the days that plotly chooses."""
    days = sorted(set(points["day"]))
    format_ = {"tickformat": "%-d %b<br>%Y"}
    return format_ | ({"tickmode": "array", "tickvals": days} if len(days) <= DAYS_NAMED else {"nticks": 8})


def _medians(rows: pd.DataFrame, dash: str, marker: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": theme.plain(str(rows["kind"].iloc[0])),
        "x": rows["day"].tolist(),
        "y": rows["median"].tolist(),
        "customdata": [f"{runs} run{'s' * (runs > 1)}" for runs in rows["runs"].tolist()],
        "line": {"color": _colour(rows), "width": 1.5, "dash": dash},
        "marker": {"color": _colour(rows), "symbol": marker, "size": 7},
    }


def _spans(rows: pd.DataFrame) -> dict[str, Any]:
    """A thin line from the lowest to the highest run of each day."""
    bounds = zip(rows["day"], rows["lowest"].tolist(), rows["highest"].tolist(), strict=True)
    points = [point for day, low, high in bounds for point in ((day, low), (day, high), (day, None))]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [day for day, _ in points],
        "y": [value for _, value in points],
        "line": {"color": _colour(rows), "width": 1},
        "opacity": 0.6,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _colour(rows: pd.DataFrame) -> str:
    return theme.queue_token(str(rows["queue"].iloc[0]).split(",")[0])
