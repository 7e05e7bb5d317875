"""The knee: a rule stated in words, checked on curves whose answer is plain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from reports.stats.axes import axes, lines, order
from reports.stats.knee import ENOUGH, SATURATED, SweepShape, sweep
from reports.store.tables import Tables

Point = tuple[float, float | None]
Settings = dict[str, Any]


def curve(*points: Point, settings: Sequence[Settings] = ()) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Steps as they ran, as (delivered per second, p99 in ms), and the values of their settings: n=1, 2, 3, … unless
    they are given."""
    found = list(settings) or [{"n": number} for number in range(1, len(points) + 1)]
    steps = pd.DataFrame(
        {
            "step": range(1, len(points) + 1),
            "label": [" ".join(f"{name}={value}" for name, value in each.items()) for each in found],
            "delivered_per_s": [rate for rate, _ in points],
            "e2e_p99_ns": [None if p99 is None else p99 * 1e6 for _, p99 in points],
        }
    )
    return steps, axes(found, list(found[0]) if found else [])


def found_by(*points: Point, settings: Sequence[Settings] = ()) -> SweepShape:
    found = sweep(*curve(*points, settings=settings), latency="e2e_p99_ns")
    assert found is not None
    return found


def test_the_published_shape_has_its_knee_where_power_is_highest(tables: Tables) -> None:
    """The setting that a reader would choose first must be the right one."""
    values = axes([{"in_flight": int(label.partition("=")[2])} for label in tables.steps["label"]], ["in_flight"])
    found = sweep(tables.steps, values, latency="e2e_p99_ns")
    assert found is not None and found.biggest_gain is not None
    (enough,), (beyond,) = found.enough, found.beyond
    assert [found.label(row) for row in (found.knee, enough.row, found.peak)] == [
        "in_flight=16",
        "in_flight=64",
        "in_flight=256",
    ]
    assert (found.biggest_gain.before, found.biggest_gain.after) == (2, 3)
    assert found.biggest_gain.factor == pytest.approx(9200 / 5400)
    assert beyond.saturated
    assert beyond.rate == pytest.approx(9400 / 5400) and beyond.latency == pytest.approx(50 / 6)


def test_a_sweep_that_still_rises_is_not_saturated() -> None:
    """Saying saturated of a sweep that ended too early would end the search too early."""
    found = found_by((100, 1), (200, 1), (400, 1))
    (beyond,) = found.beyond
    assert found.knee == found.peak == beyond.row == 2
    assert (beyond.saturated, beyond.rate, beyond.latency) == (False, 1.0, 1.0)


def test_steps_without_a_figure_are_left_out() -> None:
    """An interrupted last step has no p99."""
    found = found_by((100, 1), (200, 1.5), (0, None), (300, 9))
    assert list(found.steps["step"]) == [1, 2, 4]
    assert found.label(found.knee) == "n=2"


@pytest.mark.parametrize("ran", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]], ids=["rising", "descending", "random"])
def test_the_order_in_which_steps_ran_says_nothing(ran: list[int]) -> None:
    """A descending sweep has the same smallest setting, the same biggest gain and the same last one."""
    values, points = [1, 10, 100, 1000], [(100.0, 1.0), (900.0, 1.2), (970.0, 3.0), (1000.0, 30.0)]
    found = found_by(*(points[at] for at in ran), settings=[{"in_flight": values[at]} for at in ran])
    (enough,), (beyond,), gain = found.enough, found.beyond, found.biggest_gain
    assert gain is not None
    assert found.label(found.knee) == "in_flight=10"
    assert found.label(enough.row) == "in_flight=100"
    assert (found.label(gain.before), found.label(gain.after)) == ("in_flight=1", "in_flight=10")
    assert (found.label(beyond.row), beyond.saturated) == ("in_flight=1000", True)


@pytest.mark.parametrize(
    ("name", "unlimited"),
    [("rate", None), ("in_flight", 0), ("in_flight", 1 << 30), ("prefetch", 0), ("size_bytes", 9999)],
)
def test_no_limit_is_beyond_every_limit(name: str, unlimited: int | None) -> None:
    """A prefetch of 0 is unlimited: it is the last setting, not the first."""
    found = found_by((400, 9), (100, 1), (200, 1.1), settings=[{name: unlimited}, {name: 5}, {name: 50}])
    assert found.steps["step"].tolist() == [2, 3, 1]
    assert found.beyond[0].row == 2


