"""Figures that a source states, and what was measured, on one axis: a row for each layout or step."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from reports.charts import theme

ROW_PX: Final = 30
STATED: Final = "the source"
"""The series of the source, which is drawn first."""
_COLOURS: Final = ("@accent", "@classic", "@lazy", "@mirrored")


def figure(dots: pd.DataFrame, *, quantity: str, latency: bool = False) -> theme.Figure:
    """``dots`` has the columns ``row``, ``series`` and ``value`` (latencies in nanoseconds), in the order to draw; the
    axis is logarithmic."""
    rows = list(dict.fromkeys(dots["row"].tolist()))
    series = list(dict.fromkeys(dots["series"].tolist()))
    values = dots.assign(value=dots["value"] / (1e6 if latency else 1.0))
    axis = theme.latency_axis if latency else theme.log_axis
    return {
        "data": [
            _trace(values[values["series"] == name], str(name), rows, at, latency) for at, name in enumerate(series)
        ],
        "layout": theme.layout(
            height=ROW_PX * len(rows) + 112,
            latency_axes=("xaxis",) if latency else (),
            margin={"l": 72, "r": 24, "t": 40, "b": 52},
            xaxis=axis(quantity, values["value"].tolist(), fixedrange=True),
            yaxis=theme.axis(
                "",
                tickvals=[-place for place in range(len(rows))],
                ticktext=[theme.plain(str(row)) for row in rows],
                range=[0.5 - len(rows), 0.5],
                fixedrange=True,
                ticks="",
            ),
        ),
    }


def _trace(dots: pd.DataFrame, name: str, rows: list[str], at: int, latency: bool) -> dict[str, Any]:
    is_source = name == STATED
    colour = "@soft" if is_source else _COLOURS[(at - 1) % len(_COLOURS)]
    symbol, size = ("line-ns-open", 16) if is_source else (theme.marker(at), 10)
    unit = " {unit}" if latency else ""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": theme.plain(name),
        "x": dots["value"].round(6).tolist(),
        "y": [-rows.index(row) for row in dots["row"]],
        "customdata": [theme.plain(str(row)) for row in dots["row"]],
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": size,
            "line": {"width": 3 if is_source else 0, "color": colour},
        },
        "hovertemplate": f"<b>%{{customdata}}</b>, {theme.plain(name)}<br>%{{x:,.3~r}}{unit}<extra></extra>",
        "meta": {"latency": ["x"] if latency else []},
    }
