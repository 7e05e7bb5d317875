"""Settings compared: which are worth having, and what the rules of thumb say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.search.frontier import Point, contenders, frontier, grid, recommend, sentences, settled


def point(in_flight: int = 100, prefetch: int = 100, ack: int = 1, *, rate: float, ms: float, **more: Any) -> Point:
    return Point(in_flight=in_flight, prefetch=prefetch, ack_interval=ack, rate=rate, latency_ns=ms * 1e6, **more)


points = st.lists(st.builds(point, rate=st.floats(1, 1e5), ms=st.floats(0.1, 1e3)), min_size=1, max_size=12)


@given(points)
def test_the_frontier_is_what_nothing_beats(found: list[Point]) -> None:
    """Against the obvious definition; rate and latency rise together along it."""

    def beats(one: Point, other: Point) -> bool:
        return one.rate >= other.rate and one.latency_ns <= other.latency_ns and one != other

    edge = frontier(found)
    assert {(p.rate, p.latency_ns) for p in edge} == {
        (p.rate, p.latency_ns) for p in found if not any(beats(other, p) for other in found)
    }
    assert [p.rate for p in edge] == sorted(p.rate for p in edge)
    assert [p.latency_ns for p in edge] == sorted(p.latency_ns for p in edge)


def test_the_grid_takes_each_interval_once() -> None:
    """1 % and 5 % of a prefetch of 10 are both 1."""
    assert grid([5], [10, 100], [0.01, 0.05, 0.5]) == [(5, 10, 1), (5, 10, 5), (5, 100, 1), (5, 100, 5), (5, 100, 50)]


def test_within_the_noise_of_the_best_rate_latency_decides() -> None:
    """2 % more rate for ten times the latency is no bargain."""
    found = [point(10, rate=50, ms=1), point(100, rate=98, ms=2), point(1000, rate=100, ms=20)]
    assert recommend(found) is found[1]


def test_what_one_probe_does_not_settle_is_probed_again() -> None:
    """What comes near the best, and the ack intervals beside the one to recommend; not what is far off or too slow."""
    best, near, far = (point(1000, 1000, 50, rate=rate, ms=9) for rate in (100, 81, 79))
    near, far = replace(near, in_flight=100), replace(far, in_flight=10)
    beside = point(1000, 1000, 500, rate=30, ms=90, missed=("e2e.p99<20ms",))
    slow = point(1000, 100, 5, rate=100, ms=900, missed=("e2e.p99<20ms",))
    assert contenders([far, near, best, beside, slow]) == [near, best, beside]
    assert contenders([slow]) == []


def test_several_probes_of_a_setting_count_as_one() -> None:
    """The median of each figure; one that was unlucky misses nothing."""
    unlucky = point(rate=50, ms=90, missed=("e2e.p99<20ms",))
    one, other = point(rate=100, ms=9), point(rate=98, ms=10)
    (found,) = settled([unlucky, one, other])
    assert (found.rate, found.latency_ns, found.missed) == (98, 10e6, ())
    assert settled([unlucky, one, unlucky])[0].missed == unlucky.missed
    alone = point(7, rate=1, ms=1)
    assert [each.rate for each in settled([one, alone])] == [100, 1]


@pytest.mark.parametrize(
    "other, says",
    [(61, "cannot be told: probes of 10 gave 40 to 90 msg/s, of 1 61 to 100"), (95, "does not hold here")],
)
def test_a_rule_is_not_denied_by_probes_that_overlap(other: float, says: str) -> None:
    """Three probes of each that lie apart are a difference, others are chance."""
    ruled = [point(ack=10, rate=rate, ms=1) for rate in (40, 90, 60)]
    best = [point(ack=1, rate=rate, ms=1) for rate in (100, other, 99)]
    assert any(says in each for each in sentences(settled([*ruled, *best])))


def test_a_setting_that_misses_an_objective_is_not_recommended() -> None:
    """However fast; and if all miss one, that is what is said."""
    fast = point(1000, rate=100, ms=50, missed=("e2e.p99<20ms",))
    slow = point(10, rate=60, ms=5)
    assert recommend([fast, slow]) is slow
    assert recommend([fast]) is None
    assert sentences([fast]) == ["no setting can be recommended: e2e.p99<20ms"]
    assert sentences([]) == ["no setting can be recommended: nothing was measured"]


@pytest.mark.parametrize(
    "rates, says",
    [
        ({10: 50, 100: 97, 1000: 100}, "in-flight saturates at 100: 1000 brings +3 % rate at 10.0 times the latency"),
        ({10: 10, 100: 50, 1000: 100}, "the rate still grows at in-flight 1000, the highest tried"),
    ],
)
def test_where_in_flight_saturates(rates: dict[int, float], says: str) -> None:
    """The published shape, and its absence."""
    assert any(says in each for each in sentences([point(n, rate=rate, ms=n / 10) for n, rate in rates.items()]))


@pytest.mark.parametrize(
    "rates, says",
    [
        (
            {1: 80, 5: 99, 10: 98, 50: 100},
            ["holds: 5 gives 99 msg/s, the best, 50, 100", "of 1 gives 80 % of the best"],
        ),
        ({1: 100, 5: 60, 10: 62, 50: 50}, ["does not hold here: 10 gives 62 msg/s, 1 (1 % of the prefetch) 100"]),
    ],
)
def test_the_rule_for_the_ack_interval(rates: dict[int, float], says: list[str]) -> None:
    """5 to 10 % of the prefetch, held against what was measured."""
    told = " ".join(sentences([point(ack=n, rate=rate, ms=1) for n, rate in rates.items()]))
    assert all(part in told for part in says)


def test_what_the_generator_limited_is_said_and_never_recommended() -> None:
    """The fastest setting of a generator that is the limit says nothing of the broker."""
    limited = point(1000, rate=900, ms=1, limits=("the busiest load worker used 99% of a core",))
    found = [point(100, rate=500, ms=5), limited]
    assert recommend(found) is found[0]
    assert frontier(found) == [found[0]]
    told = sentences(found)
    assert told[0].startswith("recommended: in-flight 100")
    assert "INVALID: in 1 of 2 settings the load generator or its machine was the limit" in told[-1]
    assert "in-flight 1000, prefetch 100, ack interval 1 at least 900 msg/s" in told[-1]
    assert not any("saturates" in each or "still grows" in each for each in told), "the comparison has one setting left"
    assert sentences([limited])[0] == "no setting can be recommended"


def test_a_setting_is_limited_if_most_of_its_probes_were() -> None:
    """One probe at a bad moment is outvoted, as a missed objective is."""
    good, bad = point(rate=100, ms=1), point(rate=100, ms=1, limits=("stolen",))
    assert settled([good, bad, good])[0].limits == ()
    assert settled([good, bad, bad])[0].limits == ("stolen",)
