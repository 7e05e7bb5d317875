"""The figures of sweeps and comparisons as data."""

from __future__ import annotations

from math import inf

import pandas as pd

from reports.charts import factors, forest, pair, surface

CELLS = pd.DataFrame(
    {
        "panel": ["quorum"] * 4 + ["classic"] * 4,
        "x": ["10", "10", "100", "100"] * 2,
        "y": ["1", "5"] * 4,
        "value": [4e6, 2e6, 9e6, 1e6, 3e6, 8e6, 5e6, 7e6],
    }
)


def test_cells_print_their_values_on_one_scale_and_outline_the_best() -> None:
    """A scale per panel would make the worse queue type look as good as the better."""
    made = surface.figure(CELLS, across="in-flight", up="prefetch", quantity="p99", latency=True, least=True)
    assert [trace["text"] for trace in made["data"]] == [[[4.0, 9.0], [2.0, 1.0]], [[3.0, 5.0], [8.0, 7.0]]]
    assert len({(trace["zmin"], trace["zmax"]) for trace in made["data"]}) == 1
    middles = [
        (shape["xref"], round((shape["x0"] + shape["x1"]) / 2), round((shape["y0"] + shape["y1"]) / 2))
        for shape in made["layout"]["shapes"]
    ]
    assert middles == [("x", 1, 1), ("x2", 0, 0)]


def test_a_missing_cell_is_empty() -> None:
    """A grid whose run was cut short has holes, and a hole is not a zero."""
    made = surface.figure(CELLS.head(3), across="a", up="b", quantity="rate")
    assert made["data"][0]["z"][1][1] is None and made["data"][0]["text"][1][1] is None


def test_panels_of_a_row_share_their_axis_and_stand_on_a_logarithmic_axis_of_base_2() -> None:
    """So that the steeper column is the stronger setting."""
    points = pd.DataFrame(
        {"place": [0.0, 1.0], "text": ["1", "2"], "delivered_per_s": [5.0, None], "p99_ns": [1e6, 3e6]}
    )
    measures = (
        factors.Measure(column="delivered_per_s", title="delivered", is_latency=False),
        factors.Measure(column="p99_ns", title="p99", is_latency=True),
    )
    lines = [
        factors.FactorLine(setting="in-flight", name="prefetch 1", points=points),
        factors.FactorLine(setting="in-flight", name="prefetch 2", points=points, marker="square"),
        factors.FactorLine(setting="prefetch", name="", points=points),
    ]
    made = factors.figure(lines, measures)
    places = [(trace["xaxis"], trace["yaxis"], trace["y"]) for trace in made["data"]]
    assert places == [(x, "y", [5.0, None]) for x in ("x", "x", "x2")] + [
        (x, "y2", [1.0, 3.0]) for x in ("x", "x", "x2")
    ]
    assert made["layout"]["meta"]["latency_axes"] == ["yaxis2"]
    assert made["layout"]["xaxis2"]["ticktext"] == ["1", "2"]


def test_a_forest_has_its_noise_band_and_marks_without_colour() -> None:
    """The band is that of the metric: a rate has less noise than a latency."""
    rows = pd.DataFrame(
        {
            "row": ["a", "b", "c"],
            "value": [0.3, -0.1, 0.01],
            "low": [0.2, -0.2, -inf],
            "high": [9.0, 0.1, inf],
            "noise": [0.05, 0.02, 0.02],
            "verdict": ["regressed", "inconclusive", "improved"],
        }
    )
    made = forest.figure(rows)
    assert [(shape["x1"], shape["y0"], shape["y1"]) for shape in made["layout"]["shapes"][:-1]] == [
        (0.05, -0.5, 0.5),
        (0.02, -2.5, -0.5),
    ]
    assert len({trace["marker"]["symbol"] for trace in made["data"]}) == 3
    assert made["data"][2]["error_x"]["array"] == [0.0], "no interval is known, and none is drawn"
    assert max(made["layout"]["xaxis"]["range"]) <= forest.EDGE_MAX * 1.1


def test_a_pair_draws_the_baseline_dashed_and_the_ratio_below() -> None:
    """Printed in grey, the sides must still be told apart."""
    points = pd.DataFrame(
        {"percentile": [50.0, 99.0], "baseline_ns": [1e6, 2e6], "candidate_ns": [1e6, 3e6], "ratio": [1.0, 1.5]}
    )
    made = pair.spectrum_pair(points, quantity="latency", noise=0.05)
    base, candidate, ratio = made["data"]
    assert (base["line"]["dash"], candidate["line"]["dash"]) == ("dash", "solid")
    assert ratio["y"] == [1.0, 1.5] and ratio["yaxis"] == "y2"
    assert made["layout"]["shapes"][0]["y0"] == 0.95
