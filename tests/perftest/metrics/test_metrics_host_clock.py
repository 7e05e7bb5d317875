"""The clock of another host: the truth lies within the bound, whatever the delays are; a break is told."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.metrics.clock_model import ClockModel
from perftest.metrics.host_clock import RATE_MAX, RESOLUTION_NS, WANDER, BreakKind, ClockExchange, HostClock, nearest

SECOND_NS = 1_000_000_000
PPM = Fraction(1, 1_000_000)


@dataclass(frozen=True)
class TrueClock:
    """A host's clock, exact: at ``began_ns`` of the reference it shows ``shows_ns``, and gains ``drift``. From
    ``later_ns`` on it gains ``later_drift`` and has been set forward by ``step_ns``."""

    began_ns: int
    shows_ns: int
    drift: Fraction
    later_ns: int = 1 << 62
    later_drift: Fraction = Fraction(0)
    step_ns: int = 0

    def at(self, reference_ns: Fraction) -> Fraction:
        before = min(reference_ns, Fraction(self.later_ns)) - self.began_ns
        shown = self.shows_ns + before * (1 + self.drift)
        if reference_ns > self.later_ns:
            shown += (reference_ns - self.later_ns) * (1 + self.later_drift) + self.step_ns
        return shown


def exchanges(clock: TrueClock, delays: Sequence[tuple[int, int, int, int]]) -> list[ClockExchange]:
    """One after the other; each with the time before it, on its way there, at the host, and on its way back."""
    now, made = Fraction(clock.began_ns), []
    for pause, there, stay, back in delays:
        sent = now + pause
        received = sent + there
        left = received + stay
        now = left + back
        made.append(ClockExchange(floor(sent), floor(clock.at(received)), floor(clock.at(left)), floor(now)))
    return made


def knowing(made: Sequence[ClockExchange]) -> HostClock:
    clock = HostClock()
    for exchange in made:
        clock.add(exchange)
    return clock


def farthest_miss(clock: TrueClock, model: ClockModel, reference: Sequence[int]) -> int:
    """By how much the truth lies outside the bound at worst; negative if it lies within."""
    host = [floor(clock.at(Fraction(moment))) for moment in reference]
    offsets, bounds = model.at(np.array(host, np.int64))
    return max(
        abs(moment - there - offset) - bound
        for moment, there, offset, bound in zip(reference, host, offsets.tolist(), bounds.tolist(), strict=True)
    )


DELAY = st.one_of(st.integers(0, 300_000), st.integers(0, 50_000_000))
DELAYS = st.lists(
    st.tuples(st.integers(0, 2 * SECOND_NS), DELAY, st.integers(0, 20_000), DELAY), min_size=1, max_size=40
)
CLOCKS = st.builds(
    TrueClock,
    began_ns=st.integers(10**17, 2 * 10**18),
    shows_ns=st.one_of(st.integers(10**17, 2 * 10**18), st.integers(0, 10**10)),
    drift=st.integers(-200_000, 200_000).map(lambda parts: parts * PPM / 1000),
)


@given(CLOCKS, DELAYS, st.integers(0, 3 * SECOND_NS))
def test_the_truth_lies_within_the_bound(clock: TrueClock, delays: list[tuple[int, int, int, int]], ahead: int) -> None:
    """For any delays, however asymmetric, any offset, and drift up to 200 ppm; also before and after the exchanges."""
    made = exchanges(clock, delays)
    known = knowing(made)
    first, last = made[0].sent_ns, made[-1].received_ns
    begin = max(last - SECOND_NS, first)
    model = known.model(floor(clock.at(Fraction(begin))), floor(clock.at(Fraction(last))))
    moments = np.linspace(first - first % 7 - ahead, last + ahead, 23).astype(np.int64).tolist()
    assert farthest_miss(clock, model, moments) <= 0
    assert not known.breaks


@given(CLOCKS, DELAYS)
def test_without_a_line_the_truth_lies_within_the_bound_too(
    clock: TrueClock, delays: list[tuple[int, int, int, int]]
) -> None:
    made = exchanges(clock, delays)
    model = nearest(np.array(made, np.int64))
    moments = np.linspace(made[0].sent_ns - SECOND_NS, made[-1].received_ns + SECOND_NS, 29).astype(np.int64).tolist()
    assert farthest_miss(clock, model, moments) <= 0


def extremes(made: Sequence[ClockExchange], moment: int) -> tuple[Fraction, Fraction]:
    """The lowest and the highest offset at ``moment`` of all lines that the exchanges allow: every corner is tried."""
    rate = Fraction(RATE_MAX).limit_denominator(10**6)
    wander = Fraction(WANDER).limit_denominator(10**6)
    conditions = [(Fraction(0), Fraction(1), -rate), (Fraction(0), Fraction(-1), -rate)]
    for each in made:
        received, sent = Fraction(each.host_received_ns - moment), Fraction(each.host_sent_ns - moment)
        least = each.sent_ns - each.host_received_ns - RESOLUTION_NS - wander * abs(received)
        greatest = each.received_ns - each.host_sent_ns + RESOLUTION_NS + wander * abs(sent)
        conditions += [(Fraction(1), received, least), (Fraction(-1), -sent, -greatest)]
    corners = []
    for (a1, b1, c1), (a2, b2, c2) in combinations(conditions, 2):
        if determinant := a1 * b2 - a2 * b1:
            a, b = (c1 * b2 - c2 * b1) / determinant, (a1 * c2 - a2 * c1) / determinant
            if all(ca * a + cb * b >= least for ca, cb, least in conditions):
                corners.append(a)  # the moment is where lines are counted from, so a is the offset there
    return min(corners), max(corners)


@given(
    CLOCKS, st.lists(st.tuples(st.integers(0, SECOND_NS), DELAY, st.integers(0, 20_000), DELAY), min_size=1, max_size=5)
)
def test_the_bound_is_that_of_all_possible_lines(clock: TrueClock, delays: list[tuple[int, int, int, int]]) -> None:
    """Against a slow oracle, exact in fractions; but never less than half of the least round trip."""
    made = exchanges(clock, delays)
    moment = made[-1].host_sent_ns + 1000
    low, high = extremes(made, moment)
    model = knowing(made).model(moment, moment)
    offset, bound = model.at(np.array([moment]))
    middle, half = (low + high) / 2, (high - low) / 2
    floor_ns = min(each.round_trip_ns for each in made) / 2 + RESOLUTION_NS
    assert abs(int(offset[0]) - middle) <= 2
    assert max(float(half), floor_ns) <= int(bound[0]) <= max(float(half), floor_ns) + 5


def steady(count: int, seed: int, *, least_ns: int = 60_000) -> list[tuple[int, int, int, int]]:
    """Four exchanges a second on a network with some jitter."""
    chance = np.random.default_rng(seed)
    jitter = chance.exponential(40_000, (count, 2)).astype(int)
    pauses = chance.integers(200_000_000, 300_000_000, count)
    return [
        (int(pause), least_ns + int(there), 5000, least_ns // 3 + int(back))
        for pause, (there, back) in zip(pauses, jitter, strict=True)
    ]


def bound_after(count: int, seed: int) -> int:
    clock = TrueClock(10**18, 10**9, 80 * PPM)
    made = exchanges(clock, steady(200, seed))[:count]
    return knowing(made).model(made[-1].host_sent_ns, made[-1].host_sent_ns).bound_at(made[-1].host_sent_ns)


def test_more_exchanges_make_the_bound_smaller() -> None:
    few, some, many = (sum(bound_after(count, seed) for seed in range(9)) for count in (2, 12, 160))
    assert many < some < few


def test_an_exchange_without_delay_tells_the_offset() -> None:
    clock = TrueClock(10**18, 77, Fraction(0))
    [made] = exchanges(clock, [(0, 0, 0, 0)])
    model = knowing([made]).model(77, 77)
    assert (model.to_reference(77), model.bound_at(77)) == (10**18, RESOLUTION_NS + 3)


@pytest.mark.parametrize("step_ns", [3_000_000, -3_000_000, 5 * SECOND_NS, -5 * SECOND_NS])
def test_a_step_is_told_and_the_bound_holds_on_both_sides(step_ns: int) -> None:
    """One that sets the clock back by less than the time between two exchanges can still be put in order."""
    began = 10**18
    clock = TrueClock(began, 10**12, 100 * PPM, began + 10 * SECOND_NS, 100 * PPM, step_ns)
    known, told_at = HostClock(), None
    for made in exchanges(clock, steady(120, 5)):
        known.add(made)
        now = made.received_ns
        model = known.model(made.host_sent_ns - SECOND_NS, made.host_sent_ns)
        if known.breaks and told_at is None:
            told_at = made
        set_back = step_ns < -SECOND_NS  # then times of the host's clock come twice, and only the later ones are known
        if not (set_back and now - clock.later_ns < 2 * SECOND_NS and now > clock.later_ns):
            assert farthest_miss(clock, model, np.linspace(now - SECOND_NS, now, 11).astype(np.int64).tolist()) <= 0
    assert told_at is not None
    assert 0 < told_at.received_ns - clock.later_ns < SECOND_NS, "the first exchange after the step tells it"
    [told] = known.breaks
    assert told.kind is BreakKind.STEP
    assert told.change_ns == pytest.approx(-step_ns, abs=400_000), "what has to be added changes the other way"


@pytest.mark.parametrize("change", [-150, 60, 300])
def test_a_change_of_rate_is_told(change: int) -> None:
    """Until it is told, the estimate is off by no more than the best round trips; afterwards the bound holds again."""
    began = 10**18
    clock = TrueClock(began, 10**12, 100 * PPM, began + 15 * SECOND_NS, (100 + change) * PPM)
    known, told_ns = HostClock(), 0
    for made in exchanges(clock, steady(200, 6)):
        known.add(made)
        model = known.model(made.host_sent_ns - SECOND_NS, made.host_sent_ns)
        if known.breaks and not told_ns:
            told_ns = made.received_ns
        miss = farthest_miss(clock, model, [made.received_ns - SECOND_NS, made.received_ns])
        allowed = model.bound_at(made.host_sent_ns) if made.received_ns > clock.later_ns else 0
        assert miss <= allowed, "more than twice the bound"
        if told_ns and made.received_ns > told_ns + 30 * SECOND_NS:
            assert miss <= 0
    assert {each.kind for each in known.breaks} == {BreakKind.RATE}
    assert told_ns > clock.later_ns
    assert len(known.breaks) == 1


@given(CLOCKS, DELAYS, st.integers(0, 10**10))
def test_times_are_translated_there_and_back(
    clock: TrueClock, delays: list[tuple[int, int, int, int]], ahead: int
) -> None:
    made = exchanges(clock, delays)
    model = knowing(made).model(made[0].host_received_ns, made[-1].host_sent_ns)
    reference = made[-1].received_ns + ahead
    assert abs(model.to_reference(model.to_host(reference)) - reference) <= 2
    assert ClockModel.from_json(model.to_json()).to_reference(made[-1].host_sent_ns) == pytest.approx(
        model.to_reference(made[-1].host_sent_ns), abs=1
    )


def test_memory_is_bounded() -> None:
    clock = TrueClock(10**18, 10**9, Fraction(0))
    known = knowing(exchanges(clock, [(1_000_000, 1000, 0, 1000)] * 5000))
    assert len(known) == 600
    known.add(ClockExchange(2 * 10**18, 10**18, 10**18, 2 * 10**18 + 1))
    assert len(known) == 1, "what is older than a minute is forgotten"


def test_what_is_impossible_is_left_out() -> None:
    known = knowing([ClockExchange(10, 5, 6, 9), ClockExchange(10, 7, 6, 11)])
    assert not len(known)
    with pytest.raises(ValueError, match="without an exchange"):
        known.model(0, 1)


def test_a_model_needs_ascending_knots() -> None:
    with pytest.raises(ValueError, match="ascend"):
        ClockModel(knots_ns=(2, 2), offsets_ns=(0, 0), bounds_ns=(0, 0), rate=0, rate_bound=0)
    with pytest.raises(ValueError, match="one knot at least"):
        ClockModel(knots_ns=(), offsets_ns=(), bounds_ns=(), rate=0, rate_bound=0)


@pytest.mark.parametrize("seed", range(20))
def test_a_single_time_is_told_as_many_are(seed: int) -> None:
    """To a nanosecond: the one is rounded from a double, the other from a part of a line."""
    chance = random.Random(seed)
    start = 1_700_000_000 * 10**9
    knots = sorted(chance.sample(range(start, start + 10**9), chance.randint(1, 5)))
    model = ClockModel(
        knots_ns=tuple(knots), offsets_ns=tuple(chance.randint(-(10**10), 10**10) for _ in knots),
        bounds_ns=tuple(chance.randint(0, 10**6) for _ in knots), rate=chance.uniform(-1e-4, 1e-4), rate_bound=1e-6,
    )  # fmt: skip
    times = [chance.randint(start - 10**9, start + 2 * 10**9) for _ in range(200)] + knots
    many = np.array(times) + model.at(np.array(times))[0]
    assert all(abs(model.to_reference(each) - int(told)) <= 2 for each, told in zip(times, many, strict=True))
