"""Changes with their intervals: a row each around zero, with the band of what counts as noise."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from reports.charts import theme

ROW_PX: Final = 24
EDGE_MAX: Final = 2.0
"""The axis ends at three times the baseline at most; an interval that goes on has an arrow."""
_ROOM: Final = 1.08

LOOKS: Final = {
    "regressed": ("@bad", "x"),
    "improved": ("@good", "square"),
    "inconclusive": ("@soft", "circle-open"),
    "within noise": ("@soft", "circle"),
}
OTHER: Final = ("@soft", "diamond")


def figure(rows: pd.DataFrame) -> theme.Figure:
    """``rows`` has the columns ``row`` (a text of its own), ``value``, ``low`` and ``high`` (changes as parts; unknown
    bounds are infinite), ``noise`` (the largest change that counts as noise, as a part) and ``verdict``, top down."""
    edge = _edge(rows)
    verdicts = list(dict.fromkeys(rows["verdict"].tolist()))
    placed = rows.assign(place=[-number for number in range(len(rows))])
    return {
        "data": [_trace(placed[placed["verdict"] == verdict], str(verdict), edge) for verdict in verdicts],
        "layout": theme.layout(
            height=ROW_PX * len(rows) + 108,
            margin={"l": 72, "r": 24, "t": 40, "b": 52},
            meta={"latency_axes": [], "narrow_legend": False},
            shapes=[*_noise_bands(placed), _zero()],
            xaxis=theme.axis(
                "change (grey: noise)",
                tickformat="+.0%",
                range=[-edge * _ROOM, edge * _ROOM],
                fixedrange=True,
            ),
            yaxis=theme.axis(
                "",
                tickvals=placed["place"].tolist(),
                ticktext=[theme.plain(str(row)) for row in placed["row"]],
                range=[0.5 - len(rows), 0.5],
                fixedrange=True,
                showgrid=False,
                ticks="",
            ),
        ),
    }


def _edge(rows: pd.DataFrame) -> float:
    """The end of the axis on both sides: beyond everything finite, but no further than :data:`EDGE_MAX`."""
    found = pd.concat([rows[name] for name in ("value", "low", "high", "noise")]).abs()
    finite = found[found < float("inf")]
    return min(max(float(finite.max()) if len(finite) else 0.0, 0.1), EDGE_MAX)


def _noise_bands(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """A rectangle for each stretch of rows with the same noise."""
    bands = []
    for _, same in rows.groupby((rows["noise"] != rows["noise"].shift()).cumsum(), sort=False):
        noise = float(same["noise"].iloc[0])
        corners = {
            "x0": -noise,
            "x1": noise,
            "y0": int(same["place"].min()) - 0.5,
            "y1": int(same["place"].max()) + 0.5,
        }
        bands.append({"type": "rect", "layer": "below", "fillcolor": "@warmup", "line": {"width": 0}, **corners})
    return bands


def _zero() -> dict[str, Any]:
    line = {"color": "@ink", "width": 1}
    return {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _trace(rows: pd.DataFrame, verdict: str, edge: float) -> dict[str, Any]:
    colour, symbol = LOOKS.get(verdict, OTHER)
    value = rows["value"].clip(-edge, edge)
    known = rows["low"].abs() < float("inf")
    low, high = (rows[name].clip(-edge * _ROOM, edge * _ROOM).where(known, value) for name in ("low", "high"))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": theme.plain(verdict),
        "x": value.round(5).tolist(),
        "y": rows["place"].tolist(),
        "customdata": [[theme.plain(str(row)), _bounds(low, high)] for row, low, high in _named(rows)],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": (high - value).round(5).tolist(),
            "arrayminus": (value - low).round(5).tolist(),
            "color": colour,
            "thickness": 1.75,
            "width": 4,
        },
        "marker": {"color": colour, "symbol": symbol, "size": 9},
        "hovertemplate": f"<b>%{{customdata[0]}}</b><br>%{{x:+.1%}} (%{{customdata[1]}})<br>{verdict}<extra></extra>",
    }


def _named(rows: pd.DataFrame) -> list[tuple[Any, float, float]]:
    return list(zip(rows["row"], rows["low"], rows["high"], strict=True))


def _bounds(low: float, high: float) -> str:
    return f"{low:+.1%} to {high:+.1%}" if abs(low) < float("inf") else "no interval"
