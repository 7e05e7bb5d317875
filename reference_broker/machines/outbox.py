"""Collects the effects of one entry and puts them into as few as possible.

Per batch of commands: one confirm per channel and contiguous stretch of sequence numbers, before everything a channel
could react to; then replies and deliveries in the order they arose, one delivery per consumer as long as its ids are
contiguous and its messages share one delivery count. A reply to a consumer closes its delivery, so that what was
dealt before a cancel is sent before the cancel's reply, and what follows a checkout after it.
"""

from __future__ import annotations

from reference_broker.machines.effects import Confirm, Deliver, Effect, MonitorNode, Reply, Span
from reference_broker.machines.origins import Origin, joined_step
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId


class Parcel:
    """A :class:`Deliver` that still grows."""

    __slots__ = ("consumer", "delivery_count", "first_id", "next_id", "stretches")

    def __init__(self, consumer: ConsumerId, first_id: int, delivery_count: int) -> None:
        self.consumer = consumer
        self.first_id = first_id
        self.next_id = first_id
        self.delivery_count = delivery_count
        self.stretches: list[tuple[int, int, int, Origin]] = []

    def fits(self, first_id: int, delivery_count: int) -> bool:
        """Whether a stretch that begins with this id may follow in the same delivery."""
        return first_id == self.next_id and delivery_count == self.delivery_count

    def add(self, start: int, count: int, step: int, origin: Origin) -> None:
        """The next ``count`` ids."""
        self.next_id += count
        if self.stretches:
            last_start, last_count, last_step, last_origin = self.stretches[-1]
            if last_origin == origin:
                joined = joined_step(last_start, last_count, last_step, start, count, step)
                if joined:
                    self.stretches[-1] = (last_start, last_count + count, joined, origin)
                    return
        self.stretches.append((start, count, step, origin))

    def seal(self) -> Deliver:
        """The effect, as it stands."""
        spans = [
            Span(LogIndex(origin.entry), origin.offset, start, count, step if count > 1 else 1)
            for start, count, step, origin in self.stretches
        ]
        return Deliver(self.consumer, self.first_id, tuple(spans), self.delivery_count)


class Outbox:
    """Effects in the making. Use one per entry."""

    __slots__ = ("_confirms", "_monitored", "_open", "_ordered")

    def __init__(self) -> None:
        self._monitored: dict[NodeId, None] = {}
        self._confirms: dict[ChannelId, list[tuple[int, int]]] = {}
        self._ordered: list[Reply | Parcel] = []
        self._open: dict[ConsumerId, Parcel] = {}

    def monitor(self, node: NodeId) -> None:
        """Watch this node."""
        self._monitored[node] = None

    def confirm(self, channel: ChannelId, first: int, last: int) -> None:
        """The channel's sequence numbers ``first..last`` are committed."""
        ranges = self._confirms.setdefault(channel, [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    def reply(self, channel: ChannelId, correlation: int, value: int, consumer: ConsumerId | None = None) -> None:
        """Answer a command, about ``consumer`` if it was about one."""
        if consumer is not None:
            self._open.pop(consumer, None)
        self._ordered.append(Reply(channel, correlation, value))

    def deliver(self, consumer: ConsumerId, first_id: int, start: int, count: int, step: int, origin: Origin) -> None:
        """Hand a stretch to a consumer, as its ids ``first_id``, +1, ..."""
        parcel = self._open.get(consumer)
        if parcel is None or not parcel.fits(first_id, origin.delivery_count):
            parcel = self._open[consumer] = Parcel(consumer, first_id, origin.delivery_count)
            self._ordered.append(parcel)
        parcel.add(start, count, step, origin)

    def effects(self) -> list[Effect]:
        """Everything collected, in the order it is to be executed."""
        effects: list[Effect] = [MonitorNode(node) for node in self._monitored]
        for channel, ranges in self._confirms.items():
            effects += [Confirm(channel, first, last) for first, last in ranges]
        effects += [item.seal() if isinstance(item, Parcel) else item for item in self._ordered]
        return effects
