"""A channel's requests to declare, delete and purge queues: checked, carried out, answered.

A queue that exists is declared again by asking what it counts, which its leader answers. A queue that ends by itself is
not counted any more (:mod:`reference_broker.node.hosting.endings`). So its declaration waits until the queue is gone
here, too, and makes a new one. Reply codes and texts are RabbitMQ's, because clients match on them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import QueueDeclare, QueueDelete, QueuePurge
from reference_broker.node.clients.answers import Answers
from reference_broker.node.clients.queue_access import QueueAccess
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.declaration import DeclarationError
from reference_broker.node.links.peer_requests import Answer, Answered
from reference_broker.queues.port import Queue
from reference_broker.types import NOBODY


def declare(access: QueueAccess, event: QueueDeclare) -> None:
    """queue.declare."""
    name = event.queue or f"amq.gen-{secrets.token_urlsafe(16)}"
    existing = access.context.vhost.queues.get(name)
    if event.passive and existing is None and access.answers.repeats_when_current(event):
        return
    if existing is not None and not event.passive and _has_ended(access, existing):
        _delete_for_good(access, existing, lambda: declare(access, event))
        return
    if existing is not None and access.refuses_down(existing, "queue.declare"):
        return
    try:
        if existing is not None:
            _declared(access, event, declaration.check(event, existing, access.asker))
        elif event.passive:
            raise DeclarationError(ReplyCode.NOT_FOUND, f"no {access.context.vhost.queue_called(event.queue)}")
        else:
            _create(access, event, name)
    except DeclarationError as refused:
        access.answers.refuse(refused.code, refused.text, "queue.declare")


def _create(access: QueueAccess, event: QueueDeclare, name: str) -> None:
    """Declare a queue that this node does not know. Raises DeclarationError."""
    record = access.context.node.new_record(event, access.context.vhost.qualified(name), access.context.ports.number)

    def created(queue: Queue) -> None:
        try:
            is_new = queue.record.group == record.group and queue.proposer.leader != NOBODY
            _declared(access, event, declaration.check(event, queue, access.asker), is_new=is_new)
        except DeclarationError as refused:
            access.answers.refuse(refused.code, refused.text, "queue.declare")

    come = access.answers.until(created)

    def answered(queue: Queue) -> None:
        if record.exclusive and queue.record.group == record.group:
            access.context.ports.owns(queue)  # also if the channel has ended meanwhile
        come(queue)

    access.context.node.declare(record, answered)


def _declared(access: QueueAccess, event: QueueDeclare, queue: Queue, *, is_new: bool = False) -> None:
    """Answer a declare. A queue that this declare has created is empty, so its leader is not asked for counts."""
    name = queue.record.short_name

    def counted(counts: Answer) -> None:
        if "error" in counts:
            _refuse_uncounted(access, event, queue, counts, "queue.declare")
        elif not event.nowait:
            access.context.core.queue_declare_ok(event.channel, name, counts["ready"], counts["consumers"])

    if is_new and not event.nowait:
        access.context.core.queue_declare_ok(event.channel, name, 0, 0)
    elif not event.nowait or (not is_new and declaration.may_end(queue.record)):
        count(access.answers, queue, counted)


def count(answers: Answers, queue: Queue, counted: Answered) -> None:
    """Call with the counts of the queue's leader, or with an error."""
    queue.counts(answers.until(counted))


def _refuse_uncounted(
    access: QueueAccess, event: QueueDeclare | QueueDelete, queue: Queue, why: Answer, method: str
) -> None:
    """Refuse with RabbitMQ's code for a durable queue whose node is down. If no node answers because the queue was
    deleted (this node may be the last to learn so), the queue does not exist."""
    now = access.context.vhost.queues.get(queue.record.short_name)
    if now is None or now.record.group != queue.record.group:
        access.answers.again(event)
    elif not access.refuses_down(queue, method):
        text = f"{access.context.vhost.queue_called(queue.record.short_name)} does not answer: {why['error']}"
        access.answers.refuse(ReplyCode.NOT_FOUND, text, method)


def delete(access: QueueAccess, event: QueueDelete) -> None:
    """queue.delete."""
    queue = access.context.vhost.queues.get(event.queue)
    if queue is None:  # deleting what does not exist is no error (RabbitMQ since 3.2)
        if not access.answers.repeats_when_current(event):
            _deleted(access, event, 0)
    elif _has_ended(access, queue):
        _delete_for_good(access, queue, lambda: _deleted(access, event, 0))
    elif not access.refuses(queue, "queue.delete"):
        count(access.answers, queue, lambda counts: _delete_counted(access, event, queue, counts))


def _delete_counted(access: QueueAccess, event: QueueDelete, counted: Queue, counts: Answer) -> None:
    if "error" in counts and (event.if_empty or event.if_unused):
        _refuse_uncounted(access, event, counted, counts, "queue.delete")
        return
    ready, consumers = counts.get("ready", 0), counts.get("consumers", 0)  # a queue without a leader can be deleted
    # Dead letters that no other queue has confirmed would go with the queue, as its messages would.
    full = event.if_empty and (ready or counts.get("dead_letters", 0))
    if full or (event.if_unused and consumers):
        text = f"{access.context.vhost.queue_called(event.queue)} {'not empty' if full else 'in use'}"
        access.answers.refuse(ReplyCode.PRECONDITION_FAILED, text, "queue.delete")
        return
    queue = access.context.vhost.queues.get(event.queue)
    if queue is None:
        _deleted(access, event, 0)
    else:
        _delete_for_good(access, queue, lambda: _deleted(access, event, ready))


def _deleted(access: QueueAccess, event: QueueDelete, messages: int) -> None:
    if not event.nowait:
        access.context.core.queue_delete_ok(event.channel, messages)


def _has_ended(access: QueueAccess, queue: Queue) -> bool:
    """Whether the queue ended with its node. Its name is free then. If only the link to its node was broken, and the
    name was not used, the queue is there again afterwards."""
    return queue.record.ends_with_its_node and access.context.node.home_node_down(queue.record) is not None


def _delete_for_good(access: QueueAccess, queue: Queue, go_on: Callable[[], None]) -> None:
    """Delete a queue, and go on."""
    done: Callable[[None], None] = access.answers.until(lambda _none: go_on())
    queue.delete(lambda: done(None))


def purge(access: QueueAccess, event: QueuePurge) -> None:
    """queue.purge."""
    queue = access.queue_or_error(event, "queue.purge")
    if queue is None:
        return

    def purged(messages: int) -> None:
        if not event.nowait:
            access.context.core.queue_purge_ok(event.channel, messages)

    def gone() -> None:
        access.refuse_missing(event.queue, "queue.purge")

    queue.purge(access.context.id, access.answers.request(queue, purged, gone, event))
