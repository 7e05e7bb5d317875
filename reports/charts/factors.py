"""Small multiples: a row per quantity, a column per setting, so that the effect of each setting compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import pandas as pd

from reports.charts import theme

PANEL_PX: Final = 190
TICKS_MAX: Final = 8
"""Most labelled values of a setting. If there are more values, every second, third, ... value has a label."""
_GAP_X: Final = 0.05
_GAP_Y: Final = 0.06
_LEGEND_LINE_PX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A row: ``column`` of the points, its ``title``, and whether it is a latency (ns) or a rate (msg/s)."""

    column: str
    title: str
    is_latency: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorLine:
    """A line of one column: steps in which only ``setting`` (in words) changes.

    ``points`` has the columns ``place`` (the value's place on the axis: its logarithm to base 2), ``text`` (the value
    in words) and one column per measure.
    """

    setting: str
    name: str
    points: pd.DataFrame
    colour: str = "@quorum"
    marker: str = "circle"
    dash: str = "solid"


def figure(lines: Sequence[FactorLine], measures: Sequence[Measure]) -> theme.Figure:
    """A panel per measure and setting. All panels of a row share the axis of their quantity."""
    settings = list(dict.fromkeys(line.setting for line in lines))
    columns = {setting: [line for line in lines if line.setting == setting] for setting in settings}
    most = max(len(each) for each in columns.values())
    top = 12 + (_LEGEND_LINE_PX * most + 8 if most > 1 else 0)
    height = PANEL_PX * len(measures) + top + 52
    axes: dict[str, Any] = {}
    for number, setting in enumerate(settings):
        left, right = _span(number, len(settings), _GAP_X)
        axes[_name("xaxis", number)] = _setting_axis(setting, columns[setting], (left, right), _y(len(measures) - 1))
        axes[_name("legend", number)] = theme.legend(1.02, x=left, orientation="v")
    for number, measure in enumerate(measures):
        low, high = _span(len(measures) - 1 - number, len(measures), _GAP_Y)
        axes[_name("yaxis", number)] = _measure_axis(measure, lines) | {"domain": [low, high], "anchor": "x"}
    return {
        "data": [
            _trace(line, measure, column=settings.index(line.setting), row=row)
            for row, measure in enumerate(measures)
            for line in lines
        ],
        "layout": theme.layout(
            height=height,
            latency_axes=tuple(_name("yaxis", row) for row, measure in enumerate(measures) if measure.is_latency),
            margin={"l": 68, "r": 20, "t": top, "b": 52},
            showlegend=most > 1,
            **axes,
        ),
    }


def _name(axis: str, number: int) -> str:
    return f"{axis}{number + 1 if number else ''}"


def _y(row: int) -> str:
    return f"y{row + 1 if row else ''}"


def _span(number: int, count: int, gap: float) -> tuple[float, float]:
    """The part of the drawn area for one of ``count`` columns (or rows, from below)."""
    size = (1 - gap * (count - 1)) / count
    start = number * (size + gap)
    return round(start, 4), round(min(start + size, 1.0), 4)


def _setting_axis(
    setting: str, lines: Sequence[FactorLine], domain: tuple[float, float], anchor: str
) -> dict[str, Any]:
    texts = {
        float(place): str(text)
        for line in lines
        for place, text in zip(line.points["place"], line.points["text"], strict=True)
    }
    places = sorted(texts)
    shown = places[:: ceil(len(places) / TICKS_MAX) or 1]
    margin = 0.06 * ((places[-1] - places[0]) or 1.0)
    return theme.axis(
        f"{setting} (log2)",
        domain=list(domain),
        anchor=anchor,
        tickvals=[round(place, 4) for place in shown],
        ticktext=[theme.plain(texts[place]) for place in shown],
        tickangle=0,
        range=[round(places[0] - margin, 4), round(places[-1] + margin, 4)],
    )


def _measure_axis(measure: Measure, lines: Sequence[FactorLine]) -> dict[str, Any]:
    if not measure.is_latency:
        return theme.rate_axis(measure.title)
    values = pd.concat([line.points[measure.column] for line in lines]).dropna()
    narrow = len(values) and values.max() < 10 * values.min()
    # Within a decade the ticks at 1, 2, 5 may be one or none: a label for each digit then.
    return theme.latency_axis(measure.title, values.tolist()) | ({"dtick": "D1"} if narrow else {})


def _trace(line: FactorLine, measure: Measure, *, column: int, row: int) -> dict[str, Any]:
    values = line.points[measure.column] / (1e6 if measure.is_latency else 1.0)
    unit = "{unit}" if measure.is_latency else "msg/s"
    shown = f", {theme.plain(line.name)}" if line.name else ""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": theme.plain(line.name),
        "legend": _name("legend", column),
        "legendgroup": f"{column} {theme.plain(line.name)}",
        "showlegend": row == 0 and bool(line.name),
        "x": line.points["place"].round(4).tolist(),
        "y": [None if pd.isna(value) else round(float(value), 6) for value in values],
        "customdata": [theme.plain(str(text)) for text in line.points["text"]],
        "xaxis": f"x{column + 1 if column else ''}",
        "yaxis": _y(row),
        "line": {"color": line.colour, "width": 2, "dash": line.dash},
        "marker": {"color": line.colour, "size": 7, "symbol": line.marker},
        "hovertemplate": f"<b>%{{customdata}}</b>{shown}<br>%{{y:,.4~r}} {unit}<extra></extra>",
        "meta": {"latency": ["y"] if measure.is_latency else []},
    }