def test_a_setting_that_was_measured_again_stands_once_as_its_median() -> None:
    """Of three repetitions the best is luck; a repetition is no neighbour of itself."""
    again = [(100.0, 1.0), (200.0, 1.5), (90.0, 1.0), (500.0, 1.5), (110.0, 1.0), (210.0, 1.5)]
    found = found_by(*again, settings=[{"n": 1 + at % 2} for at in range(6)])
    assert found.steps["step"].tolist() == [1, 6]
    assert found.biggest_gain is not None and found.biggest_gain.factor == pytest.approx(2.1)


GRID = {
    (10, 100): 300.0,
    (10, 1000): 310.0,
    (100, 100): 800.0,
    (100, 1000): 980.0,
    (1000, 100): 790.0,
    (1000, 1000): 1000.0,
}
"""Delivered per second by in-flight limit and prefetch."""


def on_grid(order_of: Sequence[int] = range(6)) -> SweepShape:
    cells = list(GRID.items())
    points = [(cells[at][1], cells[at][0][0] / 100) for at in order_of]
    named = [dict(zip(("in_flight", "prefetch"), cells[at][0], strict=True)) for at in order_of]
    return found_by(*points, settings=named)


@pytest.mark.parametrize("ran", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]])
def test_a_grid_is_compared_along_its_lines(ran: list[int]) -> None:
    """One setting changes, the other is held: the step after in_flight=10 prefetch=1000 is not in_flight=100
    prefetch=100."""
    found = on_grid(ran)
    gain = found.biggest_gain
    assert gain is not None
    assert (gain.setting, found.label(gain.before), found.label(gain.after)) == (
        "in_flight",
        "in_flight=10 prefetch=1000",
        "in_flight=100 prefetch=1000",
    )
    assert {each.setting: found.label(each.row) for each in found.enough} == {
        "in_flight": "in_flight=100 prefetch=1000",
        "prefetch": "in_flight=1000 prefetch=1000",
    }
    assert found.label(found.knee) == "in_flight=10 prefetch=1000"
    assert {each.setting: found.label(each.row) for each in found.beyond} == {
        "in_flight": "in_flight=1000 prefetch=1000",
        "prefetch": "in_flight=10 prefetch=1000",
    }
    assert (found.lead, len(found.lead_lines)) == ("in_flight", 2)


def test_settings_that_change_together_have_no_neighbours() -> None:
    """One publisher with a large window against ten with small ones: which of the two settings gained is not known."""
    together = [
        {"publishers": 1, "in_flight": 1000},
        {"publishers": 10, "in_flight": 100},
        {"publishers": 20, "in_flight": 50},
    ]
    found = found_by((100, 1), (300, 1), (200, 1), settings=together)
    assert (found.biggest_gain, found.enough, found.beyond, found.lead) == (None, (), (), None)
    assert found.label(found.knee) == found.label(found.peak) == "publishers=10 in_flight=100"


def test_the_generators_ceiling_is_no_peak_and_no_saturation() -> None:
    """The last step looks like saturation, and is that of the generator: nothing is known of the broker there."""
    steps = curve((100, 1), (200, 1.5), (400, 3), (405, 4), (406, 5))
    found = sweep(*steps, latency="e2e_p99_ns", limited=(4, 5))
    assert found is not None and list(found.steps["step"]) == [1, 2, 3]
    assert found.label(found.peak) == "n=3" and found.limited == ("n=4", "n=5")
    whole = sweep(*steps, latency="e2e_p99_ns")
    assert whole is not None and whole.beyond[0].saturated and whole.limited == ()
    flat = sweep(*curve((100, 1), (101, 2), (102, 3)), latency="e2e_p99_ns", limited=(3,))
    assert flat is not None and not flat.beyond[0].saturated, "what comes after is not known"
    before = sweep(*curve((102, 1), (100, 2), (101, 3)), latency="e2e_p99_ns", limited=(1,))
    assert before is not None and before.beyond[0].saturated, "what came before says nothing of the end"
    assert sweep(*steps, latency="e2e_p99_ns", limited=(1, 2, 3, 4)) is None


