"""The schedule: open loop means that nothing the broker does can move an intended time."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.schedule.intended_times import SECOND_NS, Line

RATES = st.sampled_from([0.5, 1.0, 3.0, 7.3, 100.0, 999.9, 5000.0, 123456.7])


def test_messages_are_due_at_multiples_of_the_period() -> None:
    schedule = Line(rate=4.0, start_ns=1000)
    assert schedule.due(999) == 0
    assert schedule.due(1000) == 1
    assert schedule.take(1).tolist() == [1000]
    assert schedule.next_ns() == 1000 + SECOND_NS // 4
    assert schedule.due(schedule.next_ns() - 1) == 0
    assert schedule.due(schedule.next_ns()) == 1


def test_a_stall_leaves_the_overdue_messages_their_times_and_gives_no_credit() -> None:
    """PerfTest's limiter forgets or bursts here; latency from a forgotten time is latency that was hidden."""
    schedule = Line(rate=1000.0, start_ns=0)
    schedule.take(1)
    now = SECOND_NS // 2
    assert schedule.due(now) == 500
    assert schedule.take(500).tolist() == [i * 1_000_000 for i in range(1, 501)]
    assert schedule.due(now) == 0
    assert schedule.next_ns() == 501 * 1_000_000


def test_a_new_rate_keeps_what_was_due_and_the_fraction_that_had_accrued() -> None:
    """A rate change that dropped the backlog would make a saturated step look healthy."""
    schedule = Line(rate=10.0, start_ns=0)
    schedule.change(rate=100.0, now_ns=250_000_000)
    assert schedule.due(250_000_000) == 3
    times = schedule.take(6).tolist()
    assert times[:3] == [0, 100_000_000, 200_000_000]
    assert times[3:] == [255_000_000, 265_000_000, 275_000_000]


@given(rate=RATES, portions=st.lists(st.integers(1, 500), min_size=1, max_size=10))
def test_a_time_does_not_depend_on_the_portions_taken(rate: float, portions: list[int]) -> None:
    by_portions = Line(rate=rate, start_ns=17)
    at_once = Line(rate=rate, start_ns=17)
    times = [t for portion in portions for t in by_portions.take(portion).tolist()]
    assert times == at_once.take(sum(portions)).tolist()
    exact = [17 + math.ceil(Fraction(i) * SECOND_NS / Fraction(rate)) for i in range(len(times))]
    assert max(abs(a - b) for a, b in zip(times, exact, strict=True)) <= 1


@given(
    first=RATES,
    steps=st.lists(st.tuples(st.integers(0, 3 * SECOND_NS), st.integers(0, 2000), st.none() | RATES), max_size=8),
)
def test_due_agrees_with_the_intended_times(first: float, steps: list[tuple[int, int, float | None]]) -> None:
    """Through any series of waits, sends and changes of rate: exactly the messages intended up to now are due, times
    never go back, and no message is due early."""
    schedule = Line(rate=first, start_ns=0)
    now = 0
    last = 0
    for wait, wanted, rate in steps:
        now += wait
        due = schedule.due(now)
        taken = schedule.take(min(wanted, due)).tolist() if min(wanted, due) else []
        assert all(a <= b for a, b in zip([last, *taken], taken, strict=False))
        assert not taken or taken[-1] <= now
        last = taken[-1] if taken else last
        assert (schedule.next_ns() <= now) == (schedule.due(now) > 0)
        if rate is not None:
            before = schedule.due(now)
            schedule.change(rate=rate, now_ns=now)
            assert abs(schedule.due(now) - before) <= (1 if before == 0 else 0)


def test_no_drift_after_a_day() -> None:
    schedule = Line(rate=3.0, start_ns=0)
    day = 86_400
    assert schedule.planned(day * SECOND_NS) == 3 * day + 1


@pytest.mark.parametrize("rate", [-1.0, math.inf, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        Line(rate=rate, start_ns=0)
