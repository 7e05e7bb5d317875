"""A client's connection: the protocol core on one side, the queues on the other.

Publishes and acknowledgements go straight to the queue's group. What needs an answer from the log first (declare,
delete, purge,
consume, cancel) makes its channel *busy*: later events of the channel wait their turn, so that a client which does
not wait for
its answers still gets them in order. Nothing here is per message: events carry runs and ranges.

Two valves bound memory: while publishes of more than ``publish_bytes_max`` octets or in more than
``publish_commands_max`` commands await their commit, while a busy channel has events waiting, or after a publish
during an alarm of the node, the socket is not read; and consumers without acknowledgement get their credit back only
when the socket takes what it was given.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from reference_broker.amqp.closing import Phase
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import (
    Cancel,
    ChannelClosed,
    ConnectionClosed,
    ConnectionOpened,
    Consume,
    Event,
    Get,
    Outcome,
    Publish,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    Settled,
)
from reference_broker.amqp.link import ConnectionConfig
from reference_broker.machines import commands
from reference_broker.machines.commands import ChannelDown, Checkout, Discard, IdRange, Purge, Return, Settle
from reference_broker.machines.metadata import QueueRecord
from reference_broker.message_run import stamped
from reference_broker.node import declaration
from reference_broker.node.declaration import RefusedError
from reference_broker.node.proposals import Lane
from reference_broker.queues.quorum import Piece, command_size
from reference_broker.queues.session import PublishSession
from reference_broker.types import ChannelId, ConsumerId, GroupId

if TYPE_CHECKING:
    from reference_broker.node.hosting import Queue
    from reference_broker.node.shard import Shard

log = logging.getLogger(__name__)

_SMALL: Final = 64
_EVERYTHING: Final = 2**63
_GETTER: Final = ""
"""The tag under which a queue knows the gets of a channel: no consumer can have it, for an empty one is replaced."""
_OUTCOMES: Final[dict[Outcome, type[Settle | Return | Discard]]] = {
    Outcome.SETTLE: Settle,
    Outcome.RETURN: Return,
    Outcome.DISCARD: Discard,
}
_NO_ROUTE: Final = 312
_CONNECTION_FORCED: Final = 320
_INTERNAL_ERROR: Final = 541


class Consumer:
    """A consumer of this connection: where its messages come from, and the message id it gets next."""

    __slots__ = ("credit", "group", "held", "id", "next_message_id", "no_ack")

    def __init__(self, consumer: ConsumerId, group: GroupId, no_ack: bool) -> None:
        self.id = consumer
        self.group = group
        self.no_ack = no_ack
        self.next_message_id = 0
        self.credit = 0
        self.held = 0


@dataclass(frozen=True, slots=True)
class Got:
    """What a queue dealt to a basic.get that is not answered yet."""

    message_id: int
    piece: Piece
    delivery_count: int


class Channel:
    """What the shell keeps per channel."""

    __slots__ = ("busy", "consumers", "getting", "got", "groups", "id", "sessions", "waiting")

    def __init__(self, channel: ChannelId) -> None:
        self.id = channel
        self.sessions: dict[GroupId, PublishSession] = {}
        self.consumers: dict[str, Consumer] = {}
        self.groups: set[GroupId] = set()
        self.busy = False
        self.getting: Consumer | None = None
        self.got: Got | None = None
        self.waiting: deque[Event] = deque()


class ClientConnection(asyncio.Protocol):
    """One AMQP connection, from accept to close."""

    def __init__(self, shard: Shard, config: ConnectionConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self.core = ServerConnection(config, self._loop.time())
        self._shard = shard
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, Channel] = {}
        self._replies: dict[int, Callable[[int], None]] = {}
        self._next_correlation = 1
        self._unconfirmed_bytes = 0
        self._unconfirmed_commands = 0
        self._blocked = False
        """It published while an alarm of the node was on: it is not read until the alarm is over."""
        self._read_ns = 0
        self._reading = True
        self._writing = True
        self._credit_owed: list[tuple[Consumer, IdRange]] = []
        self._handlers: dict[type, Callable[..., None]] = {
            Publish: self._publish,
            Settled: self._settled,
            QueueDeclare: self._declare,
            QueueDelete: self._delete,
            QueuePurge: self._purge,
            Consume: self._consume,
            Get: self._get,
            Cancel: self._cancel,
        }

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client dialled."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not its subclasses
        self._shard.clients[self] = None

    def data_received(self, data: bytes) -> None:
        """Octets in, whatever they are. A defect of ours costs this connection, not the node."""
        self._read_ns = self._shard.now_ns()
        try:
            self._take(self.core.receive(data, self._loop.time()))
        except Exception:
            log.exception("defect while serving a client")
            self._take(self.core.connection_error(_INTERNAL_ERROR, "defect in the broker, see its log"))
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, politely or not: so are its channels."""
        self._shard.clients.pop(self, None)
        self._take(self.core.connection_lost("the client is gone" if exc is None else str(exc)))
        for channel in list(self._channels.values()):
            self._forget(channel)

    def pause_writing(self) -> None:
        """The client does not read fast enough."""
        self._writing = False

    def resume_writing(self) -> None:
        """It reads again: consumers without acknowledgement get their credit back."""
        self._writing = True
        owed, self._credit_owed = self._credit_owed, []
        for consumer, ids in owed:
            self._give_back(consumer, ids)

    def tick(self) -> None:
        """Called now and then: heartbeats and time-outs. A client that is not read is not silent."""
        if not self._reading:
            self.core.not_reading(self._loop.time())
        self._take(self.core.tick(self._loop.time()))
        self.flush()

    def close(self, text: str) -> None:
        """The node stops: tell the client."""
        self._take(self.core.connection_error(_CONNECTION_FORCED, text))
        self.flush()

    # shard.Connection

    def deliver(self, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int) -> None:
        """Messages for a consumer; those that it had before are dropped."""
        channel = self._channels.get(consumer.channel.channel)
        if channel is None:
            return
        if consumer.tag == _GETTER:
            self._dealt_to_get(channel, first_message_id, pieces, delivery_count)
            return
        if (known := channel.consumers.get(consumer.tag)) is None:
            return
        count = sum(piece[2] for piece in pieces)
        first, last = first_message_id, first_message_id + count - 1
        if last < known.next_message_id:
            return
        if first < known.next_message_id:
            pieces = _skip(pieces, known.next_message_id - first)
            first = known.next_message_id
        known.next_message_id = last + 1
        known.held += last - first + 1
        if not self.core.deliver(channel.id.channel, consumer.tag, first, pieces, delivery_count):
            self._propose(known.group, Return(consumer, ((first, last),)), _SMALL, Lane.EXPRESS)
        elif known.no_ack:
            if self._writing:
                self._give_back(known, (first, last))
            else:
                self._credit_owed.append((known, (first, last)))

    def committed(self, channel: int, group: GroupId, last: int) -> bool:
        """Enqueues of a channel are committed: confirm them, and read on."""
        known = self._channels.get(channel)
        session = known.sessions.get(group) if known is not None else None
        if session is None:
            return False
        confirmed = self._resolved(session, last)
        for first_seq, last_seq in confirmed:
            self.core.confirm(channel, first_seq, last_seq)
        return bool(confirmed)

    def rejected(self, channel: int, group: GroupId, first: int, last: int) -> None:
        """Enqueues of a channel were refused: say so, and read on. Those before them are committed."""
        self.committed(channel, group, first - 1)
        known = self._channels.get(channel)
        session = known.sessions.get(group) if known is not None else None
        if session is None:
            return
        for first_seq, last_seq in self._resolved(session, last):
            self.core.reject(channel, first_seq, last_seq)

    def _resolved(self, session: PublishSession, last: int) -> list[IdRange]:
        """What the queue has answered up to ``last`` no longer counts against the limits."""
        octets, waiting = session.unconfirmed_bytes, session.unconfirmed_commands
        resolved = session.committed(last)
        self._unconfirmed_bytes += session.unconfirmed_bytes - octets
        self._unconfirmed_commands += session.unconfirmed_commands - waiting
        return resolved

    def replied(self, correlation: int, value: int) -> None:
        """A command was applied."""
        if (reply := self._replies.pop(correlation, None)) is not None:
            reply(value)

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone: its consumers are told, what was published to it is confirmed (as RabbitMQ does)."""
        for number, channel in self._channels.items():
            if (session := channel.sessions.pop(record.group, None)) is not None:
                for first_seq, last_seq in self._resolved(session, _EVERYTHING):
                    self.core.confirm(number, first_seq, last_seq)
            for tag, consumer in list(channel.consumers.items()):
                if consumer.group == record.group:
                    del channel.consumers[tag]
                    self.core.cancelled_by_broker(number, tag)
            channel.groups.discard(record.group)

    def flush(self) -> None:
        """Write what the core has to say; close when it has said its last; open or shut the valve."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.core.flush_confirms()
        if self._blocked and not self._shard.alarms.reason:
            self._blocked = False
            self.core.unblocked()
        if output := self.core.take_output():
            transport.writelines(output)
        if self.core.phase is Phase.CLOSED:
            transport.close()
            return
        self._regulate(transport)

    # Events

    def _take(self, events: list[Event]) -> None:
        for event in events:
            self._take_one(event)

    def _take_one(self, event: Event) -> None:
        if isinstance(event, ConnectionOpened):
            return
        if isinstance(event, ConnectionClosed):
            for channel in list(self._channels.values()):
                self._forget(channel)
            return
        if isinstance(event, ChannelClosed):
            if (gone := self._channels.get(event.channel)) is not None:
                self._forget(gone)
            return
        channel = self._channel(event.channel)
        if channel.busy:
            channel.waiting.append(event)
        else:
            self._handlers[type(event)](channel, event)

    def _channel(self, number: int) -> Channel:
        if (channel := self._channels.get(number)) is None:
            channel = self._channels[number] = Channel(self._shard.new_channel(self, number))
        return channel

    def _publish(self, channel: Channel, event: Publish) -> None:
        queue = self._shard.queues.get(event.routing_key)
        if queue is None:
            self._unroutable(event)
            return
        group = queue.record.group
        session = channel.sessions.get(group)
        if session is None:
            session = channel.sessions[group] = PublishSession(channel.id)
            channel.groups.add(group)
        run = stamped(event.run, self._shard.anatomy.clock, self._read_ns, self._shard.now_ns())
        command = session.enqueue(run, event.first_seq, event.ttl_ms)
        self._unconfirmed_bytes += len(event.run.data)
        self._unconfirmed_commands += 1
        if self._shard.alarms.reason and not self._blocked:
            self._blocked = True
            self.core.blocked(self._shard.alarms.reason)
        queue.runner.propose(command, command_size(command))

    def _unroutable(self, event: Publish) -> None:
        if event.mandatory:
            self.core.returned(event.channel, _NO_ROUTE, "NO_ROUTE", event.exchange, event.routing_key, event.run)
        if event.first_seq:
            self.core.confirm(event.channel, event.first_seq, event.first_seq + event.run.count - 1)

    def _settled(self, channel: Channel, event: Settled) -> None:
        if (consumer := channel.consumers.get(event.consumer_tag)) is not None:
            number, count = self._release(consumer, event.outcome, event.ranges)
            if number and (runner := self._shard.runners.get(consumer.group)) is not None:
                runner.track.settling(number, count, self._read_ns)

    def _declare(self, channel: Channel, event: QueueDeclare) -> None:
        name = event.queue or f"amq.gen-{secrets.token_urlsafe(16)}"
        existing = self._shard.queues.get(name)
        try:
            if event.passive or existing is not None:
                self._declared(channel, event, declaration.check(event, existing))
                return
            nodes = [member.node for member in self._shard.config.members]
            record = self._shard.place(declaration.new_record(event, name, nodes, self._shard.random_bits))
        except RefusedError as refused:
            self._refuse(event.channel, refused.code, refused.text, "queue.declare")
            return
        done = self._busy(channel)

        def answered(queue: Queue) -> None:
            if done():
                channel.busy = False
                try:
                    self._declared(channel, event, declaration.check(event, queue))
                except RefusedError as refused:
                    self._refuse(event.channel, refused.code, refused.text, "queue.declare")
                if not channel.busy:
                    self._resume(channel)

        self._shard.declare(record, answered)

    def _declared(self, channel: Channel, event: QueueDeclare, queue: Queue) -> None:
        def counted(ready: int, consumers: int) -> None:
            self.core.queue_declare_ok(event.channel, queue.record.name, ready, consumers)

        if not event.nowait:
            self._count(channel, queue, counted)

    def _count(self, channel: Channel, queue: Queue, counted: Callable[[int, int], None]) -> None:
        """Call with the numbers of ready messages and consumers: at once, unless another node has to be asked."""
        if queue.host is not None:
            counts = queue.host.machine.counts()
            counted(counts.ready, counts.consumers)
            return
        done = self._busy(channel)

        def answered(ready: int, consumers: int) -> None:
            if done():
                channel.busy = False
                counted(ready, consumers)
                if not channel.busy:
                    self._resume(channel)

        self._shard.count(queue, answered)

    def _delete(self, channel: Channel, event: QueueDelete) -> None:
        queue = self._shard.queues.get(event.queue)
        if queue is None:  # deleting what does not exist is no error (RabbitMQ since 3.2)
            self._deleted(event, 0)
            return
        self._count(channel, queue, lambda ready, consumers: self._delete_counted(channel, event, ready, consumers))

    def _delete_counted(self, channel: Channel, event: QueueDelete, ready: int, consumers: int) -> None:
        if (event.if_empty and ready) or (event.if_unused and consumers):
            why = "not empty" if event.if_empty and ready else "in use"
            self._refuse(event.channel, 406, f"queue '{event.queue}' in vhost '/' {why}", "queue.delete")
            return
        queue = self._shard.queues.get(event.queue)
        if queue is None:
            self._deleted(event, 0)
            return
        done = self._busy(channel)

        def answered() -> None:
            if done():
                self._deleted(event, ready)
                self._resume(channel)

        self._shard.delete(queue.record, answered)

    def _deleted(self, event: QueueDelete, messages: int) -> None:
        if not event.nowait:
            self.core.queue_delete_ok(event.channel, messages)

    def _purge(self, channel: Channel, event: QueuePurge) -> None:
        queue = self._queue_or_error(event.channel, event.queue, "queue.purge")
        if queue is None:
            return
        channel.groups.add(queue.record.group)

        def purged(count: int) -> None:
            if not event.nowait:
                self.core.queue_purge_ok(event.channel, count)

        queue.runner.propose(Purge(channel.id, self._ask(channel, purged)), _SMALL)

    def _consume(self, channel: Channel, event: Consume) -> None:
        queue = self._queue_or_error(event.channel, event.queue, "basic.consume")
        if queue is None:
            return
        try:
            priority = declaration.consumer_priority(event)
        except RefusedError as refused:
            self._refuse(event.channel, refused.code, refused.text, "basic.consume")
            return
        group, identity = queue.record.group, ConsumerId(channel.id, event.consumer_tag)
        known = channel.consumers.get(event.consumer_tag)
        if known is None or known.group != group:
            known = channel.consumers[event.consumer_tag] = Consumer(identity, group, event.no_ack)
        known.no_ack = event.no_ack
        channel.groups.add(group)

        def consuming(next_message_id: int) -> None:
            known.next_message_id = max(known.next_message_id, next_message_id)  # a late answer may tell of held ones
            if not event.nowait:
                self.core.consume_ok(event.channel, event.consumer_tag)

        known.credit = credit = event.prefetch or self._shard.limits.credit_default
        correlation = self._ask(channel, consuming)
        command = Checkout(identity, credit, auto_settle=False, priority=priority, correlation=correlation)
        queue.runner.propose(command, _SMALL, Lane.EXPRESS)

    def _cancel(self, channel: Channel, event: Cancel) -> None:
        consumer = channel.consumers.get(event.consumer_tag)
        runner = self._shard.proposer(consumer.group) if consumer is not None else None
        if consumer is None or runner is None:
            self.core.cancel_ok(event.channel, event.consumer_tag)
            return

        def cancelled(_value: int) -> None:
            if not event.nowait:
                self.core.cancel_ok(event.channel, event.consumer_tag)

        runner.propose(commands.Cancel(consumer.id, self._ask(channel, cancelled)), _SMALL, Lane.EXPRESS)

    def _get(self, channel: Channel, event: Get) -> None:
        queue = self._queue_or_error(event.channel, event.queue, "basic.get")
        if queue is None:
            return
        if dict(queue.record.arguments).get("x-single-active-consumer"):
            text = (
                f"cannot obtain access to locked queue '{event.queue}' in vhost '/'. basic.get operations are not "
                "supported by quorum queues with single active consumer"
            )
            self._refuse(event.channel, declaration.RESOURCE_LOCKED, text, "basic.get")
            return
        group, getter = queue.record.group, ConsumerId(channel.id, _GETTER)
        channel.groups.add(group)
        # What is fetched is settled like any consumer's; the core knows it by a tag that tells the queue.
        consumer = channel.consumers.setdefault(event.consumer_tag, Consumer(getter, group, event.no_ack))
        if consumer.group != group:  # the queue was deleted and declared again meanwhile
            consumer = channel.consumers[event.consumer_tag] = Consumer(getter, group, event.no_ack)

        channel.getting = consumer

        def answered(value: int) -> None:
            self._got(channel, consumer, event, left=max(value - 1, 0))

        correlation = self._ask(channel, answered)
        queue.runner.propose(commands.Get(getter, event.no_ack, correlation), _SMALL, Lane.EXPRESS)

    def _dealt_to_get(self, channel: Channel, first: int, pieces: list[Piece], delivery_count: int) -> None:
        """A queue dealt to a basic.get. What no get waits for any more goes back: it is told again when this node
        jumped over entries, and of which queue it is says only that the client never had it."""
        if channel.getting is not None:
            if first >= channel.getting.next_message_id:
                channel.got = Got(first, pieces[0], delivery_count)
            return
        last = first + sum(piece[2] for piece in pieces) - 1
        for consumer in channel.consumers.values():
            if consumer.id.tag == _GETTER and consumer.next_message_id <= first:
                self._propose(consumer.group, Return(consumer.id, ((first, last),)), _SMALL, Lane.EXPRESS)

    def _got(self, channel: Channel, consumer: Consumer, event: Get, left: int) -> None:
        """The queue answered a basic.get: what it dealt, if anything, came just before."""
        got, channel.got, channel.getting = channel.got, None, None
        if got is None:
            self.core.get_empty(event.channel)
            return
        consumer.next_message_id = got.message_id + 1
        sent = self.core.get_ok(
            event.channel, event.consumer_tag, got.message_id, got.piece, got.delivery_count, left, event.no_ack
        )
        if not sent and not event.no_ack:
            ids = (got.message_id, got.message_id)
            self._propose(consumer.group, Return(consumer.id, (ids,)), _SMALL, Lane.EXPRESS)

    # Helpers

    def _queue_or_error(self, channel: int, name: str, method: str) -> Queue | None:
        queue = self._shard.queues.get(name)
        if queue is None:
            self._refuse(channel, 404, f"no queue '{name}' in vhost '/'", method)
        return queue

    def _ask(self, channel: Channel, answer: Callable[[int], None]) -> int:
        """Make the channel busy until the command with the returned correlation was applied."""
        correlation = self._next_correlation
        self._next_correlation += 1
        done = self._busy(channel)

        def replied(value: int) -> None:
            if done():
                answer(value)
                self._resume(channel)

        self._replies[correlation] = replied
        return correlation

    def _busy(self, channel: Channel) -> Callable[[], bool]:
        """Hold the channel's events back. The returned call says whether the channel still waits for this very
        answer."""
        channel.busy = True
        number = channel.id.channel

        def still_waiting() -> bool:
            return channel.busy and self._channels.get(number) is channel

        return still_waiting

    def _resume(self, channel: Channel) -> None:
        channel.busy = False
        while channel.waiting and not channel.busy:
            event = channel.waiting.popleft()
            self._handlers[type(event)](channel, event)
        self._shard.touch(self)

    def _give_back(self, consumer: Consumer, ids: IdRange) -> None:
        self._release(consumer, Outcome.SETTLE, (ids,))

    def _release(self, consumer: Consumer, outcome: Outcome, ranges: tuple[IdRange, ...]) -> tuple[int, int]:
        """Propose what the consumer did with messages; at leisure, as long as it has credit for as many again. Returns
        the number of the proposal (0: the queue is gone), and how many messages it is about."""
        short_of_credit = 2 * consumer.held > consumer.credit
        count = sum(last - first + 1 for first, last in ranges)
        consumer.held -= count
        command = _OUTCOMES[outcome](consumer.id, ranges)
        size = _SMALL + 16 * len(ranges)
        return self._propose(consumer.group, command, size, Lane.EXPRESS, lazy=not short_of_credit), count

    def _forget(self, channel: Channel) -> None:
        """The channel is gone: every queue it dealt with must know."""
        for number, known in list(self._channels.items()):
            if known is channel:
                del self._channels[number]
        channel.waiting.clear()
        for session in channel.sessions.values():
            self._resolved(session, _EVERYTHING)
        for group in channel.groups:
            self._propose(group, ChannelDown(channel.id), _SMALL)
        self._shard.forget_channel(channel.id)

    def _propose(
        self, group: GroupId, command: commands.Command, size: int, lane: Lane = Lane.BULK, *, lazy: bool = False
    ) -> int:
        """Propose to a queue's group; the number of the proposal, 0 if the queue is gone."""
        runner = self._shard.proposer(group)
        return runner.propose(command, size, lane, lazy=lazy) if runner is not None else 0

    def _refuse(self, channel: int, code: int, text: str, method: str) -> None:
        self._take(self.core.channel_error(channel, code, text, method))
        self._shard.touch(self)

    def _regulate(self, transport: asyncio.Transport) -> None:
        """Open or shut the valve. It opens again at half of what shut it, or it would flutter."""
        stuck = any(channel.waiting for channel in self._channels.values() if channel.busy)
        wanted = not (self._is_full() or stuck or self._blocked)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _is_full(self) -> bool:
        limits, share = self._shard.limits, 1 if self._reading else 2
        return (
            self._unconfirmed_bytes > limits.publish_bytes_max // share
            or self._unconfirmed_commands > limits.publish_commands_max // share
        )


def _skip(pieces: list[Piece], count: int) -> list[Piece]:
    """The pieces without their first ``count`` messages."""
    rest: list[Piece] = []
    for run, start, length, step in pieces:
        if count >= length:
            count -= length
            continue
        rest.append((run, start + count * step, length - count, step))
        count = 0
    return rest
