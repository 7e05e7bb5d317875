"""Confirms of messages that went to several queues: a message is confirmed to the client when all of its queues have
it.

Theory of operation
-------------------
Each queue confirms its own share of a channel's publishes, in ranges of the channel's publish sequence numbers. For a
run that went to k queues, this module counts down from k. Ranges that the last queue has confirmed go on to
:class:`~reference_broker.amqp.confirms.ConfirmTracker`. A run that went to one queue is never counted: its numbers pass
through. A number that one queue has rejected is rejected for good, and its count is forgotten. Later answers of the
other queues pass through, too, and the tracker ignores them, because the number is resolved.

Invariant: ``open`` has disjoint ranges in ascending order, each with the number of queues that have not answered, at
least 1. A queue answers for each number once (:class:`~reference_broker.queues.session.PublishSession`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from reference_broker.amqp.confirms import SeqRange


class FanOut:
    """The open publishes of one channel that went to more than one queue."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: list[tuple[int, int, int]] = []
        """First and last number, and the queues that have not answered."""

    def expect(self, first: int, last: int, queues: int) -> None:
        """The publishes ``first..last``, the newest of the channel, went to ``queues`` queues, 2 at least."""
        self.open.append((first, last, queues))

    def confirmed(self, ranges: Iterable[SeqRange]) -> list[SeqRange]:
        """A queue has confirmed these ranges. Returns the ranges that all their queues have confirmed now."""
        done: list[SeqRange] = []
        for first, last in ranges:
            self._count(first, last, done)
        return done

    def rejected(self, ranges: Iterable[SeqRange]) -> None:
        """A queue has rejected these ranges: their other queues are not waited for any more."""
        for first, last in ranges:
            at = bisect_left(self.open, first, key=_last)
            while at < len(self.open) and self.open[at][0] <= last:
                low, high, queues = self.open[at]
                left = [(low, first - 1, queues)] if low < first else []
                right = [(last + 1, high, queues)] if last < high else []
                self.open[at : at + 1] = left + right
                at += len(left)

    def _count(self, first: int, last: int, done: list[SeqRange]) -> None:
        at = bisect_left(self.open, first, key=_last)
        while first <= last:
            if at == len(self.open) or self.open[at][0] > last:
                done.append((first, last))
                return
            low, high, queues = self.open[at]
            if first < low:
                done.append((first, low - 1))
                first = low
            cut = min(high, last)
            before = [(low, first - 1, queues)] if low < first else []
            if queues > 1:
                before.append((first, cut, queues - 1))
            else:
                done.append((first, cut))
            self.open[at : at + 1] = before + ([(cut + 1, high, queues)] if cut < high else [])
            at += len(before)
            first = cut + 1


def _last(entry: tuple[int, int, int]) -> int:
    return entry[1]
