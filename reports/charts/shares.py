"""Where the time went: a bar per step, cut into the mean time of each stage, as shares of the mean latency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pandas as pd

from reports.charts import theme

BAR_PX: Final = 38
LABEL_FROM: Final = 0.085
"""Width of the narrowest part of the bar with a label."""


class StageLook(NamedTuple):
    """How a stage is drawn; ``pattern`` tells stages of the same colour apart."""

    title: str
    colour: str
    pattern: str = ""
    ink: str = "@page"


def figure(parts: pd.DataFrame, looks: Mapping[str, StageLook], *, axis: str, total: str) -> theme.Figure:
    """A horizontal bar per setting, top down.

    ``parts`` has the columns ``setting`` (text), ``stage`` (a key of ``looks``), ``mean_ns``, ``share`` (of the whole,
    0..1) and ``whole`` (the whole in words), in the order to draw. ``axis`` names the axis of settings, ``total`` the
    sum of a bar.
    """
    settings = list(dict.fromkeys(parts["setting"].tolist()))
    # Places instead of categories: plotly takes a category that looks like a number for one.
    parts = parts.assign(place=parts["setting"].map({setting: -n for n, setting in enumerate(settings)}))
    drawn = [name for name in looks if (parts.loc[parts["stage"] == name, "mean_ns"] > 0).any()]
    rows = 1 + len(drawn) // 6
    return {
        "data": [_trace(parts[parts["stage"] == name], looks[name]) for name in drawn],
        "layout": theme.layout(
            height=BAR_PX * len(settings) + 92 + 22 * rows,
            barmode="stack",
            bargap=0.28,
            uniformtext={"mode": "hide", "minsize": 10},
            margin={"l": 72, "r": 84, "t": 14 + 22 * rows, "b": 48},
            legend=theme.legend(1.0, traceorder="normal"),
            xaxis=theme.axis(f"share of the {total}", range=[0, 1], tickformat=".0%", fixedrange=True),
            yaxis=theme.axis(
                axis,
                tickvals=[-place for place in range(len(settings))],
                ticktext=[theme.plain(setting) for setting in settings],
                range=[0.5 - len(settings), 0.5],
                fixedrange=True,
                showgrid=False,
                ticks="",
            ),
            annotations=[_whole(row) for _, row in parts.drop_duplicates("setting").iterrows()],
        ),
    }


def _trace(parts: pd.DataFrame, look: StageLook) -> dict[str, Any]:
    labels = [look.title if share >= LABEL_FROM else "" for share in parts["share"]]
    return {
        "type": "bar",
        "orientation": "h",
        "name": look.title,
        "x": parts["share"].round(6).tolist(),
        "y": parts["place"].tolist(),
        "text": labels,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": look.ink, "size": 12},
        "constraintext": "both",
        "customdata": [[theme.plain(s), mean] for s, mean in zip(parts["setting"], parts["mean"], strict=True)],
        "marker": {
            "color": look.colour,
            "line": {"color": "@page", "width": 1},
            "pattern": {"shape": look.pattern, "fillmode": "overlay", "fgcolor": "@page", "size": 6, "solidity": 0.2},
        },
        "hovertemplate": f"<b>{look.title}</b>, %{{customdata[0]}}<br>"
        "%{customdata[1]} in the mean<br>%{x:.1%}<extra></extra>",
    }


def _whole(row: pd.Series[Any]) -> dict[str, Any]:
    """The whole of a bar, as a text at its end."""
    place = {"xref": "paper", "xanchor": "left", "yanchor": "middle"}
    return theme.label(str(row["whole"])) | place | {"x": 1.01, "y": int(row["place"])}
