"""A channel's requests to declare, delete and purge queues: checked, carried out, answered.

A queue that exists is declared again by asking what it counts, which its leader answers. A queue that ends by itself is
not counted any more (:mod:`reference_broker.node.hosting.endings`). So its declaration waits until the queue is gone
here, too, and makes a new one. Reply codes and texts are RabbitMQ's, because clients match on them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol, TypeVar

from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import Consume, Event, Get, QueueDeclare, QueueDelete, QueuePurge
from reference_broker.node.clients.client_ports import ClientPorts, ConnectionPorts
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.declaration import DeclarationError
from reference_broker.node.hosting.virtual_hosts import VirtualHost
from reference_broker.node.links.peer_requests import Answer, Answered
from reference_broker.queues.port import Queue
from reference_broker.types import NOBODY, ChannelId

T = TypeVar("T")


class RequestingChannel(Protocol):
    """What the requests need of their channel."""

    id: ChannelId
    node: ClientPorts
    ports: ConnectionPorts
    vhost: VirtualHost

    @property
    def core(self) -> ServerConnection:
        """Where answers go."""

    @property
    def asker(self) -> declaration.Asker:
        """Whose exclusive queues the channel may use."""

    def until(self, answered: Callable[[T], None]) -> Callable[[T], None]:
        """Make the channel busy until the returned function is called, which calls ``answered`` if the channel is still
        there."""

    def again(self, event: Event) -> None:
        """Handle the request once more."""

    def repeats_when_current(self, event: Event) -> bool:
        """Repeat the request once this node knows all earlier declarations; False if that was done."""

    def refuse(self, code: int, text: str, method: str) -> None:
        """Close the channel."""

    def refuses_down(self, queue: Queue, method: str) -> bool:
        """Refuse a queue whose only node is out of reach."""

    def refuses_access(self, queue: Queue, method: str) -> bool:
        """Refuse a queue that this client may not use, or whose only node is out of reach."""

    def queue_or_error(self, event: QueuePurge | Consume | Get, method: str) -> Queue | None:
        """The queue that a request names, if the client may use it now."""

    def request(self, queue: Queue, answered: Callable[[int], None], event: Consume | Get | QueuePurge, by: str) -> int:
        """Make the channel busy until the queue has applied the command with the returned correlation."""


def declare(channel: RequestingChannel, event: QueueDeclare) -> None:
    """queue.declare."""
    name = event.queue or f"amq.gen-{secrets.token_urlsafe(16)}"
    existing = channel.vhost.queues.get(name)
    if event.passive and existing is None and channel.repeats_when_current(event):
        return
    if existing is not None and not event.passive and _has_ended(channel, existing):
        _delete_for_good(channel, existing, lambda: declare(channel, event))
        return
    if existing is not None and channel.refuses_down(existing, "queue.declare"):
        return
    try:
        if existing is not None:
            _declared(channel, event, declaration.check(event, existing, channel.asker))
        elif event.passive:
            raise DeclarationError(ReplyCode.NOT_FOUND, f"no {channel.vhost.queue_called(event.queue)}")
        else:
            _create(channel, event, name)
    except DeclarationError as refused:
        channel.refuse(refused.code, refused.text, "queue.declare")


def _create(channel: RequestingChannel, event: QueueDeclare, name: str) -> None:
    """Declare a queue that this node does not know. Raises DeclarationError."""
    record = channel.node.new_record(event, channel.vhost.qualified(name), channel.ports.number)

    def created(queue: Queue) -> None:
        try:
            is_new = queue.record.group == record.group and queue.proposer.leader != NOBODY
            _declared(channel, event, declaration.check(event, queue, channel.asker), is_new=is_new)
        except DeclarationError as refused:
            channel.refuse(refused.code, refused.text, "queue.declare")

    come = channel.until(created)

    def answered(queue: Queue) -> None:
        if record.exclusive and queue.record.group == record.group:
            channel.ports.owns(queue)  # also if the channel has ended meanwhile
        come(queue)

    channel.node.declare(record, answered)


def _declared(channel: RequestingChannel, event: QueueDeclare, queue: Queue, *, is_new: bool = False) -> None:
    """Answer a declare. A queue that this declare has created is empty, so its leader is not asked for counts."""
    name = queue.record.short_name

    def counted(counts: Answer) -> None:
        if "error" in counts:
            _refuse_uncounted(channel, event, queue, counts, "queue.declare")
        elif not event.nowait:
            channel.core.queue_declare_ok(event.channel, name, counts["ready"], counts["consumers"])

    if is_new and not event.nowait:
        channel.core.queue_declare_ok(event.channel, name, 0, 0)
    elif not event.nowait or (not is_new and declaration.may_end(queue.record)):
        count(channel, queue, counted)


def count(channel: RequestingChannel, queue: Queue, counted: Answered) -> None:
    """Call with the counts of the queue's leader, or with an error."""
    queue.counts(channel.until(counted))


