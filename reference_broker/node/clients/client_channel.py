"""A channel of a client's connection: the client's requests to queues, and the results of queues for the client.

Theory of operation
-------------------
The protocol core makes events of the client's methods, and each kind of event has a handler here. The state of a
channel is in the objects that it is composed of:

- :class:`~reference_broker.node.clients.publishing.Publishing`: publishes that queues have not answered.
- :class:`~reference_broker.node.clients.consuming.Consuming`: consumers, and their messages.
- :class:`~reference_broker.node.clients.answers.Answers`: the awaited answers, and the waiting events.
- :class:`~reference_broker.node.clients.transactions.Transaction`: the commands that a channel in tx mode keeps back.

Queues reach these objects without a detour over the channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import (
    BindingChange,
    Cancel,
    Consume,
    ExchangeDeclare,
    ExchangeDelete,
    Get,
    GlobalQos,
    Publish,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    Recovered,
    Settled,
    TxCommit,
    TxRollback,
    TxSelect,
)
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.clients import behind, consuming, exchange_requests, failover, queue_requests, reply_to
from reference_broker.node.clients.answers import Answers
from reference_broker.node.clients.authorization import Handler
from reference_broker.node.clients.channel_context import ChannelContext
from reference_broker.node.clients.channel_limit import NO_LIMIT, ChannelLimit
from reference_broker.node.clients.client_ports import ClientPorts, ConnectionPorts
from reference_broker.node.clients.consuming import Consuming
from reference_broker.node.clients.publishing import Publishing, publish
from reference_broker.node.clients.queue_access import QueueAccess
from reference_broker.node.clients.reply_to import Replies
from reference_broker.node.clients.transactions import HandOut, Transaction
from reference_broker.node.hosting.local_clients import Deliveries, NodeConnection
from reference_broker.queues.port import Queue
from reference_broker.queues.session import ConsumeSession
from reference_broker.types import NOBODY, GroupId


class ClientChannel:
    """One channel, from its first request to its end
    (:class:`~reference_broker.node.hosting.local_clients.LocalChannel`)."""

    __slots__ = (
        "_base", "_context", "_limit", "_replies", "access", "answers", "connection", "consumers", "consuming",
        "deliveries", "handlers", "id", "publishing", "transaction",
    )  # fmt: skip

    def __init__(self, connection: ConnectionPorts, node: ClientPorts, number: int) -> None:
        self.connection: NodeConnection | None = connection
        self.id = node.clients.new_channel(self, number)
        context = self._context = ChannelContext(connection, node, number, self.id)
        self.consumers: dict[str, ConsumeSession] = {}
        """By tag."""
        self.answers = Answers(context, self)
        self.access = QueueAccess(context, self.answers)
        self._replies = Replies(context, self.answers, self.consumers)
        self.publishing = Publishing(context, self.answers, self._replies, self)
        self.consuming = Consuming(context, self.access, self.consumers)
        self.deliveries: Deliveries = self.consuming
        """The receiver of queues' deliveries: the limit, if the channel has one."""
        self.transaction: Transaction | None = None
        """Not None while the channel is in tx mode."""
        self._limit: ChannelLimit | None = None
        self._base: Mapping[type, Handler] = HANDLERS
        self.handlers: Mapping[type, Handler] = connection.guarded(HANDLERS)

    @property
    def is_open(self) -> bool:
        """Whether the channel has not ended."""
        return self._context.ports.channels.get(self._context.number) is self

    # Events of the core

    def handle_now(self, event: Any) -> None:
        """Handle an event, whatever the channel waits for."""
        self.handlers[type(event)](self, event)

    def guard(self) -> None:
        """Have the guard of the connection look at events before their handlers."""
        handlers = self._base if self._limit is None else self._limit.around(self._base)
        self.handlers = self._context.ports.guarded(handlers)

    def keep_back(self, keeps: bool) -> None:
        """Give publishes and acknowledgements to the transaction from now on, or to their queues."""
        self._base = TX_HANDLERS if keeps else HANDLERS
        self.guard()

    def _select(self, event: TxSelect) -> None:
        """tx.select."""
        self.transaction = Transaction(self, self.publishing, self.consuming)
        self.keep_back(True)
        self._context.core.tx_selected(event.channel, self.transaction.tracker)

    def _declare(self, event: QueueDeclare) -> None:
        """queue.declare."""
        if event.queue.startswith(reply_to.NAME):
            self._replies.declare(event)
        else:
            queue_requests.declare(self.access, event)

    def _consume(self, event: Consume) -> None:
        """basic.consume. On a channel with a limit, a queue that cannot heed it closes the connection, as in
        RabbitMQ."""
        vhost, limit = self._context.vhost, self._limit
        queue = vhost.queues.get(event.queue) if limit is not None else None
        if limit is not None and queue is not None:
            if queue.kind.takes_channel_limits:
                event = replace(event, prefetch=limit.consuming(event.consumer_tag, event.prefetch))
            elif limit.most != NO_LIMIT and not event.no_ack:
                text = f"{vhost.queue_called(event.queue)} does not support global qos"
                error = self._context.core.connection_error(ReplyCode.NOT_IMPLEMENTED, text, "basic.consume")
                self._context.ports.handle(error)
                return
        if event.queue == reply_to.NAME:
            self._replies.consume(event, self.consuming.consume)
        else:
            self.consuming.consume(event)

    def _set_limit(self, event: GlobalQos) -> None:
        """basic.qos with ``global``; a count of 0 takes the limit away."""
        if self._limit is None:
            if not event.prefetch:
                return
            self._limit = self.deliveries = ChannelLimit(self.consuming)
            self.guard()
        self._limit.change(event.prefetch or NO_LIMIT)

    # News of queues and of the client

    def uses(self, group: GroupId) -> bool:
        """Whether the channel publishes to a queue, consumes from it, or waits for an answer about it."""
        awaited = self.answers.awaited
        return (
            group in self._context.used
            or self.publishing.uses(group)
            or (awaited is not None and awaited.group == group)
            or self.consuming.uses(group)
        )

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone: cancel its consumers, and answer open publishes and requests. A queue that is deleted does
        not answer any more."""
        self.publishing.queue_removed(record)
        self.answers.queue_gone(record.group)
        self.consuming.cancel_all(record.group)
        self._context.used.pop(record.group, None)
        self.answers.resume()

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the node that has the queue broke, and that node has ended the channel there; or another node has
        the queue now. Open publishes are refused. Consumers are cancelled, or go on at the queue's next owner."""
        group = record.group
        self.publishing.queue_lost(group)
        queue = self._context.used.pop(group, None)
        if not record.mirrors:
            self.consuming.cancel_all(group)
        elif queue is not None and failover.go_on(self.consuming, self._limit, queue):
            self._context.used[group] = queue
        self.answers.owner_lost(record)
        self.answers.resume()

    def catch_up(self) -> None:
        """The client reads again: get what consumers have missed."""
        behind.catch_up(self.consuming)

    def tick(self) -> int:
        """Number of ticks for which the channel has waited for the same queue's leader, or for the same answer."""
        return self.answers.patience.tick(self._leaderless() or self.answers.awaited)

    def _leaderless(self) -> Queue | None:
        """A queue whose leader is out of reach, although the channel has consumers or open publishes there."""
        lost = (queue for queue in self._context.used.values() if queue.proposer.leader == NOBODY)
        return next((queue for queue in lost if self._waits_on(queue.record.group)), None)

    def _waits_on(self, group: GroupId) -> bool:
        return self.publishing.waits_on(group) or self.consuming.uses(group)

    def end(self) -> list[Queue]:
        """End the channel: tell every queue that it has used. Returns the auto-delete queues that lose consumers."""
        context, answers = self._context, self.answers
        if self.is_open:
            del context.ports.channels[context.number]
        if answers.waiting:  # its publishes go to their queues first
            answers.is_gone = True
            return []
        answers.awaited = None  # later answers are ignored
        self.publishing.end()
        for queue in context.used.values():
            queue.channel_closed(self.id)
        context.node.clients.forget_channel(self.id)
        consumed = {consumer.group for consumer in self.consumers.values()}
        return [queue for group, queue in context.used.items() if group in consumed and queue.record.auto_delete]


