"""Change points: planted ones are found, chance is not called a change, and the sums are the definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.stats.change_points import PART_MIN, change_points, split_energies


def energy(left: list[float], right: list[float]) -> float:
    """The definition, with loops."""
    across = [abs(x - y) for x in left for y in right]
    within = [
        [abs(x - y) for x, y in itertools.combinations(part, 2)] for part in (left, right)
    ]  # fmt: skip
    means = [sum(each) / len(each) for each in (across, *within)]
    return len(left) * len(right) / (len(left) + len(right)) * (2 * means[0] - means[1] - means[2])


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2 * PART_MIN, max_size=40))
def test_energies_are_those_of_the_definition(values: list[int]) -> None:
    series = [float(value) for value in values]
    found = split_energies(np.array([series, series[::-1]]))
    slow = [energy(series[:at], series[at:]) for at in range(PART_MIN, len(series) - PART_MIN + 1)]
    assert found[0].tolist() == pytest.approx(slow, rel=1e-9, abs=1e-3)
    assert found[1].tolist() == pytest.approx(slow[::-1], rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_planted_changes_are_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    levels = [100.0] * 33 + [112.0] * 33 + [100.0] * 34
    found = change_points([level * (1 + 0.03 * random.standard_normal()) for level in levels])
    # A chance value beside a planted change may move it by a run or two; a level of 5 % may add a false alarm.
    for planted in (33, 66):
        assert any(abs(each.index - planted) <= 2 for each in found)
    assert len(found) <= 4


def test_a_change_tells_the_medians_beside_it() -> None:
    (found,) = change_points([10.0, 11.0, 10.5, 10.2, 20.0, 20.5, 21.0, 20.2])
    assert (found.index, found.before, found.after) == (4, 10.35, 20.35) and found.p <= 0.05


def test_false_alarms_come_at_the_stated_level() -> None:
    """The test is exact: of 200 series without a change, 5 % have an alarm; 21 would be beyond chance (p < 0.001)."""
    random = np.random.default_rng(7)
    for draw in (random.standard_normal, random.standard_cauchy, random.exponential):
        alarms = sum(bool(change_points(draw(size=24).tolist(), permutations=99)) for _ in range(200))
        assert alarms <= 20


@pytest.mark.parametrize("series", [[], [1.0], [1.0] * 5, [1.0] * 40, [0.0] * 40, [1.0, 2.0] * 20])
def test_no_change_where_there_is_none(series: list[float]) -> None:
    assert change_points(series) == []


def test_the_same_seed_gives_the_same_changes() -> None:
    series = np.random.default_rng(3).standard_normal(60).tolist()
    assert change_points(series, level=0.9, seed=4) == change_points(series, level=0.9, seed=4)


def test_values_of_any_size_are_told_apart() -> None:
    """Latencies are nanoseconds: sums of their distances must not lose the change."""
    series = [1e12 + value for value in (1.0, 2.0, 1.0, 2.0, 1.0, 1000.0, 1001.0, 1000.0, 1001.0, 1000.0)]
    assert [each.index for each in change_points(series)] == [5]
