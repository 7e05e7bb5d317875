"""A warm-up ends when rates neither climb nor fall: figures of the climb are figures of no load that lasts."""

from __future__ import annotations

import pytest

from perftest.engine.coordination.warm_up import CHANGE_MAX, COMPARED, WarmUpRule, WarmUpSlot

SECOND = 1_000_000_000
RULE = WarmUpRule(10.0)


def slots(*rates: int, length_ns: int = SECOND) -> list[WarmUpSlot]:
    return [WarmUpSlot(length_ns, rate, rate, rate) for rate in rates]


@pytest.mark.parametrize(
    ("rates", "steady"),
    [
        ([], False),
        ([100_000] * (2 * COMPARED - 1), False),
        ([100_000] * 2 * COMPARED, True),
        ([60_000, 80_000, 100_000, 116_000], False),
        ([60_000, 80_000, 116_000, 116_000, 115_000, 117_000], True),
        ([100_000, 110_000, 100_000, 110_000], True),
        ([0, 0, 0, 0], True),
        ([0, 0, 0, 900], False),
        ([9, 11, 14, 8], True),
    ],
)
def test_rates_are_steady_if_the_last_intervals_are_like_those_before(rates: list[int], steady: bool) -> None:
    assert RULE.is_met(slots(*rates)) is steady


@pytest.mark.parametrize("part", [0.5, 0.9, 1.1, 2.0])
def test_the_largest_change_is_a_part_of_the_greater_rate(part: float) -> None:
    """Many messages, so that chance is no excuse."""
    before, after = 10_000_000, round(10_000_000 * (1 - CHANGE_MAX * part))
    assert RULE.is_met(slots(*[before] * COMPARED, *[after] * COMPARED)) is (part <= 1)
    assert RULE.is_met(slots(*[after] * COMPARED, *[before] * COMPARED)) is (part <= 1)


def test_a_long_interval_counts_by_its_rate() -> None:
    long = [WarmUpSlot(2 * SECOND, 200_000, 200_000, 200_000)] * COMPARED
    assert RULE.is_met([*slots(*[100_000] * COMPARED), *long])


@pytest.mark.parametrize("counter", ["published", "confirmed", "delivered"])
def test_each_rate_must_be_steady(counter: str) -> None:
    """A backlog grows while confirms are steady."""
    fallen = [slot._replace(**{counter: 50_000}) for slot in slots(*[100_000] * COMPARED)]
    assert not RULE.is_met([*slots(*[100_000] * COMPARED), *fallen])


def test_empty_intervals_do_not_count() -> None:
    assert not RULE.is_met([*slots(*[100_000] * COMPARED), *[WarmUpSlot(0, 0, 0, 0)] * COMPARED])