def _transaction(channel: ClientChannel) -> Transaction:
    assert channel.transaction is not None, "the core sends tx events of channels in tx mode alone"
    return channel.transaction


HANDLERS: Final[Mapping[type, Handler]] = {
    Publish: publish,
    Settled: consuming.settled,
    Recovered: consuming.settled,
    Consume: ClientChannel._consume,
    Cancel: lambda channel, event: channel.consuming.cancel(event),
    Get: lambda channel, event: channel.consuming.get(event),
    GlobalQos: ClientChannel._set_limit,
    QueueDeclare: ClientChannel._declare,
    QueueDelete: lambda channel, event: queue_requests.delete(channel.access, event),
    QueuePurge: lambda channel, event: queue_requests.purge(channel.access, event),
    ExchangeDeclare: lambda channel, event: exchange_requests.declare(channel.access, event),
    ExchangeDelete: lambda channel, event: exchange_requests.delete(channel.access, event),
    BindingChange: lambda channel, event: exchange_requests.change_binding(channel.access, event),
    TxSelect: ClientChannel._select,
    HandOut: lambda channel, event: _transaction(channel).hand_out(event),
}
"""The handler of each event of the core."""
TX_HANDLERS: Final[Mapping[type, Handler]] = {
    **HANDLERS,
    Publish: lambda channel, event: _transaction(channel).publish(event),
    Settled: lambda channel, event: _transaction(channel).settle(event),
    TxCommit: lambda channel, event: _transaction(channel).commit(event),
    TxRollback: lambda channel, event: _transaction(channel).rollback(event),
}
"""The handler of each event of the core on a channel in tx mode."""
