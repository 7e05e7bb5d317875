"""Shares as dots: a row per name, a dot per part of the run, and a line where all would be even."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from reports.charts import theme

ROW_PX: Final = 26


def figure(dots: pd.DataFrame, *, quantity: str, expected: float) -> theme.Figure:
    """Dots over one axis.

    ``dots`` has the columns ``row``, ``series`` (a colour and a marker of its own) and ``value`` (0..1), in the order
    to draw. ``expected`` is where each dot would be if all were even.
    """
    rows = list(dict.fromkeys(dots["row"].tolist()))
    series = list(dict.fromkeys(dots["series"].tolist()))
    line = {"type": "line", "x0": expected, "x1": expected, "yref": "paper", "y0": 0, "y1": 1}
    return {
        "data": [_trace(dots[dots["series"] == name], name, rows, at, len(series)) for at, name in enumerate(series)],
        "layout": theme.layout(
            height=ROW_PX * len(rows) + 108,
            margin={"l": 72, "r": 24, "t": 36, "b": 52},
            shapes=[line | {"line": {"color": "@soft", "width": 1.5, "dash": "dash"}}],
            annotations=[theme.label("even", ink="@soft") | {"x": expected, "y": 1, "yref": "paper"} | _ABOVE],
            legend=theme.legend(1.0, x=0.2),
            showlegend=len(series) > 1,
            xaxis=theme.axis(quantity, rangemode="tozero", tickformat=".0%", fixedrange=True),
            yaxis=theme.axis(
                "",
                tickvals=[-place for place in range(len(rows))],
                ticktext=[theme.plain(row) for row in rows],
                range=[0.5 - len(rows), 0.5],
                fixedrange=True,
                ticks="",
            ),
        ),
    }


_ABOVE: Final = {"xanchor": "center", "yanchor": "bottom"}


def _trace(dots: pd.DataFrame, name: str, rows: list[str], at: int, count: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": theme.plain(name),
        "x": dots["value"].round(6).tolist(),
        "y": [-rows.index(row) for row in dots["row"]],
        "customdata": [theme.plain(row) for row in dots["row"]],
        "marker": {"color": theme.scale_token(at, count), "symbol": theme.marker(at), "size": 10},
        "hovertemplate": f"<b>%{{customdata}}</b>, {theme.plain(name)}<br>%{{x:.2%}}<extra></extra>",
    }
