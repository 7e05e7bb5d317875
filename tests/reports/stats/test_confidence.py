"""Intervals of confidence from a few repetitions, and the word for a change."""

from __future__ import annotations

import numpy as np
import pytest

from reports.stats import confidence
from reports.stats.confidence import ChangeVerdict, RelativeChange, judge


@pytest.mark.parametrize(
    "freedom, probability, expected",
    [
        (1, 0.975, 12.7062),
        (2, 0.975, 4.3027),
        (3, 0.975, 3.1824),
        (4, 0.995, 4.6041),
        (5, 0.95, 2.0150),
        (7, 0.95, 1.8946),
        (10, 0.975, 2.2281),
        (10, 0.9995, 4.5869),
        (30, 0.995, 2.7500),
        (120, 0.975, 1.9799),
    ],
)
def test_quantiles_of_student_are_those_of_the_printed_tables(
    freedom: int, probability: float, expected: float
) -> None:
    """Odd and even degrees of freedom have a series each."""
    assert confidence.student_quantile(probability, freedom) == pytest.approx(expected, abs=6e-5)


def test_the_change_between_constant_sides_is_exact() -> None:
    """Nothing varies, so nothing is uncertain."""
    found = confidence.change([2.0, 2.0, 2.0], [3.0, 3.0, 3.0], 0.95)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_interval_of_a_change_against_a_calculation_by_hand() -> None:
    """Sides that vary alike: logarithms ±0.1 around 0 and around 0.2, four degrees of freedom."""
    base, candidate = (np.exp(np.array([-0.1, 0.0, 0.1]) + middle).tolist() for middle in (0.0, 0.2))
    half = 2.776445 * np.sqrt(2 * 0.01 / 3)
    found = confidence.change(base, candidate, 0.95)
    assert found.value == pytest.approx(np.exp(0.2) - 1)
    assert (found.low, found.high) == pytest.approx((np.exp(0.2 - half) - 1, np.exp(0.2 + half) - 1), rel=1e-5)


@pytest.mark.parametrize("base, candidate", [([1.0], [2.0]), ([1.0], [2.0, 2.1]), ([1.0, 0.0], [2.0, 2.1])])
def test_one_value_or_a_zero_has_no_bounds(base: list[float], candidate: list[float]) -> None:
    """A single run says nothing about how runs differ, and a zero has no logarithm."""
    found = confidence.change(base, candidate, 0.95)
    assert (found.low, found.high) == (-np.inf, np.inf)


def test_bounds_at_full_confidence_are_no_error() -> None:
    """Whoever wants to be quite sure learns nothing, as a number."""
    found = confidence.change([1.0, 2.0], [2.0, 1.0], 1.0)
    assert found.low == -1
    assert found.high == np.inf


@pytest.mark.parametrize("repeats", [3, 6])
@pytest.mark.parametrize("sure", [0.95, 0.99])
def test_the_bounds_hold_the_truth_at_least_as_often_as_they_say(repeats: int, sure: float) -> None:
    """2,000 comparisons without any change; in some, one side varies twice as much as the other."""
    rng = np.random.default_rng(11)
    missed = 0
    for number in range(2000):
        sides = [np.exp(rng.normal(0, spread, repeats)).tolist() for spread in (0.05, 0.05 * (1 + number % 2))]
        found = confidence.change(*sides, sure)
        missed += not found.low <= 0 <= found.high
    expected = (1 - sure) * 2000
    assert missed <= expected + 3 * np.sqrt(expected)


def test_many_intervals_hold_together() -> None:
    """48 figures without any change: each comparison asks whether any of them leaves out no change."""
    rng = np.random.default_rng(12)
    each = confidence.each_of(0.95, 48)
    alarms = 0
    for _ in range(100):
        sides = np.exp(rng.normal(0, 0.05, (48, 2, 6)))
        found = [confidence.change(base.tolist(), candidate.tolist(), each) for base, candidate in sides]
        alarms += any(not change.low <= 0 <= change.high for change in found)
    assert alarms <= 9


def test_half_an_interval_is_a_part_of_the_mean() -> None:
    """4.3027 standard deviations over the root of three, over the mean; too few values have none."""
    assert confidence.half_width([9.0, 10.0, 11.0], 0.95) == pytest.approx(4.30265 / np.sqrt(3) / 10, rel=1e-5)
    assert confidence.half_width([7.0, 7.0, 7.0], 0.95) == 0
    assert confidence.half_width([9.0], 0.95) is None
    assert confidence.half_width([0.0, 0.0, 0.0], 0.95) is None


@pytest.mark.parametrize(
    "value, low, high, expected",
    [
        (0.00, -0.01, 0.01, ChangeVerdict.NO_CHANGE),
        (0.03, 0.01, 0.04, ChangeVerdict.WITHIN_NOISE),
        (-0.03, -0.20, -0.01, ChangeVerdict.INCONCLUSIVE),
        (0.08, 0.01, 0.20, ChangeVerdict.INCONCLUSIVE),
        (0.12, 0.06, 0.20, ChangeVerdict.REGRESSED),
        (-0.08, -0.20, -0.01, ChangeVerdict.INCONCLUSIVE),
        (-0.12, -0.20, -0.06, ChangeVerdict.IMPROVED),
        (0.08, -0.01, 0.20, ChangeVerdict.INCONCLUSIVE),
        (0.00, -0.30, 0.30, ChangeVerdict.INCONCLUSIVE),
        (3.00, -np.inf, np.inf, ChangeVerdict.INCONCLUSIVE),
        (float("nan"), -np.inf, np.inf, ChangeVerdict.INCONCLUSIVE),
    ],
)
def test_the_word_for_a_change_of_a_latency(value: float, low: float, high: float, expected: ChangeVerdict) -> None:
    """Both bounds have to clear the noise; the opposite word for a rate."""
    change = RelativeChange(value, low, high)
    assert judge(change, noise=0.05, more_is_better=False) is expected
    opposite = {ChangeVerdict.REGRESSED: ChangeVerdict.IMPROVED, ChangeVerdict.IMPROVED: ChangeVerdict.REGRESSED}
    assert judge(change, noise=0.05, more_is_better=True) is opposite.get(expected, expected)
