"""A quorum queue that handles one message at a time, in lists: slow, obvious, and written from the rules alone.

It knows nothing of stretches, heaps, blocks or credit counters. Whatever the real machine does with ranges must look,
message by message, as it does here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    Discard,
    Enqueue,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
)
from reference_broker.types import ChannelId, ConsumerId, NodeId

Place = tuple[int, int, int]
"""Log index, offset of the run, position in the run: names one message."""

Delivery = tuple[int, Place, int]
"""Message id, the message, delivery count."""


@dataclass(eq=False)
class Message:
    number: int
    place: Place
    delivery_count: int = 0


@dataclass(eq=False)
class Subscriber:
    id: ConsumerId
    prefetch: int = 0
    auto_settle: bool = False
    priority: int = 0
    status: str = "up"
    estranged: bool = False
    next_id: int = 0
    held: dict[int, Message] = field(default_factory=dict)

    def wants_more(self) -> bool:
        return self.auto_settle or len(self.held) < self.prefetch


@dataclass
class Told:
    """What one entry made the queue tell its channels."""

    confirmed: set[tuple[ChannelId, int]] = field(default_factory=set)
    delivered: dict[ConsumerId, list[Delivery]] = field(default_factory=dict)
    replies: list[tuple[ChannelId, int, int]] = field(default_factory=list)
    monitored: set[NodeId] = field(default_factory=set)


class Oracle:
    def __init__(self, delivery_limit: int) -> None:
        self.limit = delivery_limit
        self.fresh: list[Message] = []
        self.returned: list[Message] = []
        self.subscribers: dict[ConsumerId, Subscriber] = {}
        self.turns: list[Subscriber] = []
        self.next_seqs: dict[ChannelId, int] = {}
        self.lives: dict[NodeId, int] = {}
        self.enqueued = self.settled = self.discarded = self.dead_lettered = self.purged = 0

    def apply(self, index: int, commands: list[tuple[int, Command]]) -> Told:
        self.told = Told()
        for offset, command in commands:
            getattr(self, "on_" + type(command).__name__.lower())(command, index, offset)
            self.queue_up()
            self.deal()
        return self.told

    def deal(self) -> None:
        while self.turns and (self.returned or self.fresh):
            subscriber = max(self.turns, key=lambda candidate: candidate.priority)  # the first of the highest
            self.turns.remove(subscriber)
            source = self.returned or self.fresh
            message = min(source, key=lambda candidate: candidate.number)
            source.remove(message)
            delivery = subscriber.next_id, message.place, message.delivery_count
            self.told.delivered.setdefault(subscriber.id, []).append(delivery)
            if subscriber.auto_settle:
                self.settled += 1
            else:
                subscriber.held[subscriber.next_id] = message
            subscriber.next_id += 1
            if subscriber.wants_more():
                self.turns.append(subscriber)

    def queue_up(self) -> None:
        """Leave the turns if out of service; whoever may be served and does not stand in line goes to its end."""
        self.turns = [one for one in self.turns if one.status == "up" and one.wants_more()]
        for key in sorted(self.subscribers):
            one = self.subscribers[key]
            if one.status == "up" and one.wants_more() and one not in self.turns:
                self.turns.append(one)

    def on_enqueue(self, command: Enqueue, index: int, offset: int) -> None:
        for position in range(command.run.count):
            if command.first_seq:
                seq = command.first_seq + position
                expected = self.next_seqs.get(command.channel, 1)
                if seq > expected or self.is_dead(command.channel):
                    return
                self.told.confirmed.add((command.channel, seq))
                if seq < expected:
                    continue
                self.meet(command.channel)
                self.next_seqs[command.channel] = seq + 1
            self.fresh.append(Message(self.enqueued, (index, offset, position)))
            self.enqueued += 1

    def meet(self, channel: ChannelId) -> None:
        if channel not in self.known():
            self.told.monitored.add(channel.node)

    def known(self) -> set[ChannelId]:
        return {*self.next_seqs, *(key.channel for key in self.subscribers)}

    def is_dead(self, channel: ChannelId) -> bool:
        return channel not in self.known() and channel.incarnation < self.lives.get(channel.node, 0)

    def on_checkout(self, command: Checkout, _index: int, _offset: int) -> None:
        if channel_is_dead(self.lives, command.consumer.channel):
            return
        one = self.subscribers.setdefault(command.consumer, Subscriber(command.consumer))
        if one.priority != command.priority and one in self.turns:
            self.turns.remove(one)
        one.prefetch, one.auto_settle, one.priority = command.credit, command.auto_settle, command.priority
        one.status = "up"
        self.told.monitored.add(command.consumer.channel.node)
        self.told.replies.append((command.consumer.channel, command.correlation, one.next_id))

    def held_by(self, command: Settle | Return | Discard) -> list[Message]:
        """Take the named messages from the consumer; ids it does not hold are ignored."""
        one = self.subscribers.get(command.consumer)
        if one is None:
            return []
        named = [
            message_id
            for first, last in command.ranges
            for message_id in sorted(one.held)
            if first <= message_id <= last
        ]
        return [one.held.pop(message_id) for message_id in dict.fromkeys(named)]

    def forget_if_done(self, consumer: ConsumerId) -> None:
        one = self.subscribers.get(consumer)
        if one and one.status == "cancelled" and not one.held and not one.estranged:
            del self.subscribers[consumer]

    def on_settle(self, command: Settle, _index: int, _offset: int) -> None:
        self.settled += len(self.held_by(command))
        self.forget_if_done(command.consumer)

    def on_discard(self, command: Discard, _index: int, _offset: int) -> None:
        self.discarded += len(self.held_by(command))
        self.forget_if_done(command.consumer)

    def on_return(self, command: Return, _index: int, _offset: int) -> None:
        self.give_back(self.held_by(command))
        self.forget_if_done(command.consumer)

    def give_back(self, messages: list[Message]) -> None:
        for message in messages:
            message.delivery_count += 1
            if self.limit >= 0 and message.delivery_count > self.limit:
                self.dead_lettered += 1
            else:
                self.returned.append(message)

    def on_cancel(self, command: Cancel, _index: int, _offset: int) -> None:
        if command.consumer in self.subscribers:
            self.subscribers[command.consumer].status = "cancelled"
            self.forget_if_done(command.consumer)
        self.told.replies.append((command.consumer.channel, command.correlation, 0))

    def on_channeldown(self, command: ChannelDown, _index: int, _offset: int) -> None:
        self.end(command.channel)

    def end(self, channel: ChannelId) -> None:
        self.next_seqs.pop(channel, None)
        for key in [key for key in self.subscribers if key.channel == channel]:
            one = self.subscribers.pop(key)
            one.status = "gone"
            self.give_back(list(one.held.values()))

    def on_nodedown(self, command: NodeDown, _index: int, _offset: int) -> None:
        for key, one in self.subscribers.items():
            if key.channel.node == command.node:
                one.estranged = one.estranged or bool(one.held)
                self.give_back(list(one.held.values()))
                one.held.clear()
                if one.status == "up":
                    one.status = "suspected"

    def on_nodeup(self, command: NodeUp, _index: int, _offset: int) -> None:
        self.lives[command.node] = max(self.lives.get(command.node, 0), command.incarnation)
        for channel in self.known():
            if channel.node == command.node and channel.incarnation < command.incarnation:
                self.end(channel)
        for key, one in self.subscribers.items():
            if (key.channel.node, key.channel.incarnation) == (command.node, command.incarnation):
                one.status = "up" if one.status == "suspected" else one.status

    def on_purge(self, command: Purge, _index: int, _offset: int) -> None:
        purged = len(self.fresh) + len(self.returned)
        self.purged += purged
        self.fresh.clear()
        self.returned.clear()
        self.told.replies.append((command.channel, command.correlation, purged))

    # What to compare with --------------------------------------------------------------------------------------------

    def service_order(self) -> list[ConsumerId]:
        return [one.id for one in sorted(self.turns, key=lambda one: -one.priority)]  # sorted() keeps turns

    def held(self) -> dict[ConsumerId, list[Delivery]]:
        return {
            key: [(number, message.place, message.delivery_count) for number, message in sorted(one.held.items())]
            for key, one in self.subscribers.items()
            if one.held
        }

    def live_entries(self) -> set[int]:
        held = [message for one in self.subscribers.values() for message in one.held.values()]
        return {message.place[0] for message in [*self.fresh, *self.returned, *held]}


def channel_is_dead(lives: dict[NodeId, int], channel: ChannelId) -> bool:
    return channel.incarnation < lives.get(channel.node, 0)
