"""Drawing again, against the obvious way to do it."""

from __future__ import annotations

import numpy as np
import pytest

from perftest.results.histograms import bucket_values
from reports.stats import bootstrap
from reports.stats.bootstrap import Change
from reports.stats.verdict import Verdict, judge


@pytest.mark.parametrize("items, block", [(1, 1), (3, 1), (10, 2), (11, 3), (100, 5)])
def test_each_draw_takes_as_many_as_there_are_in_whole_blocks(items: int, block: int) -> None:
    """A draw that is smaller than the sample would have wider bounds than the sample has."""
    drawn = bootstrap.weights(items, block, np.random.default_rng(3), draws=50)
    assert drawn.shape == (50, items)
    assert (drawn.sum(axis=1) == items).all()
    assert (drawn >= 0).all()
    assert items == 1 or len(np.unique(drawn, axis=0)) > 1


def test_blocks_keep_neighbours_together() -> None:
    """Slow seconds come together: single ones, drawn apart, would make the bounds too narrow."""
    drawn = bootstrap.weights(12, 4, np.random.default_rng(3), draws=200)
    ring = np.concatenate([drawn, drawn[:, :1]], axis=1) > 0
    alone = ring[:, 1:-1] & ~ring[:, :-2] & ~ring[:, 2:]
    assert not alone.any()


def test_a_percentile_is_that_of_the_drawn_values_not_an_average() -> None:
    """Against sorting all the values that were drawn."""
    rng = np.random.default_rng(5)
    samples = [rng.integers(0, 30, size=40) for _ in range(6)]
    histograms = np.array([np.bincount(each, minlength=30) for each in samples])
    drawn = bootstrap.weights(6, 2, rng, draws=150)
    found = bootstrap.percentiles(histograms, bucket_values(30).astype(float), (50.0, 90.0), drawn)
    for weight, median, percentile in zip(drawn, *found, strict=True):
        values = np.sort(np.concatenate([np.repeat(each, times) for each, times in zip(samples, weight, strict=True)]))
        assert median == values[int(0.5 * len(values) + 0.5) - 1]
        assert percentile == values[int(0.9 * len(values) + 0.5) - 1]


def test_a_draw_without_values_has_no_percentile() -> None:
    """And says nothing about the change."""
    histograms = np.array([[0, 0], [0, 3]])
    found = bootstrap.percentiles(histograms, np.array([0.0, 1.0]), (50.0,), np.array([[2, 0], [0, 2]]))[0]
    assert np.isnan(found[0])
    assert found[1] == 1.0
    assert bootstrap.change(1.0, 1.0, found[:1], found[1:], 0.95) == Change(0.0, -np.inf, np.inf)


def test_the_median_of_repetitions_against_the_obvious_way() -> None:
    """With each repetition as often as it was drawn."""
    values = np.array([5.0, 1.0, 9.0, 4.0])
    drawn = bootstrap.weights(4, 1, np.random.default_rng(1), draws=60)
    for weight, found in zip(drawn, bootstrap.medians(values, drawn), strict=True):
        assert found == np.median(np.repeat(values, weight))


def test_the_bounds_hold_the_truth_about_as_often_as_they_say() -> None:
    """Of 300 experiments without any change, 95 % intervals leave out zero in some 5 %; blocks cost a little."""
    rng = np.random.default_rng(11)
    missed = 0
    for _ in range(300):
        sides = [rng.normal(100, 5, 40) for _ in range(2)]
        drawn = [bootstrap.ratios(side, np.ones(40), bootstrap.weights(40, 3, rng, draws=400)) for side in sides]
        change = bootstrap.change(sides[0].mean(), sides[1].mean(), *drawn, 0.95)
        missed += not change.low <= 0 <= change.high
    assert 3 <= missed <= 36


@pytest.mark.parametrize(
    "value, low, high, expected",
    [
        (0.00, -0.01, 0.01, Verdict.NO_CHANGE),
        (0.03, 0.01, 0.04, Verdict.WITHIN_NOISE),
        (-0.03, -0.20, -0.01, Verdict.WITHIN_NOISE),
        (0.08, 0.01, 0.20, Verdict.REGRESSED),
        (-0.08, -0.20, -0.01, Verdict.IMPROVED),
        (0.08, -0.01, 0.20, Verdict.INCONCLUSIVE),
        (0.00, -0.30, 0.30, Verdict.INCONCLUSIVE),
        (float("nan"), -np.inf, np.inf, Verdict.INCONCLUSIVE),
    ],
)
def test_the_word_for_a_change_of_a_latency(value: float, low: float, high: float, expected: Verdict) -> None:
    """And the opposite one for a rate."""
    change = Change(value, low, high)
    assert judge(change, noise=0.05, more_is_better=False) is expected
    opposite = {Verdict.REGRESSED: Verdict.IMPROVED, Verdict.IMPROVED: Verdict.REGRESSED}
    assert judge(change, noise=0.05, more_is_better=True) is opposite.get(expected, expected)