@pytest.mark.parametrize("points", [[], [(100.0, 1.0)], [(100.0, 1.0), (200.0, None)]])
def test_one_point_has_no_knee(points: list[Point]) -> None:
    """A plain run is no sweep; a knee of one point would be an invention."""
    assert sweep(*curve(*points), latency="e2e_p99_ns") is None


def test_one_setting_measured_twice_has_no_knee() -> None:
    """Two repetitions are no sweep."""
    assert sweep(*curve((100, 1), (200, 1), settings=[{"n": 5}, {"n": 5}]), latency="e2e_p99_ns") is None


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[Settings], list[tuple[float, float]]]:
    """Some of the steps of a grid of one to three settings, in any order, with their rates and latencies."""
    names = ("in_flight", "prefetch", "rate")[: draw(st.integers(1, 3))]
    levels = [
        draw(st.lists(st.sampled_from([1, 5, 20, 300, None]), min_size=1, max_size=3, unique=True)) for _ in names
    ]
    every = [dict(zip(names, point, strict=True)) for point in product(*levels)]
    kept = draw(st.lists(st.sampled_from(every), unique_by=lambda each: tuple(each.values()), min_size=1))
    random.Random(draw(st.integers(0, 99))).shuffle(kept)
    points = draw(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.01, 1e4)), min_size=len(kept), max_size=len(kept)))
    return kept, points


def differing(one: Settings, other: Settings) -> list[str]:
    return [name for name in one if one[name] != other[name]]


def value(settings: Settings, name: str) -> float:
    return float("inf") if settings[name] is None else float(settings[name])


@examples(max_examples=150)
@given(grids())
def test_no_step_beats_the_ones_that_were_chosen(drawn: tuple[list[Settings], list[tuple[float, float]]]) -> None:
    """The rules as they are stated, pair of steps by pair of steps."""
    named, points = drawn
    found = sweep(*curve(*points, settings=named), latency="e2e_p99_ns")
    if len(named) < 2:
        assert found is None
        return
    assert found is not None
    steps = [named[step - 1] for step in found.steps["step"]]
    rates = [points[step - 1][0] for step in found.steps["step"]]
    powers = [rate / (points[step - 1][1] * 1e6) for rate, step in zip(rates, found.steps["step"], strict=True)]
    assert powers[found.knee] == max(powers) and rates[found.peak] == max(rates)
    for each in found.enough:
        assert rates[each.row] >= ENOUGH * max(rates)
        assert differing(steps[each.row], steps[found.peak]) in ([], [each.setting])
        for step, rate in zip(steps, rates, strict=True):
            if differing(step, steps[found.peak]) == [each.setting] and rate >= ENOUGH * max(rates):
                assert value(step, each.setting) >= value(steps[each.row], each.setting)
    for each_beyond in found.beyond:
        alike = [step for step in steps if differing(step, steps[found.knee]) in ([], [each_beyond.setting])]
        name = each_beyond.setting
        assert value(steps[each_beyond.row], name) == max(value(step, name) for step in alike)
        before = max((step for step in alike if step != steps[each_beyond.row]), key=lambda step: value(step, name))
        assert each_beyond.saturated == (rates[each_beyond.row] < (1 + SATURATED) * rates[steps.index(before)])
    gains: list[tuple[bool, float]] = []
    for one, other in combinations(range(len(steps)), 2):
        if len(name := differing(steps[one], steps[other])) == 1:
            low, high = sorted((one, other), key=lambda row: value(steps[row], name[0]))
            between = [
                step
                for step in steps
                if differing(step, steps[low]) == name
                and value(steps[low], name[0]) < value(step, name[0]) < value(steps[high], name[0])
            ]
            gains += [] if between else [(rates[high] / rates[low] > 1 + SATURATED, rates[high] - rates[low])]
    assert (found.biggest_gain.added if found.biggest_gain else None) == max(gains, default=(True, None))[1]


def test_lines_of_three_settings() -> None:
    """A cube of two values each has four lines in each direction."""
    values = axes([dict(zip("abc", point, strict=True)) for point in product((2, 1), repeat=3)], "abc")
    found = lines(values)
    assert [line.setting for line in found] == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert all(len(line.rows) == 2 for line in found)
    assert order(values) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_texts_have_an_order_too() -> None:
    """A setting of another tool's plan, which is no number."""
    assert axes([{"mode": "b"}, {"mode": "a"}, {}], ["mode"])["mode"].tolist() == [1.0, 0.0, float("inf")]
