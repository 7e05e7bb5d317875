"""What processes of the model send each other: messages in lots, acknowledgements, and notices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perftest.rabbitmq_model.consumer import ChannelEnd, Subscriber
from perftest.rabbitmq_model.processes import Notice


@dataclass(slots=True)
class MessageLot:
    """``count`` messages of one publisher to one queue, of ``octets`` each.

    ``run`` is the content of the messages as the host keeps it, and ``start`` the position of the first message there.
    ``seq`` is the publish sequence number of the first message, 0 without confirms. ``route`` names the queue.
    """

    channel: ChannelEnd
    route: str
    run: Any
    start: int
    count: int
    octets: int
    seq: int
    persistent: bool = True

    def split(self, count: int) -> tuple[MessageLot, MessageLot]:
        """The first messages, and the others."""
        seq = self.seq + count if self.seq else 0
        first = replace(self, count=count)
        rest = replace(self, start=self.start + count, count=self.count - count, seq=seq)
        return first, rest


@dataclass(slots=True)
class AckLot:
    """``count`` messages of one consumer that were acknowledged, in as many commands as ``entries`` says."""

    consumer: Subscriber
    count: int
    entries: int = 0

    def split(self, count: int) -> tuple[AckLot, AckLot]:
        """The first acknowledgements, and the others; one command for all of them stays with the first."""
        entries = min(self.entries, count)
        return AckLot(self.consumer, count, entries), AckLot(self.consumer, self.count - count, self.entries - entries)


@dataclass(slots=True)
class DeliveryLot:
    """Messages of a queue for one of its consumers."""

    consumer: Subscriber
    lot: MessageLot

    @property
    def count(self) -> int:
        """Messages."""
        return self.lot.count

    def split(self, count: int) -> tuple[DeliveryLot, DeliveryLot]:
        """The first messages, and the others."""
        first, rest = self.lot.split(count)
        return DeliveryLot(self.consumer, first), DeliveryLot(self.consumer, rest)


@dataclass(slots=True)
class EnqueuesApplied:
    """A queue has made sure of a lot, and tells the channel of its publisher."""

    lot: MessageLot

    @property
    def count(self) -> int:
        """Messages."""
        return self.lot.count

    def split(self, count: int) -> tuple[EnqueuesApplied, EnqueuesApplied]:
        """The first messages, and the others."""
        first, rest = self.lot.split(count)
        return EnqueuesApplied(first), EnqueuesApplied(rest)


@dataclass(slots=True)
class SettlesApplied:
    """A queue has applied the acknowledgements of ``commands`` commands."""

    consumer: Subscriber
    commands: int
    count: int = 0

    def split(self, count: int) -> tuple[SettlesApplied, SettlesApplied]:
        """Never asked for: there are no messages."""
        raise NotImplementedError


class Subscribed(Notice):
    """A consumer wants messages of a queue."""

    def __init__(self, consumer: Subscriber) -> None:
        self.consumer = consumer


class Cancelled(Notice):
    """A consumer wants no messages any more."""

    def __init__(self, consumer: Subscriber) -> None:
        self.consumer = consumer
