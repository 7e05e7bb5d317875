"""Transactions: publishes and acknowledgements that a channel keeps back until tx.commit.

Theory of operation
-------------------
tx.select gives the channel another table of handlers, :data:`HANDLERS`, and a :class:`Transaction`. A publish is
checked and kept, an acknowledgement is kept. tx.commit hands the publishes to their queues, then the acknowledgements,
with the handlers of any other channel. The client gets tx.commit-ok when every queue has confirmed every publish, so
the transaction is as durable as publisher confirms are. tx.rollback drops what was kept, and the core makes the
deliveries unacknowledged again. A channel that ends drops its transaction, and its queues return what it holds.

As in RabbitMQ, a transaction over several queues, or of publishes and acknowledgements, is not atomic when a node
fails during the commit; and a transaction of which a queue has refused a publish closes the channel with 406, although
other publishes may have arrived. What an open transaction keeps is bounded (``transaction_bytes_max``,
``transaction_commands_max``); beyond that the channel is closed with 406.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from reference_broker.amqp import addressing
from reference_broker.amqp.errors import ReplyCode, SoftError
from reference_broker.amqp.events import Event, Publish, Settled, TxCommit, TxRollback, TxSelect
from reference_broker.amqp.transactions import CommitTracker
from reference_broker.node.clients import routed_publishes
from reference_broker.node.clients.client_ports import ClientPorts, ConnectionPorts
from reference_broker.queues.session import ConsumeSession
from reference_broker.types import COPIES, IdRange, Outcome

T = TypeVar("T")
Settle = tuple[ConsumeSession, Outcome, tuple[IdRange, ...]]


class Transaction:
    """What a channel in tx mode keeps, and the state of its commit."""

    __slots__ = ("commands", "committed", "is_handed_out", "octets", "publishes", "settles", "tracker")

    def __init__(self) -> None:
        self.tracker = CommitTracker(self.look)
        self.publishes: list[Publish] = []
        self.settles: list[Settle] = []
        self.octets = 0
        """Octets of the messages that are kept."""
        self.commands = 0
        """Runs of messages, and ranges of acknowledgements, that are kept."""
        self.is_handed_out = False
        """The queues have everything, and some have not confirmed yet."""
        self.committed: Callable[[None], None] | None = None

    def look(self) -> None:
        """End the commit if all queues have confirmed."""
        if self.is_handed_out and self.tracker.is_resolved and self.committed is not None:
            committed, self.committed, self.is_handed_out = self.committed, None, False
            committed(None)

    def clear(self) -> None:
        """Keep nothing any more."""
        self.publishes, self.settles = [], []
        self.octets = self.commands = 0


class HandOut:
    """Follows the publishes of a transaction to their queues: the acknowledgements are next. Handled like an event of
    the core, so that it waits behind publishes that wait."""

    __slots__ = ("number", "settles")

    def __init__(self, number: int, settles: list[Settle]) -> None:
        self.number = number
        """Of the channel."""
        self.settles = settles


Handlers = Mapping[type, Callable[[Any, Any], None]]


class TransactionalChannel(routed_publishes.PublishingChannel, Protocol):
    """What transactions need of their channel."""

    ports: ConnectionPorts
    node: ClientPorts
    transaction: Transaction | None
    consumers: dict[str, ConsumeSession]
    is_gone: bool

    @property
    def is_open(self) -> bool:
        """Whether the channel has not ended."""

    def handle(self, event: Event | HandOut) -> None:
        """Handle an event now, or behind those that wait."""

    def keep_back(self, keeps: bool) -> None:
        """Give publishes and acknowledgements to the transaction from now on, or to their queues."""

    def settle(self, consumer: ConsumeSession, outcome: Outcome, ranges: tuple[IdRange, ...]) -> None:
        """Tell the queue the outcome of messages that the consumer held."""

    def until(self, answered: Callable[[T], None]) -> Callable[[T], None]:
        """Make the channel busy until the returned function is called, which calls ``answered`` if the channel is still
        there."""

    def refuse(self, code: int, text: str, method: str) -> None:
        """Close the channel."""


def select(channel: TransactionalChannel, event: TxSelect) -> None:
    """Put the channel in tx mode."""
    channel.transaction = Transaction()
    channel.keep_back(True)
    channel.ports.core.tx_selected(event.channel, channel.transaction.tracker)


def _publish(channel: TransactionalChannel, event: Publish) -> None:
    """Keep a run of publishes. As in RabbitMQ, an exchange that the client may not publish to is refused at once."""
    if not routed_publishes.may_publish(channel, event):
        return
    if event.ttl_ms == COPIES:
        try:
            for _start, run, address in addressing.stretches(event.run):
                address.check()
                channel.replies.addressed(run, address)
        except SoftError as refused:
            channel.refuse_publish(event, refused.code, refused.text)
            return
    transaction = _of(channel)
    transaction.publishes.append(event)
    transaction.octets += len(event.run.data)
    transaction.commands += 1
    channel.ports.published()
    _check_size(channel, transaction, "basic.publish")


def _settle(channel: TransactionalChannel, event: Settled) -> None:
    """Keep acknowledgements."""
    consumer = channel.consumers.get(event.consumer_tag)
    if consumer is not None:
        transaction = _of(channel)
        transaction.settles.append((consumer, event.outcome, event.ranges))
        transaction.commands += len(event.ranges)
        _check_size(channel, transaction, "basic.ack")


def _check_size(channel: TransactionalChannel, transaction: Transaction, method: str) -> None:
    limits = channel.node.limits
    if transaction.octets > limits.transaction_bytes_max:
        what = f"{limits.transaction_bytes_max} octets (transaction_bytes_max)"
    elif transaction.commands > limits.transaction_commands_max:
        what = f"{limits.transaction_commands_max} publishes and acknowledgements (transaction_commands_max)"
    else:
        return
    transaction.clear()
    channel.refuse(ReplyCode.PRECONDITION_FAILED, f"transaction is larger than {what}: commit more often", method)


def _commit(channel: TransactionalChannel, event: TxCommit) -> None:
    transaction = _of(channel)
    channel.keep_back(False)
    publishes, settles = transaction.publishes, transaction.settles
    transaction.clear()
    everything: list[Publish | HandOut] = [*publishes, HandOut(event.channel, settles)]
    for each in everything:
        if not channel.is_open:
            return  # a publish was refused
        channel.handle(each)


def hand_out_settles(channel: TransactionalChannel, event: HandOut) -> None:
    """The queues have the publishes of a transaction. Hand out the acknowledgements, and wait for the confirms."""
    for consumer, outcome, ranges in event.settles:
        if any(each is consumer for each in channel.consumers.values()):  # else its queue is gone
            channel.settle(consumer, outcome, ranges)
    if channel.is_gone:
        return  # the client has ended the channel behind its commit
    transaction = _of(channel)
    transaction.committed = channel.until(lambda _: _committed(channel, transaction, event.number))
    transaction.is_handed_out = True
    transaction.look()


def _committed(channel: TransactionalChannel, transaction: Transaction, number: int) -> None:
    refused = transaction.tracker.refused
    transaction.tracker.forget()
    channel.keep_back(True)
    if refused:
        channel.refuse(ReplyCode.PRECONDITION_FAILED, "partial tx completion", "tx.commit")
    else:
        channel.ports.core.tx_ended(number, committed=True)


def _rollback(channel: TransactionalChannel, event: TxRollback) -> None:
    transaction = _of(channel)
    transaction.clear()
    transaction.tracker.forget()
    channel.ports.core.tx_ended(event.channel, committed=False)


def _of(channel: TransactionalChannel) -> Transaction:
    assert channel.transaction is not None, "the core sends tx events of channels in tx mode alone"
    return channel.transaction


HANDLERS: Final[Handlers] = {
    Publish: _publish,
    Settled: _settle,
    TxCommit: _commit,
    TxRollback: _rollback,
}
"""The handlers of a channel in tx mode that differ from those of other channels; the channel adds the others."""
