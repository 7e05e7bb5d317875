"""Labels beside points: a label that lies on a line is read as the label of that line."""

from __future__ import annotations

from math import log10
from random import Random
from typing import Any, Final

import pandas as pd
import pytest

from reports.charts import knee, labels

AT: Final = (100.0, 100.0)


def test_a_label_takes_the_wanted_side_if_it_is_free() -> None:
    assert labels.side_of(AT, "200", "middle left", [AT], [], 0.0) == "middle left"


def test_a_label_gives_way_to_lines_labels_and_the_axis() -> None:
    line = list(labels.along([(80.0, 0.0), (80.0, 200.0)]))
    assert labels.side_of(AT, "200", "middle left", line, [], 0.0) == "top center"
    beyond = labels.box(AT, "200", "top left")
    assert labels.side_of(AT, "200", "top left", [], [beyond], 0.0) not in ("top left", None)
    assert labels.side_of((10.0, 100.0), "200", "top left", [], [], 0.0) == "top right"


def test_a_point_without_a_free_side_has_no_label() -> None:
    everywhere = [(float(x), float(y)) for x in range(0, 200, 4) for y in range(0, 200, 4)]
    assert labels.side_of(AT, "200", "top left", everywhere, [], 0.0) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_label_of_a_curve_lies_on_another_curve(seed: int) -> None:
    """Three curves, near each other or far apart."""
    chance = Random(seed)
    scale = chance.choice((2.0, 30.0))
    paths = [
        knee.Path(
            name=f"load {number}",
            points=pd.DataFrame(
                {
                    "step": range(5),
                    "setting": ["1", "20", "200", "1000", "10000"],
                    "delivered_per_s": sorted(chance.uniform(1e3, 1e3 * scale) for _ in range(5)),
                    "latency_ns": sorted(chance.uniform(1e6, 1e8) for _ in range(5)),
                }
            ),
            knee=2,
            labelled=number == 0,
        )
        for number in range(3)
    ]
    figure = knee.figure(paths, quantity="p99")
    lines = [trace for trace in figure["data"] if trace["name"] != "knee"]
    places = _places(lines, logarithmic=figure["layout"]["xaxis"].get("type") == "log")
    ink = [point for line in places for point in labels.along(line)]
    (named,) = (number for number, trace in enumerate(lines) if "text" in trace["mode"])
    for at, text, side in zip(places[named], lines[named]["text"], lines[named]["textposition"], strict=True):
        assert not text or labels.is_free(labels.box(at, text, side), ink, [], -knee.AXIS_PX[True]), text


def _places(lines: list[dict[str, Any]], *, logarithmic: bool) -> list[list[labels.Point]]:
    """The points of each line in pixels."""
    found = [
        [(log10(x) if logarithmic else x, log10(y)) for x, y in zip(line["x"], line["y"], strict=True)]
        for line in lines
    ]
    xs, ys = zip(*(point for line in found for point in line), strict=True)
    left, bottom = min(xs) if logarithmic else 0.0, min(ys)
    wide, high = labels.CHART_PX[0] / (max(xs) - left), labels.CHART_PX[1] / (max(ys) - bottom)
    return [[((x - left) * wide, (y - bottom) * high) for x, y in line] for line in found]
