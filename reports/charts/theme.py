"""Colours, markers and the layout that all figures share.

The colours of queue types were chosen by search. Their smallest OKLab distance over normal, protan, deutan and
tritan vision is 0.18 on white and 0.17 on the dark surface, and each colour has a contrast of at least 3:1. In both
themes, the scale for ordered settings runs from a weak to a strong contrast against the page, and its lightness changes
steadily. So a higher setting stands out more, in greyscale too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import ceil, log10
from typing import Any, Final

Figure = dict[str, Any]
"""A Plotly figure as JSON data: ``{"data": [...], "layout": {...}}``, colours as tokens."""

THEMES: Final = ("light", "dark")

PALETTES: Final[Mapping[str, Mapping[str, str]]] = {
    "light": {
        "page": "#FFFFFF",
        "surface": "#F6F7F9",
        "ink": "#1B2128",
        "soft": "#57616D",
        "rule": "#D9DEE4",
        "grid": "#E9ECF0",
        "accent": "#004A9E",
        "good": "#004A9E",
        "warn": "#9A5200",
        "bad": "#B3201C",
        "good-wash": "#E8F0FA",
        "warn-wash": "#FDF1E1",
        "bad-wash": "#FCEBEA",
        "quorum": "#004A9E",
        "classic": "#834F00",
        "lazy": "#58A471",
        "mirrored": "#C264EA",
        "strict-ordered": "#3B282D",
        "band": "rgba(0,74,158,0.14)",
        "stripe": "rgba(27,33,40,0.035)",
        "warmup": "rgba(27,33,40,0.10)",
        "hover": "#FFFFFF",
    },
    "dark": {
        "page": "#14181D",
        "surface": "#1C2229",
        "ink": "#E6EAEF",
        "soft": "#9DA8B5",
        "rule": "#343D47",
        "grid": "#29313A",
        "accent": "#6FA8FF",
        "good": "#6FA8FF",
        "warn": "#F0A94B",
        "bad": "#FF8B82",
        "good-wash": "#1A2A40",
        "warn-wash": "#33281A",
        "bad-wash": "#3B2022",
        "quorum": "#3886FF",
        "classic": "#DD8E0C",
        "lazy": "#66FA91",
        "mirrored": "#DAB5FD",
        "strict-ordered": "#86706E",
        "band": "rgba(56,134,255,0.22)",
        "stripe": "rgba(230,234,239,0.035)",
        "warmup": "rgba(230,234,239,0.12)",
        "hover": "#232B34",
    },
}
"""Colour by token and theme. The style sheet makes its custom properties from the same table."""

SCALES: Final[Mapping[str, tuple[str, ...]]] = {
    "light": ("#BF860C", "#798237", "#3E734F", "#005E5A", "#004461", "#0A2163"),
    "dark": ("#3E6DC8", "#2A94BD", "#50B1B2", "#7FC9A7", "#B7DE93", "#FFE96D"),
}
"""Anchors of the sequential scale, evenly spaced from the lowest setting to the highest."""

QUEUE_MARKERS: Final[Mapping[str, str]] = {
    "quorum": "circle",
    "classic": "square",
    "lazy": "diamond",
    "mirrored": "triangle-up",
    "strict-ordered": "x",
}
SETTING_MARKERS: Final = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star", "hexagon")
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif"

_TOKEN: Final = re.compile(r"@([a-z-]+)(?:/([01](?:\.\d+)?))?")


def scale_token(position: int, count: int) -> str:
    """The token of the ``position``-th (from 0) of ``count`` ordered settings."""
    return f"@scale/{position / (count - 1) if count > 1 else 1.0:.3f}"


def colour(token: str, theme: str) -> str:
    """The colour that ``token`` stands for; a text that is no token is returned as it is."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return token
    name, position = match.groups()
    return _on_scale(SCALES[theme], float(position)) if name == "scale" else PALETTES[theme][name]


def resolve(node: Any, theme: str) -> Any:
    """A copy of figure data (or of a part) with every token replaced by its colour in ``theme``."""
    match node:
        case dict():
            return {key: resolve(value, theme) for key, value in node.items()}
        case list():
            return [resolve(value, theme) for value in node]
        case str():
            return colour(node, theme)
        case _:
            return node


