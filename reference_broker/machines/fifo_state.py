"""The state of a quorum queue between two commands. The rules are in :mod:`reference_broker.machines.fifo`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from reference_broker.machines.config import FifoConfig
from reference_broker.machines.consumers import Consumer
from reference_broker.machines.dead_letters import DeadLetters
from reference_broker.machines.keyed import KeyedReady
from reference_broker.machines.messages.departures import Departures
from reference_broker.machines.messages.origins import NEVER
from reference_broker.machines.messages.priorities import PriorityReady
from reference_broker.machines.messages.ready import Ready
from reference_broker.machines.service_queue import ServiceQueue
from reference_broker.types import ChannelId, ConsumerId, NodeId

REFUSED_RANGES_MAX: Final = 64
"""The most ranges of refused publishes that the queue remembers per channel."""


class Totals:
    """Counters: messages enqueued, messages that left by each way, messages refused, dead letters made."""

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
        """The first message id of the channel's next new consumer: above all ids of its former consumers. A former
        consumer may have had the same tag, and a late delivery to it must not look like one to the new consumer."""
        self.refused: list[tuple[int, int]] = []
        """Ranges of refused sequence numbers, ascending: a repeated publish gets the same answer."""

    def refuse(self, first: int, last: int) -> None:
        """Remember these sequence numbers as refused.

        When there are too many ranges, the two oldest become one. The messages between the two were enqueued and
        confirmed long ago. If they come again, the queue refuses them; that may cost a duplicate, never a message.
        """
        if self.refused and self.refused[-1][1] + 1 == first:
            self.refused[-1] = (self.refused[-1][0], last)
            return
        self.refused.append((first, last))
        if len(self.refused) > REFUSED_RANGES_MAX:
            self.refused[:2] = [(self.refused[0][0], self.refused[1][1])]


class State:
    """Everything a snapshot holds.

    Four flags follow from the rest of the state and save work: a feature that a queue does not use costs nothing.
    ``is_limited``: the queue may be full. ``is_timed``: something may become due. ``is_expiring``: a message may have a
    time to live. ``is_plain``: the queue is neither limited nor timed. The flags decide nothing: a restored member may
    clear a flag earlier than the others do.
    """

    __slots__ = (
        "applied",
        "arrivals",
        "boot_ids",
        "channels",
        "config",
        "dead_letters",
        "departures",
        "exclusive",
        "gets_beside_single_active",
        "is_expiring",
        "is_limited",
        "is_plain",
        "is_timed",
        "keyed",
        "last_expiring",
        "last_used_ms",
        "led_since_ms",
        "now_ms",
        "ready",
        "refuses_until_well_below",
        "refusing",
        "service",
        "suspected",
        "totals",
    )

    def __init__(self, config: FifoConfig) -> None:
        self.applied = 0
        self.now_ms = 0
        """The latest time stamp of any entry."""
        self.last_used_ms = 0
        """When a consumer last came or went, or a get came; 0 while the queue does not expire."""
        self.led_since_ms = 0
        """Time at which this member last became leader, unknown to other members. It decides only requests to the
        leader."""
        self.keyed = KeyedReady() if config.keyed is not None else None
        """The messages of a keyed queue; None: the queue knows no keys."""
        self.ready: Ready | PriorityReady | KeyedReady = Ready() if self.keyed is None else self.keyed
        self.dead_letters = DeadLetters()
        self.departures = Departures()
        self.channels: dict[ChannelId, ChannelState] = {}
        self.suspected: set[ChannelId] = set()
        """The channels with suspected consumers, maybe with others. It follows from the consumers, so no snapshot holds
        it: news of a node comes with each new publisher, and must not look at all channels."""
        self.arrivals = 0
        """Number of subscriptions so far."""
        self.boot_ids: dict[NodeId, int] = {}
        """The newest boot id of each node that has come back."""
        self.service = ServiceQueue()
        self.refusing = False
        """Whether publishes are refused until there is room again."""
        self.totals = Totals()
        self.gets_beside_single_active = False
        """Whether a get gets a message from a queue with a single active consumer. This flag and the next depend on the
        kind of queue alone, so no snapshot holds them."""
        self.refuses_until_well_below = True
        """Whether a queue that has refused a publish refuses all until it is well below its limits."""
        self.exclusive: Consumer | None = None
        """The last consumer that wanted to be alone. No snapshot holds it: a queue in a log has no such consumers."""
        self.is_expiring = False
        """Whether a message here may have a time to live."""
        self.last_expiring = -1
        """No message with a higher message number has a time to live."""
        self.configure(config)

    @property
    def ready_in_log(self) -> Ready:
        """The ready messages of a queue in a log without keys, which knows no priorities."""
        assert isinstance(self.ready, Ready), "a queue with priorities is in no log"
        return self.ready

    def configure(self, config: FifoConfig) -> None:
        """Take these settings."""
        self.config = config
        self.is_limited = config.max_length >= 0 or config.max_length_bytes >= 0
        self.is_timed = (
            self.is_expiring
            or config.message_ttl_ms >= 0
            or config.expires_ms >= 0
            or bool(self.dead_letters.at_most_once)
            or self.keyed is not None
        )
        if self.keyed is not None and config.keyed is not None:
            self.keyed.retry_delay_ms = config.keyed.retry_delay_ms
        self.is_plain = not (self.is_limited or self.is_timed)
        self.refusing = self.refusing and self.is_limited

    def expect_expiry(self) -> None:
        """Note that the newest messages have a time to live."""
        backlog = self.ready.backlog
        self.is_expiring, self.last_expiring = True, backlog.first_number + backlog.count - 1
        self.expect_ticks()

    def refresh_flags(self) -> None:
        """Clear the flags that no longer hold. Too slow for every entry: a consumer may hold many messages, one of them
        with a time to live."""
        if self.is_expiring and self.last_expiring < self.ready.backlog.first_number:
            held = (held.origin.expires for consumer in self.all_consumers() for held in consumer.held)
            returned = (stretch[4].expires for stretch in self.ready.returned)
            self.is_expiring = any(expires != NEVER for expires in chain(returned, held))
        self.configure(self.config)

    def expect_ticks(self) -> None:
        """Note that something will become due."""
        self.is_timed = True
        self.is_plain = False

    def is_of_earlier_boot(self, channel_id: ChannelId) -> bool:
        """Whether the channel belongs to an earlier start of its node. No command would ever end this channel."""
        return channel_id.boot_id < self.boot_ids.get(channel_id.node, 0)

    def consumer(self, consumer_id: ConsumerId) -> Consumer | None:
        """The consumer of this name, if there is one."""
        channel = self.channels.get(consumer_id.channel)
        return channel.consumers.get(consumer_id.tag) if channel else None

    def all_consumers(self) -> Iterator[Consumer]:
        """All consumers, in any order. For questions whose answer does not depend on the order."""
        for channel in self.channels.values():
            yield from channel.consumers.values()

    def consumers(self) -> Iterator[Consumer]:
        """All consumers, ascending by identity. For changes of state, which need the same order on all members."""
        for channel_id in sorted(self.channels):
            consumers = self.channels[channel_id].consumers
            for tag in sorted(consumers):
                yield consumers[tag]
