"""A consumer's work on messages: against one that takes each message by itself, at moments it does not choose."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.consuming.processing import LATEST_NS, SECOND_NS, Processing

ARRIVALS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 40)), min_size=1, max_size=15)
LATENCY = st.sampled_from([0, 1, 70, 1000])
RATE = st.sampled_from([None, 1e6, 3e6, 3e8, 7e8])


def slow(arrivals: list[tuple[int, int]], latency_ns: int, rate: float | None) -> list[Fraction]:
    """When each message is done, one after another."""
    free, slot, now, done = Fraction(0), Fraction(0), 0, []
    for gap, count in arrivals:
        now += gap
        for _ in range(count):
            begin = max(free, slot, Fraction(now))
            free, slot = begin + latency_ns, begin + (Fraction(SECOND_NS) / Fraction(rate) if rate else 0)
            done.append(free)
    return done


@given(arrivals=ARRIVALS, latency_ns=LATENCY, rate=RATE, looks=st.lists(st.integers(1, 3000), max_size=20))
def test_each_message_is_done_when_its_turn_is_over_however_late_one_looks(
    arrivals: list[tuple[int, int]], latency_ns: int, rate: float | None, looks: list[int]
) -> None:
    processing = Processing(latency_ns=latency_ns, rate=rate)
    expected = slow(arrivals, latency_ns, rate)
    tag, now, given_out = 1, 0, 0

    def look(now_ns: int) -> None:
        nonlocal given_out
        for run in processing.done(now_ns):
            assert run.first_tag == given_out + 1
            given_out += run.count
        assert expected[given_out - 1] <= now_ns + 1 or not given_out
        assert given_out == len(expected) or expected[given_out] > now_ns - 1 or given_out == tag - 1

    for index, (gap, count) in enumerate(arrivals):
        now += gap
        look(now)
        processing.arrived(tag, count, now)
        tag += count
        if index < len(looks):
            now_later = now + min(looks[index], arrivals[index + 1][0] if index + 1 < len(arrivals) else 10**9)
            look(now_later)
    look(int(expected[-1]) + 2)
    assert given_out == len(expected)
    assert not processing.waiting and processing.wake_ns() is None


@given(count=st.integers(1, 500), latency_ns=st.integers(1, 5_000_000))
def test_whoever_wakes_when_told_finds_something_done_and_nothing_late(count: int, latency_ns: int) -> None:
    processing = Processing(latency_ns=latency_ns, rate=None)
    processing.arrived(1, count, 1000)
    done, wakes = 0, 0
    while (wake_ns := processing.wake_ns()) is not None:
        assert not processing.done(wake_ns - max(LATEST_NS, latency_ns) - 1)
        got = sum(run.count for run in processing.done(wake_ns))
        assert 1 <= got <= max((count - done) // 4, 1)
        assert wake_ns - (1000 + (done + 1) * latency_ns) <= LATEST_NS
        done, wakes = done + got, wakes + 1
    assert done == count


def test_the_rate_has_no_credit_for_idle_time() -> None:
    processing = Processing(latency_ns=0, rate=1000.0)
    processing.arrived(1, 2, 0)
    assert [run.count for run in processing.done(5_000_000)] == [2]
    processing.arrived(3, 10, 100_000_000)
    assert sum(run.count for run in processing.done(100_000_000)) == 1
    assert sum(run.count for run in processing.done(102_999_999)) == 2


def test_a_rate_that_is_no_whole_period_does_not_drift() -> None:
    processing = Processing(latency_ns=0, rate=300_000.0)
    processing.arrived(1, 1_000_001, 0)
    assert sum(run.count for run in processing.done(3_333_333_333)) == 1_000_000


def test_a_change_counts_from_the_next_message_on() -> None:
    """The one in work keeps its end; what waits is neither done in the past nor worked on for the old time."""
    processing = Processing(latency_ns=1000, rate=None)
    processing.arrived(1, 5, 0)
    assert [run.count for run in processing.done(1500)] == [1]
    processing.change(latency_ns=10, now_ns=1500)
    assert (processing.done(1999), processing.wake_ns()) == ([], 2000)
    processing.change(latency_ns=20, now_ns=1600)
    assert sum(run.count for run in processing.done(2000)) == 1
    assert sum(run.count for run in processing.done(2019)) == 0
    assert sum(run.count for run in processing.done(2040)) == 2
    processing.change(latency_ns=0, now_ns=2040)
    assert sum(run.count for run in processing.done(2060)) == 1
    assert not processing.needed


def test_a_lost_channel_leaves_no_work() -> None:
    processing = Processing(latency_ns=1000, rate=None)
    processing.arrived(1, 5, 0)
    processing.change(latency_ns=2000, now_ns=10)
    processing.forget()
    assert processing.done(10**9) == [] and processing.wake_ns() is None and not processing.waiting
    processing.arrived(1, 1, 10**9)
    assert processing.wake_ns() == 10**9 + 2000
