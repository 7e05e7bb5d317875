"""basic.publish: which queues a run of messages goes to.

A run for the default exchange goes straight to its queue. For all others, to an exchange with a name or with CC and BCC
headers, the routing table is asked once per run. Only where headers may decide (a headers exchange can be reached, or
CC and BCC are there) a run is taken apart into stretches of equal properties, and the table is asked once per stretch.

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
from reference_broker.node.clients.publishing import Publishing
from reference_broker.queues.port import Queue
from reference_broker.routing.records import DEFAULT, Arguments
from reference_broker.types import COPIES


class PublishingChannel(Protocol):
    """What a publish needs of its channel."""

    publishing: Publishing


def publish(channel: PublishingChannel, event: Publish) -> None:
    """Publish a run: to the queue of its key, or by the routing table."""
    publishing = channel.publishing
    if event.exchange or event.ttl_ms == COPIES:
        _publish_routed(publishing, event)
        return
    queue = publishing.vhost.queues.get(event.routing_key)
    if queue is None:
        if publishing.answers.knows_queues is None:
            publishing.answers.publish_when_current(event)
        else:
            publishing.unroutable(event, is_sure=publishing.answers.knows_queues)
        return
    session = publishing.sessions.get(queue.record.group) or publishing.session_with(queue)
    if session is None:
        # As in RabbitMQ, but what nobody hears of is not confirmed if the queue comes back.
        publishing.unroutable(event, is_sure=event.mandatory or queue.record.ends_with_its_node)
        return
    ports = publishing.context.ports
    ports.unconfirmed_commands += queue.publish(session, event.run, event.first_seq, event.ttl_ms, ports.read_ns)
    ports.unconfirmed_bytes += len(event.run.data)
    if publishing.context.node.alarms.reason:
        ports.published()


def _publish_routed(publishing: Publishing, event: Publish) -> None:
    if not may_publish(publishing, event):
        return
    if event.ttl_ms == COPIES or publishing.vhost.exchanges.table.heeds_headers(event.exchange):
        _publish_stretches(publishing, event)
    else:
        _publish_by(publishing, event, (event.routing_key,), ())


def may_publish(publishing: Publishing, event: Publish) -> bool:
    """Whether clients may publish to the exchange. If not, the publish is answered, or waits for news."""
    exchange = publishing.vhost.exchanges.table.exchange(event.exchange)
    if exchange is None:
        if publishing.answers.knows_queues is None:
            publishing.answers.publish_when_current(event)
        elif publishing.answers.knows_queues:
            text = f"no {publishing.vhost.exchange_called(event.exchange)}"
            publishing.refuse(ReplyCode.NOT_FOUND, text)
        else:
            publishing.unroutable(event, is_sure=False)
    elif exchange.internal:
        text = f"cannot publish to internal {publishing.vhost.exchange_called(event.exchange)}"
        publishing.refuse(ReplyCode.ACCESS_REFUSED, text)
    else:
        return True
    return False


def _publish_stretches(publishing: Publishing, event: Publish) -> None:
    heeds_headers = publishing.vhost.exchanges.table.heeds_headers(event.exchange)
    if _names_unknown_queues(publishing, event):
        publishing.answers.publish_when_current(event)
        return
    for start, run, address in addressing.stretches(event.run):
        try:
            address.check()
            run = publishing.replies.addressed(run, address)
        except SoftError as refused:
            publishing.refuse(refused.code, refused.text)
            return
        seq = event.first_seq and event.first_seq + start
        part = replace(event, run=_delivered(run, address), first_seq=seq, ttl_ms=address.ttl_ms)
        keys = (event.routing_key, *address.copies)
        _publish_by(publishing, part, keys, address.headers if heeds_headers else ())


def _names_unknown_queues(publishing: Publishing, event: Publish) -> bool:
    """Whether a key names a queue that may have been declared elsewhere a moment ago. Only the keys of the default
    exchange can: this node has applied all bindings."""
    if event.exchange != DEFAULT or publishing.answers.knows_queues is not None:
        return False
    copies = (key for _start, _run, address in addressing.stretches(event.run) for key in address.copies)
    return any(name not in publishing.vhost.queues for name in (event.routing_key, *copies))


def _delivered(run: MessageRun, address: Address) -> MessageRun:
    return addressing.without_blind_copies(run) if address.has_blind_copies else run


def _publish_by(publishing: Publishing, event: Publish, keys: tuple[str, ...], headers: Arguments) -> None:
    reached: list[Queue] = []
    is_sure = event.exchange != DEFAULT or publishing.answers.knows_queues is not False
    is_short = False
    for name in publishing.vhost.exchanges.table.route(event.exchange, keys, headers):
        queue = publishing.vhost.queues.get(name)
        if queue is not None and publishing.can_publish_to(queue):
            reached.append(queue)
        elif queue is not None and not queue.record.ends_with_its_node:
            is_short = True  # the queue comes back without the run
    if reached:
        publishing.publish_to(reached, event)
    if is_short or not reached:
        publishing.unroutable(event, is_sure=not reached and (event.mandatory or (is_sure and not is_short)))
