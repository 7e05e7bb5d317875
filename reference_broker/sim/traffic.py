"""The messages of one connection of a client: what it publishes and hears of that, and what it consumes and settles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pamqp.common import FieldValue

from reference_broker.sim import amqp
from reference_broker.sim.checks.invariants import ViolationError, check
from reference_broker.sim.checks.ledger import PLAIN, ConsumerRecord, MessageLedger, MessageSort
from reference_broker.sim.environment import Environment
from reference_broker.sim.queues import FAN, FanPlan, QueuePlan
from reference_broker.sim.story import Story

PUBLISHING: Final = 1
"""The channel that publishes."""
GETTING: Final = 50
"""The channel that fetches messages one by one."""
_LARGE: Final = 0.1
_LARGE_CLASSIC: Final = 5000
"""Octets of a large message to a classic queue: above the limit from which messages go to the shared store."""
_TRANSIENT: Final = 0.3
_KEYS: Final = ("", "a", "a", "b", "c")
_LATE: Final = 0.1
"""The share of the messages to keyed queues with a delay of either sort."""


class SessionPorts(NamedTuple):
    """What publisher and consumers have of their connection: the world, the story, and how to send octets."""

    env: Environment
    ledger: MessageLedger
    host: str
    send: Callable[[bytes], None]
    story: Story


class SimPublisher:
    """The publishes of one connection, in confirm mode."""

    def __init__(self, ports: SessionPorts, *, window: int, burst: int, large_bytes: int, fan_share: float) -> None:
        """``window``: how many messages may be unconfirmed. ``burst``: how many come at once. ``fan_share``: how
        many of the publishes go to the fan."""
        self.number = ports.ledger.new_publisher()
        self.unconfirmed: dict[int, tuple[int, QueuePlan | FanPlan]] = {}
        self.bound: list[QueuePlan] = []
        """The queues that are bound to the fan."""
        self._ports = ports
        self._window = window
        self._burst = burst
        self._large_bytes = large_bytes
        self._fan_share = fan_share
        self._published = 0

    def has_room(self, count: int) -> bool:
        """Whether so many more messages may be unconfirmed."""
        return len(self.unconfirmed) + count <= self._window

    def publish(self, own: Sequence[QueuePlan]) -> None:
        """Publish some messages to the fan, to any queue of the world, or to one of the connection's ``own``."""
        env = self._ports.env
        count = env.chance.randint(1, self._burst)
        if not self.has_room(count):
            return
        if self.bound and env.chance.random() < self._fan_share:
            self._publish_to_fan(count)
        else:
            self.publish_to(env.chance.choice([*env.queues, *own]), count)

    def _publish_to_fan(self, count: int) -> None:
        ledger = self._ports.ledger
        must = tuple(queue for queue in self.bound if queue.is_kept and not queue.is_classic)
        self._ports.story.publishes(self._ports.host, "the fan", ledger.published + 1, count)
        octets = []
        for _ in range(count):
            number, body = ledger.body_for_fan(self.number, 20)
            self._sent(number, FanPlan(must))
            octets.append(amqp.publish(PUBLISHING, "", body, mandatory=bool(must), exchange=FAN))
        self._ports.send(b"".join(octets))

    def publish_to(self, queue: QueuePlan, count: int) -> None:
        """Publish so many messages to a queue, or a large one."""
        chance, ledger = self._ports.env.chance, self._ports.ledger
        padding = chance.choice((0, 10, 100, 1000)) if chance.random() < 0.2 else 20
        large = self._large_bytes or _LARGE_CLASSIC * queue.is_classic
        if large and chance.random() < _LARGE:
            count, padding = 1, large
        octets = []
        self._ports.story.publishes(self._ports.host, queue.name, ledger.published + 1, count)
        for _ in range(count):
            sort = self._sort(queue) if queue.is_classic or queue.has_keys else PLAIN
            number, body = ledger.body(self.number, padding, queue, sort)
            self._sent(number, queue)
            ttl_ms = self._ttl_ms(queue)
            octets.append(amqp.publish(PUBLISHING, queue.name, body, ttl_ms, persistent=sort.is_persistent,
                                       priority=sort.priority, mandatory=queue.is_classic,
                                       headers=self._headers(sort) if queue.has_keys else None))  # fmt: skip
        self._ports.send(b"".join(octets))

    def _sent(self, number: int, to: QueuePlan | FanPlan) -> None:
        self._published += 1
        self.unconfirmed[self._published] = (number, to)

    def _sort(self, queue: QueuePlan) -> MessageSort:
        """Whether a message is persistent, its priority, and its key."""
        chance = self._ports.env.chance
        is_persistent = not queue.is_classic or chance.random() > _TRANSIENT
        priority = chance.randint(0, queue.max_priority) if queue.max_priority else 0
        return MessageSort(is_persistent, priority, chance.choice(_KEYS) if queue.has_keys else "")

    def _headers(self, sort: MessageSort) -> dict[str, FieldValue]:
        """The key of a message, and now and then a delay."""
        chance = self._ports.env.chance
        headers: dict[str, FieldValue] = {"x-group-key": sort.key} if sort.key else {}
        for name in ("x-delay", "x-retry-delay"):
            if chance.random() < _LATE:
                headers[name] = chance.choice((0, 1, 20, 300))
        return headers

    def _ttl_ms(self, queue: QueuePlan) -> int | None:
        """Now and then a time to live, for a message that nobody misses if it expires."""
        chance = self._ports.env.chance
        return chance.choice((0, 10, 500)) if queue.may_bury and chance.random() < 0.1 else None

    def hears(self, tag: int, multiple: int, answer: Callable[[QueuePlan | FanPlan, int], None]) -> None:
        """The broker confirms or refuses messages."""
        first = next(iter(self.unconfirmed), 0) if multiple else tag
        answered = [seq for seq in self.unconfirmed if seq <= tag] if multiple else [tag]
        for seq in answered:
            message = self.unconfirmed.pop(seq, None)
            if message is None:
                raise ViolationError("I31", f"{self._ports.host}: confirm {tag}, {first} is not outstanding")
            self._ports.story.hears(self._ports.host, message[1].name, message[0], answer.__name__)
            answer(message[1], message[0])


