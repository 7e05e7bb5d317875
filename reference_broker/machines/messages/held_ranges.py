"""Ranges of messages under ids, and how ids are taken out of them.

Consumers nearly always settle in order, so whole ranges leave at the front. Ids out of order are found by bisection and
split a range in two. Both are O(ranges touched).

Invariant of every list here: ranges ascend in id and do not overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final, Self, TypeVar

from reference_broker.machines.messages.origins import Origin


class HeldRange:
    """Messages with the ids ``first_id``, +1, ...: a stretch of one run."""

    __slots__ = ("count", "first_id", "origin", "start", "step")

    def __init__(self, first_id: int, count: int, start: int, step: int, origin: Origin) -> None:
        self.first_id = first_id
        self.count = count
        self.start = start
        self.step = step
        self.origin = origin

    @property
    def number(self) -> int:
        """Message number of the first message."""
        return self.origin.base + self.start

    def front(self, count: int) -> Self:
        """The first ``count`` messages as a range of their own."""
        return type(self)(self.first_id, count, self.start, self.step, self.origin)

    def cut(self, count: int) -> Self:
        """Remove the first ``count`` messages. Returns them as a range of their own."""
        front = self.front(count)
        self.first_id += count
        self.count -= count
        self.start += count * self.step
        return front


_FIRST_ID: Final = attrgetter("first_id")
R = TypeVar("R", bound=HeldRange)


def release(held: list[R], first: int, last: int) -> list[R]:
    """Remove the messages with ids ``first..last`` from the list, and return them. Unknown ids are no error."""
    if first > last:
        return []
    begin = _split_before(held, first)
    end = begin
    while end < len(held) and held[end].first_id + held[end].count - 1 <= last:
        end += 1
    released = held[begin:end]
    if end < len(held) and held[end].first_id <= last:
        released.append(held[end].cut(last - held[end].first_id + 1))
    del held[begin:end]
    return released


def _split_before(held: list[R], message_id: int) -> int:
    """Position of the first range whose ids are all ``message_id`` or above. Splits a range that contains the id."""
    if not held or message_id <= held[0].first_id:
        return 0
    at = bisect_right(held, message_id, key=_FIRST_ID) - 1
    inside = message_id - held[at].first_id
    if inside == 0:
        return at
    if inside < held[at].count:
        held.insert(at, held[at].cut(inside))
    return at + 1
