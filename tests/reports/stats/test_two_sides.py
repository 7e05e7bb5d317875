"""Changes, bounds and p values of two sides of repetitions, against slow and obvious calculations."""

from __future__ import annotations

from itertools import combinations
from math import nan

import numpy as np
import pytest

from reports.stats import two_sides


def test_p_values_are_the_part_of_all_deals_that_differ_as_much() -> None:
    """Against every deal of eight values, one after the other."""
    rng = np.random.default_rng(1)
    base, candidate = np.exp(rng.normal(0, 0.1, (2, 4, 3)))
    values = np.log(np.vstack([base, candidate]))
    values -= values.mean(axis=0)
    deals = np.array([np.abs(values[list(deal)].sum(axis=0)) for deal in combinations(range(8), 4)])
    expected = (deals >= deals[0] - 1e-12).mean(axis=0)
    assert two_sides.permutation_p(base, candidate) == pytest.approx(expected)


def test_random_deals_come_near_all_deals_and_are_the_same_every_time() -> None:
    """Nine repetitions have too many deals to try all; another day must give the same verdict."""
    rng = np.random.default_rng(2)
    base, candidate = np.exp(rng.normal(0, 0.1, (2, 9, 4)))
    values = np.log(np.vstack([base, candidate]))
    values -= values.mean(axis=0)
    chosen = np.array(list(combinations(range(18), 9)))
    expected = (np.abs(values[chosen].sum(axis=1)) >= np.abs(values[:9].sum(axis=0)) - 1e-12).mean(axis=0)
    found = two_sides.permutation_p(base, candidate)
    assert found == pytest.approx(expected, abs=0.015)
    assert (found == two_sides.permutation_p(base, candidate)).all()


def test_holm_by_hand() -> None:
    """The smallest counts for all, the next for the others; and none is below an earlier one."""
    assert two_sides.holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert two_sides.holm([0.9, 0.8]) == [1.0, 1.0]
    assert two_sides.holm([]) == []


def test_the_change_is_the_median_of_all_ratios() -> None:
    """Five against five at 95 %: the bounds are the third ratio from each end, as printed tables have it."""
    base, candidate = [1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.2, 2.3, 9.9]
    ratios = sorted(after / before for after in candidate for before in base)
    found = two_sides.shift(base, candidate, 0.95)
    assert (found.value, found.low, found.high) == pytest.approx((ratios[12] - 1, ratios[2] - 1, ratios[22] - 1))


def test_too_few_values_and_zeros_have_no_bounds() -> None:
    """Three against three cannot leave out one in twenty."""
    assert two_sides.shift([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.95).high == np.inf
    assert np.isnan(two_sides.shift([1.0, 0.0], [1.0, 2.0], 0.95).value)


def test_bounds_hold_the_truth_as_often_as_they_say() -> None:
    """2,000 comparisons of five unchanged runs a side, with tails that normal values do not have."""
    rng = np.random.default_rng(3)
    sides = np.exp(0.05 * rng.standard_t(3, (2000, 2, 5)))
    found = [two_sides.shift(base.tolist(), candidate.tolist(), 0.95) for base, candidate in sides]
    missed = sum(not change.low <= 0 <= change.high for change in found)
    assert missed <= 100 + 3 * 10


def test_repetitions_that_would_decide() -> None:
    """More noise and more figures take more; an unknown spread takes an unknown number."""
    needed = [
        two_sides.repetitions_needed(spread, noise=0.05, confidence=0.95, figures=9)
        for spread in (0.0, 0.01, 0.03, 0.1, 1.0)
    ]
    assert needed == [6, 6, 8, 71, two_sides.NEEDED_MAX + 1]
    assert two_sides.repetitions_needed(0.0, noise=0.05, confidence=0.95, figures=1) == two_sides.REPEATS_MIN
    assert two_sides.repetitions_needed(nan, noise=0.05, confidence=0.95, figures=9) is None
