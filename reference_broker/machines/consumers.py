"""A consumer as the queue sees it: its credit, and which messages it holds under which ids.

Theory of operation
-------------------
Message ids of a consumer are given strictly +1. What it holds is a list of :class:`HeldRange`, ascending in id,
each a stretch of one run. Consumers settle in order nearly always, so a settle cuts whole ranges off the front; one
out of order is found by bisection and splits a range in two. Both are O(ranges touched).

Invariants: ranges do not overlap and ascend; ``unacked`` is the number of messages in them; ``credit`` is
``max(0, prefetch - unacked)``, so it never goes negative and a re-subscription with a smaller prefetch waits
until enough is settled; a consumer with ``auto_settle`` holds nothing dealt while it had it, and has
:data:`UNLIMITED` credit.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from operator import attrgetter
from typing import Final

from reference_broker.machines.origins import Origin, joined_step
from reference_broker.types import ConsumerId

UNLIMITED: Final = 1 << 62
"""The credit of a consumer whose messages count as settled once dealt."""


class Status(IntEnum):
    """What a consumer may get. Written to snapshots.

    Checkout leads to UP from anywhere, cancel to CANCELLED from anywhere; a node that cannot be reached turns UP
    into SUSPECTED, its return turns that back.
    """

    UP = 1
    SUSPECTED = 2
    CANCELLED = 3


class HeldRange:
    """Messages ``first_id``, +1, ... of a consumer: a stretch of one run."""

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

    def cut(self, count: int) -> HeldRange:
        """Take the first ``count`` messages off, and give them back as a range of their own."""
        front = HeldRange(self.first_id, count, self.start, self.step, self.origin)
        self.first_id += count
        self.count -= count
        self.start += count * self.step
        return front


_FIRST_ID: Final = attrgetter("first_id")


class Consumer:
    """One subscription."""

    __slots__ = (
        "auto_settle",
        "credit",
        "estranged",
        "held",
        "id",
        "next_id",
        "prefetch",
        "priority",
        "queued",
        "status",
        "unacked",
    )

    def __init__(self, consumer_id: ConsumerId) -> None:
        self.id = consumer_id
        self.next_id = 0
        self.prefetch = 0
        self.auto_settle = False
        self.priority = 0
        self.status = Status.UP
        self.credit = 0
        self.unacked = 0
        self.held: list[HeldRange] = []
        self.queued = False
        """Whether it stands in the service queue."""
        self.estranged = False
        """Whether messages were taken from it without its client's knowledge, who may still settle their ids."""

    def subscribe(self, prefetch: int, auto_settle: bool, priority: int) -> None:
        """Begin, or begin again with other settings: what it holds stays, and counts against the new prefetch."""
        self.prefetch = prefetch
        self.auto_settle = auto_settle
        self.priority = priority
        self.status = Status.UP
        self._recount()

    def _recount(self) -> None:
        self.credit = UNLIMITED if self.auto_settle else max(0, self.prefetch - self.unacked)

    def hold(self, count: int, start: int, step: int, origin: Origin) -> int:
        """Take these messages under the next ids; returns the first of them."""
        first_id = self.next_id
        self.next_id = first_id + count
        if self.auto_settle:
            return first_id
        self.unacked += count
        self.credit -= count
        if self.held:
            last = self.held[-1]
            if last.origin == origin and last.first_id + last.count == first_id:
                joined = joined_step(last.start, last.count, last.step, start, count, step)
                if joined:
                    last.count += count
                    last.step = joined
                    return first_id
        self.held.append(HeldRange(first_id, count, start, step, origin))
        return first_id

    def release(self, first: int, last: int) -> list[HeldRange]:
        """Give up the messages with ids ``first..last`` that it holds. Unknown ids are no error."""
        if first > last:
            return []
        held = self.held
        begin = self._split_before(first)
        end = begin
        while end < len(held) and held[end].first_id + held[end].count - 1 <= last:
            end += 1
        released = held[begin:end]
        if end < len(held) and held[end].first_id <= last:
            released.append(held[end].cut(last - held[end].first_id + 1))
        del held[begin:end]
        self._released(released)
        return released

    def _split_before(self, message_id: int) -> int:
        """Position of the first range whose ids are all ``message_id`` or above; a range across it is split."""
        held = self.held
        if not held or message_id <= held[0].first_id:
            return 0
        at = bisect_right(held, message_id, key=_FIRST_ID) - 1
        inside = message_id - held[at].first_id
        if inside == 0:
            return at
        if inside < held[at].count:
            held.insert(at, held[at].cut(inside))
        return at + 1

    def release_all(self) -> list[HeldRange]:
        """Give up everything."""
        released, self.held = self.held, []
        self._released(released)
        return released

    def _released(self, released: list[HeldRange]) -> None:
        for held in released:
            self.unacked -= held.count
        self._recount()
