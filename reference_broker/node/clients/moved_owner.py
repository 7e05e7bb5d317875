"""What a channel does when a mirror becomes the owner of a queue that the channel uses.

The new owner knows no channel. As in RabbitMQ, consumers go on there by themselves: the channel subscribes them anew,
and they get what they had not acknowledged once more. A consumer that asked for ``x-cancel-on-ha-failover`` is
cancelled instead. Acknowledgements of what came before the change do nothing. Publishes without an answer are refused
(:meth:`~reference_broker.node.clients.client_channel.ClientChannel.queue_lost`); RabbitMQ leaves them to the new
owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reference_broker.amqp.connection import ServerConnection
from reference_broker.node.clients.channel_limit import ChannelLimit
from reference_broker.queues.port import Queue
from reference_broker.queues.session import NOTHING_YET, ConsumeSession
from reference_broker.types import IN_EXCLUSIVE_USE


class FailingOver(Protocol):
    """A channel, as this module sees it."""

    consumers: dict[str, ConsumeSession]
    limit: ChannelLimit | None
    unawaited: dict[int, Callable[[int], None]]

    def next_correlation(self) -> int:
        """A number for one question to a queue."""


def go_on(channel: FailingOver, core: ServerConnection, number: int, queue: Queue) -> bool:
    """Subscribe the channel's consumers of a queue anew. ``number``: AMQP's number of the channel. Returns whether the
    queue is still used."""
    group = queue.record.group
    goes_on = False
    for tag, former in list(channel.consumers.items()):
        if former.group != group:
            continue
        del channel.consumers[tag]
        core.set_apart(number, tag)  # what was delivered is not this consumer's any more
        if channel.limit is not None:
            channel.limit.forget(tag)
        if former.is_cancelled or former.is_get:
            continue
        if former.cancels_on_failover:
            core.cancelled_by_broker(number, tag)
            continue
        goes_on = True
        _subscribe(channel, core, number, queue, tag, former)
    return goes_on


def _subscribe(
    channel: FailingOver, core: ServerConnection, number: int, queue: Queue, tag: str, former: ConsumeSession
) -> None:
    session = channel.consumers[tag] = former.begun_anew()

    def subscribed(next_message_id: int) -> None:
        if channel.consumers.get(tag) is not session:
            return
        if next_message_id == IN_EXCLUSIVE_USE:
            del channel.consumers[tag]
            core.cancelled_by_broker(number, tag)
        elif session.next_message_id == NOTHING_YET:
            session.next_message_id = next_message_id

    correlation = channel.next_correlation()
    channel.unawaited[correlation] = subscribed
    queue.subscribe(session, session.priority, correlation)
