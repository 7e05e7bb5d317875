"""The clients of a world: AMQP octets through simulated connections, to the production code of a node.

A client has one connection at a time, to any node, with one channel that publishes in confirm mode and some channels
that consume. It acknowledges, requeues and rejects by chance, subscribes again under the same tag, and purges or
deletes fleeting queues. It dies politely, in the middle of anything, or as soon as it has subscribed; then it comes
back on another node. A :class:`SimSession` is one of its connections, and checks everything that the client hears;
:mod:`reference_broker.sim.traffic` has what the session publishes and consumes.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from pamqp import base, commands

from reference_broker.sim import amqp
from reference_broker.sim.checks.invariants import ViolationError, check
from reference_broker.sim.checks.ledger import MessageLedger
from reference_broker.sim.classic_queues import OWN_SHARE, own_queue
from reference_broker.sim.environment import Environment
from reference_broker.sim.loop import SimLoop
from reference_broker.sim.node import AMQP_PORT, host_of
from reference_broker.sim.queues import FAN, FAN_SHARE, QueuePlan, may_be_bound, young_queue
from reference_broker.sim.story import Story
from reference_broker.sim.traffic import GETTING, PUBLISHING, SessionPorts, SimConsumer, SimPublisher
from reference_broker.types import NodeId

_MANY: Final = 0.15
_PATIENT: Final = 0.5
_CONSUMERS_MAX: Final = 10
_NOT_FOUND: Final = 404
_FORCED: Final = 320
_REGRET_S: Final = 0.02
_MISSED: Final = re.compile(r"'([\w-]+)' in vhost")
_RACE_S: Final = 0.004
_YOUNG_MAX: Final = 10
_STEADY: Final = 0.5
"""The share of sessions that go on after a queue of theirs was deleted or a channel was closed. The others hang up."""


_ANSWERS: Final = (
    commands.Channel.OpenOk,
    commands.Confirm.SelectOk,
    commands.Exchange.DeclareOk,
    commands.Queue.DeclareOk,
    commands.Queue.BindOk,
    commands.Queue.DeleteOk,
    commands.Queue.PurgeOk,
    commands.Basic.QosOk,
    commands.Basic.ConsumeOk,
    commands.Basic.CancelOk,
    commands.Basic.GetOk,
    commands.Basic.GetEmpty,
)


class Crowd:
    """All clients of a world, and the objects that they share. ``large_bytes`` is the size of large messages; 0: no
    message is large."""

    def __init__(
        self, env: Environment, ledger: MessageLedger, story: Story, *, node_ids: list[NodeId], large_bytes: int
    ) -> None:
        self.env = env
        self.ledger = ledger
        self.story = story
        self.node_ids = node_ids
        self.large_bytes = large_bytes
        self.clients: list[SimClient] = []
        self.fan_share = env.chance.choice((0.1, 0.3)) if env.chance.random() < FAN_SHARE else 0.0
        """How many of the publishes go to the fan; 0: the world has none."""
        self._young_queues = 0

    def next_young_queue(self) -> QueuePlan:
        """The plan of a queue that a client declares while the world runs."""
        self._young_queues += 1
        return young_queue(self._young_queues)

    def welcome(self, queue: QueuePlan) -> None:
        """A client has declared a new queue. From now on all clients use the queue, and the publishers publish to it at
        once."""
        self.env.queues.append(queue)
        for client in self.clients:
            if client.session is not None and client.publishes:
                client.session.welcome(queue)


class SimClient:
    """One client over all its connections."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.crowd = crowd
        self._env = env = crowd.env
        chance = env.chance
        self.host = f"c{number}"
        self.publishes = number == 1 or chance.random() < 0.6
        self.consumers = chance.randint(0 if self.publishes and number != 2 else 1, 2)
        if self.consumers and chance.random() < _MANY:
            self.consumers = chance.randint(3, _CONSUMERS_MAX)
        self.window = chance.choice((1, 10, 100))
        self.burst = min(self.window, chance.choice((1, 5, 20)))
        self.eagerness = chance.choice((0.2, 0.5, 0.9))
        self.diligence = chance.choice((0.1, 0.5, 0.9))
        self.restlessness = chance.choice((0.0, 0.002, 0.02))
        self.is_patient = chance.random() < _PATIENT
        """The client does not leave while it waits for an answer."""
        self.zeal = chance.choice((0.0, 0.0, 0.02))
        """How often the client purges or deletes a queue."""
        self.gets = chance.choice((0.0, 0.0, 0.1))
        self.disgust = chance.choice((0.0, 0.0, 0.0, 0.5))
        self.haste = chance.choice((0.0, 0.0, 0.0, 0.2))
        self.founds = chance.choice((0.0, 0.01, 0.03))
        """How often the client declares a new queue, to which others publish at once."""
        self.think_s = chance.choice((0.001, 0.004, 0.02))
        self._prefetches = chance.choice(((1,), (10,), (1, 5, 30), (100,)))
        self.loop = SimLoop(env.scheduler, env.network, self.host)  # type: ignore[abstract]
        self.session: SimSession | None = None
        self.loop.call_later(chance.random() * 0.2, self._dial)
        self.loop.call_later(chance.random() * 0.2, self._act)

    @property
    def is_quiet(self) -> bool:
        """Whether the client is connected and waits for nothing."""
        return self.session is not None and self.session.is_quiet

    def prefetch(self) -> int:
        """The prefetch of the next consumer."""
        return 200 if self._env.draining else self._env.chance.choice(self._prefetches)

    def session_over(self) -> None:
        """The connection has ended: dial again, to any node."""
        self.session = None
        self.loop.call_later(0.01 + self._env.chance.random() ** 3, self._dial)

    def restart(self) -> None:
        """End the connection, so that the next one begins under the rules of the end."""
        self.consumers = max(self.consumers, len(self._env.queues))
        if self.session is not None and self.session.transport is not None:
            self.session._end()

    def _dial(self) -> None:
        self.loop.create_task(self._connect())

    async def _connect(self) -> None:
        node = self._env.chance.choice(self.crowd.node_ids)
        self.crowd.story.client(self.host, "dials n{}".format, node)
        self.session = session = SimSession(self, self.crowd)
        try:
            await self.loop.create_connection(lambda: session, host_of(node), AMQP_PORT)
        except OSError:
            self.session_over()

    def _act(self) -> None:
        if self.session is not None:
            self.session.act()
        self.loop.call_later(self.think_s * (0.5 + self._env.chance.random()), self._act)