def marker(position: int) -> str:
    """The marker of the ``position``-th (from 0) of several lines of one figure."""
    return SETTING_MARKERS[position % len(SETTING_MARKERS)]


def plain(name: str) -> str:
    """A name as literal text of a figure: plotly reads a little HTML in texts, and templates read braces."""
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("{", "(").replace("}", ")")


def queue_token(queue_type: str) -> str:
    """The token of a queue type; a type this version does not know is drawn as quorum queues are."""
    return f"@{queue_type}" if queue_type in QUEUE_MARKERS else "@quorum"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with the quiet look all figures share; ``more`` overrides."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12.5, "color": "@soft"}},
        "automargin": True,
        "gridcolor": "@grid",
        "linecolor": "@rule",
        "zeroline": False,
        "tickfont": {"size": 12, "color": "@soft"},
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "@rule",
    } | more


def latency_axis(title: str, values: Iterable[float], **more: Any) -> dict[str, Any]:
    """A logarithmic axis for these latencies; its name goes into the layout's ``meta.latency_axes``."""
    return log_axis(f"{title} ({{unit}}, log scale)", values, **({"tickformat": ",~r"} | more))


def log_axis(title: str, values: Iterable[float], **more: Any) -> dict[str, Any]:
    """A logarithmic axis with labels at 1, 2, 5, 10, ... or, over more than three decades, at each decade.

    Left alone, plotly labels every digit of every decade. It chooses 1, 2, 5 when the asked number of ticks makes 0.3
    to 0.7 decades a tick. Within one decade it spaces the labels evenly: 4, 6, 8, 10.
    """
    positive = [value for value in values if value > 0]
    decades = 1.15 * log10(max(positive) / min(positive)) + 0.1 if positive else 1.0
    ticks = 4 if decades < 1 else max(2, ceil(decades / (0.5 if decades <= 3 else 1.0)))
    return axis(title, **({"type": "log", "tickformat": "~s", "nticks": ticks} | more))


def rate_axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis of messages per second from zero."""
    return axis(f"{title} (msg/s)", **({"rangemode": "tozero", "tickformat": "~s"} | more))


def layout(*, height: int, latency_axes: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """The layout of a figure ``height`` pixels high; ``more`` adds axes, shapes and annotations."""
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 64, "r": 24, "t": 16, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": "@ink"},
        "hoverlabel": {"bgcolor": "@hover", "bordercolor": "@rule", "font": {"color": "@ink", "size": 12.5}},
        "hovermode": "closest",
        "showlegend": True,
        "legend": legend(1.02),
        "dragmode": "zoom",
        "meta": {"latency_axes": list(latency_axes)},
    } | more


def legend(y: float, **more: Any) -> dict[str, Any]:
    """A horizontal legend that stands on the height ``y`` (1: the top of the drawn area); ``more`` overrides."""
    place = {"orientation": "h", "x": 0, "xanchor": "left", "y": y, "yanchor": "bottom"}
    return place | {"font": {"size": 12.5}} | more


def label(text: str, *, ink: str = "@ink", size: float = 12.5) -> dict[str, Any]:
    """A text without an arrow; its place in the figure has to be added."""
    return {"text": plain(text), "showarrow": False, "font": {"size": size, "color": ink}}


def _on_scale(anchors: tuple[str, ...], position: float) -> str:
    """Linear interpolation in sRGB between the two neighbouring anchors."""
    place = min(max(position, 0.0), 1.0) * (len(anchors) - 1)
    below = min(int(place), len(anchors) - 2)
    share = place - below
    channels = zip(_channels(anchors[below]), _channels(anchors[below + 1]), strict=True)
    return "#" + "".join(f"{round(low + (high - low) * share):02X}" for low, high in channels)


def _channels(colour_hex: str) -> tuple[int, int, int]:
    return int(colour_hex[1:3], 16), int(colour_hex[3:5], 16), int(colour_hex[5:7], 16)
