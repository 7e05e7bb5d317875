"""A keyed queue that looks at all its messages whenever it deals one: slow, obvious, and written from the rules alone.

It knows no heap and no state of a key. A key is blocked while a consumer holds one of its messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_broker.machines.commands import NO_LABEL, Enqueue, Label

from .oracle import Message, Oracle, Subscriber


@dataclass(eq=False)
class KeyedMessage(Message):
    label: Label = NO_LABEL
    at: int = 0
    until: float = float("inf")


class KeyedOracle(Oracle):
    def waiting(self) -> list[KeyedMessage]:
        return [each for each in [*self.fresh, *self.returned] if isinstance(each, KeyedMessage)]

    def out(self) -> list[tuple[float, int, Subscriber, int, KeyedMessage]]:
        return sorted(
            (message.until, message.number, one, message_id, message)
            for one in self.subscribers.values()
            for message_id, message in one.held.items()
            if isinstance(message, KeyedMessage)
        )

    def next_head(self) -> KeyedMessage | None:
        """The head that is dealt next, whether its time has come or not."""
        blocked = {message.label.key for *_rest, message in self.out()} - {None}
        heads: dict[object, KeyedMessage] = {}
        for message in sorted(self.waiting(), key=lambda each: each.number):
            heads.setdefault(message.number if message.label.key is None else message.label.key, message)
        free = [head for key, head in heads.items() if key not in blocked]
        return min(free, key=lambda head: (head.at, head.number), default=None)

    def can_deal(self) -> bool:
        head = self.next_head()
        return head is not None and head.at <= self.now

    def first(self) -> Message:
        head = self.next_head()
        assert head is not None
        return head

    def drained(self) -> list[tuple[tuple[int, int, int], int]]:
        """The messages that could be dealt if each were settled at once."""
        before, found = (list(self.fresh), list(self.returned)), []
        while self.can_deal():
            message = self.take_first()
            found.append((message.place, message.delivery_count))
        self.fresh, self.returned = before
        return found

    def hand(self, subscriber: Subscriber, message: Message, settled: bool) -> None:
        assert isinstance(message, KeyedMessage)
        assert self.config.keyed is not None
        reserve_ms = self.config.keyed.reserve_ms
        message.until = self.now + reserve_ms if reserve_ms >= 0 else float("inf")
        super().hand(subscriber, message, settled)

    def let_in(self, command: Enqueue, index: int, offset: int, position: int) -> Message:
        plain = super().let_in(command, index, offset, position)
        labels = [label for count, label in command.labels for _ in range(count)]
        label = labels[position] if labels else Label()
        expires = plain.expires + label.delay_ms
        message = KeyedMessage(plain.number, plain.place, expires, plain.size)
        message.label, message.at = label, self.now + label.delay_ms
        self.fresh[-1] = message
        return message

    def give_back(self, messages: list[Message]) -> None:
        assert self.config.keyed is not None
        for message in messages:
            assert isinstance(message, KeyedMessage)
            own = message.label.retry_ms
            delay = own if own >= 0 else self.config.keyed.retry_delay_ms
            message.at = self.now + delay if delay else message.at
        super().give_back(messages)

    def take_back_overdue(self) -> None:
        for until, _number, one, message_id, message in self.out():
            if until <= self.now:
                del one.held[message_id]
                one.lost_messages = True
                self.give_back([message])
                self.choose_active()
                self.queue_up()

    def due_messages(self) -> list[float]:
        times = [until for until, *_rest in self.out()]
        if (head := self.next_head()) is not None:
            times.append(max(head.at, head.expires))
            times += [head.at] if self.turns and head.at > self.now else []
        return times
