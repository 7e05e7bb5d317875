"""Intervals over rounds, and the figures that the rounds do not tell apart."""

from __future__ import annotations

from math import inf

from reports.stats.rounds import interval, overlapping


def test_intervals_that_touch_are_not_told_apart() -> None:
    found = overlapping([(10.0, 9.0, 11.0), (12.0, 11.0, 13.0), (20.0, 19.0, 21.0)])
    assert found == [[1], [0], []]


def test_a_wide_interval_hides_what_lies_in_it() -> None:
    assert overlapping([(10.0, 1.0, 100.0), (20.0, 19.0, 21.0)]) == [[1], [0]]


def test_one_round_says_nothing_about_chance() -> None:
    assert interval([5.0])[1:] == (-inf, inf)
    assert overlapping([interval([5.0]), interval([5.0, 5.1]), interval([5.0, 5.2])]) == [[], [2], [1]]
