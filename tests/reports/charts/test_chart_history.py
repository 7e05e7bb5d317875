"""A metric over runs, drawn: every run is a point, every change a mark that is no colour alone."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from reports.charts import history

POINTS = pd.DataFrame(
    {
        "run_id": ["a", "b"],
        "time": ["2026-11-21 10:15:02", "2026-11-22 10:15:02"],
        "value": [1.5, 3.0],
        "level": [1.5, 3.0],
        "origin": ["Some 4.0", "<b>{x}"],
    }
)
CHANGES = pd.DataFrame({"time": ["2026-11-22 10:15:02"], "name": ["+100.0%"]})


@pytest.mark.parametrize("latency", [True, False])
def test_points_levels_and_changes(latency: bool) -> None:
    made = history.figure(POINTS, CHANGES, quantity="e2e.p99", unit="ms", latency=latency)
    levels, points = made["data"]
    assert points["y"] == [1.5, 3.0] and points["mode"] == "markers" and levels["mode"] == "lines"
    assert made["layout"]["shapes"][0]["line"]["dash"] == "dash"
    assert made["layout"]["annotations"][0]["text"] == "+100.0%"
    assert made["layout"]["meta"]["latency_axes"] == (["yaxis"] if latency else [])
    assert (points.get("meta") == {"latency": ["y"]}) is latency and (levels.get("meta") is not None) is latency
    assert ("{unit}" in points["hovertemplate"]) is latency
    assert "<b>{x}" not in json.dumps(points["customdata"]), "names are literal text"


def test_no_change_and_no_run_are_drawn_too() -> None:
    made = history.figure(POINTS.head(0), CHANGES.head(0), quantity="rate", unit="msg/s", latency=False)
    assert made["layout"]["shapes"] == [] and made["data"][1]["x"] == []
