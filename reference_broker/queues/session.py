"""A channel's sessions with one queue: its publishes there, and each of its consumers. Pure.

A queue deduplicates by channel and enqueue sequence number, so a channel numbers its publishes to each queue
separately. A publisher's confirm numbers count all queues of the channel. A :class:`PublishSession` translates between
the two, in ranges: a run of publishes is one range, and the commit of a batch of runs is one lookup.

Invariant: the ranges are exactly the publishes that were sent to the queue and not yet seen committed, in order.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from reference_broker.types import GET_TAG, ChannelId, ConsumerId, GroupId

NOTHING_YET: Final = 1 << 62
"""A number above every message id."""
NOTHING_MISSED: Final = -1
"""A number below every message id."""


class PublishSession:
    """One channel's publishes to one queue."""

    __slots__ = ("_next", "channel", "unconfirmed_bytes", "waiting")

    def __init__(self, channel: ChannelId) -> None:
        self.channel = channel
        self._next = 1
        self.waiting: deque[tuple[int, int, int, int]] = deque()
        """The commands that were sent to the queue and not yet seen committed: first and last number, the first confirm
        number (0: none), octets."""
        self.unconfirmed_bytes = 0

    def sent(self, count: int, octets: int, confirm_seq: int) -> int:
        """Note a command with ``count`` messages; the first has the channel's confirm number ``confirm_seq`` (0: no
        confirms). Returns the enqueue number of the first message."""
        first = self._next
        self._next = first + count
        self.unconfirmed_bytes += octets
        self.waiting.append((first, first + count - 1, confirm_seq, octets))
        return first

    def committed(self, last: int) -> list[tuple[int, int]]:
        """Note that all messages up to enqueue number ``last`` are committed. Returns the ranges of confirm numbers to
        confirm, in order.

        Idempotent: a repeated report, for example after an election, returns nothing.
        """
        confirmed: list[tuple[int, int]] = []
        while self.waiting and self.waiting[0][0] <= last:
            first, run_last, confirm_seq, size = self.waiting[0]
            done = min(run_last, last)
            if confirm_seq:
                confirmed.append((confirm_seq, confirm_seq + done - first))
            if done < run_last:
                self.waiting[0] = (done + 1, run_last, confirm_seq and confirm_seq + done - first + 1, size)
                break
            self.waiting.popleft()
            self.unconfirmed_bytes -= size
        return confirmed


class ConsumeSession:
    """A consumer of one channel: its queue, and the next message id that it expects.

    The queue forgets a consumer that is cancelled and holds no messages; so does its node, at the same point. If the
    tag subscribes again, the ids go on above all former ids, so a late delivery to the former consumer is recognised.
    Until the queue has answered the subscription, no delivery is for the new consumer.
    """

    __slots__ = (
        "_released",
        "_releases",
        "cancels_on_failover",
        "credit",
        "group",
        "held",
        "id",
        "is_asking",
        "is_cancelled",
        "is_exclusive",
        "missed_up_to",
        "next_message_id",
        "no_ack",
        "priority",
    )

    def __init__(self, consumer: ConsumerId, group: GroupId, no_ack: bool) -> None:
        self.id = consumer
        self.group = group
        """Of the queue."""
        self.no_ack = no_ack
        self.next_message_id = 0
        self.credit = 0
        self.held = 0
        self.missed_up_to = NOTHING_MISSED
        """The last message id that was not delivered because the client did not read."""
        self.is_asking = False
        """Whether the queue is asked for missed deliveries."""
        self.is_cancelled = False
        self.is_exclusive = False
        """Whether the consumer wants to be the only one."""
        self.priority = 0
        self.cancels_on_failover = False
        """Whether the consumer ends when its queue gets another owner."""
        self._released = 0
        """Messages that the consumer has given up, while the queue may not know it yet."""
        self._releases: deque[tuple[int, int]] = deque()
        """The proposals that give up these messages: number, messages."""

    @property
    def is_get(self) -> bool:
        """Whether this is not a consumer, but stands for the messages that a channel has fetched one by one."""
        return self.id.tag == GET_TAG

    def begun_anew(self) -> ConsumeSession:
        """The same consumer at a queue that does not know it."""
        session = ConsumeSession(self.id, self.group, self.no_ack)
        session.next_message_id = NOTHING_YET
        session.credit, session.is_exclusive, session.priority = self.credit, self.is_exclusive, self.priority
        session.cancels_on_failover = self.cancels_on_failover
        return session

    def is_short_of_credit(self, applied: int) -> bool:
        """Whether a queue that has applied proposals up to ``applied`` counts more than half of the credit as used."""
        while self._releases and self._releases[0][0] <= applied:
            self._released -= self._releases.popleft()[1]
        return 2 * (self.held + self._released) > self.credit

    def release(self, count: int, number: int) -> None:
        """Note that the consumer gives up ``count`` messages by proposal ``number``."""
        self.held -= count
        self._released += count
        self._releases.append((number, count))
