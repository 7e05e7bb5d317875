"""Recovery from an action: an outage is found to the note, and a load that goes on has none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.metrics.interval import Phase
from perftest.metrics.recovery import AFTER_NS, BACK, Progress, Recoveries, Recovery, recovery

S = 1_000_000_000
MS = 1_000_000
BEAT = 20 * MS


def steady(begin_ns: int, end_ns: int, confirmed: int = 20) -> list[Progress]:
    """Notes at each beat from ``begin_ns`` to ``end_ns``, both included."""
    return [Progress(t_ns, confirmed, 0) for t_ns in range(begin_ns, end_ns + 1, BEAT)]


def seen(notes: list[Progress], at_ns: int = 10 * S, until_ns: int = 20 * S) -> Recovery:
    return recovery(notes, at_ns=at_ns, until_ns=until_ns)


@given(
    last_ms=st.integers(0, 5).map(lambda beats: 20 * beats),
    gone_ms=st.integers(11, 200).map(lambda beats: 20 * beats),
    slow_ms=st.integers(0, 100).map(lambda beats: 20 * beats),
)
def test_an_outage_is_found_to_the_note(last_ms: int, gone_ms: int, slow_ms: int) -> None:
    """The broker confirms for ``last_ms`` more, nothing for ``gone_ms``, half of it for ``slow_ms``, then all."""
    last = 10 * S + last_ms * MS
    again = last + gone_ms * MS
    whole = again + slow_ms * MS
    notes = steady(5 * S, last) + steady(again, whole - BEAT, 10) + steady(whole, 20 * S)
    found = seen(notes)
    assert found.rate_before == 1000.0
    assert found.first_confirm_s == (again - 10 * S) / S
    assert found.outage_s == (again - last) / S
    assert found.back_s is not None and (again - 10 * S) / S <= found.back_s <= (whole - 10 * S) / S
    earliest = whole - 2 * (1 - BACK) * S - BEAT  # a window of 1 s may hold a tenth less
    assert found.back_s * S >= max(again, earliest) - 10 * S


def test_a_load_that_goes_on_has_no_outage() -> None:
    found = seen(steady(5 * S, 20 * S))
    assert (found.outage_s, found.back_s, found.first_confirm_s) == (0.0, 0.0, 0.0)


def test_pauses_of_a_slow_load_are_no_outage() -> None:
    """Two messages a second, before and after."""
    notes = [Progress(t_ns, 1, 0) for t_ns in range(5 * S + BEAT, 20 * S, S // 2)]
    found = seen(notes)
    assert found.outage_s == 0.0 and found.back_s is not None and found.back_s <= 0.5


def test_a_load_that_never_comes_back_says_so() -> None:
    found = seen([*steady(5 * S, 10 * S - BEAT), Progress(20 * S, 0, 0)])
    assert (found.first_confirm_s, found.back_s, found.outage_s) == (None, None, 10.0)
    assert found.in_words() == (
        "no message was confirmed in the 10.0 s after it, no confirm for 10.00 s, "
        "not back at 90% of 1,000 confirms per second within 10.00 s, 0 redelivered"
    )


def test_a_load_that_stays_slower_is_not_back() -> None:
    found = seen(steady(5 * S, 10 * S - BEAT) + steady(10 * S, 20 * S, 17))
    assert (found.first_confirm_s, found.back_s, found.outage_s) == (0.0, None, 0.0)


def test_without_a_time_before_there_is_no_rate_to_come_back_to() -> None:
    found = seen(steady(10 * S - 2 * BEAT, 20 * S))
    assert (found.rate_before, found.back_s, found.outage_s) == (None, None, None)
    assert found.first_confirm_s == 0.0


def test_redelivered_messages_are_those_after_the_action() -> None:
    notes = [*steady(5 * S, 10 * S - BEAT), Progress(10 * S - 1, 0, 5), Progress(11 * S, 3, 7), Progress(20 * S, 0, 9)]
    assert seen(notes).redelivered == 7


@pytest.mark.parametrize("workers", [1, 3])
def test_an_action_ends_with_the_next_and_with_its_step(workers: int) -> None:
    """Notes of workers come one worker after the other, an interval at a time."""
    recoveries = Recoveries()
    for second in range(10):
        if second == 4:
            recoveries.acted(7 * S, {"node": "b"})
            recoveries.acted(4 * S + MS, {"node": "a"})  # told after the next
        for _ in range(workers):
            notes = steady(second * S + BEAT, (second + 1) * S, 0 if second == 5 else 20)
            assert not recoveries.add(1, Phase.STEADY, notes)
    found = recoveries.add(2, Phase.WARMUP, steady(10 * S + BEAT, 11 * S))
    assert [facts["node"] for facts, _ in found] == ["a", "b"]
    (_, first), (_, second_one) = found
    assert first.observed_s == pytest.approx(3 - 0.001)
    assert first.outage_s == pytest.approx(1.02) and first.rate_before == pytest.approx(1000 * workers, rel=0.01)
    assert second_one.outage_s == 0.0 and second_one.observed_s == pytest.approx(3.0, abs=0.001)
    assert not recoveries.end()


def test_the_end_of_the_load_ends_all_actions() -> None:
    recoveries = Recoveries()
    recoveries.add(1, Phase.STEADY, steady(S, 3 * S))
    recoveries.acted(3 * S, {})
    recoveries.add(1, Phase.STEADY, steady(3 * S + BEAT, 4 * S))
    assert len(recoveries.add(1, Phase.DRAIN, [])) == 1
    assert not recoveries.add(1, Phase.DRAIN, [])


def test_an_action_that_fails_has_no_recovery_and_ends_no_other() -> None:
    recoveries = Recoveries()
    failed: dict[str, str] = {}
    recoveries.acted(2 * S, {"node": "a"})
    recoveries.acted(3 * S, failed)
    recoveries.add(1, Phase.STEADY, steady(S, 4 * S))
    recoveries.withdraw(failed)
    ((facts, found),) = recoveries.end()
    assert (facts, found.observed_s) == ({"node": "a"}, pytest.approx(2.0, abs=0.03))


def test_a_long_run_keeps_no_more_than_an_action_may_need() -> None:
    """Neither without an action nor after one: a run may last for days."""
    recoveries = Recoveries()
    recoveries.acted(100 * S, {})
    told = []
    for second in range(0, 2000, 10):
        told += recoveries.add(1, Phase.STEADY, steady(second * S + BEAT, (second + 10) * S))
        assert len(recoveries._notes) <= (AFTER_NS + 200 * S) // BEAT
    ((_, found),) = told
    assert found.observed_s == AFTER_NS / S
    assert len(recoveries._notes) <= 150 * S // BEAT
