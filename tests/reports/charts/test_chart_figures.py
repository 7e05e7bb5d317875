"""The figures as data: golden files for a tiny fixed result, and what must hold for any result.

Rewrite the golden files with ``REWRITE_GOLDEN=1`` and review the difference.
"""

from __future__ import annotations

import json
import os
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.charts import knee, shares, spectrum, theme, timeline

GOLDEN = Path(__file__).parent / "data"

POINTS = pd.DataFrame(
    {
        "step": [1, 2, 3, 4],
        "setting": ["1", "20", "200", "1000"],
        "delivered_per_s": [1_180.0, 16_100.0, 96_400.0, 98_000.0],
        "latency_ns": [1_640_000.0, 2_450_000.0, 4_630_000.0, 41_000_000.0],
    }
)
SPECTRUM = pd.DataFrame(
    [
        {
            "step": step,
            "setting": str(setting),
            "series": "from the send",
            "percentile": percentile,
            "value_ns": value * factor,
            "supported": percentile < top,
        }
        for step, setting, factor, top in ((1, 1, 1, 99.5), (2, 20, 2, 99.95))
        for percentile, value in (
            (0.0, 200_000),
            (50.0, 800_000),
            (90.0, 1_200_000),
            (99.0, 1_900_000),
            (99.9, 5_000_000),
        )
    ]
)
INTERVALS = pd.DataFrame(
    {
        "step": [1, 1, 1, 2, 2, 2],
        "phase": ["warmup", "steady", "steady"] * 2,
        "t_s": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
        "published_per_s": [100.0, 200.0, 210.0, 300.0, 400.0, 410.0],
        "confirmed_per_s": [100.0, 200.0, 210.0, 300.0, 400.0, 410.0],
        "delivered_per_s": [90.0, 200.0, 210.0, 290.0, 400.0, None],
        "p50_ns": [1e6, 1e6, 1.1e6, 2e6, 2e6, None],
        "p99_ns": [3e6, 2e6, 2.1e6, 6e6, 5e6, None],
        "max_ns": [9e6, 4e6, 4.1e6, 9e6, 8e6, None],
    }
)
PARTS = pd.DataFrame(
    {
        "setting": ["1", "1", "20", "20"],
        "stage": ["a", "b", "a", "b"],
        "mean_ns": [1e6, 3e6, 1e6, 19e6],
        "share": [0.25, 0.75, 0.05, 0.95],
        "mean": ["1.00 ms", "3.00 ms", "1.00 ms", "19.0 ms"],
        "whole": ["4.00 ms", "4.00 ms", "20.0 ms", "20.0 ms"],
    }
)
NODES = pd.DataFrame({"t_s": [1.0, 1.0, 2.0, 2.0], "node": ["node1", "node2"] * 2, "value": [0.4, 0.3, 0.5, 0.35]})


def _knee() -> theme.Figure:
    return knee.figure(
        [knee.Path(name="run", points=POINTS, knee=3, rule="knee: rate ÷ p99")], quantity="end-to-end p99"
    )


def _spectrum() -> theme.Figure:
    return spectrum.figure(SPECTRUM, quantity="end-to-end latency")


def _timeline() -> theme.Figure:
    return timeline.figure(
        INTERVALS,
        bands=[
            timeline.Band(label="1", start_s=0, steady_s=1, end_s=3),
            timeline.Band(label="20", start_s=3, steady_s=4, end_s=6),
        ],
        marks=[timeline.EventMark(t_s=4.2, kind="connection_lost", text="publisher 0: <b>reset</b>")],
        panels=[timeline.Panel(title="CPU (cores)", values=NODES)],
    )


def _shares() -> theme.Figure:
    looks = {"a": shares.StageLook("stage a", "@scale/0.000"), "b": shares.StageLook("b", "@rule", "/", ink="@ink")}
    return shares.figure(PARTS, looks, axis="in-flight limit", total="mean end-to-end latency")


FIGURES = {"knee": _knee, "spectrum": _spectrum, "timeline": _timeline, "shares": _shares}


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_the_reviewed_one(name: str) -> None:
    """A change of a figure must be seen by a person before readers see it."""
    text = json.dumps(FIGURES[name](), indent=1, ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n"
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("REWRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("look", theme.THEMES)
@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure(name: str, look: str) -> None:
    """Otherwise a misspelt property is ignored in silence and the figure is not what was meant."""
    objects = pytest.importorskip("plotly.graph_objects")
    resolved = theme.resolve(FIGURES[name](), look)
    assert "@" not in json.dumps(resolved).replace("me@", "")
    objects.Figure(resolved)


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "shares"])  # shares have no unit
def test_latency_arrays_and_axes_are_named_for_the_unit_switch(name: str) -> None:
    """Otherwise choosing seconds leaves numbers in milliseconds under the word seconds."""
    figure = FIGURES[name]()
    layout = figure["layout"]
    latency_axes = {axis.replace("yaxis", "y") for axis in layout["meta"]["latency_axes"]}
    assert latency_axes
    for axis in layout["meta"]["latency_axes"]:
        assert "{unit}" in layout[axis]["title"]["text"]
    for trace in figure["data"]:
        on_latency_axis = trace.get("yaxis", "y") in latency_axes
        assert (trace.get("meta", {}).get("latency") == ["y"]) == on_latency_axis


