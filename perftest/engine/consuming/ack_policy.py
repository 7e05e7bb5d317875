"""Acknowledge exactly each N-th delivery, cover what is left at the end, and know how long each message waited.

Theory of operation. Delivery tags of a channel are consecutive, so what is unacknowledged is a range behind the last
tag. An interval of 1 acknowledges each tag by itself; an interval of N sends one basic.ack with ``multiple`` at the
N-th, 2N-th ... delivery, never at any other, unless somebody calls for what is pending (:meth:`AckPolicy.flush`): then
the next interval begins there. What waits is kept as pairs (arrival, count): one pair a read, not one a message.

Invariants: after any run of deliveries fewer than N are pending; the tags acknowledged and the pending ones together
are all tags delivered, each once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Acks:
    """What to send: a frame per tag, with or without ``multiple``; and (arrival ns, number of messages) covered by
    them."""

    tags: range
    multiple: bool
    covered: tuple[tuple[int, int], ...]

    @property
    def messages(self) -> int:
        """How many messages are acknowledged."""
        return sum(count for _, count in self.covered)

    def split(self, messages: int) -> tuple[Acks, Acks]:
        """The fewest of them that acknowledge ``messages`` messages (at least one), and the rest."""
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
        """``count`` messages with consecutive tags, which came at ``arrived_ns``, are ready at ``ready_ns``; the
        acknowledgements that are due."""
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
        """Cover everything that is pending."""
        if not self.pending:
            return NOTHING
        return Acks(range(self._last_tag, self._last_tag + 1), True, self._cover(self.pending))

    def forget(self) -> None:
        """The channel is gone: the broker will deliver what is pending again."""
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
