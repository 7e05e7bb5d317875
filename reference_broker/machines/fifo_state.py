"""What a quorum queue remembers between two commands. The rules are in :mod:`reference_broker.machines.fifo`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from reference_broker.machines.config import FifoConfig
from reference_broker.machines.consumers import Consumer
from reference_broker.machines.dead_letters import DeadLetters
from reference_broker.machines.origins import NEVER
from reference_broker.machines.ready import Ready
from reference_broker.machines.service_queue import ServiceQueue
from reference_broker.types import ChannelId, ConsumerId, NodeId

REFUSED_RANGES_MAX: Final = 64
"""How many ranges of refused publishes a channel is remembered by."""


class Totals:
    """Messages that came, and that left by each way; messages that were refused; dead letters made."""

    __slots__ = (
        "dead_lettered",
        "delivery_limited",
        "discarded",
        "dropped",
        "enqueued",
        "expired",
        "purged",
        "refused",
        "settled",
    )

    def __init__(self) -> None:
        self.enqueued = 0
        self.settled = 0
        self.discarded = 0
        self.delivery_limited = 0
        self.expired = 0
        self.dropped = 0
        self.purged = 0
        self.refused = 0
        self.dead_lettered = 0


class ChannelState:
    """A channel that enqueues or consumes: the next sequence number expected of it, and its consumers by tag."""

    __slots__ = ("consumers", "first_id", "next_seq", "refused")

    def __init__(self) -> None:
        self.next_seq = 1
        self.consumers: dict[str, Consumer] = {}
        self.first_id = 0
        """Where its next new consumer begins to count messages: above all ids of those that are gone, one of which may
        have had the same tag. A member that executes an old entry late must not pass for the newer one."""
        self.refused: list[tuple[int, int]] = []
        """Which of its sequence numbers were refused, ascending: a publish that comes again gets the same answer."""

    def refuse(self, first: int, last: int) -> None:
        """Remember that these were refused.

        Of very many ranges the two oldest become one. What lay between them was enqueued, confirmed long ago; should
        it come again, its publisher is told that it was refused, which costs a duplicate and never a message.
        """
        if self.refused and self.refused[-1][1] + 1 == first:
            self.refused[-1] = (self.refused[-1][0], last)
            return
        self.refused.append((first, last))
        if len(self.refused) > REFUSED_RANGES_MAX:
            self.refused[:2] = [(self.refused[0][0], self.refused[1][1])]


class State:
    """Everything a snapshot holds.

    And four flags that follow from it and only save looking: what a queue does not use, or no longer, must not cost it
    anything. ``is_limited``: it may be full. ``is_timed``: something may be due some time. ``is_plain``: neither. Two
    members may differ in them for a while, as one that was restored knows at once what the other has yet to notice:
    they decide nothing.
    """

    __slots__ = (
        "applied",
        "arrivals",
        "boot_ids",
        "channels",
        "config",
        "dead_letters",
        "is_expiring",
        "is_limited",
        "is_plain",
        "is_timed",
        "last_expiring",
        "last_used_ms",
        "now_ms",
        "ready",
        "refusing",
        "service",
        "totals",
    )

    def __init__(self, config: FifoConfig) -> None:
        self.applied = 0
        self.now_ms = 0
        """The latest time that any entry was stamped with."""
        self.last_used_ms = 0
        """When a consumer last came or went, or a message was asked for; 0 as long as nobody minds."""
        self.ready = Ready()
        self.dead_letters = DeadLetters()
        self.channels: dict[ChannelId, ChannelState] = {}
        self.arrivals = 0
        """Subscriptions so far."""
        self.boot_ids: dict[NodeId, int] = {}
        """The newest boot id of each node that was seen to come back."""
        self.service = ServiceQueue()
        self.refusing = False
        """Whether publishes are refused until there is room again."""
        self.totals = Totals()
        self.is_expiring = False
        """False: no message here has a time to live."""
        self.last_expiring = -1
        """No message with a number above it has a time to live."""
        self.configure(config)

    def configure(self, config: FifoConfig) -> None:
        """Go by these settings."""
        self.config = config
        self.is_limited = config.max_length >= 0 or config.max_length_bytes >= 0
        self.is_timed = (
            self.is_expiring
            or config.message_ttl_ms >= 0
            or config.expires_ms >= 0
            or bool(self.dead_letters.at_most_once)
        )
        self.is_plain = not (self.is_limited or self.is_timed)
        self.refusing = self.refusing and self.is_limited

    def expect_expiry(self) -> None:
        """The messages that came last have a time to live."""
        backlog = self.ready.backlog
        self.is_expiring, self.last_expiring = True, backlog.first_number + backlog.count - 1
        self.expect_ticks()

    def refresh_flags(self) -> None:
        """See whether any message with a time to live, or anything else that is due some time, is left. Not for every
        entry: a consumer may hold many messages, one of them with a time to live."""
        if self.is_expiring and self.last_expiring < self.ready.backlog.first_number:
            held = (held.origin.expires for consumer in self.all_consumers() for held in consumer.held)
            returned = (stretch[4].expires for stretch in self.ready.returned)
            self.is_expiring = any(expires != NEVER for expires in chain(returned, held))
        self.configure(self.config)

    def expect_ticks(self) -> None:
        """Something is due some time."""
        self.is_timed = True
        self.is_plain = False

    def is_of_earlier_boot(self, channel_id: ChannelId) -> bool:
        """A command that was on its way while its node died and came back: nobody would ever end this channel."""
        return channel_id.boot_id < self.boot_ids.get(channel_id.node, 0)

    def consumer(self, consumer_id: ConsumerId) -> Consumer | None:
        """The consumer of this name, if there is one."""
        channel = self.channels.get(consumer_id.channel)
        return channel.consumers.get(consumer_id.tag) if channel else None

    def all_consumers(self) -> Iterator[Consumer]:
        """All consumers, in no order: for questions whose answer does not depend on it."""
        for channel in self.channels.values():
            yield from channel.consumers.values()

    def consumers(self) -> Iterator[Consumer]:
        """All consumers, ascending by identity: whoever changes state on the way must do it in one order everywhere."""
        for channel_id in sorted(self.channels):
            consumers = self.channels[channel_id].consumers
            for tag in sorted(consumers):
                yield consumers[tag]
