"""Labels beside points: a label that lies on a line is read as the label of that line."""

from __future__ import annotations

from random import Random
from typing import Final

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
    data = [trace for trace in knee.figure(paths, quantity="p99")["data"] if trace["name"] != "knee"]
    shown = [text for trace in data if "text" in trace["mode"] for text in trace["text"] if text]
    assert len(shown) == len(set(shown)), "each setting once, on the labelled curve"
