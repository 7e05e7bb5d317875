"""Publishes that the routing table decides: to an exchange with a name, or with CC and BCC headers.

The client channel sends a run to the default exchange straight to its queue. All other runs come here. The table is
asked once per run. Only where headers may decide (a headers exchange can be reached, or CC and BCC are there) a run is
taken apart into stretches of equal properties, and the table is asked once per stretch.

The stretches of a run that go to several queues share their octets: a queue gets the run, not a copy of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from reference_broker.amqp import addressing
from reference_broker.amqp.addressing import Address
from reference_broker.amqp.errors import ReplyCode, SoftError
from reference_broker.amqp.events import Publish
from reference_broker.message_run import MessageRun
from reference_broker.node.clients.reply_to import Replies
from reference_broker.node.hosting.virtual_hosts import VirtualHost
from reference_broker.queues.port import Queue
from reference_broker.routing.records import DEFAULT, Arguments
from reference_broker.types import COPIES


class PublishingChannel(Protocol):
    """What these publishes need of their channel."""

    replies: Replies
    vhost: VirtualHost

    @property
    def knows_queues(self) -> bool | None:
        """Whether this node knows every queue and exchange that existed when the publish came; None before anybody has
        asked."""

    def publish_when_current(self, event: Publish) -> None:
        """Repeat the publish once this node knows what was declared before."""

    def can_publish_to(self, queue: Queue) -> bool:
        """Whether the queue can be reached."""

    def publish_to(self, queues: list[Queue], event: Publish) -> None:
        """Publish the run to queues that can be reached."""

    def unroutable(self, event: Publish, *, is_sure: bool) -> None:
        """Answer publishes that no queue gets. If that is not sure, they are refused."""

    def refuse_publish(self, event: Publish, code: int, text: str) -> None:
        """Close the channel: the client must not publish this. Later publishes are dropped."""


def publish(channel: PublishingChannel, event: Publish) -> None:
    """Publish a run by the routing table."""
    if not may_publish(channel, event):
        return
    if event.ttl_ms == COPIES or channel.vhost.exchanges.table.heeds_headers(event.exchange):
        _publish_stretches(channel, event)
    else:
        _publish_by(channel, event, (event.routing_key,), ())


def may_publish(channel: PublishingChannel, event: Publish) -> bool:
    """Whether clients may publish to the exchange. If not, the publish is answered, or waits for news."""
    exchange = channel.vhost.exchanges.table.exchange(event.exchange)
    if exchange is None:
        if channel.knows_queues is None:
            channel.publish_when_current(event)
        elif channel.knows_queues:
            text = f"no {channel.vhost.exchange_called(event.exchange)}"
            channel.refuse_publish(event, ReplyCode.NOT_FOUND, text)
        else:
            channel.unroutable(event, is_sure=False)
    elif exchange.internal:
        text = f"cannot publish to internal {channel.vhost.exchange_called(event.exchange)}"
        channel.refuse_publish(event, ReplyCode.ACCESS_REFUSED, text)
    else:
        return True
    return False


def _publish_stretches(channel: PublishingChannel, event: Publish) -> None:
    heeds_headers = channel.vhost.exchanges.table.heeds_headers(event.exchange)
    if _names_unknown_queues(channel, event):
        channel.publish_when_current(event)
        return
    for start, run, address in addressing.stretches(event.run):
        try:
            address.check()
            run = channel.replies.addressed(run, address)
        except SoftError as refused:
            channel.refuse_publish(event, refused.code, refused.text)
            return
        seq = event.first_seq and event.first_seq + start
        part = replace(event, run=_delivered(run, address), first_seq=seq, ttl_ms=address.ttl_ms)
        keys = (event.routing_key, *address.copies)
        _publish_by(channel, part, keys, address.headers if heeds_headers else ())


def _names_unknown_queues(channel: PublishingChannel, event: Publish) -> bool:
    """Whether a key names a queue that may have been declared elsewhere a moment ago. Only the keys of the default
    exchange can: this node has applied all bindings."""
    if event.exchange != DEFAULT or channel.knows_queues is not None:
        return False
    copies = (key for _start, _run, address in addressing.stretches(event.run) for key in address.copies)
    return any(name not in channel.vhost.queues for name in (event.routing_key, *copies))


def _delivered(run: MessageRun, address: Address) -> MessageRun:
    return addressing.without_blind_copies(run) if address.has_blind_copies else run


def _publish_by(channel: PublishingChannel, event: Publish, keys: tuple[str, ...], headers: Arguments) -> None:
    reached: list[Queue] = []
    is_sure = event.exchange != DEFAULT or channel.knows_queues is not False
    is_short = False
    for name in channel.vhost.exchanges.table.route(event.exchange, keys, headers):
        queue = channel.vhost.queues.get(name)
        if queue is not None and channel.can_publish_to(queue):
            reached.append(queue)
        elif queue is not None and not queue.record.ends_with_its_node:
            is_short = True  # the queue comes back without the run
    if reached:
        channel.publish_to(reached, event)
    if is_short or not reached:
        channel.unroutable(event, is_sure=not reached and (event.mandatory or (is_sure and not is_short)))
