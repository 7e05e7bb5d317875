"""The knee: a rule stated in words, checked on curves whose answer is plain."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.pipeline.tables import Tables
from reports.stats.knee import ENOUGH, sweep


def curve(*points: tuple[float, float | None]) -> pd.DataFrame:
    """Steps in order: (delivered per second, p99 in ms)."""
    return pd.DataFrame(
        {
            "step": range(1, len(points) + 1),
            "label": [f"n={number}" for number in range(1, len(points) + 1)],
            "delivered_per_s": [rate for rate, _ in points],
            "e2e_p99_ns": [None if p99 is None else p99 * 1e6 for _, p99 in points],
        }
    )


def test_the_published_shape_has_its_knee_where_power_is_highest(tables: Tables) -> None:
    """The setting that a reader would choose first must be the right one."""
    found = sweep(tables.steps, latency="e2e_p99_ns")
    assert found is not None
    assert (found.label(found.knee), found.label(found.enough), found.label(found.peak)) == (
        "in_flight=16",
        "in_flight=64",
        "in_flight=256",
    )
    assert (found.biggest_gain.before, found.biggest_gain.after) == (0, 1)
    assert found.biggest_gain.factor == pytest.approx(2000 / 600)
    assert found.saturated
    assert found.beyond_rate == pytest.approx(9400 / 5400) and found.beyond_latency == pytest.approx(50 / 6)


def test_a_sweep_that_still_rises_is_not_saturated() -> None:
    """Saying saturated of a sweep that ended too early would end the search too early."""
    found = sweep(curve((100, 1), (200, 1), (400, 1)), latency="e2e_p99_ns")
    assert found is not None and not found.saturated
    assert found.knee == found.peak == 2 and found.beyond_rate == found.beyond_latency == 1.0


def test_steps_without_a_figure_are_left_out_and_order_is_by_step() -> None:
    """An interrupted last step has no p99; rows may come in any order."""
    frame = curve((100, 1), (200, 1.5), (0, None), (300, 9)).sample(frac=1, random_state=1)
    found = sweep(frame, latency="e2e_p99_ns")
    assert found is not None and list(found.steps["step"]) == [1, 2, 4]
    assert found.label(found.knee) == "n=2"


@pytest.mark.parametrize("points", [[], [(100.0, 1.0)], [(100.0, 1.0), (200.0, None)]])
def test_one_point_has_no_knee(points: list[tuple[float, float | None]]) -> None:
    """A plain run is no sweep; a knee of one point would be an invention."""
    assert sweep(curve(*points), latency="e2e_p99_ns") is None


@settings(derandomize=True, max_examples=100)
@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.01, 1e4)), min_size=2, max_size=12))
def test_no_step_beats_the_ones_that_were_chosen(points: list[tuple[float, float]]) -> None:
    """The rules as they are stated, step by step."""
    found = sweep(curve(*points), latency="e2e_p99_ns")
    assert found is not None
    rates, powers = [rate for rate, _ in points], [rate / (p99 * 1e6) for rate, p99 in points]
    assert powers[found.knee] == max(powers) and rates[found.peak] == max(rates)
    assert rates[found.enough] >= ENOUGH * max(rates)
    assert all(rate < ENOUGH * max(rates) for rate in rates[: found.enough])
    assert found.biggest_gain.factor == max(b / a for a, b in pairwise(rates))
