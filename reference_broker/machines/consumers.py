"""A consumer as the queue sees it: its credit, and the messages that it holds.

Theory of operation
-------------------
Message ids of a consumer go up by 1. The held messages are a list of :class:`HeldRange`, ascending in id, each a
stretch of one run (:mod:`~reference_broker.machines.messages.held_ranges`).

Invariants: ``unacked`` is the number of held messages; ``credit`` is ``max(0, prefetch - unacked)``, so a subscription
with a smaller prefetch waits until enough messages are settled; a consumer with ``auto_settle`` has :data:`UNLIMITED`
credit and holds only messages from before it had ``auto_settle``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from reference_broker.machines.messages.held_ranges import HeldRange, release
from reference_broker.machines.messages.origins import Origin, joined_step
from reference_broker.types import ConsumerId

UNLIMITED: Final = 1 << 62
"""The credit of a consumer whose messages are settled when they are dealt."""


class Status(IntEnum):
    """Whether a consumer gets messages. Written to snapshots.

    A checkout leads to UP from any status, a cancel to CANCELLED. When a node cannot be reached, its consumers go from
    UP to SUSPECTED; when the node returns, they go back. With a single active consumer, the other consumers are
    WAITING or QUIESCING instead of UP (:mod:`~reference_broker.machines.single_active`).
    """

    UP = 1
    SUSPECTED = 2
    CANCELLED = 3
    WAITING = 4
    """In service, while another consumer is active."""
    QUIESCING = 5
    """Was active, gets no more messages, and hands over once it holds none."""
    GETTING = 6
    """Never subscribed: the identity under which a channel gets messages one by one."""


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
        """The number of its subscription; later subscriptions have higher numbers."""
        self.status = Status.UP
        self.credit = 0
        self.unacked = 0
        self.held: list[HeldRange] = []
        self.queued = False
        """Whether the consumer stands in the service queue."""
        self.lost_messages = False
        """Whether the queue took messages back unknown to the client, which may still settle their ids."""

    def subscribe(self, prefetch: int, auto_settle: bool, priority: int) -> None:
        """Begin, or begin again with other settings. Held messages stay and count against the new prefetch."""
        self.prefetch = prefetch
        self.auto_settle = auto_settle
        self.priority = priority
        self.status = Status.UP
        self._recount()

    def _recount(self) -> None:
        self.credit = UNLIMITED if self.auto_settle else max(0, self.prefetch - self.unacked)

    def hold(self, count: int, start: int, step: int, origin: Origin) -> int:
        """Take messages under the next ids. Returns the first id."""
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
        """Take one message that the channel asked for, whatever the credit. Returns its id."""
        if settled:
            self.next_id += 1
            return self.next_id - 1
        auto_settle, self.auto_settle = self.auto_settle, False
        message_id = self.hold(1, start, 1, origin)
        self.auto_settle = auto_settle
        self._recount()
        return message_id

    def release(self, first: int, last: int) -> list[HeldRange]:
        """Give up the held messages with ids ``first..last``. Unknown ids are no error."""
        released = release(self.held, first, last)
        self._released(released)
        return released

    def release_all(self) -> list[HeldRange]:
        """Give up all held messages."""
        released, self.held = self.held, []
        self._released(released)
        return released

    def _released(self, released: list[HeldRange]) -> None:
        for held in released:
            self.unacked -= held.count
        self._recount()
