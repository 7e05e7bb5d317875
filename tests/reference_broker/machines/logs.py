"""Random command logs of a small world, and the means to read a machine message by message.

Four nodes, two starts each, two channels a start, two consumer tags. Each log has a few favourites among them, so that
its commands meet. A channel's sequence numbers mostly go on, sometimes repeat and sometimes leave a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from reference_broker.machines.batch import decode_batch, encode_batch
from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    GetCheckedOut,
    Label,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import DeadLetterStrategy, FifoConfig, KeyedConfig, Overflow
from reference_broker.machines.effects import (
    Confirm,
    DeadLetter,
    Deliver,
    Effect,
    MonitorNode,
    QueueExpired,
    Reject,
    Reply,
    SetTimer,
    SettingsChanged,
    Span,
)
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.machines.fifo_snapshot import decode_state
from reference_broker.message_run import MessageRun
from reference_broker.types import ChannelId, ConsumerId, IdRange, LogIndex, NodeId, Term

from .oracle import Delivery, Letter, Told

TERM = Term(1)
TAGS = ("a", "b")
ROUTE = b"\x00\x01q"


def channel(node: int, number: int = 1, boot_id: int = 1) -> ChannelId:
    return ChannelId(NodeId(node), boot_id, 1, number)


def consumer(node: int, tag: str = "a", number: int = 1, boot_id: int = 1) -> ConsumerId:
    return ConsumerId(channel(node, number, boot_id), tag)


def run_of(count: int) -> MessageRun:
    return MessageRun(count, ROUTE, bytes(8 * count), 8)


def content(body_size: int) -> bytes:
    """The frames of a message without properties."""
    header = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + body_size.to_bytes(8, "big") + b"\x00\x00\xce"
    body = b"\x03\x00\x01" + body_size.to_bytes(4, "big") + bytes(body_size) + b"\xce"
    return header + body if body_size else header


def run_with(*body_sizes: int) -> MessageRun:
    """A uniform run if it can be one, else a ragged one."""
    contents = [content(size) for size in body_sizes]
    if len(set(body_sizes)) == 1 and body_sizes[0]:
        return MessageRun(len(contents), ROUTE, b"".join(contents), len(contents[0]))
    return MessageRun.of(ROUTE, contents)


def batch(*commands: Command, time_ms: int = 1) -> bytes:
    return b"".join(encode_batch(time_ms, commands))


def machine(delivery_limit: int = -1) -> FifoMachine:
    return FifoMachine(FifoConfig(name="q", delivery_limit=delivery_limit))


def apply(queue: FifoMachine, *commands: Command, time_ms: int = 1) -> list[Effect]:
    """Apply these as the next entry."""
    return queue.apply(Meta(LogIndex(queue.applied + 1), TERM), batch(*commands, time_ms=time_ms))


def any_config(random: Random, *, is_classic: bool = False, has_keys: bool = False) -> FifoConfig:
    """Any settings; each of them is off half the time."""
    if has_keys:
        keyed = KeyedConfig(retry_delay_ms=random.choice((0, 0, 10, 60)), reserve_ms=random.choice((-1, -1, 20, 70)))
        return replace(any_config(random, is_classic=is_classic), keyed=keyed, overflow=Overflow.REJECT_PUBLISH)
    overflows = [Overflow.DROP_HEAD, Overflow.REJECT_PUBLISH, *[Overflow.REJECT_PUBLISH_DLX] * is_classic]
    return FifoConfig(
        name="q",
        delivery_limit=random.choice((-1, -1, -1, 0, 1, 3)),
        max_length=random.choice((-1, -1, -1, 0, 5, 20, 60)),
        max_length_bytes=random.choice((-1, -1, -1, 30, 100, 400)),
        overflow=random.choice(overflows),
        message_ttl_ms=random.choice((-1, -1, -1, 0, 10, 60)),
        expires_ms=random.choice((-1, -1, 30, 100)),
        single_active=random.random() < 0.3,
        dead_letter=random.choice((None, DeadLetterStrategy.AT_MOST_ONCE, DeadLetterStrategy.AT_LEAST_ONCE)),
    )


@dataclass
class RandomLog:
    """Makes up commands. ``random`` is all it draws from, so a seed names a log.

    With ``features`` it also makes those of limits, times to live, gets, policies and dead letters; for a classic queue
    also exclusive consumers; for a keyed queue also labels.
    """

    random: Random
    features: bool = False
    is_classic: bool = False
    has_keys: bool = False
    now_ms: int = 1000
    next_seqs: dict[ChannelId, int] = field(default_factory=dict)
    correlation: int = 0
    favourites: list[ConsumerId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.favourites = [self.any_consumer() for _ in range(self.random.choice((1, 2, 2, 3, 3, 4, 6)))]

    def entries(self, count: int, commands_max: int = 4) -> list[bytes]:
        """The payloads of that many entries."""
        return [self.entry(commands_max) for _ in range(count)]

    def entry(self, commands_max: int) -> bytes:
        """The clock of a new leader may be behind."""
        self.now_ms += self.random.choice((0, 0, 1, 5, 5, 20, 50, -15))
        return batch(*self.commands(self.random.randint(1, commands_max)), time_ms=self.now_ms)

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
            (lambda: GetCheckedOut(self.consumer(), self.random.choice((0, 1, 5, 20)), self.next_correlation()), 2),
        ]
        if self.features:
            kinds += [
                (self.get, 5),
                (Tick, 5),
                (lambda: UpdateConfig(self.any_config()), 1),
                (lambda: DeadLetterSettled(self.ranges()), 5),
            ]
        makers = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds], k=count)
        return [make() for make in makers]

    def any_config(self) -> FifoConfig:
        return any_config(self.random, is_classic=self.is_classic, has_keys=self.has_keys)

    def node(self) -> NodeId:
        return self.channel().node

    def channel(self) -> ChannelId:
        return self.consumer().channel

    def consumer(self) -> ConsumerId:
        if self.features and self.random.random() < 0.05:
            return ConsumerId(self.random.choice(self.favourites).channel, "get")
        return self.any_consumer() if self.random.random() < 0.1 else self.random.choice(self.favourites)

    def any_consumer(self) -> ConsumerId:
        node, number, tag = self.random.randint(1, 4), self.random.choice((1, 2)), self.random.choice(TAGS)
        return consumer(node, tag, number, self.random.choice((1, 1, 1, 2)))

    def next_correlation(self) -> int:
        self.correlation += 1
        return self.correlation

    def enqueue(self) -> Command:
        enqueuer, run, ttl_ms = self.channel(), self.run(), -1
        if self.features and self.random.random() < 0.3:
            ttl_ms = self.random.choice((0, 5, 30, 200))
        labels = tuple(self.labels(run.count)) if self.has_keys else ()
        if self.random.random() < 0.05:
            return Enqueue(enqueuer, 0, run, ttl_ms, labels)
        first = self.next_seqs.get(enqueuer, 1)
        first = max(1, first + self.random.choice((0, 0, 0, 0, 0, 0, -1, -3, -50, 2)))
        self.next_seqs[enqueuer] = max(self.next_seqs.get(enqueuer, 1), first + run.count)
        return Enqueue(enqueuer, first, run, ttl_ms, labels)

    def labels(self, count: int) -> Iterator[tuple[int, Label]]:
        while count:
            here = min(count, self.random.choice((1, 1, 2, 9)))
            key = self.random.choice((None, b"", b"a", b"a", b"b", b"c"))
            yield here, Label(key, self.random.choice((0, 0, 0, 5, 40)), self.random.choice((-1, -1, -1, 0, 30)))
            count -= here

    def run(self) -> MessageRun:
        count = self.random.choice((1, 1, 2, 3, 7, 12, 40))
        if not self.features:
            return run_of(count)
        size = self.random.choice((0, 3, 10, 45))
        if self.random.random() < 0.7:
            return run_with(*[size] * count)
        return run_with(*[self.random.choice((size, size, 0, 7)) for _ in range(count)])

    def get(self) -> Command:
        """Mostly under a name of its own, as channels do."""
        one = self.consumer()
        if self.random.random() < 0.9:
            one = ConsumerId(one.channel, "get")
        return Get(one, self.random.random() < 0.3, self.next_correlation())

    def channel_down(self) -> Command:
        gone = self.channel()
        self.next_seqs.pop(gone, None)
        return ChannelDown(gone)

    def checkout(self) -> Command:
        credit = self.random.choice((1, 2, 3, 5, 10, 30, 200))
        priority = self.random.choice((0, 0, 0, 0, 1, -2))
        exclusive = self.is_classic and self.random.random() < 0.1
        auto_settle = self.random.random() < 0.08
        return Checkout(self.consumer(), credit, auto_settle, priority, self.next_correlation(), exclusive)

    def settle(self) -> Command:
        return Settle(self.consumer(), self.ranges())

    def ranges(self) -> tuple[IdRange, ...]:
        """Mostly a prefix, as clients settle; else anything, with overlaps, empty ranges and unknown ids."""
        if self.random.random() < 0.5:
            return ((0, self.random.choice((0, 2, 5, 20, 60, 1 << 40))),)
        firsts = [self.random.randint(0, 40) for _ in range(self.random.randint(1, 3))]
        return tuple((first, max(0, first + self.random.choice((-1, 0, 0, 1, 4, 15)))) for first in firsts)


def places(spans: Iterable[Span]) -> list[tuple[int, int, int]]:
    """One line a message."""
    return [(span.index, span.offset, span.start + turn * span.step) for span in spans for turn in range(span.count)]


def unroll(delivery: Deliver) -> list[Delivery]:
    """One line a message."""
    first = delivery.first_message_id
    return [(first + turn, place, delivery.delivery_count) for turn, place in enumerate(places(delivery.spans))]


def unroll_letters(letters: DeadLetter) -> list[Letter]:
    """One line a message."""
    first, reason = letters.first_id, letters.reason.name.lower()
    return [
        (first and first + turn, place, reason, letters.delivery_count)
        for turn, place in enumerate(places(letters.spans))
    ]


def told(effects: Iterable[Effect]) -> Told:
    """What the effects amount to, message by message."""
    result = Told()
    for effect in effects:
        match effect:
            case Confirm():
                result.confirmed.update((effect.channel, seq) for seq in range(effect.first, effect.last + 1))
            case Reject():
                result.rejected.update((effect.channel, seq) for seq in range(effect.first, effect.last + 1))
            case Deliver():
                result.delivered.setdefault(effect.consumer, []).extend(unroll(effect))
            case Reply():
                result.replies.append((effect.channel, effect.correlation, effect.value))
            case MonitorNode():
                result.monitored.add(effect.node)
            case DeadLetter():
                result.letters += unroll_letters(effect)
            case SetTimer():
                result.timer = effect.at_ms
            case QueueExpired():
                result.expired = True
            case SettingsChanged():
                result.settings_changed = True
    return result


def held(queue: FifoMachine) -> dict[ConsumerId, list[Delivery]]:
    """What every consumer holds."""
    starts = sorted({(channel_id.node, channel_id.boot_id) for channel_id in queue.channels()})
    deliveries = [delivery for node, boot_id in starts for delivery in queue.redeliver_local(node, boot_id)]
    return told(deliveries).delivered


def drained(queue: FifoMachine) -> list[tuple[tuple[int, int, int], int]]:
    """The ready messages in order, with their delivery counts."""
    ready, found = decode_state(queue.snapshot()).ready, list[tuple[tuple[int, int, int], int]]()
    while ready:
        count, start, step, origin = ready.head()
        ready.take(count)
        found += [((origin.entry, origin.offset, start + turn * step), origin.delivery_count) for turn in range(count)]
    return found


def decoded(payload: bytes) -> list[tuple[int, Command]]:
    return decode_batch(payload)[1]
