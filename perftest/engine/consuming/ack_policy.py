"""Which deliveries to acknowledge: exactly each N-th, and all the rest at the end; and how long each waited.

Theory of operation. The delivery tags of a channel are consecutive, so the unacknowledged messages are a range of tags
up to the last. An interval of 1 acknowledges each tag by itself. An interval of N sends one basic.ack with ``multiple``
at the N-th, 2N-th ... delivery, never at any other. :meth:`AckPolicy.flush` acknowledges all pending messages, and the
next interval begins there. Pending messages are kept as pairs (arrival, count): one pair a read, not one a message.

Invariants: after any run of deliveries fewer than N messages are pending; acknowledged and pending tags together are
all delivered tags, each once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Acks:
    """Acknowledgements to send: a frame for each tag, with or without ``multiple``, and the messages that they cover as
    (arrival ns, number of messages)."""

    tags: range
    multiple: bool
    covered: tuple[tuple[int, int], ...]

    @property
    def messages(self) -> int:
        """The number of acknowledged messages."""
        return sum(count for _, count in self.covered)

    def split(self, messages: int) -> tuple[Acks, Acks]:
        """The fewest acknowledgements (at least one) that cover ``messages`` messages, and the rest."""
        if not self.multiple:
            at = messages
        else:
            first_covers = self.messages - (len(self.tags) - 1) * self.tags.step
            at = 1 + max(-(-(messages - first_covers) // self.tags.step), 0)
        if at >= len(self.tags):
            return self, NOTHING
        count = at if not self.multiple else first_covers + (at - 1) * self.tags.step
        before, after = _split_covered(self.covered, count)
        return Acks(self.tags[:at], self.multiple, before), Acks(self.tags[at:], self.multiple, after)


NOTHING = Acks(range(0), False, ())


def _split_covered(
    covered: tuple[tuple[int, int], ...], count: int
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The first ``count`` messages, and the others."""
    before: list[tuple[int, int]] = []
    for at, (arrived_ns, there) in enumerate(covered):
        if there >= count:
            rest = ((arrived_ns, there - count),) if there > count else ()
            return (*before, (arrived_ns, count)), (*rest, *covered[at + 1 :])
        before.append((arrived_ns, there))
        count -= there
    return covered, ()


class AckPolicy:
    """The acknowledgements of one channel. ``interval`` is at least 1 and may be changed at any time.

    ``pending_since_ns`` is when the first of the ``pending`` messages was ready to be acknowledged.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.pending = 0
        self.pending_since_ns = 0
        self._last_tag = 0
        self._waiting: deque[tuple[int, int]] = deque()

    def delivered(self, first_tag: int, count: int, arrived_ns: int, ready_ns: int = 0) -> Acks:
        """``count`` messages with consecutive tags, which came at ``arrived_ns``, are ready at ``ready_ns``. Returns
        the acknowledgements that are due."""
        self._last_tag = first_tag + count - 1
        if self.interval == 1 and not self.pending:
            return Acks(range(first_tag, first_tag + count), False, ((arrived_ns, count),))
        if not self.pending:
            self.pending_since_ns = ready_ns
        self._waiting.append((arrived_ns, count))
        first_due = max(first_tag + self.interval - self.pending - 1, first_tag)
        self.pending += count
        if self.pending < self.interval:
            return NOTHING
        tags = range(first_due, first_tag + count, self.interval)
        left = first_tag + count - 1 - tags[-1]
        self.pending_since_ns = ready_ns
        return Acks(tags, True, self._cover(self.pending - left))

    def flush(self) -> Acks:
        """Acknowledge all pending messages."""
        if not self.pending:
            return NOTHING
        return Acks(range(self._last_tag, self._last_tag + 1), True, self._cover(self.pending))

    def forget(self) -> None:
        """The channel is gone: the broker will deliver the pending messages again."""
        self.pending = 0
        self._waiting.clear()

    def _cover(self, count: int) -> tuple[tuple[int, int], ...]:
        self.pending -= count
        covered = []
        while count:
            arrived_ns, there = self._waiting.popleft()
            taken = min(there, count)
            covered.append((arrived_ns, taken))
            if taken < there:
                self._waiting.appendleft((arrived_ns, there - taken))
            count -= taken
        return tuple(covered)
