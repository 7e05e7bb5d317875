"""Findings as rows on one axis: the range that the source claims, and the measured ratio with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10
from textwrap import wrap
from typing import Any, Final

import pandas as pd

from reports.charts import theme

LINE_PX: Final = 18
"""Height of a line of a finding's sentence."""
GAP_PX: Final = 14
LANE_PX: Final = 22
"""Height of the lane of a broker below a finding's sentence."""
WRAPPED: Final = 44
"""Most characters on a line of a sentence."""
_ROOM: Final = 1.6
"""Factor by which the axis goes beyond the outermost finite value."""
_WIDE: Final = 10.0
"""Factor by which an interval widens the axis, at most: a longer whisker ends where the axis does."""

LOOKS: Final = {
    "reproduced": ("@good", "circle"),
    "not reproduced": ("@bad", "x"),
    "not tried": ("@soft", "diamond-open"),
    "not enough data": ("@soft", "circle-open"),
}


def figure(rows: pd.DataFrame) -> theme.Figure:
    """``rows``, top down, has the columns ``says`` (the finding in words), ``verdict``, ``ratio``, ``low`` and ``high``
    (NaN where nothing was measured), and the claimed bounds ``least`` and ``most`` (0 and infinite where there is
    none)."""
    sentences = [wrap(str(says), WRAPPED) or [""] for says in rows["says"]]
    depths = [LINE_PX * len(lines) + GAP_PX for lines in sentences]
    tops = [sum(depths[:number]) for number in range(len(depths))]
    placed = rows.assign(place=[-(top + depth / 2) for top, depth in zip(tops, depths, strict=True)])
    low, high = _ends(rows)
    texts = ["<br>".join(map(theme.plain, lines)) for lines in sentences]
    return _drawn(placed, texts, low, high, sum(depths))


def beside(rows: pd.DataFrame) -> theme.Figure:
    """Several brokers below each finding: ``rows`` as of :func:`figure`, and with the column ``broker``. Rows of one
    finding follow each other."""
    sentences: list[dict[str, Any]] = []
    places: list[float] = []
    depth = 0.0
    for says, lanes in rows.groupby("says", sort=False):
        lines = wrap(str(says), WRAPPED) or [""]
        sentences.append(_sentence(lines, -depth))
        depth += LINE_PX * len(lines) + 6
        places += [-(depth + LANE_PX * (lane + 0.5)) for lane in range(len(lanes))]
        depth += LANE_PX * len(lanes) + GAP_PX
    low, high = _ends(rows)
    drawn = _drawn(rows.assign(place=places), [theme.plain(str(each)) for each in rows["broker"]], low, high, depth)
    return {**drawn, "layout": drawn["layout"] | {"annotations": sentences}}


def _sentence(lines: Sequence[str], top: float) -> dict[str, Any]:
    text = {"text": "<br>".join(map(theme.plain, lines)), "showarrow": False, "font": {"size": 12.5, "color": "@ink"}}
    return text | {"xref": "paper", "x": 0, "xanchor": "left", "y": top, "yanchor": "top", "align": "left"}


def _drawn(placed: pd.DataFrame, texts: Sequence[str], low: float, high: float, depth: float) -> theme.Figure:
    return {
        "data": [*_claimed(placed, low, high), *_measured(placed, low, high)],
        "layout": theme.layout(
            height=int(depth) + 108,
            margin={"l": 72, "r": 24, "t": 40, "b": 52},
            shapes=[_one()],
            xaxis=theme.log_axis(
                "second figure ÷ first (log scale)",
                [low, high],
                range=[log10(low), log10(high)],
                fixedrange=True,
                tickformat=",~r",
            ),
            yaxis=theme.axis(
                "",
                tickvals=placed["place"].tolist(),
                ticktext=list(texts),
                range=[-depth, 0],
                fixedrange=True,
                showgrid=False,
                ticks="",
            ),
        ),
    }


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """The ends of the axis: beyond every ratio and claimed bound, and 1 within. A wide interval gets some room more."""
    least, most = _extremes(rows, ("ratio", "least", "most"))
    lowest, highest = _extremes(rows, ("low", "high"))
    least, most = min(least, max(lowest, least / _WIDE)), max(most, min(highest, most * _WIDE))
    return least / _ROOM, most * _ROOM


def _extremes(rows: pd.DataFrame, names: Sequence[str]) -> tuple[float, float]:
    """The least and the greatest positive finite value, and 1 within."""
    values = pd.concat([rows[name] for name in names])
    finite = [1.0, *values[(values > 0) & (values < float("inf"))]]
    return min(finite), max(finite)


def _one() -> dict[str, Any]:
    line = {"color": "@rule", "width": 1}
    return {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _claimed(rows: pd.DataFrame, low: float, high: float) -> Iterator[dict[str, Any]]:
    """The claimed ranges as one trace of thick lines, which end where the axis ends if they have no bound."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for least, most, place in zip(rows["least"], rows["most"], rows["place"], strict=True):
        xs += [max(float(least), low), min(float(most), high), None]
        ys += [float(place), float(place), None]
    yield {
        "type": "scatter",
        "mode": "lines",
        "name": "claimed by the source",
        "x": xs,
        "y": ys,
        "line": {"color": "@band", "width": 13},
        "hoverinfo": "skip",
    }


def _measured(rows: pd.DataFrame, low: float, high: float) -> Iterator[dict[str, Any]]:
    known = rows[rows["ratio"].notna()]
    for verdict in dict.fromkeys(known["verdict"]):
        yield _trace(known[known["verdict"] == verdict], str(verdict), low, high)


def _trace(rows: pd.DataFrame, verdict: str, low: float, high: float) -> dict[str, Any]:
    colour, symbol = LOOKS.get(verdict, ("@soft", "diamond"))
    ratio = rows["ratio"].clip(low, high)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": theme.plain(verdict),
        "x": ratio.round(6).tolist(),
        "y": rows["place"].tolist(),
        "customdata": [
            [theme.plain(str(says)), float(ratio)] for says, ratio in zip(rows["says"], rows["ratio"], strict=True)
        ],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": (rows["high"].clip(low, high) - ratio).round(6).tolist(),
            "arrayminus": (ratio - rows["low"].clip(low, high)).round(6).tolist(),
            "color": colour,
            "thickness": 1.75,
            "width": 4,
        },
        "marker": {"color": colour, "symbol": symbol, "size": 10},
        "hovertemplate": "<b>%{customdata[0]}</b><br>measured: %{customdata[1]:.3~r} times<extra></extra>",
    }
