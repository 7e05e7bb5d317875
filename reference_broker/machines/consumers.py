"""A consumer as the queue sees it: its credit, and which messages it holds under which ids.

Theory of operation
-------------------
Message ids of a consumer are given strictly +1. What it holds is a list of :class:`HeldRange`, ascending in id,
each a stretch of one run (:mod:`~reference_broker.machines.held_ranges`).

Invariants: ``unacked`` is the number of messages in them; ``credit`` is
``max(0, prefetch - unacked)``, so it never goes negative and a re-subscription with a smaller prefetch waits
until enough is settled; a consumer with ``auto_settle`` holds nothing dealt while it had it, and has
:data:`UNLIMITED` credit.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from reference_broker.machines.held_ranges import HeldRange, release
from reference_broker.machines.origins import Origin, joined_step
from reference_broker.types import ConsumerId

UNLIMITED: Final = 1 << 62
"""The credit of a consumer whose messages count as settled once dealt."""


class Status(IntEnum):
    """What a consumer may get. Written to snapshots.

    Checkout leads to UP from anywhere, cancel to CANCELLED from anywhere; a node that cannot be reached turns UP
    into SUSPECTED, its return turns that back. With a single active consumer WAITING and QUIESCING take the place of
    UP for all but the active one (:mod:`~reference_broker.machines.single_active`).
    """

    UP = 1
    SUSPECTED = 2
    CANCELLED = 3
    WAITING = 4
    """In service, but it is not its turn."""
    QUIESCING = 5
    """Was active, gets no more, and hands over once it holds nothing."""
    GETTING = 6
    """Never subscribed: it gets messages one by one, as its channel asks."""


IN_SERVICE: Final = frozenset((Status.UP, Status.WAITING, Status.QUIESCING))


class Consumer:
    """One subscription."""

    __slots__ = (
        "arrival",
        "auto_settle",
        "credit",
        "held",
        "id",
        "lost_messages",
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
        self.arrival = 0
        """Ascends from one new subscription to the next."""
        self.status = Status.UP
        self.credit = 0
        self.unacked = 0
        self.held: list[HeldRange] = []
        self.queued = False
        """Whether it stands in the service queue."""
        self.lost_messages = False
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

    def hold_one(self, settled: bool, start: int, origin: Origin) -> int:
        """Take one message that its channel asked for, beside all credit; returns its id."""
        if settled:
            self.next_id += 1
            return self.next_id - 1
        auto_settle, self.auto_settle = self.auto_settle, False
        message_id = self.hold(1, start, 1, origin)
        self.auto_settle = auto_settle
        self._recount()
        return message_id

    def release(self, first: int, last: int) -> list[HeldRange]:
        """Give up the messages with ids ``first..last`` that it holds. Unknown ids are no error."""
        released = release(self.held, first, last)
        self._released(released)
        return released

    def release_all(self) -> list[HeldRange]:
        """Give up everything."""
        released, self.held = self.held, []
        self._released(released)
        return released

    def _released(self, released: list[HeldRange]) -> None:
        for held in released:
            self.unacked -= held.count
        self._recount()