def _refuse_uncounted(
    channel: RequestingChannel, event: QueueDeclare | QueueDelete, queue: Queue, why: Answer, method: str
) -> None:
    """Refuse with RabbitMQ's code for a durable queue whose node is down. If nobody counts because the queue was
    deleted, of which this node may hear last, the request is one to a queue that does not exist."""
    now = channel.vhost.queues.get(queue.record.short_name)
    if now is None or now.record.group != queue.record.group:
        channel.again(event)
    elif not channel.refuses_down(queue, method):
        text = f"{channel.vhost.queue_called(queue.record.short_name)} does not answer: {why['error']}"
        channel.refuse(ReplyCode.NOT_FOUND, text, method)


def delete(channel: RequestingChannel, event: QueueDelete) -> None:
    """queue.delete."""
    queue = channel.vhost.queues.get(event.queue)
    if queue is None:  # deleting what does not exist is no error (RabbitMQ since 3.2)
        if not channel.repeats_when_current(event):
            _deleted(channel, event, 0)
    elif _has_ended(channel, queue):
        _delete_for_good(channel, queue, lambda: _deleted(channel, event, 0))
    elif not channel.refuses_access(queue, "queue.delete"):
        count(channel, queue, lambda counts: _delete_counted(channel, event, queue, counts))


def _delete_counted(channel: RequestingChannel, event: QueueDelete, counted: Queue, counts: Answer) -> None:
    if "error" in counts and (event.if_empty or event.if_unused):
        _refuse_uncounted(channel, event, counted, counts, "queue.delete")
        return
    ready, consumers = counts.get("ready", 0), counts.get("consumers", 0)  # a queue without a leader can be deleted
    # Dead letters that no other queue has confirmed would go with the queue, as its messages would.
    full = event.if_empty and (ready or counts.get("dead_letters", 0))
    if full or (event.if_unused and consumers):
        text = f"{channel.vhost.queue_called(event.queue)} {'not empty' if full else 'in use'}"
        channel.refuse(ReplyCode.PRECONDITION_FAILED, text, "queue.delete")
        return
    queue = channel.vhost.queues.get(event.queue)
    if queue is None:
        _deleted(channel, event, 0)
    else:
        _delete_for_good(channel, queue, lambda: _deleted(channel, event, ready))


def _deleted(channel: RequestingChannel, event: QueueDelete, messages: int) -> None:
    if not event.nowait:
        channel.core.queue_delete_ok(event.channel, messages)


def _has_ended(channel: RequestingChannel, queue: Queue) -> bool:
    """Whether the queue ended with its node. Its name is free then. If only the link to its node was broken, and
    nobody has used the name, the queue is there again afterwards."""
    return queue.record.ends_with_its_node and channel.node.home_node_down(queue.record) is not None


def _delete_for_good(channel: RequestingChannel, queue: Queue, go_on: Callable[[], None]) -> None:
    """Delete a queue, and go on."""
    done: Callable[[None], None] = channel.until(lambda _none: go_on())
    queue.delete(lambda: done(None))


def purge(channel: RequestingChannel, event: QueuePurge) -> None:
    """queue.purge."""
    queue = channel.queue_or_error(event, "queue.purge")
    if queue is None:
        return

    def purged(messages: int) -> None:
        if not event.nowait:
            channel.core.queue_purge_ok(event.channel, messages)

    queue.purge(channel.id, channel.request(queue, purged, event, "queue.purge"))
