"""Random command logs of a small world, and the means to read a machine message by message.

Four nodes, two lives each, two channels a life, two consumer tags. Each log has a few favourites among them, so that
its commands meet. A channel's sequence numbers mostly go on, sometimes repeat and sometimes leave a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from reference_broker.machines.batch import decode_batch, encode_batch
from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    Discard,
    Enqueue,
    IdRange,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
)
from reference_broker.machines.config import FifoConfig
from reference_broker.machines.effects import Confirm, Deliver, Effect, MonitorNode, Reply
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.message_run import MessageRun
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId, Term

from .oracle import Delivery, Told

TERM = Term(1)
TAGS = ("a", "b")
ROUTE = b"\x00\x01q"


def channel(node: int, number: int = 1, incarnation: int = 1) -> ChannelId:
    return ChannelId(NodeId(node), incarnation, 1, number)


def consumer(node: int, tag: str = "a", number: int = 1, incarnation: int = 1) -> ConsumerId:
    return ConsumerId(channel(node, number, incarnation), tag)


def run_of(count: int) -> MessageRun:
    return MessageRun(count, ROUTE, bytes(8 * count), 8)


def batch(*commands: Command) -> bytes:
    return b"".join(encode_batch(1, commands))


def machine(delivery_limit: int = -1) -> FifoMachine:
    return FifoMachine(FifoConfig(name="q", delivery_limit=delivery_limit))


def apply(queue: FifoMachine, *commands: Command) -> list[Effect]:
    """Apply these as the next entry."""
    return queue.apply(Meta(LogIndex(queue.applied + 1), TERM), batch(*commands))


@dataclass
class RandomLog:
    """Makes up commands. ``random`` is all it draws from, so a seed names a log."""

    random: Random
    next_seqs: dict[ChannelId, int] = field(default_factory=dict)
    correlation: int = 0
    favourites: list[ConsumerId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.favourites = [self.any_consumer() for _ in range(self.random.choice((1, 2, 2, 3, 3, 4, 6)))]

    def entries(self, count: int, commands_max: int = 4) -> list[bytes]:
        """The payloads of that many entries."""
        return [batch(*self.commands(self.random.randint(1, commands_max))) for _ in range(count)]

    def commands(self, count: int) -> list[Command]:
        kinds: list[tuple[Callable[[], Command], int]] = [
            (self.enqueue, 30),
            (self.settle, 16),
            (self.checkout, 9),
            (lambda: Return(self.consumer(), self.ranges()), 7),
            (lambda: Discard(self.consumer(), self.ranges()), 3),
            (lambda: Cancel(self.consumer(), self.next_correlation()), 2),
            (lambda: self.channel_down(), 2),
            (lambda: NodeDown(self.node()), 2),
            (lambda: NodeUp(self.node(), self.random.choice((1, 1, 1, 2))), 3),
            (lambda: Purge(self.channel(), self.next_correlation()), 1),
        ]
        makers = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds], k=count)
        return [make() for make in makers]

    def node(self) -> NodeId:
        return self.channel().node

    def channel(self) -> ChannelId:
        return self.consumer().channel

    def consumer(self) -> ConsumerId:
        return self.any_consumer() if self.random.random() < 0.1 else self.random.choice(self.favourites)

    def any_consumer(self) -> ConsumerId:
        node, number, tag = self.random.randint(1, 4), self.random.choice((1, 2)), self.random.choice(TAGS)
        return consumer(node, tag, number, self.random.choice((1, 1, 1, 2)))

    def next_correlation(self) -> int:
        self.correlation += 1
        return self.correlation

    def enqueue(self) -> Command:
        enqueuer, run = self.channel(), run_of(self.random.choice((1, 1, 2, 3, 7, 12, 40)))
        if self.random.random() < 0.05:
            return Enqueue(enqueuer, 0, run)
        first = self.next_seqs.get(enqueuer, 1)
        first = max(1, first + self.random.choice((0, 0, 0, 0, 0, 0, -1, -3, -50, 2)))
        self.next_seqs[enqueuer] = max(self.next_seqs.get(enqueuer, 1), first + run.count)
        return Enqueue(enqueuer, first, run)

    def channel_down(self) -> Command:
        gone = self.channel()
        self.next_seqs.pop(gone, None)
        return ChannelDown(gone)

    def checkout(self) -> Command:
        credit = self.random.choice((1, 2, 3, 5, 10, 30, 200))
        priority = self.random.choice((0, 0, 0, 0, 1, -2))
        return Checkout(self.consumer(), credit, self.random.random() < 0.08, priority, self.next_correlation())

    def settle(self) -> Command:
        return Settle(self.consumer(), self.ranges())

    def ranges(self) -> tuple[IdRange, ...]:
        """Mostly a prefix, as clients settle; else anything, with overlaps, empty ranges and unknown ids."""
        if self.random.random() < 0.5:
            return ((0, self.random.choice((0, 2, 5, 20, 60, 1 << 40))),)
        firsts = [self.random.randint(0, 40) for _ in range(self.random.randint(1, 3))]
        return tuple((first, max(0, first + self.random.choice((-1, 0, 0, 1, 4, 15)))) for first in firsts)


def unroll(delivery: Deliver) -> list[Delivery]:
    """One line a message."""
    places = [
        (span.index, span.offset, span.start + turn * span.step)
        for span in delivery.spans
        for turn in range(span.count)
    ]
    first = delivery.first_message_id
    return [(first + turn, place, delivery.delivery_count) for turn, place in enumerate(places)]


def told(effects: Iterable[Effect]) -> Told:
    """What the effects amount to, message by message."""
    result = Told()
    for effect in effects:
        match effect:
            case Confirm():
                result.confirmed.update((effect.channel, seq) for seq in range(effect.first, effect.last + 1))
            case Deliver():
                result.delivered.setdefault(effect.consumer, []).extend(unroll(effect))
            case Reply():
                result.replies.append((effect.channel, effect.correlation, effect.value))
            case MonitorNode():
                result.monitored.add(effect.node)
    return result


def held(queue: FifoMachine) -> dict[ConsumerId, list[Delivery]]:
    """What every consumer holds."""
    lives = sorted({(channel_id.node, channel_id.incarnation) for channel_id in queue.channels()})
    deliveries = [delivery for node, life in lives for delivery in queue.redeliver_local(node, life)]
    return told(deliveries).delivered


def drained(queue: FifoMachine) -> list[tuple[tuple[int, int, int], int]]:
    """The ready messages in order, with their delivery counts: what a consumer gets who takes them all.

    Works on a copy, and first moves everybody else out of service.
    """
    copy = FifoMachine.restore(queue.snapshot())
    taker = ConsumerId(ChannelId(NodeId(60000), 1, 1, 1), "drain")
    for other in copy.service_order():
        apply(copy, Cancel(other, 0))
    delivered = told(apply(copy, Checkout(taker, 1, True, 0, 0))).delivered
    return [(place, count) for _id, place, count in delivered.get(taker, [])]


def decoded(payload: bytes) -> list[tuple[int, Command]]:
    return decode_batch(payload)[1]
