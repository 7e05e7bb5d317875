"""Two settings at once: a cell per step with its value printed, on one colour scale, and the best cell outlined."""

from __future__ import annotations

from math import log10
from typing import Any, Final

import pandas as pd

from reports.charts import theme

CELL_PX: Final = 44
_ANCHORS: Final = 6
_GAP: Final = 0.06


def figure(
    cells: pd.DataFrame, *, across: str, up: str, quantity: str, latency: bool = False, least: bool = False
) -> theme.Figure:
    """A panel per ``panel`` side by side, all on one logarithmic colour scale.

    ``cells`` has the columns ``panel`` (a title; one empty text for a single panel), ``x`` and ``y`` (settings in
    words, in the order to draw from the left and from below) and ``value`` (ns of a ``latency``). The best cell of each
    panel is outlined: the one with the ``least`` value, or with the highest.
    """
    panels, xs, ys = (list(dict.fromkeys(cells[name].tolist())) for name in ("panel", "x", "y"))
    shown = cells.assign(value=cells["value"] / 1e6) if latency else cells
    low, high = float(shown["value"].min()), float(shown["value"].max())
    axes: dict[str, Any] = {"yaxis": _places(up, ys)}
    shapes, notes = [], []
    for number, panel in enumerate(panels):
        suffix = f"{number + 1 if number else ''}"
        axes[f"xaxis{suffix}"] = _places(across, xs) | {"domain": _domain(number, len(panels)), "tickangle": 0}
        own = shown[shown["panel"] == panel].reset_index(drop=True)
        best = own.iloc[int(own["value"].argmin() if least else own["value"].argmax())]
        shapes.append(_outline(xs.index(best["x"]), ys.index(best["y"]), f"x{suffix}"))
        notes += [theme.label(str(panel)) | {"xref": f"x{suffix} domain", "x": 0} | _ABOVE] if panel else []
    return {
        "data": [
            _trace(shown[shown["panel"] == panel], xs, ys, number, (low, high), quantity, latency)
            for number, panel in enumerate(panels)
        ],
        "layout": theme.layout(
            height=CELL_PX * len(ys) + 108,
            margin={"l": 72, "r": 20, "t": 28 if len(panels) > 1 else 12, "b": 56},
            showlegend=False,
            shapes=shapes,
            annotations=notes,
            **axes,
        ),
    }


_ABOVE: Final = {"yref": "paper", "y": 1, "xanchor": "left", "yanchor": "bottom"}


def _domain(number: int, count: int) -> list[float]:
    size = (1 - _GAP * (count - 1)) / count
    start = number * (size + _GAP)
    return [round(start, 4), round(min(start + size, 1.0), 4)]


def _places(title: str, texts: list[str]) -> dict[str, Any]:
    """Places instead of categories: plotly takes a category that looks like a number for one."""
    return theme.axis(
        title,
        tickvals=list(range(len(texts))),
        ticktext=[theme.plain(text) for text in texts],
        range=[-0.5, len(texts) - 0.5],
        showgrid=False,
        fixedrange=True,
        ticks="",
    )


def _outline(x: int, y: int, axis: str) -> dict[str, Any]:
    corners = {"x0": x - 0.47, "x1": x + 0.47, "y0": y - 0.45, "y1": y + 0.45}
    return {"type": "rect", "xref": axis, "yref": "y", **corners, "line": {"color": "@bad", "width": 4}}


def _trace(
    cells: pd.DataFrame,
    xs: list[str],
    ys: list[str],
    number: int,
    span: tuple[float, float],
    quantity: str,
    latency: bool,
) -> dict[str, Any]:
    values: list[list[float | None]] = [[None] * len(xs) for _ in ys]
    for x, y, value in zip(cells["x"], cells["y"], cells["value"], strict=True):
        values[ys.index(y)][xs.index(x)] = round(float(value), 6)
    low, high = (log10(value) for value in span)
    unit = "{unit}" if latency else "msg/s"
    return {
        "type": "heatmap",
        "x": list(range(len(xs))),
        "y": list(range(len(ys))),
        "z": [[None if value is None else round(log10(value), 4) for value in row] for row in values],
        "text": values,
        "texttemplate": "%{text:,.3~r}" if latency else "%{text:,.3~s}",
        "textfont": {"size": 12},
        "zmin": low,
        "zmax": high if high > low else low + 1,
        "colorscale": [[place / (_ANCHORS - 1), theme.scale_token(place, _ANCHORS)] for place in range(_ANCHORS)],
        "showscale": False,
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
        "xaxis": f"x{number + 1 if number else ''}",
        "yaxis": "y",
        "hovertemplate": f"{theme.plain(quantity)}: %{{text:,.4~r}} {unit}<extra></extra>",
        "meta": {"latency": ["text"] if latency else []},
    }
