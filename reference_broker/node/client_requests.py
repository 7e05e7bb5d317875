"""What a client asks of queues and waits for: declare, delete, purge, consume, cancel, get.

Each needs an answer from the log, or from another node, and makes its channel *busy* until that has come; what its
client sends behind that waits in the core. A queue that is deleted answers nothing more, so what is awaited of it is
answered when it goes. :class:`~reference_broker.node.client.ClientConnection` is the other half.

Invariant: a busy channel waits for one :class:`Awaited`, and whatever comes for another one is not for it.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import Cancel, Consume, Event, Get, Publish, QueueDeclare, QueueDelete, QueuePurge
from reference_broker.machines import commands
from reference_broker.machines.commands import Checkout, Purge, Return
from reference_broker.node import declaration
from reference_broker.node.declaration import DeclarationError
from reference_broker.node.proposals import Priority
from reference_broker.node.requests import Answer, Answered
from reference_broker.queues.quorum import Piece
from reference_broker.queues.session import PublishSession
from reference_broker.types import NOBODY, ChannelId, ConsumerId, GroupId

if TYPE_CHECKING:
    from reference_broker.node.groups import Queue
    from reference_broker.node.shard import Shard

SMALL: Final = 64
"""Octets that a command without messages counts for."""
_NOTHING_YET: Final = 1 << 62
"""Above every message id."""
GETTER: Final = ""
"""The tag under which a queue knows the gets of a channel: no consumer can have it, for an empty one is replaced."""


class Consumer:
    """A consumer of this connection: where its messages come from, and the message id it gets next.

    The queue forgets one that is cancelled and holds nothing, and so must this node, at the same place. Should its tag
    subscribe again, the ids go on above all that were given out: what a member that catches up deals late to the former
    one is told apart. Until the answer says where, nothing is for the new one.
    """

    __slots__ = ("credit", "group", "held", "id", "is_cancelled", "next_message_id", "no_ack", "released", "releases")

    def __init__(self, consumer: ConsumerId, group: GroupId, no_ack: bool) -> None:
        self.id = consumer
        self.group = group
        self.no_ack = no_ack
        self.next_message_id = 0
        self.credit = 0
        self.held = 0
        self.released = 0
        """Messages that it has given up, which the queue may not know yet."""
        self.releases: deque[tuple[int, int]] = deque()
        """The proposals that say so: number in the normal priority, messages."""
        self.is_cancelled = False

    def is_short_of_credit(self, applied: int) -> bool:
        """Whether the queue counts more than half of its credit as used, having applied proposals up to that one."""
        while self.releases and self.releases[0][0] <= applied:
            self.released -= self.releases.popleft()[1]
        return 2 * (self.held + self.released) > self.credit

    def release(self, count: int, number: int) -> None:
        """It gives up messages, as proposal ``number`` says."""
        self.held -= count
        self.released += count
        self.releases.append((number, count))


@dataclass(frozen=True, slots=True)
class Got:
    """What a queue dealt to a basic.get that is not answered yet."""

    message_id: int
    piece: Piece
    delivery_count: int


@dataclass(frozen=True, slots=True, eq=False)
class Awaited:
    """What a busy channel waits for."""

    group: GroupId | None = None
    """The group of the queue that is to answer; None where the metadata group is, or a read that ends by itself."""
    correlation: int = 0
    queue_gone: Callable[[], None] | None = None
    """What the client hears if the queue is deleted first."""


class Channel:
    """What the shell keeps per channel."""

    __slots__ = (
        "awaited",
        "consumers",
        "getting",
        "got",
        "groups",
        "id",
        "is_gone",
        "looked",
        "sessions",
        "sought",
        "waiting",
    )

    def __init__(self, channel: ChannelId) -> None:
        self.id = channel
        self.sessions: dict[GroupId, PublishSession] = {}
        self.consumers: dict[str, Consumer] = {}
        self.groups: set[GroupId] = set()
        self.awaited: Awaited | None = None
        """While there is one the channel is busy."""
        self.getting: Consumer | None = None
        self.got: Got | None = None
        self.sought: Event | None = None
        """The last request for a queue that was not known here."""
        self.waiting: deque[Event] = deque()
        """What was read together with a publish to a queue that is looked for: publishes and settles."""
        self.looked: bool | None = None
        """While these are done: whether this node knows by now of every queue that was there when they came."""
        self.is_gone = False
        """It has ended, and is kept for what waits."""


class ClientRequests(asyncio.Protocol):
    """The requests of one connection."""

    def __init__(self, shard: Shard, config: ConnectionConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self.core = ServerConnection(config, self._loop.time())
        self._shard = shard
        self._channels: dict[int, Channel] = {}
        self._replies: dict[int, Callable[[int], None]] = {}
        self._next_correlation = 1
        self._handlers: dict[type, Callable[..., None]] = {
            QueueDeclare: self._declare,
            QueueDelete: self._delete,
            QueuePurge: self._purge,
            Consume: self._consume,
            Get: self._get,
            Cancel: self._cancel,
        }

    @abstractmethod
    def _touch(self) -> None:
        """Have what the core says written at the end of this turn."""

    @abstractmethod
    def _take(self, events: list[Event]) -> None:
        """Do what the core tells."""

    @abstractmethod
    def _forget(self, channel: Channel) -> None:
        """The channel is gone: every queue it dealt with must know."""

    @abstractmethod
    def _read_on(self) -> None:
        """Have the core read what waited for answers, unless that comes about by itself."""

    def _declare(self, channel: Channel, event: QueueDeclare) -> None:
        name = event.queue or f"amq.gen-{secrets.token_urlsafe(16)}"
        existing = self._shard.queues.get(name)
        if event.passive and existing is None and self._looks_again(channel, event):
            return
        try:
            if event.passive or existing is not None:
                self._declared(channel, event, declaration.check(event, existing))
                return
            nodes = [member.node for member in self._shard.config.members]
            record = self._shard.place(declaration.new_record(event, name, nodes, self._shard.random_bits))
        except DeclarationError as refused:
            self._refuse(event.channel, refused.code, refused.text, "queue.declare")
            return
        awaited = self._await(channel)

        def answered(queue: Queue) -> None:
            if self._has_come(channel, awaited):
                try:
                    is_new = queue.record.group == record.group and queue.runner.leader != NOBODY
                    self._declared(channel, event, declaration.check(event, queue), is_new=is_new)
                except DeclarationError as refused:
                    self._refuse(event.channel, refused.code, refused.text, "queue.declare")
                self._resume(channel)

        self._shard.declare(record, answered)

    def _declared(self, channel: Channel, event: QueueDeclare, queue: Queue, *, is_new: bool = False) -> None:
        """Answer. What this very declare has created was empty then, and nobody need be asked for its counts."""

        def counted(counts: Answer) -> None:
            if "error" in counts:
                self._refuse_uncounted(event.channel, queue, counts, "queue.declare")
            else:
                self.core.queue_declare_ok(event.channel, queue.record.name, counts["ready"], counts["consumers"])

        if not event.nowait:
            if is_new:
                self.core.queue_declare_ok(event.channel, queue.record.name, 0, 0)
            else:
                self._count(channel, queue, counted)

    def _count(self, channel: Channel, queue: Queue, counted: Answered) -> None:
        """Call with what the queue's leader counts, or with why it does not."""
        awaited = self._await(channel)

        def answered(counts: Answer) -> None:
            if self._has_come(channel, awaited):
                counted(counts)
                self._resume(channel)

        self._shard.reads.counts(queue.record.group, answered)

    def _refuse_uncounted(self, channel: int, queue: Queue, why: Answer, method: str) -> None:
        """With the code that RabbitMQ gives for a durable queue whose node is down."""
        text = f"queue '{queue.record.name}' in vhost '/' does not answer: {why['error']}"
        self._refuse(channel, declaration.NOT_FOUND, text, method)

    def _delete(self, channel: Channel, event: QueueDelete) -> None:
        queue = self._shard.queues.get(event.queue)
        if queue is None:  # deleting what does not exist is no error (RabbitMQ since 3.2)
            if not self._looks_again(channel, event):
                self._deleted(event, 0)
            return
        self._count(channel, queue, lambda counts: self._delete_counted(channel, event, queue, counts))

    def _delete_counted(self, channel: Channel, event: QueueDelete, counted: Queue, counts: Answer) -> None:
        if "error" in counts and (event.if_empty or event.if_unused):
            self._refuse_uncounted(event.channel, counted, counts, "queue.delete")
            return
        ready, consumers = counts.get("ready", 0), counts.get("consumers", 0)  # without a leader it can still go
        # Dead letters that no other queue has confirmed would go with the queue, as its messages would.
        full = event.if_empty and (ready or counts.get("dead_letters", 0))
        if full or (event.if_unused and consumers):
            why = "not empty" if full else "in use"
            self._refuse(event.channel, 406, f"queue '{event.queue}' in vhost '/' {why}", "queue.delete")
            return
        queue = self._shard.queues.get(event.queue)
        if queue is None:
            self._deleted(event, 0)
            return
        awaited = self._await(channel)

        def answered() -> None:
            if self._has_come(channel, awaited):
                self._deleted(event, ready)
                self._resume(channel)

        self._shard.delete(queue.record, answered)

    def _deleted(self, event: QueueDelete, messages: int) -> None:
        if not event.nowait:
            self.core.queue_delete_ok(event.channel, messages)

    def _purge(self, channel: Channel, event: QueuePurge) -> None:
        queue = self._queue_or_error(channel, event, "queue.purge")
        if queue is None:
            return
        channel.groups.add(queue.record.group)

        def purged(count: int) -> None:
            if not event.nowait:
                self.core.queue_purge_ok(event.channel, count)

        correlation = self._ask(channel, queue, purged, lambda: self._refuse_missing(event, "queue.purge"))
        queue.runner.propose(Purge(channel.id, correlation), SMALL)

    def _consume(self, channel: Channel, event: Consume) -> None:
        queue = self._queue_or_error(channel, event, "basic.consume")
        if queue is None:
            return
        try:
            priority = declaration.consumer_priority(event)
        except DeclarationError as refused:
            self._refuse(event.channel, refused.code, refused.text, "basic.consume")
            return
        group, identity = queue.record.group, ConsumerId(channel.id, event.consumer_tag)
        known = channel.consumers.get(event.consumer_tag)
        if known is not None and known.group != group:
            self._set_apart(channel, event.consumer_tag)
            known = None
        if known is None:
            known = channel.consumers[event.consumer_tag] = Consumer(identity, group, event.no_ack)
            known.next_message_id = _NOTHING_YET
        known.no_ack, known.is_cancelled = event.no_ack, False
        channel.groups.add(group)

        def consuming(next_message_id: int) -> None:
            if known.next_message_id == _NOTHING_YET or next_message_id > known.next_message_id:
                known.next_message_id = next_message_id  # else a late answer, which tells of held ones
            if not event.nowait:
                self.core.consume_ok(event.channel, event.consumer_tag)

        known.credit = credit = event.prefetch or self._shard.limits.credit_default
        correlation = self._ask(channel, queue, consuming, lambda: self._refuse_missing(event, "basic.consume"))
        command = Checkout(identity, credit, auto_settle=False, priority=priority, correlation=correlation)
        queue.runner.propose(command, SMALL, Priority.NORMAL)

    def _cancel(self, channel: Channel, event: Cancel) -> None:
        consumer = channel.consumers.get(event.consumer_tag)
        queue = self._shard.hosting.by_group.get(consumer.group) if consumer is not None else None
        if consumer is None or queue is None:
            self.core.cancel_ok(event.channel, event.consumer_tag)
            return

        def cancelled(_value: int) -> None:
            consumer.is_cancelled = True
            self._forget_if_done(channel, consumer)
            if not event.nowait:
                self.core.cancel_ok(event.channel, event.consumer_tag)

        correlation = self._ask(channel, queue, cancelled, lambda: cancelled(0))
        queue.runner.propose(commands.Cancel(consumer.id, correlation), SMALL, Priority.NORMAL)

    def _forget_if_done(self, channel: Channel, consumer: Consumer) -> None:
        """It was cancelled, and nothing of it is left to settle."""
        if not consumer.held:
            for tag in [tag for tag, each in channel.consumers.items() if each is consumer]:
                del channel.consumers[tag]

    def _set_apart(self, channel: Channel, tag: str) -> None:
        """Another queue takes the tag: who had it before still settles what it holds, and gets no more."""
        former = channel.consumers.pop(tag)
        former.is_cancelled = True
        name = self.core.set_apart(channel.id.channel, tag)
        if former.held:
            channel.consumers[name] = former

    def _get(self, channel: Channel, event: Get) -> None:
        queue = self._queue_or_error(channel, event, "basic.get")
        if queue is None:
            return
        if dict(queue.record.arguments).get("x-single-active-consumer"):
            text = (
                f"cannot obtain access to locked queue '{event.queue}' in vhost '/'. basic.get operations are not "
                "supported by quorum queues with single active consumer"
            )
            self._refuse(event.channel, declaration.RESOURCE_LOCKED, text, "basic.get")
            return
        group, getter = queue.record.group, ConsumerId(channel.id, GETTER)
        channel.groups.add(group)
        # What is fetched is settled like any consumer's; the core knows it by a tag that tells the queue.
        consumer = channel.consumers.setdefault(event.consumer_tag, Consumer(getter, group, event.no_ack))
        if consumer.group != group:  # the queue was deleted and declared again meanwhile
            self._set_apart(channel, event.consumer_tag)
            consumer = channel.consumers[event.consumer_tag] = Consumer(getter, group, event.no_ack)

        channel.getting = consumer

        def answered(value: int) -> None:
            self._got(channel, consumer, event, left=max(value - 1, 0))

        correlation = self._ask(channel, queue, answered, lambda: self._refuse_missing(event, "basic.get"))
        queue.runner.propose(commands.Get(getter, event.no_ack, correlation), SMALL, Priority.NORMAL)

    def _dealt_to_get(
        self, channel: Channel, group: GroupId, first: int, pieces: list[Piece], delivery_count: int
    ) -> None:
        """A queue dealt to a basic.get. What no get waits for any more, and the client never had, goes back: it is told
        again when this node jumped over entries."""
        if channel.getting is not None and channel.getting.group == group:
            if first >= channel.getting.next_message_id:
                channel.got = Got(first, pieces[0], delivery_count)
            return
        last = first + sum(piece[2] for piece in pieces) - 1
        for consumer in channel.consumers.values():
            if consumer.id.tag == GETTER and consumer.group == group and consumer.next_message_id <= first:
                self._propose(consumer.group, Return(consumer.id, ((first, last),)), SMALL, Priority.NORMAL)

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
            self._propose(consumer.group, Return(consumer.id, (ids,)), SMALL, Priority.NORMAL)

    # Helpers

    def _queue_or_error(self, channel: Channel, event: QueuePurge | Consume | Get, method: str) -> Queue | None:
        queue = self._shard.queues.get(event.queue)
        if queue is None and not self._looks_again(channel, event):
            self._refuse_missing(event, method)
        return queue

    def _refuse_missing(self, event: QueuePurge | Consume | Get, method: str) -> None:
        self._refuse(event.channel, declaration.NOT_FOUND, f"no queue '{event.queue}' in vhost '/'", method)

    def _looks_again(self, channel: Channel, event: Event) -> bool:
        """What is not known here may have been declared on another node a moment ago: the event comes again when this
        node knows all that was committed before it. False when that has been done."""
        if channel.sought is event:
            return False
        channel.sought = event
        awaited = self._await(channel)

        def looked(_found: bool) -> None:
            if self._has_come(channel, awaited):
                self._handlers[type(event)](channel, event)
                self._resume(channel)

        self._shard.reads.look_again(looked)
        return True

    def _look_for_its_queue(self, channel: Channel, event: Publish) -> None:
        """The same for publishes. One question serves all that was read together with the first of them."""
        awaited = self._await(channel)
        channel.waiting.append(event)

        def looked(found: bool) -> None:
            if self._has_come(channel, awaited):
                channel.looked = found
                while channel.waiting:
                    waiting = channel.waiting.popleft()
                    self._handlers[type(waiting)](channel, waiting)
                channel.looked = None
                if channel.is_gone:
                    self._forget(channel)
                self._resume(channel)

        self._shard.reads.look_again(looked)

    def _ask(
        self, channel: Channel, queue: Queue, answer: Callable[[int], None], queue_gone: Callable[[], None]
    ) -> int:
        """Make the channel busy until the queue has applied the command with the returned correlation, or is gone."""
        correlation = self._next_correlation
        self._next_correlation += 1
        awaited = self._await(channel, Awaited(queue.record.group, correlation, queue_gone))

        def replied(value: int) -> None:
            if self._has_come(channel, awaited):
                answer(value)
                self._resume(channel)

        self._replies[correlation] = replied
        return correlation

    def _await(self, channel: Channel, awaited: Awaited | None = None) -> Awaited:
        """Hold back what the channel's client sends until this has come."""
        channel.awaited = awaited or Awaited()
        self.core.hold(channel.id.channel)
        return channel.awaited

    @staticmethod
    def _has_come(channel: Channel, awaited: Awaited) -> bool:
        """Whether the channel waits for just this, which it does no longer: it may be gone, or know the answer."""
        if channel.awaited is not awaited:
            return False
        channel.awaited = None
        return True

    def _await_no_longer(self, channel: Channel, group: GroupId) -> None:
        """The queue of the group is gone: if the channel waits for its answer, it waits in vain."""
        awaited = channel.awaited
        if awaited is not None and awaited.group == group and awaited.queue_gone is not None:
            self._stop_waiting(channel)
            awaited.queue_gone()

    def _stop_waiting(self, channel: Channel) -> None:
        """Whatever still answers is not heard."""
        if channel.awaited is not None:
            self._replies.pop(channel.awaited.correlation, None)
            channel.awaited = None

    def _resume(self, channel: Channel) -> None:
        """Read what waits, unless the channel waits for something else by now."""
        if channel.awaited is None and not channel.is_gone:
            self.core.release(channel.id.channel)
        self._read_on()
        self._touch()

    def _propose(
        self,
        group: GroupId,
        command: commands.Command,
        size: int,
        priority: Priority = Priority.LOW,
        *,
        lazy: bool = False,
    ) -> int:
        """Propose to a queue's group; the number of the proposal, 0 if the queue is gone."""
        runner = self._shard.proposer(group)
        return runner.propose(command, size, priority, lazy=lazy) if runner is not None else 0

    def _refuse(self, channel: int, code: int, text: str, method: str) -> None:
        self._take(self.core.channel_error(channel, code, text, method))
        self._read_on()
        self._touch()
