"""Confirms of messages for several queues, against a count for each message: one too early is a lost message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.amqp.fan_out import FanOut

ANSWERS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8), st.booleans()), max_size=60)


class Oracle:
    """One entry per message and no ranges."""

    def __init__(self) -> None:
        self.waits_for: dict[int, int] = {}

    def confirmed(self, seqs: list[int]) -> set[int]:
        done = set()
        for seq in seqs:
            left = self.waits_for.pop(seq, 1) - 1
            if left:
                self.waits_for[seq] = left
            else:
                done.add(seq)
        return done


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), max_size=8), ANSWERS)
def test_a_message_is_confirmed_when_its_last_queue_has_it(
    runs: list[tuple[int, int]], answers: list[tuple[int, int, bool]]
) -> None:
    """Queues answer in ranges of any size, each for each of its messages once, and may refuse some."""
    fan_out, oracle = FanOut(), Oracle()
    open_of: list[list[int]] = [[] for _ in range(4)]
    seq = 1
    for count, queues in runs:
        if queues > 1:
            fan_out.expect(seq, seq + count - 1, queues)
            oracle.waits_for.update(dict.fromkeys(range(seq, seq + count), queues))
        for queue in range(queues):
            open_of[queue] += range(seq, seq + count)
        seq += count
    for queue, most, refuses in answers:
        first = open_of[queue][:1]
        seqs = [each for at, each in enumerate(open_of[queue][:most]) if each == first[0] + at]
        if not seqs:
            continue
        del open_of[queue][: len(seqs)]
        ranges = [(seqs[0], seqs[-1])]
        if refuses:
            fan_out.rejected(ranges)
            for each in seqs:
                oracle.waits_for.pop(each, None)
        else:
            done = [each for low, high in fan_out.confirmed(ranges) for each in range(low, high + 1)]
            assert len(done) == len(set(done)) and set(done) == oracle.confirmed(seqs)
        counted = [(each, queues) for low, high, queues in fan_out.open for each in range(low, high + 1)]
        assert counted == sorted(oracle.waits_for.items())
