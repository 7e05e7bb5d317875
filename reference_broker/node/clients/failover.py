"""Failover: what a channel does when a mirror becomes the owner of a queue that the channel uses.

The new owner knows no channel. As in RabbitMQ, consumers go on there by themselves: the channel subscribes them anew,
and they get their unacknowledged messages once more. A consumer that asked for ``x-cancel-on-ha-failover`` is cancelled
instead. Acknowledgements of earlier deliveries do nothing. Publishes without an answer are refused
(:meth:`~reference_broker.node.clients.client_channel.ClientChannel.queue_lost`); RabbitMQ leaves them to the new owner.

Which mirror becomes the owner is decided in :mod:`~reference_broker.node.hosting.promotion`. A channel of a quorum
queue needs none of this: its consumers are part of the replicated state.
"""

from __future__ import annotations

from reference_broker.node.clients.channel_limit import ChannelLimit
from reference_broker.node.clients.consuming import Consuming
from reference_broker.queues.port import Queue
from reference_broker.queues.session import NOTHING_YET, ConsumeSession
from reference_broker.types import IN_EXCLUSIVE_USE


def go_on(consuming: Consuming, limit: ChannelLimit | None, queue: Queue) -> bool:
    """Subscribe the channel's consumers of a queue anew. Returns whether the queue is still used."""
    context, group = consuming.context, queue.record.group
    goes_on = False
    for tag, former in list(consuming.consumers.items()):
        if former.group != group:
            continue
        del consuming.consumers[tag]
        context.core.set_apart(context.number, tag)  # earlier deliveries are not this consumer's any more
        if limit is not None:
            limit.forget(tag)
        if former.is_cancelled or former.is_get:
            continue
        if former.cancels_on_failover:
            context.core.cancelled_by_broker(context.number, tag)
            continue
        goes_on = True
        _subscribe(consuming, queue, tag, former)
    return goes_on


def _subscribe(consuming: Consuming, queue: Queue, tag: str, former: ConsumeSession) -> None:
    session = consuming.consumers[tag] = former.begun_anew()

    def subscribed(next_message_id: int) -> None:
        if consuming.consumers.get(tag) is not session:
            return
        if next_message_id == IN_EXCLUSIVE_USE:
            del consuming.consumers[tag]
            consuming.context.core.cancelled_by_broker(consuming.context.number, tag)
        elif session.next_message_id == NOTHING_YET:
            session.next_message_id = next_message_id

    queue.subscribe(session, session.priority, consuming.answers.aside(subscribed))
