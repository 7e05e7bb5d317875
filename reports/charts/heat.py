"""A heat map over time: a row per quantity, colours on a logarithmic scale of latencies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil, floor, log10
from typing import Any, Final

import pandas as pd

from reports.charts import theme

COLUMNS_MAX: Final = 600
ROW_PX: Final = 34
CHARACTER_PX: Final = 7
"""Width of a character in the name of a row."""
_ANCHORS: Final = 6
_MILLISECOND: Final = 1_000_000


def figure(points: pd.DataFrame, rows: Sequence[str], *, marks: Collection[float] = ()) -> theme.Figure:
    """``points`` has the columns ``t_s`` (when the time of a value begins), ``row`` (one of ``rows``, top down) and
    ``value`` (ns). Of more than :data:`COLUMNS_MAX` moments, some together show the greatest of their values. ``marks``
    are moments (s) with a dotted line."""
    times, values = _grid(points, rows)
    known = [each for row in values for each in row if each]
    low, high = (floor(log10(min(known))), ceil(log10(max(known)))) if known else (6, 7)
    high = max(high, low + 1)
    scale = [[place / (_ANCHORS - 1), theme.scale_token(place, _ANCHORS)] for place in range(_ANCHORS)]
    return {
        "data": [
            {
                "type": "heatmap",
                "x": [round(time, 3) for time in times],
                "y": list(range(len(rows))),
                "z": [[None if not each else round(log10(each), 3) for each in row] for row in values],
                "customdata": [[each and round(each / _MILLISECOND, 3) for each in row] for row in values],
                "zmin": low,
                "zmax": high,
                "colorscale": scale,
                "hoverongaps": False,
                "ygap": 2,
                "hovertemplate": "%{x:.1f} s: %{customdata:,} ms<extra></extra>",
                "colorbar": _bar(low, high),
            }
        ],
        "layout": theme.layout(
            height=ROW_PX * len(rows) + 96,
            margin={"l": max([72, *(24 + CHARACTER_PX * len(row) for row in rows)]), "r": 24, "t": 16, "b": 52},
            showlegend=False,
            xaxis=theme.axis("time since the start (s)", showgrid=False),
            yaxis=theme.axis(
                "",
                tickvals=list(range(len(rows))),
                ticktext=[theme.plain(row) for row in rows[::-1]],
                showgrid=False,
                fixedrange=True,
            ),
            shapes=[_mark(t_s) for t_s in marks],
        ),
    }


def _grid(points: pd.DataFrame, rows: Sequence[str]) -> tuple[list[float], list[list[float | None]]]:
    """The moments, and the values of each row from below, None where there is none."""
    times = sorted(map(float, points["t_s"].unique()))
    together = -(-len(times) // COLUMNS_MAX) or 1
    column = {time: number // together for number, time in enumerate(times)}
    values: list[list[float | None]] = [[None] * (-(-len(times) // together)) for _ in rows]
    for t_s, row, value in points[["t_s", "row", "value"]].itertuples(index=False):
        line, place = values[len(rows) - 1 - list(rows).index(row)], column[t_s]
        line[place] = max(float(value), line[place] or 0.0)
    return times[::together], values


def _bar(low: int, high: int) -> dict[str, Any]:
    powers = list(range(low, high + 1))
    texts = [f"{10.0 ** (power - 6):,g} ms" if power < 9 else f"{10.0 ** (power - 9):,g} s" for power in powers]
    font = {"size": 12, "color": "@soft"}
    return {"tickvals": powers, "ticktext": texts, "thickness": 12, "outlinewidth": 0, "tickfont": font, "len": 1.0}


def _mark(t_s: float) -> dict[str, Any]:
    line = {"color": "@bad", "width": 1.5, "dash": "dot"}
    return {"type": "line", "xref": "x", "x0": t_s, "x1": t_s, "yref": "paper", "y0": 0, "y1": 1, "line": line}
