"""The time of a queue goes on at the pace of the wall clock, whatever that clock shows."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.queues.onward_clock import OnwardClock


def test_a_leader_whose_clock_is_an_hour_behind_goes_on_where_the_last_one_was() -> None:
    """Otherwise a delay of a second, begun under the last leader, would take an hour."""
    wall_ms = 1000
    clock, reached = OnwardClock(lambda: wall_ms), 3_601_000
    assert clock.now_ms(reached) == reached
    assert clock.on_the_wall(reached + 500, reached) == 1500
    wall_ms = 1500
    assert clock.now_ms(reached) == reached + 500


def test_a_clock_that_is_right_is_not_changed() -> None:
    """Times are read by people and compared with those of other nodes."""
    clock = OnwardClock(lambda: 5000)
    assert (clock.now_ms(0), clock.now_ms(4999), clock.on_the_wall(7000, 5000)) == (5000, 5000, 7000)


@given(st.builds(Random, st.integers(0, 2**32)))
def test_time_never_goes_back_and_never_stands_still(random: Random) -> None:
    """Whatever is done to the wall clock between two batches."""
    wall_ms = 10**6
    clock, reached = OnwardClock(lambda: wall_ms), random.randint(0, 2 * 10**6)
    for _ in range(50):
        wall_ms += random.choice((0, 1, 50, 10**5, -50, -(10**5)))
        now = clock.now_ms(reached)
        assert now >= reached
        reached, step = now, random.randint(0, 500)
        due = clock.on_the_wall(reached + step, reached)
        wall_ms += step
        assert due == wall_ms
        assert clock.now_ms(reached) == reached + step
