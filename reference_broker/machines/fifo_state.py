"""What a quorum queue remembers between two commands. The rules are in :mod:`reference_broker.machines.fifo`."""

from __future__ import annotations

from collections.abc import Iterator

from reference_broker.machines.backlog import Backlog
from reference_broker.machines.consumers import Consumer
from reference_broker.machines.origins import Origin
from reference_broker.machines.service_queue import ServiceQueue
from reference_broker.types import ChannelId, NodeId


class Totals:
    """Messages that came, and that left by each way."""

    __slots__ = ("dead_lettered", "discarded", "enqueued", "purged", "settled")

    def __init__(self) -> None:
        self.enqueued = 0
        self.settled = 0
        self.discarded = 0
        self.dead_lettered = 0
        self.purged = 0


class Channel:
    """A channel that enqueues or consumes: the next sequence number expected of it, and its consumers by tag."""

    __slots__ = ("consumers", "next_seq")

    def __init__(self) -> None:
        self.next_seq = 1
        self.consumers: dict[str, Consumer] = {}


Returned = tuple[int, int, int, int, Origin]
"""Message number of the first, count, start, step, origin. Numbers are unique, so a heap of these is by number."""


class State:
    """Everything a snapshot holds."""

    __slots__ = ("applied", "backlog", "channels", "lives", "returned", "returned_count", "service", "totals")

    def __init__(self) -> None:
        self.applied = 0
        self.backlog = Backlog()
        self.returned: list[Returned] = []
        self.returned_count = 0
        self.channels: dict[ChannelId, Channel] = {}
        self.lives: dict[NodeId, int] = {}
        """The newest incarnation of each node that was seen to come back."""
        self.service = ServiceQueue()
        self.totals = Totals()

    def consumers(self) -> Iterator[Consumer]:
        """All consumers, ascending by identity: whoever changes state on the way must do it in one order everywhere."""
        for channel_id in sorted(self.channels):
            consumers = self.channels[channel_id].consumers
            for tag in sorted(consumers):
                yield consumers[tag]