def test_the_knee_curve_keeps_the_order_of_the_settings() -> None:
    """Sorted by rate, the line would not come back where a higher setting delivers less."""
    falling = POINTS.assign(delivered_per_s=[1_000.0, 5_000.0, 9_000.0, 7_000.0])
    trace = knee.figure([knee.Path(name="", points=falling, knee=2)], quantity="p99")["data"][-1]
    assert trace["x"] == [1_000.0, 5_000.0, 9_000.0, 7_000.0]
    assert trace["text"] == ["1", "20\u2002", "200", "1000"]


@pytest.mark.parametrize(("low", "kind"), [(1_000.0, "log"), (60_000.0, None)])
def test_rates_far_apart_go_on_a_logarithmic_axis(low: float, kind: str | None) -> None:
    """On a linear axis the in-flight limits 1 to 20 are one blot; on a logarithmic one small gains vanish."""
    points = POINTS.assign(delivered_per_s=[low, 70_000.0, 80_000.0, 90_000.0])
    layout = knee.figure([knee.Path(name="", points=points)], quantity="p99")["layout"]
    assert layout["xaxis"].get("type") == kind


def test_steps_without_deliveries_are_left_out_of_the_knee_curve() -> None:
    """A step that delivered nothing has no place on a logarithmic axis; it must not take the figure down."""
    points = POINTS.assign(delivered_per_s=[0.0, 70_000.0, 80_000.0, 90_000.0], latency_ns=[None, 1e6, None, 2e6])
    figure = knee.figure([knee.Path(name="", points=points)], quantity="p99")
    assert figure["data"][0]["x"] == [70_000.0, 90_000.0]
    assert knee.figure([knee.Path(name="", points=points.head(0))], quantity="p99")["data"] == []


def test_percentiles_without_samples_to_support_them_are_hollow_and_dotted() -> None:
    """A p99.9 of 500 samples must not look like a measurement."""
    traces = {trace["name"]: [] for trace in _spectrum()["data"]}
    for trace in _spectrum()["data"]:
        traces[trace["name"]].append(trace)
    solid, dotted = traces["1"]
    assert (solid["line"]["dash"], solid["x"][-1]) == ("solid", 2.0)
    assert (dotted["line"]["dash"], dotted["marker"]["symbol"]) == ("dot", "circle-open")
    assert dotted["x"] == [2.0, 3.0], "the dotted line starts at the last supported point"
    assert [solid["showlegend"], dotted["showlegend"]] == [True, False]


@pytest.mark.parametrize(("percentile", "place"), [(0.0, 0.0), (90.0, 1.0), (99.0, 2.0), (99.9, 3.0), (99.99, 4.0)])
def test_the_axis_counts_nines(percentile: float, place: float) -> None:
    """The tail is read by its nines."""
    assert spectrum.nines(percentile) == pytest.approx(place)


def test_lines_do_not_bridge_a_time_that_was_not_measured() -> None:
    """A killed connection must show as a gap, not as a slope."""
    gap = INTERVALS.assign(t_s=[0.5, 1.5, 2.5, 63.5, 64.5, 65.5])
    data = timeline.figure(gap, bands=[])["data"]
    assert data[0]["y"][3] is None
    assert data[0]["x"] == sorted(data[0]["x"])
    (band,) = (trace for trace in data if trace.get("fill"))
    shapes = [list(shape) for known, shape in groupby(band["x"], lambda x: x is not None) if known]
    assert shapes[0] == [0.5, 1.5, 2.5, 2.5, 1.5, 0.5] and len(shapes) > 1
    assert all(max(shape) - min(shape) < 60 for shape in shapes), "no shape has both sides"


def test_many_bands_are_not_all_labelled() -> None:
    """Sixty labels on one line are one black bar."""
    bands = [timeline.Band(label=str(n), start_s=n, steady_s=n, end_s=n + 1) for n in range(60)]
    layout = timeline.figure(INTERVALS, bands=bands)["layout"]
    assert 8 <= len(layout["annotations"]) <= timeline.LABELS_MAX
    assert timeline.figure(INTERVALS, bands=[])["layout"]["annotations"] == []


ROWS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["warmup", "steady"]), st.integers(0, 10**6), st.integers(1, 10**9)),
    min_size=1,
    max_size=120,
)


@given(ROWS, st.integers(1, 40))
def test_thinning_keeps_the_worst_latency_and_the_mean_rate(
    rows: list[tuple[int, str, int, int]], columns_max: int
) -> None:
    """Thinned or not, the timeline must show the worst interval there was, and mix no steps."""
    rows = sorted(rows, key=lambda row: (row[0], row[1] == "steady"))
    frame = pd.DataFrame(
        {
            "step": [row[0] for row in rows],
            "phase": [row[1] for row in rows],
            "t_s": [float(n) for n in range(len(rows))],
            "length_s": 1.0,
            "delivered_per_s": [float(row[2]) for row in rows],
            "p99_ns": [float(row[3]) for row in rows],
        }
    )
    thin, size = timeline.thin(frame, columns_max=columns_max)
    assert len(thin) <= columns_max + 6
    assert thin["t_s"].is_monotonic_increasing
    for key, group in frame.groupby(["step", "phase"]):
        kept: Any = thin[(thin["step"] == key[0]) & (thin["phase"] == key[1])]
        assert kept["p99_ns"].max() == group["p99_ns"].max()
        assert kept["length_s"].sum() == len(group)
        assert (kept["delivered_per_s"] * kept["length_s"]).sum() == pytest.approx(group["delivered_per_s"].sum())
        assert set(kept["t_s"]) == set(group["t_s"].iloc[::size])
