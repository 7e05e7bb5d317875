"""A confirm must name exactly the publishes that are safe: one too many is a lost message nobody looks for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.queues.session import PublishSession
from reference_broker.types import ChannelId, NodeId

CHANNEL = ChannelId(NodeId(1), 1, 1, 1)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=30), st.randoms(use_true_random=False))
def test_every_publish_is_confirmed_once_and_none_before_its_commit(
    runs: list[tuple[int, int]], random: object
) -> None:
    """Against the obvious list of single messages; other queues of the channel take confirm numbers in between."""
    session, expected, confirmed = PublishSession(CHANNEL), [], []
    confirm_seq, committed = 1, 0
    for count, gap in runs:
        confirm_seq += gap
        assert session.sent(count, count, confirm_seq) == len(expected) + 1
        expected += range(confirm_seq, confirm_seq + count)
        confirm_seq += count
        committed = random.randint(committed, len(expected))  # type: ignore[attr-defined]
        for first, last in session.committed(committed):
            confirmed += range(first, last + 1)
        assert confirmed == expected[:committed]
        assert session.committed(committed) == []
    session.committed(len(expected))
    assert session.unconfirmed_bytes == 0


def test_publishes_without_confirms_are_counted_but_not_confirmed() -> None:
    session = PublishSession(CHANNEL)
    session.sent(3, 3, 0)
    session.sent(2, 2, 1)
    assert session.committed(5) == [(1, 2)]