class SimConsumer:
    """One consumer on one channel. The gets of a channel count as a consumer without a tag."""

    def __init__(
        self, ports: SessionPorts, channel: int, queue: QueuePlan, *, no_ack: bool, priority: int, disgust: float
    ) -> None:
        """``disgust``: how many of the messages are rejected, beside a few."""
        self.channel = channel
        self.queue = queue
        self.tag = f"{ports.host}.{channel}" if channel != GETTING else ""
        self.no_ack = no_ack
        self.priority = priority
        self.gets = False
        self.held: deque[tuple[int, int]] = deque()
        """Delivery tag and number of each message that is not settled."""
        self.is_consuming = False
        self._ports = ports
        self._record = ConsumerRecord(f"{ports.host}.{channel}", queue)
        self._last_tag = 0
        self._disgust = disgust

    def comes(self, tag: int) -> None:
        """The broker says that a message follows."""
        check(tag == self._last_tag + 1, "I20", f"{self._ports.host}: tag {tag} after {self._last_tag}")
        self._last_tag = tag

    def gets_message(self, body: bytes, tag: int, *, redelivered: bool) -> None:
        """A message is there."""
        ledger, host = self._ports.ledger, self._ports.host
        self._ports.story.gets(host, self.queue.name, body, tag, self.channel, again=redelivered)
        number = ledger.delivers(self._record, body, redelivered)
        if self.no_ack:
            ledger.settles(number)
        else:
            self.held.append((tag, number))

    def settle_some(self) -> None:
        """Acknowledge, return or reject some of the messages."""
        chance = self._ports.env.chance
        what = chance.random()
        if what < 0.8 - self._disgust:
            self.settle(chance.randint(1, len(self.held)))
        elif what < 0.9 - self._disgust:
            self._settle_one("acks", amqp.ack)
        elif what < 0.98 - self._disgust:
            self.give_back_one()
        else:
            done = not self.queue.keeps_letters
            self._settle_one("rejects", lambda channel, tag, _: amqp.nack(channel, tag, False, False), done=done)

    def give_back_one(self) -> None:
        """Return any one message to the queue."""
        self._settle_one("returns", lambda channel, tag, _: amqp.nack(channel, tag, False, True), done=False)

    def settle(self, count: int) -> None:
        """Acknowledge the oldest messages with one basic.ack (``multiple``)."""
        if not count:
            return
        for _ in range(count):
            tag, number = self.held.popleft()
            self._ports.story.settles(self._ports.host, self.queue.name, "acks", number, tag, self.channel)
            self._ports.ledger.settles(number)
        self._ports.send(amqp.ack(self.channel, tag, True))

    def _settle_one(self, how: str, octets: Callable[[int, int, bool], bytes], *, done: bool = True) -> None:
        """Settle, return or reject any one message, as the story says in a word (``how``)."""
        at = self._ports.env.chance.randrange(len(self.held))
        tag, number = self.held[at]
        del self.held[at]
        self._ports.story.settles(self._ports.host, self.queue.name, how, number, tag, self.channel)
        if done:
            self._ports.ledger.settles(number)
        self._ports.send(octets(self.channel, tag, False))
