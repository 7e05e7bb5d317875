"""One publisher's schedule through a run: cycles without overshoot, what is dropped, what was intended in total."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.publishing import publisher_schedule
from perftest.engine.schedule.arrivals import FixedArrivals
from perftest.engine.schedule.cycle import CycleTimes
from perftest.engine.schedule.intended_times import NEVER_NS, SECOND_NS
from perftest.engine.schedule.schedule import LATE_NS, Schedule
from perftest.spec.behaviour import Arrivals, Publishing

MS = 1_000_000
CYCLE = ((100.0, 1.0), (0.0, 0.5), (1000.0, 0.25))
PER_ROUND = 100 + 250


def take_due(schedule: Schedule, now_ns: int) -> list[int]:
    count = schedule.due(now_ns)
    times = schedule.take(count) if count else None
    return [] if times is None else times.tolist()


@given(waits=st.lists(st.integers(1, 900 * MS), min_size=1, max_size=30))
def test_a_cycle_of_rates_is_kept_whenever_somebody_looks(waits: list[int]) -> None:
    """Timers come late; the line does not move for that."""
    schedule = Schedule(FixedArrivals, rates=CycleTimes(CYCLE, start_ns=0))
    schedule.start(rate=None, now_ns=0)
    now, times = 0, []
    for wait in waits:
        now += wait
        assert (schedule.next_ns() <= now) or not schedule.due(now)
        times += take_due(schedule, now)
    often = Schedule(FixedArrivals, rates=CycleTimes(CYCLE, start_ns=0))
    often.start(rate=None, now_ns=0)
    expected = [t for at in range(0, now, 10 * MS) for t in take_due(often, at)] + take_due(often, now)
    assert times == expected == sorted(times)
    rounds = now / (1.75 * SECOND_NS)
    assert int(rounds) * PER_ROUND <= len(times) <= (int(rounds) + 1) * PER_ROUND + 1
    assert not [t for t in times if 1000 * MS < t % (1750 * MS) < 1500 * MS]
    assert schedule.intended_since_cut(now) == len(times)


def test_an_idle_turn_is_waited_for() -> None:
    schedule = Schedule(FixedArrivals, rates=CycleTimes(CYCLE, start_ns=0))
    schedule.start(rate=None, now_ns=0)
    take_due(schedule, 1200 * MS)
    assert schedule.next_ns() == 1500 * MS
    assert schedule.rate in (0.0, 1000.0)
    take_due(schedule, 1500 * MS)
    assert schedule.rate == 1000.0


def test_the_turn_after_two_idle_ones_is_waited_for() -> None:
    """Only the next turn is bent in beforehand, and it is as flat as this one."""
    schedule = Schedule(FixedArrivals, rates=CycleTimes(((100.0, 1.0), (0.0, 0.5), (0.0, 0.25)), start_ns=0))
    schedule.start(rate=None, now_ns=0)
    take_due(schedule, 1100 * MS)
    assert schedule.next_ns() == 1500 * MS
    take_due(schedule, 1500 * MS)
    assert schedule.next_ns() == 1750 * MS
    assert take_due(schedule, 1750 * MS) == [1750 * MS]


def test_a_publisher_that_joins_later_joins_the_cycle_where_it_is() -> None:
    schedule = Schedule(FixedArrivals, rates=CycleTimes(CYCLE, start_ns=0))
    schedule.start(rate=None, now_ns=1100 * MS)
    assert take_due(schedule, 1499 * MS) == []
    assert take_due(schedule, 1502 * MS) == [1500 * MS, 1501 * MS, 1502 * MS]


def test_overdue_messages_are_dropped_and_counted_only_where_nothing_is_to_be_caught_up() -> None:
    for catch_up, sent, dropped in ((True, 501, 0), (False, 2, 499)):
        schedule = Schedule(FixedArrivals, catch_up=catch_up)
        schedule.start(rate=1000.0, now_ns=0)
        times = take_due(schedule, 500 * MS)
        assert times == [at * MS for at in range(501 - sent, 501)]
        assert schedule.intended_since_cut(500 * MS) == 501
        assert (schedule.dropped_since_cut(), schedule.dropped_since_cut()) == (dropped, 0)


@pytest.mark.parametrize("rate", [1.0, 100.0, 100_000.0])
def test_what_timers_make_late_is_not_dropped(rate: float) -> None:
    schedule = Schedule(FixedArrivals, catch_up=False)
    schedule.start(rate=rate, now_ns=0)
    sent = sum(len(take_due(schedule, now)) for now in range(0, SECOND_NS, LATE_NS - 1))
    assert schedule.dropped_since_cut() == 0
    assert sent >= rate * 0.99


def test_what_was_intended_is_counted_through_changes_stops_and_ends() -> None:
    schedule = Schedule(FixedArrivals)
    schedule.start(rate=100.0, now_ns=0, phase_ns=5 * MS)
    assert schedule.intended_since_cut(100 * MS) == 10
    schedule.change(rate=1000.0, now_ns=200 * MS)
    assert schedule.intended_since_cut(300 * MS) == 10 + 100
    schedule.change(rate=None, now_ns=300 * MS)
    assert (schedule.running, schedule.rate, schedule.next_ns()) == (False, 0.0, NEVER_NS)
    assert schedule.take(7) is None
    assert schedule.intended_since_cut(400 * MS) == 7
    schedule.change(rate=10.0, now_ns=400 * MS)
    assert take_due(schedule, 600 * MS) == [400 * MS, 500 * MS, 600 * MS]
    schedule.finish()
    assert schedule.intended_since_cut(9 * SECOND_NS) == 3


@pytest.mark.parametrize(
    ("publishing", "rate", "rule"),
    [
        (Publishing(), 100.0, "even"),
        (Publishing(start_delay_s=2.0), 100.0, "random"),
        (Publishing(start_delay_s=2.0), None, "random"),
        (Publishing(arrivals=Arrivals.POISSON), 100.0, "independent"),
        (Publishing(), None, None),
        (Publishing(), 0.0, None),
    ],
)
def test_phases_are_under_control_and_on_record(publishing: Publishing, rate: float | None, rule: str | None) -> None:
    count = 100
    record = publisher_schedule.phases(publishing, seed=3, publishers=count, rate=rate)
    assert (record or {"rule": None})["rule"] == rule
    delays = [publisher_schedule.delay_ns(publishing, seed=3, publisher=number) for number in range(count)]
    offsets = [
        publisher_schedule.phase_ns(publishing, publisher=number, publishers=count, rate=rate)
        for number in range(count)
    ]
    if rule == "even":
        assert offsets == [number * 100_000 for number in range(count)]
        assert record is not None and record["offsets_ns"] == offsets[:64]
    elif rule == "random":
        assert len(set(delays)) == count and min(delays) >= 0 and max(delays) <= 2 * SECOND_NS
        assert record is not None and record["offsets_ns"] == delays[:64]
        assert not any(offsets)
    if rule != "even":
        assert not any(offsets)
