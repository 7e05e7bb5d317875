"""The knee curve: the delivered rate of each setting, and its latency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log10
from typing import Any, Final

import pandas as pd

from reports.charts import labels, theme

RULE_PX: Final = 92
"""Room at the right, for the rule beside a knee that lies at the right end."""

_CLEAR: Final = "\u2002"

RING_PX: Final = 10
"""Radius of the ring around a knee."""

AXIS_PX: Final = {True: 24.0, False: 0.0}
"""Room between the axis and the leftmost place, on a logarithmic axis and on one from zero."""

LOG_RATIO: Final = 30.0
"""Rates further apart than this go on a logarithmic axis: otherwise the small settings fall on one point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One line of the chart: steps of one run in the order of the setting along which they lie.

    ``points`` has the columns ``step``, ``setting`` (text), ``delivered_per_s`` and ``latency_ns``; a row without a
    latency is left out. ``knee`` is the ``step`` to be marked, if there is one, and ``rule`` the text beside the mark.
    Steps that are not ``joined`` lie on no line: nothing leads from one step to the next. Points with the columns
    ``rate_low``, ``rate_high``, ``latency_low`` and ``latency_high`` have whiskers; infinite bounds have none. A
    ``faint`` line is thin. One that is not ``labelled`` has its settings in the boxes that the mouse opens alone.
    """

    name: str
    points: pd.DataFrame
    colour: str = "@quorum"
    marker: str = "circle"
    dash: str = "solid"
    knee: int | None = None
    rule: str = "knee"
    joined: bool = True
    faint: bool = False
    labelled: bool = True


def figure(paths: Sequence[Path], *, quantity: str, height: int = 460) -> theme.Figure:
    """Delivered rate (msg/s) against ``quantity`` (a latency, logarithmic), a line per path, the knees ringed."""
    drawn = [path for path in map(_with_latency, paths) if len(path.points)]
    rates = pd.concat([path.points["delivered_per_s"] for path in drawn]) if drawn else pd.Series(dtype=float)
    logarithmic = _wide(rates)
    drawn = _labelled(drawn, logarithmic=logarithmic)
    many = sum(not path.faint for path in drawn) > 1
    traces = [
        _faint(path) if path.faint else _trace(path, named=many)
        for path in sorted(drawn, key=lambda path: not path.faint)
    ]
    rings = [ring for path in drawn if (ring := _ring(path, path.colour if many else "@warn")) is not None]
    return {
        "data": [*rings, *traces],
        "layout": theme.layout(
            height=height,
            showlegend=many,
            meta={"latency_axes": ["yaxis"]} | ({"narrow_labels": False} if many else {}),
            margin={"l": 64, "r": RULE_PX, "t": 36 if many else 20, "b": 52},
            xaxis=_rate_axis(rates, logarithmic=logarithmic),
            yaxis=theme.latency_axis(quantity, [value for path in drawn for value in path.points["latency_ns"]]),
        ),
    }


def _labelled(paths: Sequence[Path], *, logarithmic: bool) -> list[Path]:
    """The paths with the columns ``label`` and ``side``. A point without a free side has no label; knees choose first,
    then the ends of lines. The label of a knee is left of its ring, or else before the rule."""
    left, width, bottom, height = _extent(paths, logarithmic=logarithmic)
    places = [
        [
            ((x - left) / width * labels.CHART_PX[0], (y - bottom) / height * labels.CHART_PX[1])
            for x, y in _places(path.points, logarithmic=logarithmic)
        ]
        for path in paths
    ]
    inked = [point for path, line in zip(paths, places, strict=True) for point in _ink(path, line)]
    rings = [_ring_room(path, line) for path, line in zip(paths, places, strict=True)]
    taken = [room for path, line in zip(paths, places, strict=True) for room in _rule_room(path, line)]
    texts = [["" for _ in line] for line in places]
    sides = [["top left" for _ in line] for line in places]
    for number, row in _by_weight(paths):
        text = str(paths[number].points["setting"].iloc[row])
        at, wanted = places[number][row], _side(places[number], row)
        is_knee = paths[number].points["step"].iloc[row] == paths[number].knee
        others = [room for other, found in enumerate(rings) if other != number for room in found]
        wide, free = (f"{text}{_CLEAR}", labels.LEFT_SIDES) if is_knee else (text, labels.SIDES)
        side = labels.side_of(at, wide, wanted, inked, [*taken, *others], -AXIS_PX[logarithmic], free)
        if side is not None:
            taken.append(labels.box(at, text, side))
            texts[number][row], sides[number][row] = text, side
    return [
        replace(path, points=path.points.assign(label=label, side=side))
        for path, label, side in zip(paths, texts, sides, strict=True)
    ]


def _ink(path: Path, line: Sequence[labels.Point]) -> Iterator[labels.Point]:
    """Points of the chart on which no label may lie."""
    yield from labels.along(line) if path.joined else line


def _ring_room(path: Path, line: Sequence[labels.Point]) -> list[labels.Box]:
    """The room of the ring around a knee, if the path has a knee."""
    return [
        (x - RING_PX, y - RING_PX, x + RING_PX, y + RING_PX)
        for (x, y), step in zip(line, path.points["step"], strict=True)
        if step == path.knee
    ]


def _rule_room(path: Path, line: Sequence[labels.Point]) -> list[labels.Box]:
    """The room of the text beside the ring."""
    first = path.rule.partition("<")[0]
    rings = _ring_room(path, line) if path.labelled else []
    return [labels.box((right, bottom), first, "bottom right") for _, bottom, right, _ in rings]


def _by_weight(paths: Sequence[Path]) -> list[tuple[int, int]]:
    """Each point that may have a label, as the numbers of its path and row, the weightiest first."""
    points = []
    for number, path in enumerate(paths):
        steps = path.points["step"].tolist()
        for row, step in enumerate(steps):
            is_inner = 0 < row < len(steps) - 1
            points.append((step != path.knee, is_inner, number, row))
    return [(number, row) for *_, number, row in sorted(points) if paths[number].labelled and not paths[number].faint]


def _with_latency(path: Path) -> Path:
    points = path.points
    kept = points[points["latency_ns"].notna() & (points["latency_ns"] > 0) & (points["delivered_per_s"] > 0)]
    return replace(path, points=kept)


def _wide(rates: pd.Series[float]) -> bool:
    return bool(len(rates)) and float(rates.max()) > LOG_RATIO * float(rates.min())


def _rate_axis(rates: pd.Series[float], *, logarithmic: bool) -> dict[str, Any]:
    if logarithmic:
        return theme.log_axis("delivered (msg/s, log scale)", rates.tolist())
    return theme.rate_axis("delivered")


def _trace(path: Path, *, named: bool) -> dict[str, Any]:
    points = path.points
    where = f", {theme.plain(path.name)}" if named else ""
    return {
        "type": "scatter",
        "mode": "+".join([*["lines"] * path.joined, "markers", *["text"] * path.labelled]),
        "name": theme.plain(path.name),
        "x": points["delivered_per_s"].round(1).tolist(),
        "y": (points["latency_ns"] / 1e6).round(6).tolist(),
        "text": [
            _label(setting, step == path.knee) for setting, step in zip(points["label"], points["step"], strict=True)
        ],
        "customdata": [theme.plain(setting) for setting in points["setting"]],
        "textposition": points["side"].tolist(),
        "textfont": {"size": 12.5, "color": "@ink"},
        "line": {"color": path.colour, "width": 2, "dash": path.dash, "shape": "linear"},
        "marker": {"color": path.colour, "size": 8, "symbol": path.marker},
        "hovertemplate": f"<b>%{{customdata}}{where}</b><br>%{{x:,.0f}} msg/s delivered<br>"
        "%{y:,.3~r} {unit}<extra></extra>",
        "cliponaxis": False,
        "meta": {"latency": ["y"]},
    } | _whiskers(path)


def _whiskers(path: Path) -> dict[str, Any]:
    """The error bars of a path, those of the latency in milliseconds."""
    points = path.points
    if "rate_low" not in points or not points["rate_high"].abs().max() < float("inf"):
        return {}
    look = {"type": "data", "symmetric": False, "color": path.colour, "thickness": 1.25, "width": 3}
    rate, latency_ms = points["delivered_per_s"], points["latency_ns"] / 1e6
    return {
        "error_x": look | _bars(rate, points["rate_low"], points["rate_high"]),
        "error_y": look | _bars(latency_ms, points["latency_low"] / 1e6, points["latency_high"] / 1e6),
    }


def _bars(value: pd.Series[float], low: pd.Series[float], high: pd.Series[float]) -> dict[str, list[float]]:
    return {"array": (high - value).round(6).tolist(), "arrayminus": (value - low).round(6).tolist()}


def _faint(path: Path) -> dict[str, Any]:
    points = path.points
    return {
        "type": "scatter",
        "mode": "lines",
        "name": theme.plain(path.name),
        "x": points["delivered_per_s"].round(1).tolist(),
        "y": (points["latency_ns"] / 1e6).round(6).tolist(),
        "text": [theme.plain(setting) for setting in points["setting"]],
        "opacity": 0.45,
        "line": {"color": path.colour, "width": 1},
        "hovertemplate": f"<b>%{{text}}, {theme.plain(path.name)}</b><br>%{{x:,.0f}} msg/s delivered<br>"
        "%{y:,.3~r} {unit}<extra></extra>",
        "showlegend": False,
        "cliponaxis": False,
        "meta": {"latency": ["y"]},
    }


def _ring(path: Path, colour: str) -> dict[str, Any] | None:
    """A ring around the knee, with the rule that chose it, under the path. Where several lines have rings, a ring has
    the colour of its line."""
    at = path.points[path.points["step"] == path.knee]
    if at.empty:
        return None
    rate = float(at["delivered_per_s"].iloc[0])
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "knee",
        "x": [round(rate, 1)],
        "y": [round(float(at["latency_ns"].iloc[0]) / 1e6, 6)],
        "text": [_rule(path, at) if path.labelled else ""],
        "textposition": "bottom right",
        "textfont": {"size": 12, "color": colour},
        "marker": {
            "size": 2 * RING_PX,
            "symbol": "circle-open",
            "color": colour,
            "line": {"width": 2.5, "color": colour},
        },
        "showlegend": False,
        "hoverinfo": "skip",
        "cliponaxis": False,
        "meta": {"latency": ["y"]},
    }


def _rule(path: Path, knee: pd.DataFrame) -> str:
    """The rule of a ring, after the setting if this has no label of its own."""
    return path.rule if knee["label"].iloc[0] else f"{theme.plain(str(knee['setting'].iloc[0]))}, {path.rule}"


def _label(setting: str, ringed: bool) -> str:
    """The setting, with a space towards the ring if there is a ring."""
    return f"{theme.plain(setting)}{_CLEAR if ringed and setting else ''}"


def _places(points: pd.DataFrame, *, logarithmic: bool) -> list[tuple[float, float]]:
    """The points' places on the drawn axes."""
    rates = points["delivered_per_s"].tolist()
    return [
        (log10(rate) if logarithmic else rate, log10(latency))
        for rate, latency in zip(rates, points["latency_ns"].tolist(), strict=True)
    ]


def _extent(paths: Sequence[Path], *, logarithmic: bool) -> tuple[float, float, float, float]:
    """Left, width, bottom and height of all points in axis units; width and height are never zero."""
    places = [place for path in paths for place in _places(path.points, logarithmic=logarithmic)]
    if not places:
        return 0.0, 1.0, 0.0, 1.0
    xs, ys = zip(*places, strict=True)
    left = min(xs) if logarithmic else 0.0
    return left, (max(xs) - left) or 1.0, min(ys), (max(ys) - min(ys)) or 1.0


def _side(places: Sequence[labels.Point], index: int) -> str:
    """The usual side of a label: beside steep stretches of its line, above flat ones."""
    before, after = places[max(index - 1, 0)], places[min(index + 1, len(places) - 1)]
    run, rise = after[0] - before[0], after[1] - before[1]
    if abs(rise) > abs(run):
        return "middle left"
    return "top left" if run * rise > 0 else "top right"
