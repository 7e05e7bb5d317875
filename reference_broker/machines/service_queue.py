"""The service queue: the order of consumers, and how a run is dealt to them.

Theory of operation
-------------------
The rule is per message: the consumer at the front of the highest priority takes the message, and goes to the back of
its priority if it has credit left. Every member applies the same rule to the same queue. So each member delivers to its
own consumers without asking the others.

A whole run is dealt at once. Let ``k`` consumers have the highest priority, and let ``least`` be the smallest credit
among them. Then the first ``min(count, k * least)`` messages go round the circle. Consumer ``i`` gets the positions
``i, i + k, ...``: a stretch of step ``k``, computed without a look at any message. Afterwards the circle is rotated by
the last, partial round, and consumers without credit leave. When there are fewer messages than consumers, each message
is dealt by itself, and only the consumers that get a message are touched.

Invariants: a consumer stands in the queue exactly when it is up and has credit (``Consumer.queued``), and only once; no
level is empty.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import neg

from reference_broker.machines.consumers import UNLIMITED, Consumer, Status

Share = tuple[Consumer, int, int]
"""A consumer, its first position, and its number of messages."""

Deal = tuple[int, int, list[Share]]
"""The number of dealt messages, the step between the positions of one share, and the shares."""


class ServiceQueue:
    """Consumers with credit: round robin within a priority, higher priorities first."""

    __slots__ = ("_priorities", "levels")

    def __init__(self) -> None:
        self.levels: dict[int, deque[Consumer]] = {}
        """The consumers in the queue, by priority; empty if there are none."""
        self._priorities: list[int] = []  # descending

    def add(self, consumer: Consumer) -> None:
        """Put a consumer at the back of its priority, unless it is queued, not up, or has no credit."""
        if consumer.queued or not consumer.credit or consumer.status is not Status.UP:
            return
        consumer.queued = True
        level = self.levels.get(consumer.priority)
        if level is None:
            level = self.levels[consumer.priority] = deque()
            insort(self._priorities, consumer.priority, key=neg)
        level.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Take a consumer out of the queue, if it is queued. Call this before its priority changes."""
        if consumer.queued:
            consumer.queued = False
            level = self.levels[consumer.priority]
            level.remove(consumer)
            if not level:
                self._drop_level(consumer.priority)

    def _drop_level(self, priority: int) -> None:
        del self.levels[priority]
        self._priorities.remove(priority)

    def deal(self, count: int) -> Deal:
        """Deal up to ``count`` (> 0) messages of one stretch to the first consumers. The caller hands them over.

        Deals at least one message; if messages are left, call again. The queue must not be empty. A consumer leaves the
        queue when its share uses up its credit.
        """
        priority = self._priorities[0]
        level = self.levels[priority]
        width = len(level)
        if count < width:
            deal = count, 1, _deal_singles(level, count)
        elif width == 1:
            deal = _deal_to_one(level, count)
        else:
            deal = _deal_rounds(level, count)
        if not level:
            self._drop_level(priority)
        return deal

    def order(self) -> list[Consumer]:
        """All consumers in the queue: by priority, then by turn."""
        return [consumer for priority in self._priorities for consumer in self.levels[priority]]


def _deal_to_one(level: deque[Consumer], count: int) -> Deal:
    consumer = level[0]
    if count >= consumer.credit:
        count = consumer.credit
        _leave(level.popleft())
    return count, 1, [(consumer, 0, count)]


def _deal_singles(level: deque[Consumer], count: int) -> list[Share]:
    shares = []
    for position in range(count):
        consumer = level.popleft()
        shares.append((consumer, position, 1))
        if consumer.credit > 1:
            level.append(consumer)
        else:
            _leave(consumer)
    return shares


def _deal_rounds(level: deque[Consumer], count: int) -> Deal:
    width = len(level)
    least = min([consumer.credit for consumer in level])
    dealt = min(count, least * width)
    rounds, partial = divmod(dealt, width)
    shares = [(consumer, turn, rounds + (turn < partial)) for turn, consumer in enumerate(level)]
    level.rotate(-partial)
    if dealt > (least - 1) * width:
        _drop_spent(level, shares, partial)
    return dealt, width, shares


def _drop_spent(level: deque[Consumer], shares: list[Share], partial: int) -> None:
    """Remove consumers without credit. The others keep the order of the next round."""
    level.clear()
    for consumer, _turn, share in shares[partial:] + shares[:partial]:
        if share < consumer.credit:
            level.append(consumer)
        else:
            _leave(consumer)


def _leave(consumer: Consumer) -> None:
    assert consumer.credit != UNLIMITED
    consumer.queued = False
