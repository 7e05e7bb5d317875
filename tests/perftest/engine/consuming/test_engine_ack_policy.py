"""Acknowledge exactly every N-th: a tool that acknowledges every N+1-th measures another setting than it reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.consuming.ack_policy import AckPolicy


@given(interval=st.integers(1, 20), runs=st.lists(st.integers(1, 50), max_size=20))
def test_every_nth_delivery_is_acknowledged_and_no_other(interval: int, runs: list[int]) -> None:
    policy = AckPolicy(interval)
    tag, acknowledged, covered = 1, [], []
    for now, count in enumerate(runs):
        acks = policy.delivered(tag, count, now)
        tag += count
        acknowledged += list(acks.tags)
        covered += [arrived for arrived, n in acks.covered for _ in range(n)]
        assert acks.multiple == (interval > 1) or not acks.tags
        assert policy.pending == (tag - 1) % interval
    assert acknowledged == list(range(interval, tag, interval))
    arrivals = [now for now, count in enumerate(runs) for _ in range(count)]
    assert covered == arrivals[: len(covered)]
    rest = policy.flush()
    assert rest.messages == (tag - 1) % interval
    assert list(rest.tags) == ([tag - 1] if rest.messages else [])
    assert policy.pending == 0 and not policy.flush().tags


@given(runs=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 50)), max_size=20))
def test_changes_of_the_interval_lose_no_acknowledgement(runs: list[tuple[int, int]]) -> None:
    policy = AckPolicy(1)
    tag, highest, messages = 1, 0, 0
    for interval, count in runs:
        policy.interval = interval
        acks = policy.delivered(tag, count, 0)
        tag += count
        if acks.tags:
            assert acks.tags[0] > highest
            highest = acks.tags[-1]
        messages += acks.messages
        assert policy.pending < interval
        assert messages + policy.pending == tag - 1
    messages += policy.flush().messages
    assert messages == tag - 1


def test_a_lost_channel_leaves_nothing_to_acknowledge() -> None:
    """Tags of a dead channel on a new one would be a channel exception."""
    policy = AckPolicy(10)
    policy.delivered(1, 5, 0)
    policy.forget()
    assert not policy.flush().tags
    assert list(policy.delivered(1, 10, 0).tags) == [10]


@given(
    interval=st.integers(1, 9),
    runs=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    portions=st.lists(st.integers(1, 12), min_size=1, max_size=40),
)
def test_acknowledgements_can_be_sent_in_portions(interval: int, runs: list[int], portions: list[int]) -> None:
    """As transactions do: each portion covers at least so many messages, and no more tags than needed for that."""
    policy = AckPolicy(interval)
    tag = 1
    for now, count in enumerate(runs):
        whole = rest = policy.delivered(tag, count, now)
        tag += count
        tags, covered = [], []
        for portion in portions:
            if not rest.messages:
                break
            head, rest = rest.split(portion)
            assert head.messages >= portion or not rest.messages
            assert head.messages < portion + interval or not rest.messages
            assert head.multiple is whole.multiple
            tags += list(head.tags)
            covered += [arrived for arrived, n in head.covered for _ in range(n)]
        tags += list(rest.tags)
        covered += [arrived for arrived, n in rest.covered for _ in range(n)]
        assert tags == list(whole.tags)
        assert covered == [arrived for arrived, n in whole.covered for _ in range(n)]


def test_what_is_pending_knows_since_when() -> None:
    """The time limit of an interval counts from its first message, not from the last one of the interval before."""
    policy = AckPolicy(5)
    policy.delivered(1, 3, 10, 11)
    policy.delivered(4, 1, 20, 21)
    assert (policy.pending, policy.pending_since_ns) == (4, 11)
    policy.delivered(5, 3, 30, 31)
    assert (policy.pending, policy.pending_since_ns) == (2, 31)
    policy.flush()
    policy.delivered(8, 1, 40, 41)
    assert (policy.pending, policy.pending_since_ns) == (1, 41)
