"""Poisson arrivals and traces: the schedule's promises hold for them as they do for equal distances."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perftest.engine.schedule.arrivals import ArrivalTimes, FixedArrivals, PoissonArrivals, TraceArrivals
from perftest.engine.schedule.cycle import CycleTimes
from perftest.engine.schedule.intended_times import NEVER_NS, SECOND_NS, Line
from perftest.spec.trace import TraceError, parse_trace

BURSTY = "0\n100us\n0.000250\n# a pause\n500ms  # and one more\n"
KINDS: dict[str, Callable[[], ArrivalTimes]] = {
    "even": FixedArrivals,
    "poisson": lambda: PoissonArrivals(7, 3),
    "trace": lambda: TraceArrivals(parse_trace(BURSTY.splitlines())),
    "all at once": lambda: TraceArrivals(parse_trace(["1", "1", "1"])),
}
RATES = st.sampled_from([0.0, 0.5, 3.0, 100.0, 999.9, 123456.7])
PORTIONS = st.lists(st.integers(1, 700), min_size=1, max_size=8)


@given(kind=st.sampled_from(sorted(KINDS)), portions=PORTIONS)
def test_a_time_does_not_depend_on_the_portions_taken(kind: str, portions: list[int]) -> None:
    by_portions = Line(rate=1000.0, start_ns=17, arrivals=KINDS[kind]())
    at_once = Line(rate=1000.0, start_ns=17, arrivals=KINDS[kind]())
    times = [t for portion in portions for t in by_portions.take(portion).tolist()]
    assert times == at_once.take(sum(portions)).tolist()
    assert times == sorted(times)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    first=RATES,
    steps=st.lists(
        st.tuples(st.integers(0, 3 * SECOND_NS), st.integers(0, 2000), st.none() | RATES, st.integers(0, SECOND_NS)),
        max_size=8,
    ),
)
@example(kind="even", first=0.0, steps=[(0, 0, 0.5, 0)])
@example(kind="all at once", first=0.0, steps=[(7, 0, 100.0, 0), (0, 1, 0.0, 0), (5, 0, 3.0, 0)])
def test_due_agrees_with_the_intended_times(
    kind: str, first: float, steps: list[tuple[int, int, float | None, int]]
) -> None:
    """Through any series of waits, sends and changes of rate, at once or announced.

    A change makes no message due that was not, with one exception: messages that stand exactly where a flat line
    begins to rise are due at that moment, as at the start of a line, and not earlier.
    """
    schedule = Line(rate=first, start_ns=0, arrivals=KINDS[kind]())
    now = last = 0
    slope = first
    for wait, wanted, rate, ahead in steps:
        now += wait
        count = min(wanted, schedule.due(now))
        taken = schedule.take(count).tolist() if count else []
        assert all(a <= b for a, b in zip([last, *taken], taken, strict=False))
        assert not taken or taken[-1] <= now
        last = taken[-1] if taken else last
        assert (schedule.next_ns() <= now) == (schedule.due(now) > 0)
        if rate is not None:
            before = schedule.due(now)
            schedule.change(rate=rate, now_ns=now + ahead)
            assert schedule.due(now if slope else now - 1) <= before
            assert ahead == 0 or schedule.due(now) == before
            slope = rate


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_mean_rate_is_the_one_asked_for_and_does_not_drift(kind: str) -> None:
    schedule = Line(rate=250.0, start_ns=0, arrivals=KINDS[kind]())
    counts = [schedule.planned(round(at * 100 * SECOND_NS)) for at in range(1, 9)]
    tolerance = 5 * math.sqrt(25_000) if kind == "poisson" else 4
    assert all(abs(b - a - 25_000) <= tolerance for a, b in itertools.pairwise(counts))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_flat_line_asks_for_nothing_until_it_rises(kind: str) -> None:
    """Rate 0 is a publisher that is there and idle."""
    schedule = Line(rate=0.0, start_ns=0, arrivals=KINDS[kind]())
    assert (schedule.due(10**15), schedule.next_ns()) == (0, NEVER_NS)
    schedule.change(rate=10.0, now_ns=5 * SECOND_NS)
    at = Line(rate=10.0, start_ns=5 * SECOND_NS, arrivals=KINDS[kind]())
    assert schedule.take(20).tolist() == at.take(20).tolist()
    schedule.change(rate=0.0, now_ns=100 * SECOND_NS)
    left = schedule.due(100 * SECOND_NS)
    assert schedule.due(10**15) == left > 0
    schedule.skip(left)
    assert schedule.next_ns() == NEVER_NS


def test_an_announced_change_takes_effect_at_its_time_however_late_anybody_looks() -> None:
    """A cycle of rates must not overshoot because a timer was late."""
    schedule = Line(rate=1000.0, start_ns=0)
    schedule.change(rate=10.0, now_ns=SECOND_NS)
    assert schedule.planned(SECOND_NS - 1) == 1000
    assert schedule.planned(2 * SECOND_NS) == 1000 + 11
    assert schedule.take(1002).tolist()[-3:] == [999_000_000, SECOND_NS, SECOND_NS + 100_000_000]


def test_poisson_gaps_are_exponential_and_come_again_with_the_seed() -> None:
    def gaps(*seed: int) -> np.ndarray:
        return np.diff(PoissonArrivals(*seed).many(0, 20_000), prepend=0.0)

    drawn = gaps(1, 0)
    assert abs(drawn.mean() - 1) < 0.05
    assert abs(drawn.std() - 1) < 0.05
    assert abs((drawn > 2).mean() - math.exp(-2)) < 0.02
    assert (drawn == gaps(1, 0)).all()
    assert not (drawn == gaps(1, 1)).any()
    assert not (drawn == gaps(2, 0)).any()


def test_a_poisson_process_forgets_what_is_behind() -> None:
    """A million messages of a slow hour must not stay in memory."""
    arrivals = PoissonArrivals(1, 2)
    for first in range(0, 100_000, 1000):
        arrivals.many(first, 1000)
        arrivals.forget(first + 1000)
    assert len(arrivals._positions) < 3000


def test_a_trace_is_played_as_recorded_and_again_after_its_mean_distance() -> None:
    offsets = parse_trace(["1s", "1500ms", "3000000us"])
    assert offsets.period_s == 3.0
    schedule = Line(rate=offsets.rate, start_ns=0, arrivals=TraceArrivals(offsets))
    assert schedule.take(7).tolist() == [round(s * SECOND_NS) for s in (1, 1.5, 3, 4, 4.5, 6, 7)]
    faster = Line(rate=2 * offsets.rate, start_ns=0, arrivals=TraceArrivals(offsets))
    assert faster.take(3).tolist() == [round(s * SECOND_NS) for s in (0.5, 0.75, 1.5)]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 0, "no arrival"),
        ("# nothing\n\n", 0, "no arrival"),
        ("0\n0\n0", 0, "at 0"),
        ("0\n1\n\n0.5\n", 4, "before the arrival above"),
        ("0\n-1\n", 2, "before the start"),
        ("0\nsoon\n", 2, "not a time"),
        ("0\n1 h\n", 2, "not a time"),
        ("0\n1.2.3\n", 2, "not a number"),
        ("0\n1e999\n", 2, "before the start"),
        ("0\n1700000000000\n", 2, "eleven days"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(TraceError, match=what) as caught:
        parse_trace(text.splitlines())
    assert caught.value.line == line


def test_turns_come_at_multiples_of_the_cycle() -> None:
    turns = CycleTimes(((100.0, 1.5), (0.0, 0.25), (7.0, 1.0)), start_ns=1000)
    times = [turns.at_ns(change) for change in range(5)]
    assert times == [1000 + round(s * SECOND_NS) for s in (0, 1.5, 1.75, 2.75, 4.25)]
    assert [turns.value(change) for change in range(5)] == [100.0, 0.0, 7.0, 100.0, 0.0]
    assert [turns.number(at) for at in times] == [0, 1, 2, 3, 4]
    assert [turns.number(at - 1) for at in times] == [0, 0, 1, 2, 3]
    with pytest.raises(ValueError, match="no cycle"):
        CycleTimes(((1.0, 0.0),), start_ns=0)