class SimSession(asyncio.Protocol):
    """One connection of a client, from dialling to its end. It checks everything that it hears."""

    def __init__(self, client: SimClient, crowd: Crowd) -> None:
        self.client = client
        self.crowd = crowd
        self.env = crowd.env
        self.ledger = crowd.ledger
        self.transport: Any = None
        self.is_over = False
        self._met_trouble = not self.env.draining
        self._reader = amqp.SimFrameReader()
        self._ports = SessionPorts(self.env, self.ledger, client.host, self._send, crowd.story)
        self._publisher = SimPublisher(
            self._ports, window=client.window, burst=client.burst, large_bytes=crowd.large_bytes,
            fan_share=crowd.fan_share,
        )  # fmt: skip
        self._own = self._own_queue()
        self._to_declare = [*self.env.queues, *self._own]
        self._to_bind: list[QueuePlan] = []
        self._has_fan = False
        self._consumers: dict[int, SimConsumer] = {}
        self._coming: tuple[SimConsumer, int, bool] | None = None
        self._body: list[bytes] = []
        self._body_left = 0
        self._is_running = False
        self._founding: QueuePlan | None = None
        self._clearing: QueuePlan | None = None
        self._missed: dict[int, QueuePlan] = {}
        """The queue that was not there when a channel asked for it: it went with its node or its last consumer."""
        self._asked: defaultdict[int, deque[str]] = defaultdict(deque)
        """The names of the methods that have no answer yet, by channel, in order."""

    def _own_queue(self) -> list[QueuePlan]:
        """The exclusive queue of this connection, if it has one."""
        env = self.env
        if env.draining or not any(queue.is_classic for queue in env.queues) or env.chance.random() > OWN_SHARE:
            return []
        return [own_queue(env.chance, f"{self.client.host}-{self._publisher.number}")]

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the protocol header."""
        self.transport = transport
        self._send(amqp.PROTOCOL_HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        if not self.is_over:
            self.is_over = True
            self.client.session_over()

    def data_received(self, data: bytes) -> None:
        """Octets came from the broker."""
        for kind, channel, payload in self._reader.frames(data):
            if kind == 1:
                self._method(channel, (payload[1], payload[3]), payload)
            elif kind == 2:
                self._body, self._body_left = [], amqp.body_size(payload)
            elif kind == 3:
                self._body.append(payload)
                self._body_left -= len(payload)
                if not self._body_left:
                    self._delivered()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is unconfirmed, unsettled or unanswered."""
        held = any(consumer.held for consumer in self._consumers.values())
        return self._is_running and not self._publisher.unconfirmed and not held and self.waits_for() is None

    def waits_for(self) -> str | None:
        """The oldest unanswered method of a channel; None if every method is answered."""
        if self.is_over:
            return None
        return next((f"{asked[0]} on channel {channel}" for channel, asked in self._asked.items() if asked), None)

    def _ask(self, channel: int, method: base.Frame) -> None:
        """Send a method that the broker must answer, sooner or later, unless it closes the channel."""
        self._asked[channel].append(method.name)
        self._send(amqp.method(channel, method))

    def _heard(self, channel: int, method: base.Frame) -> None:
        """Check that an answer belongs to the oldest question of its channel."""
        asked = self._asked[channel]
        fits = bool(asked) and method.name.startswith(asked[0])
        check(fits, "X5", f"{self.client.host}: {method.name} on channel {channel}, which asks {[*asked]}")
        asked.popleft()

    def _send(self, octets: bytes) -> None:
        if self.transport is not None and not self.is_over:
            self.transport.write(octets)

    def _tell(self, words: str, *about: object) -> None:
        self.crowd.story.client(self.client.host, words.format, *about)

    # What the broker says

    def _method(self, channel: int, method: amqp.Method, payload: bytes) -> None:
        if method == amqp.DELIVER:
            tag, delivery_tag, redelivered = amqp.deliver(payload)
            consumer = self._consumers[channel]
            check(tag == consumer.tag, "I20", f"{self.client.host} got a delivery for {tag}")
            self._is_to_get(consumer, delivery_tag, redelivered=redelivered)
        elif method == amqp.ACK:
            self._publisher.hears(*amqp.tag_and_bits(payload), self.ledger.confirms)
        elif method == amqp.NACK:
            self._publisher.hears(*amqp.tag_and_bits(payload), self.ledger.refuses)
        else:
            self._other(channel, amqp.other(1, channel, payload))

    def _is_to_get(self, consumer: SimConsumer, tag: int, *, redelivered: bool) -> None:
        """A message follows."""
        consumer.comes(tag)
        self._coming = (consumer, tag, redelivered)

    def _delivered(self) -> None:
        body = b"".join(self._body)
        if self._coming is None:
            self.ledger.returns(body)
            return
        consumer, tag, redelivered = self._coming
        consumer.gets_message(body, tag, redelivered=redelivered)

    def _other(self, channel: int, method: base.Frame) -> None:
        if isinstance(method, _ANSWERS):
            self._heard(channel, method)
        match method:
            case commands.Connection.Start():
                self._send(amqp.start_ok())
            case commands.Connection.Tune():
                self._send(amqp.method(0, commands.Connection.TuneOk(2047, 131072, 0), commands.Connection.Open("/")))
            case commands.Connection.OpenOk():
                self._ask(PUBLISHING, commands.Channel.Open())
                self._ask(PUBLISHING, commands.Confirm.Select())
            case commands.Confirm.SelectOk():
                self._declare_next()
            case commands.Queue.DeclareOk() if channel == PUBLISHING:
                self._declared()
            case commands.Exchange.DeclareOk():
                self._has_fan = True
                self._to_bind = [queue for queue in self.env.queues if may_be_bound(queue)]
                self._bind_next()
            case commands.Queue.BindOk():
                self._publisher.bound.append(self._to_bind.pop())
                self._bind_next()
            case commands.Channel.OpenOk():
                self._subscribe(channel)
            case commands.Basic.ConsumeOk():
                self._consumers[channel].is_consuming = True
            case commands.Basic.CancelOk():
                self._consume(self._consumers[channel])
            case commands.Basic.Cancel():
                self._cancelled_by_broker(channel)
            case commands.Basic.GetOk():
                consumer = self._consumers[channel]
                consumer.gets = False
                self._is_to_get(consumer, int(method.delivery_tag or 0), redelivered=bool(method.redelivered))
            case commands.Basic.Return():
                self._coming = None  # the message follows
            case commands.Basic.GetEmpty():
                self._consumers[channel].gets = False
            case commands.Queue.DeleteOk():
                self._go_on_or_end(lambda: self._declare_again(channel))
            case commands.Channel.Close() | commands.Connection.Close():
                self._closed_by_broker(channel, method.reply_code, method.reply_text)
            case commands.Connection.CloseOk():
                self.transport.close()
            case commands.Basic.QosOk() | commands.Queue.DeclareOk() | commands.Queue.PurgeOk():
                pass
            case _:
                raise ViolationError("X1", f"{self.client.host} heard {method.name}")

    def _closed_by_broker(self, channel: int, code: int | None, text: str | None) -> None:
        if code != _FORCED and not (code == _NOT_FOUND and self._may_miss(text or "")):
            raise ViolationError("X1", f"{self.client.host} was sent away: {code} {text}")
        self._asked[channel].clear()
        if channel > PUBLISHING:
            consumer = self._consumers.pop(channel, None)
            if consumer is not None and code == _NOT_FOUND:
                self._missed[channel] = consumer.queue
            self._go_on_or_end(lambda: self._open_again(channel))
        elif channel == PUBLISHING and not self._is_running:
            self._open_again(channel)  # the owner of a queue to be declared is out of reach: go on with the next queue
            if self._to_bind:
                self._to_bind.pop()
            self._ask(channel, commands.Confirm.Select())
        else:
            self._end()

    def _may_miss(self, text: str) -> bool:
        """Whether a client may hear this of a queue that is not there, or whose nodes do not answer."""
        if "does not answer" in text and self._met_trouble:
            return True
        match = _MISSED.search(text)
        plans = [*self.env.queues, *self._own, *(each.queue for each in self._consumers.values())]
        named = [plan for plan in plans if match is not None and plan.name == match[1]]
        if "home node" in text:
            return all(plan.is_classic for plan in named)
        may_be_lost = self.ledger.has_lost_classic_queues
        return any(
            (not plan.is_kept or plan.is_mirrored or (plan.is_classic and may_be_lost)) and not plan.is_exclusive
            for plan in named
        )

    def _open_again(self, channel: int) -> None:
        self._tell("opens channel {} again", channel)
        self._send(amqp.method(channel, commands.Channel.CloseOk()))
        self._ask(channel, commands.Channel.Open())

    def _cancelled_by_broker(self, channel: int) -> None:
        """The broker has cancelled a consumer, because its queue is gone. The client may still acknowledge its
        messages."""
        consumer = self._consumers[channel]
        consumer.is_consuming = False
        if not self._asked[channel]:
            self._go_on_or_end(lambda: self._begin_again(consumer))

    def _begin_again(self, consumer: SimConsumer) -> None:
        """Declare the queue again and consume from it under the same tag."""
        self._declare(consumer.channel, consumer.queue)
        self._consume(consumer)

    def _go_on_or_end(self, go_on: Callable[[], None]) -> None:
        if self.env.chance.random() < _STEADY:
            go_on()
        else:
            self._end()

    def _end(self) -> None:
        """Hang up without a word. The client dials again."""
        self._tell("hangs up")
        if not self.transport.is_closing():
            self.transport.abort()

    # Beginning

    def _declare_next(self) -> None:
        if self._to_declare:
            self._declare(PUBLISHING, self._to_declare.pop())
        elif self.crowd.fan_share and not self.env.draining and not self._has_fan:
            self._ask(PUBLISHING, commands.Exchange.Declare(0, FAN, "fanout", durable=True))
        else:
            self._bind_next()

    def _bind_next(self) -> None:
        """Bind the next queue to the fan. Once all are bound, begin."""
        if self._to_bind:
            self.ledger.binds(self._to_bind[-1])
            self._ask(PUBLISHING, commands.Queue.Bind(0, self._to_bind[-1].name, FAN, "", False, {}))
        else:
            self._begin()

    def _begin(self) -> None:
        self._is_running = True
        for channel in range(2, 2 + self.client.consumers):
            self._ask(channel, commands.Channel.Open())
        if self.client.gets and not self.env.draining:
            self._ask(GETTING, commands.Channel.Open())

    def _declare_again(self, channel: int) -> None:
        """The queue that this client cleared is gone."""
        if self._clearing is not None:
            self._declare(channel, self._clearing)

    def _declare(self, channel: int, queue: QueuePlan) -> None:
        flags = False, queue.is_durable, queue.is_exclusive, queue.is_auto_delete, False
        self._ask(channel, commands.Queue.Declare(0, queue.name, *flags, dict(queue.arguments)))

    def _subscribe(self, channel: int) -> None:
        if channel == PUBLISHING:
            return
        chance, queues = self.env.chance, [*self.env.queues, *self._own]
        draining = self.env.draining
        if channel == GETTING:
            queues = [queue for queue in queues if queue.is_classic or not queue.is_single_active]
        queue = queues[(channel - 2) % len(queues)] if draining else chance.choice(queues)
        missed = self._missed.pop(channel, None)
        if missed is not None and not missed.is_exclusive:
            queue = missed
            self._declare(channel, queue)
        no_ack = (queue.has_limits or not queue.is_kept) and chance.random() < 0.15 and channel != GETTING
        priority = chance.choice((0, 1, 5)) if chance.random() < 0.2 else 0
        found = SimConsumer(self._ports, channel, queue, no_ack=no_ack, priority=priority, disgust=self.client.disgust)
        self._consumers[channel] = found
        if channel != GETTING:
            self._consume(found)

    def _consume(self, to: SimConsumer) -> None:
        prefetch = self.client.prefetch()
        self._tell("consumes {} as {}, prefetch {}", to.queue.name, to.tag, prefetch)
        self._asked[to.channel] += ["Basic.Qos", "Basic.Consume"]
        self._send(amqp.consume(to.channel, to.queue.name, to.tag, prefetch, no_ack=to.no_ack, priority=to.priority))
        self._may_regret()

    # Doing things

    def act(self) -> None:
        """Do the next thing that the client feels like."""
        if not self._is_running or self.is_over:
            return
        chance = self.env.chance
        if self.env.draining:
            for consumer in self._consumers.values():
                consumer.settle(len(consumer.held))
            return
        if self.client.publishes and chance.random() < self.client.eagerness:
            self._publisher.publish(self._own)
        for consumer in self._consumers.values():
            if consumer.held and chance.random() < self.client.diligence:
                consumer.settle_some()
        if self.client.gets and chance.random() < self.client.gets:
            self._get()
        if chance.random() < self.client.founds:
            self._found_a_queue()
        if chance.random() < self.client.zeal:
            self._clear_a_queue()
        if chance.random() < self.client.restlessness and not (self.client.is_patient and self.waits_for()):
            chance.choice([self._die, self._leave, self._cancel_one, self._clear_a_queue])()

    def _found_a_queue(self) -> None:
        """Declare a queue that nobody else knows. As soon as the queue is there, all clients publish to it."""
        count = sum(queue.name.startswith("young") for queue in self.env.queues)
        if count < _YOUNG_MAX and not self._asked[PUBLISHING]:
            self._founding = self.crowd.next_young_queue()
            self._declare(PUBLISHING, self._founding)

    def _declared(self) -> None:
        founded, self._founding = self._founding, None
        if not self._is_running:
            self._declare_next()
        elif founded is not None:
            self.crowd.welcome(founded)

    def welcome(self, queue: QueuePlan) -> None:
        """Another client has declared a queue: publish to it at once."""
        if self._is_running and not self.is_over and self._publisher.has_room(1):
            self._publisher.publish_to(queue, 1)

    def _get(self) -> None:
        asks = self._consumers.get(GETTING)
        if asks is not None and not asks.gets:
            asks.gets = True
            self._ask(GETTING, commands.Basic.Get(0, asks.queue.name, False))

    def _may_regret(self) -> None:
        """Some clients hang up before, or soon after, basic.consume is answered."""
        if self.env.chance.random() < self.client.haste and not self.env.draining:
            self.client.loop.call_later(self.env.chance.random() ** 2 * _REGRET_S, self._die)

    def _die(self) -> None:
        self._end()

    def _leave(self) -> None:
        """Close the connection as the specification says. Messages that were not settled return to their queues."""
        self._is_running = False
        self._tell("says good-bye")
        self._send(amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)))

    def _cancel_one(self) -> None:
        for consumer in self._consumers.values():
            if consumer.is_consuming:
                self._cancel(consumer)
                return

    def _cancel(self, consumer: SimConsumer) -> None:
        consumer.is_consuming = False
        self._tell("cancels {}", consumer.tag)
        self._ask(consumer.channel, commands.Basic.Cancel(consumer.tag, False))

    def _clear_a_queue(self) -> None:
        fleeting = [queue for queue in self.env.queues if not queue.is_kept]
        if not fleeting or self._asked[PUBLISHING]:
            return
        queue = self._clearing = self.env.chance.choice(fleeting)
        self._tell("purges or deletes {}", queue.name)
        if self.env.chance.random() < 0.5:
            self._ask(PUBLISHING, commands.Queue.Delete(0, queue.name, False, False, False))
            self.client.loop.call_later(self.env.chance.random() * _RACE_S, self._ask_more, queue)
        else:
            self._ask(PUBLISHING, commands.Queue.Purge(0, queue.name, False))

    def _ask_more(self, queue: QueuePlan) -> None:
        """Ask more of a queue that is about to be deleted."""
        for consumer in self._consumers.values():
            if consumer.queue is queue and consumer.is_consuming:
                self._cancel(consumer)
            elif consumer.queue is queue and not consumer.tag:
                self._get()
