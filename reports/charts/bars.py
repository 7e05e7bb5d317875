"""Small multiples of bars: a panel below the other, and in each the same rows, so that a column of bars compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from reports.charts import theme

BAR_PX: Final = 22
PANEL_PX: Final = 34
"""Height of the title of a panel."""
_MARGIN_PX: Final = 96
LOOKS: Final = ("@accent", "@classic", "@lazy", "@mirrored", "@soft")
_PARTS: Final = (*LOOKS, "@scale/0.300")
"""Of parts of a bar: as many as a link has purposes."""


def figure(
    bars: pd.DataFrame, *, quantity: str, latency: bool = False, colours: Mapping[str, str] | None = None
) -> theme.Figure:
    """Panels of horizontal bars over one axis.

    ``bars`` has the columns ``panel``, ``row``, ``part`` (parts of one bar are stacked; one empty text for plain bars)
    and ``value``, in the order to draw, and ``low`` and ``high`` for whiskers where bounds are known and finite. Values
    of a ``latency`` are nanoseconds, and drawn in milliseconds. ``colours`` of parts are tokens.
    """
    panels, rows, parts = (list(dict.fromkeys(bars[name].tolist())) for name in ("panel", "row", "part"))
    inner = BAR_PX * len(rows)
    drawn = len(panels) * (inner + PANEL_PX)
    scale = 1e6 if latency else 1.0
    values = bars.assign(**{name: bars[name] / scale for name in ("value", "low", "high") if name in bars})
    title = f"{quantity} ({{unit}})" if latency else quantity
    axes: dict[str, Any] = {"xaxis": theme.axis(title, rangemode="tozero", fixedrange=True, anchor="free", position=0)}
    notes = []
    for number, panel in enumerate(panels):
        top = 1 - (number * (inner + PANEL_PX) + PANEL_PX) / drawn
        axes[f"yaxis{number + 1 if number else ''}"] = _rows_axis(rows, (max(top - inner / drawn, 0.0), top))
        notes.append(theme.label(str(panel)) | {"x": 0, "y": top, "xref": "paper", "yref": "paper"} | _ABOVE)
    return {
        "data": [
            _trace(values[(values["panel"] == panel) & (values["part"] == part)], rows, number, part, colour, latency)
            for number, panel in enumerate(panels)
            for part, colour in zip(parts, (colours or _colours(parts)).values(), strict=True)
        ],
        "layout": theme.layout(
            height=drawn + _MARGIN_PX,
            latency_axes=("xaxis",) if latency else (),
            barmode="stack",
            bargap=0.25,
            margin={"l": 72, "r": 24, "t": 36 if len(parts) > 1 else 12, "b": 52},
            annotations=notes,
            showlegend=len(parts) > 1,
            legend=theme.legend(1.0),
            **axes,
        ),
    }


_ABOVE: Final = {"xanchor": "left", "yanchor": "bottom", "align": "left"}


def _colours(parts: list[str]) -> Mapping[str, str]:
    return {part: _PARTS[number % len(_PARTS)] for number, part in enumerate(parts)}


def _rows_axis(rows: list[str], domain: tuple[float, float]) -> dict[str, Any]:
    """Places instead of categories: plotly takes a category that looks like a number for one."""
    return theme.axis(
        "",
        domain=list(domain),
        tickvals=[-place for place in range(len(rows))],
        ticktext=[theme.plain(row) for row in rows],
        range=[0.5 - len(rows), 0.5],
        fixedrange=True,
        showgrid=False,
        ticks="",
    )


def _trace(bars: pd.DataFrame, rows: list[str], panel: int, part: str, colour: str, latency: bool) -> dict[str, Any]:
    unit = " {unit}" if latency else ""
    name = theme.plain(part) if part else ""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "legendgroup": name,
        "showlegend": panel == 0 and bool(part),
        "yaxis": f"y{panel + 1 if panel else ''}",
        "x": bars["value"].round(6).tolist(),
        "y": [-rows.index(row) for row in bars["row"]],
        "customdata": [theme.plain(row) for row in bars["row"]],
        "marker": {"color": colour, "line": {"color": "@page", "width": 1}},
        "hovertemplate": f"<b>%{{customdata}}</b> {name}<br>%{{x:,.4~r}}{unit}<extra></extra>",
        "meta": {"latency": ["x"] if latency else []},
    } | _whiskers(bars)


def _whiskers(bars: pd.DataFrame) -> dict[str, Any]:
    """The error bars of a trace, where a bar has bounds."""
    if "low" not in bars:
        return {}
    value, low, high = (bars[name].astype(float) for name in ("value", "low", "high"))
    known = high.abs() < float("inf")
    if not known.any():
        return {}
    ends = {"array": (high - value).where(known, 0.0), "arrayminus": (value - low).where(known, 0.0)}
    look = {"type": "data", "symmetric": False, "color": "@ink", "thickness": 1.5, "width": 4}
    return {"error_x": look | {name: end.round(6).tolist() for name, end in ends.items()}}
