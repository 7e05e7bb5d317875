"""The confirm window against a slow, obvious one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.publishing.inflight import ConfirmWindow, UnknownTag


class SlowWindow:
    """One dictionary entry per message."""

    def __init__(self) -> None:
        self.next_tag = 1
        self.open: dict[int, tuple[int, int, int]] = {}

    def sent(self, first: int, count: int, intended: int, sent: int) -> None:
        for index in range(count):
            self.open[self.next_tag] = (first + index, intended, sent)
            self.next_tag += 1

    def settle(self, tags: list[int]) -> list[tuple[int, int, int]]:
        return [self.open.pop(tag) for tag in sorted(set(tags)) if tag in self.open]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 40)),
        st.tuples(st.just("to"), st.floats(0, 1)),
        st.tuples(st.just("each"), st.lists(st.floats(0, 1), min_size=1, max_size=12)),
        st.tuples(st.just("limit"), st.integers(1, 100)),
        st.tuples(st.just("again")),
    ),
    max_size=40,
)


@given(operations=OPERATIONS)
def test_the_window_settles_each_message_once_with_its_own_times(operations: list[tuple[object, ...]]) -> None:
    """A confirm that frees too much floods the broker, one that frees too little throttles it: both falsify results."""
    window, slow = ConfirmWindow(10), SlowWindow()
    sequence = 0
    for now, operation in enumerate(operations, start=1):
        match operation:
            case ("send", int(count)):
                count = min(count, window.room)
                if count:
                    window.sent(sequence, count, intended_ns=now - 1, sent_ns=now)
                    slow.sent(sequence, count, now - 1, now)
                    sequence += count
            case ("to", float(share)):
                tag = round(share * (window.next_tag - 1))
                settled = window.confirm_to(tag)
                expected = slow.settle([t for t in slow.open if t <= tag or not tag])
                assert _rows(settled) == expected
            case ("each", list(shares)):
                if window.next_tag > 1:
                    tags = [1 + round(share * (window.next_tag - 2)) for share in shares]
                    assert _rows(window.confirm_each(np.array(tags))) == slow.settle(tags)
            case ("limit", int(limit)):
                window.limit = limit
            case ("again",):
                assert _rows(window.take_all()) == slow.settle(list(slow.open))
                slow.next_tag = 1
        assert window.unconfirmed == len(slow.open)
        assert window.next_tag == slow.next_tag
        assert window.room == max(window.limit - len(slow.open), 0)
        oldest = min(slow.open, default=None)
        assert window.oldest_sent_ns() == (None if oldest is None else slow.open[oldest][2])
        assert window.oldest == (slow.next_tag if oldest is None else oldest)


def _rows(settled: object) -> list[tuple[int, int, int]]:
    columns = (getattr(settled, name).tolist() for name in ("sequences", "intended_ns", "sent_ns"))
    return list(zip(*columns, strict=True))


def test_arrays_of_sequences_and_times_are_kept_across_the_rings_end() -> None:
    window = ConfirmWindow(16)
    window.sent(0, 10, intended_ns=1, sent_ns=1)
    window.confirm_to(10)
    sequences, intended = np.arange(100, 114), np.arange(200, 214)
    window.sent(sequences, 14, intended_ns=intended, sent_ns=9)
    settled = window.confirm_to(0)
    assert settled.sequences.tolist() == sequences.tolist()
    assert settled.intended_ns.tolist() == intended.tolist()


@pytest.mark.parametrize(
    "confirm", [lambda w: w.confirm_to(3), lambda w: w.confirm_each((3,)), lambda w: w.confirm_each((0,))]
)
def test_a_tag_that_was_never_published_is_the_brokers_mistake(confirm: object) -> None:
    window = ConfirmWindow(5)
    window.sent(0, 2, intended_ns=0, sent_ns=0)
    with pytest.raises(UnknownTag):
        confirm(window)  # type: ignore[operator]
