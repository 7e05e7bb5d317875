"""Two sides of a comparison on common axes: the baseline dashed and hollow, the candidate solid and filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from reports.charts import theme
from reports.charts.spectrum import TICKS, nines

SIDES: Final = ("baseline", "candidate")
_UPPER: Final = [0.36, 1.0]
_LOWER: Final = [0.0, 0.26]


def spectrum_pair(points: pd.DataFrame, *, quantity: str, noise: float, colour: str = "@quorum") -> theme.Figure:
    """Latency over percentiles of both sides, and below the candidate as a multiple of the baseline.

    ``points`` has the columns ``percentile``, ``baseline_ns``, ``candidate_ns`` and ``ratio``. The band around 1 is
    what counts as ``noise`` (a part).
    """
    xs = [round(nines(float(percentile)), 4) for percentile in points["percentile"]]
    shown = [tick for tick in TICKS if nines(tick) <= max(xs) + 0.05]
    values = [*points["baseline_ns"], *points["candidate_ns"]]
    band = {"type": "rect", "layer": "below", "xref": "paper", "x0": 0, "x1": 1, "yref": "y2", "line": {"width": 0}}
    ratio = _line(xs, points["ratio"].round(5).tolist(), "candidate ÷ baseline", "@ink", "solid", "diamond")
    texts = [f"{percentile:.6g} %" for percentile in points["percentile"]]
    return {
        "data": [
            *(_latency_line(xs, points[f"{side}_ns"], side, colour) | {"customdata": texts} for side in SIDES),
            ratio
            | {
                "yaxis": "y2",
                "showlegend": False,
                "customdata": texts,
                "hovertemplate": "%{customdata}: %{y:,.3~r} times the baseline<extra></extra>",
            },
        ],
        "layout": theme.layout(
            height=520,
            latency_axes=("yaxis",),
            margin={"l": 68, "r": 24, "t": 36, "b": 52},
            shapes=[band | {"y0": 1 - noise, "y1": 1 + noise, "fillcolor": "@warmup"}],
            xaxis=theme.axis(
                "percentile",
                anchor="y2",
                tickangle=0,
                tickvals=[round(nines(tick), 4) for tick in shown],
                ticktext=[f"{tick:g}" for tick in shown],
            ),
            yaxis=theme.latency_axis(quantity, values, domain=_UPPER),
            yaxis2=theme.axis("candidate ÷ baseline", domain=_LOWER, tickformat=",.2~f"),
        ),
    }


def time_pair(
    slots: pd.DataFrame, steps: Sequence[tuple[str, float, float]], *, colour: str = "@quorum"
) -> theme.Figure:
    """Delivered rate and p99 of both sides over the time of the baseline, each step from its own start.

    ``slots`` has the columns ``side``, ``t_s``, ``delivered_per_s`` and ``p99_ns``; a missing value is a gap. ``steps``
    are labels with the start and the end of each band (s).
    """
    rates, tails = [], []
    for side in SIDES:
        own = slots[slots["side"] == side]
        xs = own["t_s"].round(3).tolist()
        rate = [None if pd.isna(value) else round(float(value), 1) for value in own["delivered_per_s"]]
        line = _line(xs, rate, side, *_look(side, colour)) | {"mode": "lines", "legendgroup": side}
        rates.append(line | {"hovertemplate": f"%{{y:,.0f}} msg/s, {side}<extra></extra>"})
        tail = _latency_line(xs, own["p99_ns"], side, colour) | {"mode": "lines", "legendgroup": side}
        hover = {"hovertemplate": f"p99 %{{y:,.3~r}} {{unit}}, {side}<extra></extra>"}
        tails.append(tail | {"yaxis": "y2", "showlegend": False} | hover)
    return {
        "data": [*rates, *tails],
        "layout": theme.layout(
            height=520,
            latency_axes=("yaxis2",),
            hovermode="x unified",
            margin={"l": 68, "r": 24, "t": 56, "b": 52},
            legend=theme.legend(1.06),
            shapes=[_stripe(start, end) for _, start, end in steps[::2]],
            annotations=[_name(label, start, end) for label, start, end in steps[:: -(-len(steps) // 16) or 1]],
            xaxis=theme.axis("time in the baseline (s)", anchor="y2", showgrid=False, hoverformat=",.1f"),
            yaxis=theme.rate_axis("delivered", domain=[0.54, 1.0]),
            yaxis2=theme.latency_axis("end-to-end p99", slots["p99_ns"].dropna().tolist(), domain=[0.0, 0.46]),
        ),
    }


def _look(side: str, colour: str) -> tuple[str, str, str]:
    return ("@soft", "dash", "circle-open") if side == SIDES[0] else (colour, "solid", "circle")


def _latency_line(xs: list[float], values_ns: pd.Series[Any], side: str, colour: str) -> dict[str, Any]:
    values = [None if pd.isna(value) else round(float(value) / 1e6, 6) for value in values_ns]
    hover = f"<b>{side}</b><br>%{{customdata}}: %{{y:,.4~r}} {{unit}}<extra></extra>"
    return _line(xs, values, side, *_look(side, colour)) | {"hovertemplate": hover, "meta": {"latency": ["y"]}}


def _line(
    xs: list[float], ys: Sequence[float | None], name: str, colour: str, dash: str, marker: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": xs,
        "y": list(ys),
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {"color": colour, "size": 6, "symbol": marker},
        "connectgaps": False,
    }


def _stripe(start_s: float, end_s: float) -> dict[str, Any]:
    corners = {"xref": "x", "x0": round(start_s, 3), "x1": round(end_s, 3), "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "rect", "layer": "below", "fillcolor": "@stripe", "line": {"width": 0}, **corners}


def _name(label: str, start_s: float, end_s: float) -> dict[str, Any]:
    place = {"xref": "x", "x": round((start_s + end_s) / 2, 3), "yref": "paper", "y": 1, "yanchor": "bottom"}
    return theme.label(label, ink="@soft", size=12) | place
