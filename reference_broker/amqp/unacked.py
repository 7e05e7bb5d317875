"""The delivery tags of a channel that wait for their acknowledgement, kept as ranges.

Theory of operation
-------------------
A channel numbers its deliveries 1, 2, 3 ... over all its consumers. A queue numbers its messages per consumer. A
delivery of n messages is one range: n delivery tags run beside n message ids of one consumer, at a fixed distance. An
acknowledgement cuts tags off a range and yields the message ids beside them.

Invariants: ranges are disjoint and ascending by tag. Two neighbours that fit together are one range, as long as nothing
was cut between them; so a consumer that acknowledges in order costs one range, however many messages it holds.

``_firsts[i]`` is ``_ranges[i].first``. The copies stand in a list of their own, because bisection over plain integers
runs in C.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from reference_broker.types import IdRange


@dataclass(slots=True)
class DeliveryRange:
    """Deliveries of one consumer with neighbouring tags."""

    first: int
    last: int
    consumer_tag: str
    distance: int  # message id minus delivery tag


Taken = tuple[str, int, int]
"""Consumer tag, first and last message id."""


def by_consumer(taken: list[Taken]) -> dict[str, tuple[IdRange, ...]]:
    """The message ids of each consumer, in ascending ranges with neighbours joined."""
    found: dict[str, list[IdRange]] = {}
    for tag, first, last in sorted(taken):
        found.setdefault(tag, []).append((first, last))
    return {tag: joined(ranges) for tag, ranges in found.items()}


def joined(ranges: list[IdRange]) -> tuple[IdRange, ...]:
    """The ranges in ascending order, neighbours joined. There must be a range."""
    ranges.sort()
    merged = [ranges[0]]
    for first, last in ranges[1:]:
        if merged[-1][1] + 1 == first:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return tuple(merged)


class Unacked:
    """The unacknowledged deliveries of one channel."""

    __slots__ = ("_firsts", "_ranges", "count")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: list[DeliveryRange] = []
        self.count = 0

    def add(self, first_tag: int, count: int, consumer_tag: str, first_message_id: int) -> None:
        """Note a delivery. Tags must be above all noted before."""
        self.count += count
        last_tag, distance = first_tag + count - 1, first_message_id - first_tag
        if self._ranges:
            tail = self._ranges[-1]
            if tail.last + 1 == first_tag and tail.distance == distance and tail.consumer_tag == consumer_tag:
                tail.last = last_tag
                return
        self._firsts.append(first_tag)
        self._ranges.append(DeliveryRange(first_tag, last_tag, consumer_tag, distance))

    def rename(self, consumer_tag: str, name: str) -> None:
        """Give the messages of a consumer to another name."""
        for held in self._ranges:
            if held.consumer_tag == consumer_tag:
                held.consumer_tag = name

    def holds(self, tag: int) -> bool:
        """Whether this delivery tag waits for its acknowledgement."""
        at = bisect_right(self._firsts, tag) - 1
        return at >= 0 and tag <= self._ranges[at].last

    def take(self, first: int, last: int) -> tuple[list[Taken], int | None]:
        """Remove the tags ``first..last`` in order, up to the first tag that is not here.

        Returns the message ids that were taken and the first missing tag, None if no tag was missing.
        """
        taken: list[Taken] = []
        while first <= last:
            at = bisect_right(self._firsts, first) - 1
            if at < 0 or first > self._ranges[at].last:
                return taken, first
            stop = min(last, self._ranges[at].last)
            taken.append(self._cut(at, first, stop))
            first = stop + 1
        return taken, None

    def take_up_to(self, last: int) -> list[Taken]:
        """Remove every tag up to ``last``, even if tags in between are missing."""
        stop = bisect_right(self._firsts, last)
        if not stop:
            return []
        whole = stop if self._ranges[stop - 1].last <= last else stop - 1
        taken = [(r.consumer_tag, r.first + r.distance, r.last + r.distance) for r in self._ranges[:whole]]
        self.count -= sum(r.last - r.first + 1 for r in self._ranges[:whole])
        del self._ranges[:whole], self._firsts[:whole]
        if whole < stop:
            taken.append(self._cut(0, self._firsts[0], last))
        return taken

    def take_all(self) -> list[Taken]:
        """Remove everything."""
        return self.take_up_to(self._ranges[-1].last) if self._ranges else []

    def recover(self) -> list[Taken]:
        """Remove everything, because the messages go back to their queues."""
        return self.take_all()

    def _cut(self, at: int, first: int, last: int) -> Taken:
        """Cut ``first..last`` out of range ``at``, which holds them all."""
        whole = self._ranges[at]
        self.count -= last - first + 1
        if first == whole.first and last == whole.last:
            del self._ranges[at], self._firsts[at]
        elif first == whole.first:
            whole.first = self._firsts[at] = last + 1
        else:
            if last < whole.last:
                self._firsts.insert(at + 1, last + 1)
                self._ranges.insert(at + 1, DeliveryRange(last + 1, whole.last, whole.consumer_tag, whole.distance))
            whole.last = first - 1
        return whole.consumer_tag, first + whole.distance, last + whole.distance
