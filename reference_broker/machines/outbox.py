"""Collects the effects of one entry and puts them into as few as possible.

The order of the effects of an entry: first one confirm or reject per channel and contiguous stretch of sequence
numbers. Then replies and deliveries in the order they arose, with one delivery per consumer as long as its ids are
contiguous and its messages share one delivery count. A reply about a consumer closes its delivery. So the messages
dealt before a cancel go before the cancel's reply, and the messages dealt after a checkout go after its reply. The
effects that only the leader executes go last: dead letters in the order they arose, the timer, then effects about the
queue itself. Only the watching of nodes goes before everything else.
"""

from __future__ import annotations

from reference_broker.machines.effects import (
    Confirm,
    DeadLetter,
    DeadLetterReason,
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
from reference_broker.machines.messages.origins import Origin, joined_step
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId

Answer = type[Confirm] | type[Reject]


class GrowingSpans:
    """Messages with consecutive ids, as stretches; more may be added."""

    __slots__ = ("delivery_count", "first_id", "next_id", "stretches")

    def __init__(self, first_id: int, delivery_count: int) -> None:
        self.first_id = first_id
        self.next_id = first_id
        self.delivery_count = delivery_count
        self.stretches: list[tuple[int, int, int, Origin]] = []

    def add(self, start: int, count: int, step: int, origin: Origin) -> None:
        """Add ``count`` messages under the next ids."""
        self.next_id += count
        if self.stretches:
            last_start, last_count, last_step, last_origin = self.stretches[-1]
            if last_origin == origin:
                joined = joined_step(last_start, last_count, last_step, start, count, step)
                if joined:
                    self.stretches[-1] = (last_start, last_count + count, joined, origin)
                    return
        self.stretches.append((start, count, step, origin))

    def spans(self) -> tuple[Span, ...]:
        """The places of the messages in the log."""
        return tuple(
            [
                Span(LogIndex(origin.entry), origin.offset, start, count, step if count > 1 else 1)
                for start, count, step, origin in self.stretches
            ]
        )


class GrowingDelivery(GrowingSpans):
    """A :class:`Deliver` in the making."""

    __slots__ = ("consumer",)

    def __init__(self, consumer: ConsumerId, first_id: int, delivery_count: int) -> None:
        self.consumer = consumer  # no call of another __init__: one object per delivery
        self.first_id = first_id
        self.next_id = first_id
        self.delivery_count = delivery_count
        self.stretches = []

    def fits(self, first_id: int, delivery_count: int) -> bool:
        """Whether a stretch that begins with this id may follow in the same delivery."""
        return first_id == self.next_id and delivery_count == self.delivery_count

    def seal(self) -> Deliver:
        """The effect, as it stands."""
        return Deliver(self.consumer, self.first_id, self.spans(), self.delivery_count)


class GrowingDeadLetters(GrowingSpans):
    """A :class:`DeadLetter` that still grows."""

    __slots__ = ("is_repeat", "reason")

    def __init__(self, first_id: int, delivery_count: int, reason: DeadLetterReason, *, is_repeat: bool) -> None:
        super().__init__(first_id, delivery_count)
        self.reason = reason
        self.is_repeat = is_repeat

    def fits(self, first_id: int, delivery_count: int, reason: DeadLetterReason) -> bool:
        """Whether these letters may follow in the same effect."""
        follows = first_id == self.next_id if first_id and self.first_id else first_id == self.first_id
        return follows and (delivery_count, reason) == (self.delivery_count, self.reason)

    def seal(self) -> DeadLetter:
        """The effect, as it stands."""
        return DeadLetter(self.first_id, self.spans(), self.reason, self.delivery_count, self.is_repeat)


class Outbox:
    """The effects of one entry, in the making."""

    __slots__ = (
        "_answers",
        "_last",
        "_letters",
        "_monitored",
        "_open",
        "_ordered",
        "_timer_ms",
        "at_most_once_count",
        "at_most_once_octets",
    )

    def __init__(self) -> None:
        self._monitored: dict[NodeId, None] = {}
        self._answers: dict[ChannelId, list[tuple[int, int, Answer]]] = {}
        self._ordered: list[Reply | GrowingDelivery] = []
        self._open: dict[ConsumerId, GrowingDelivery] = {}
        self._letters: list[GrowingDeadLetters] = []
        self._timer_ms: int | None = None
        self._last: tuple[Effect, ...] = ()
        self.at_most_once_count = self.at_most_once_octets = 0
        """Dead letters of this entry that are sent at most once, and the octets of their bodies."""

    def monitor(self, node: NodeId) -> None:
        """Watch this node."""
        self._monitored[node] = None

    def answer(self, channel: ChannelId, first: int, last: int, kind: Answer) -> None:
        """The channel's sequence numbers ``first..last`` are committed, or refused."""
        answers = self._answers.setdefault(channel, [])
        if answers and answers[-1][1] + 1 == first and answers[-1][2] is kind:
            answers[-1] = (answers[-1][0], last, kind)
        else:
            answers.append((first, last, kind))

    def reply(self, channel: ChannelId, correlation: int, value: int, consumer: ConsumerId | None = None) -> None:
        """Answer a command; ``consumer`` is the consumer that the command was about, if any."""
        if consumer is not None:
            self._open.pop(consumer, None)
        self._ordered.append(Reply(channel, correlation, value))

    def deliver(self, consumer: ConsumerId, first_id: int, start: int, count: int, step: int, origin: Origin) -> None:
        """Deliver a stretch to a consumer, under the ids ``first_id``, +1, ..."""
        parcel = self._open.get(consumer)
        if parcel is None or not parcel.fits(first_id, origin.delivery_count):
            parcel = self._open[consumer] = GrowingDelivery(consumer, first_id, origin.delivery_count)
            self._ordered.append(parcel)
        parcel.add(start, count, step, origin)

    def dead_letter(
        self,
        first_id: int,
        count: int,
        start: int,
        step: int,
        origin: Origin,
        reason: DeadLetterReason,
        *,
        is_repeat: bool = False,
    ) -> None:
        """Dead-letter a stretch, under the ids ``first_id``, +1, ..., or without ids (0). The letters of one outbox are
        either all repeats or none."""
        if not self._letters or not self._letters[-1].fits(first_id, origin.delivery_count, reason):
            letters = GrowingDeadLetters(first_id, origin.delivery_count, reason, is_repeat=is_repeat)
            self._letters.append(letters)
        self._letters[-1].add(start, count, step, origin)

    def timer(self, at_ms: int) -> None:
        """Set the leader's timer, in place of the former one."""
        self._timer_ms = at_ms

    def queue_expired(self, unused_ms: int) -> None:
        """The queue should be deleted: it was unused for ``unused_ms``."""
        self._at_last(QueueExpired(unused_ms))

    def settings_changed(self) -> None:
        """The queue's settings have changed."""
        self._at_last(SettingsChanged())

    def _at_last(self, effect: Effect) -> None:
        if effect not in self._last:
            self._last += (effect,)

    def effects(self) -> list[Effect]:
        """All effects, in the order of their execution."""
        effects: list[Effect] = []
        if self._monitored:
            effects += [MonitorNode(node) for node in self._monitored]
        for channel, answers in self._answers.items():
            for first, last, kind in answers:
                effects.append(kind(channel, first, last))
        for item in self._ordered:
            effects.append(item.seal() if isinstance(item, GrowingDelivery) else item)
        if self._letters:
            effects += [letters.seal() for letters in self._letters]
        if self._timer_ms is not None:
            effects.append(SetTimer(self._timer_ms))
        if self._last:
            effects += self._last
        return effects
