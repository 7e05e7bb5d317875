"""Transactions: publishes and acknowledgements that a channel keeps back until tx.commit.

Theory of operation
-------------------
tx.select gives the channel a :class:`Transaction`, and handlers of events that keep them there. A publish is checked
and kept, an acknowledgement is kept. tx.commit hands the publishes to their queues, then the acknowledgements, with the
handlers of any other channel. The client gets tx.commit-ok when every queue has confirmed every publish, so the
transaction is as durable as publisher confirms are. tx.rollback drops the kept commands, and the core makes the
deliveries unacknowledged again. A channel that ends drops its transaction, and its queues take its messages back.

As in RabbitMQ, a transaction over several queues, or of publishes and acknowledgements, is not atomic when a node fails
during the commit; and if a queue refuses a publish of the transaction, the channel closes with 406, although other
publishes may have arrived. The size of an open transaction is bounded (``transaction_bytes_max``,
``transaction_commands_max``); beyond that the channel is closed with 406.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from reference_broker.amqp import addressing
from reference_broker.amqp.errors import ReplyCode, SoftError
from reference_broker.amqp.events import Publish, Settled, TxCommit, TxRollback
from reference_broker.amqp.transactions import CommitTracker
from reference_broker.node.clients.consuming import Consuming
from reference_broker.node.clients.publishing import Publishing, may_publish
from reference_broker.queues.session import ConsumeSession
from reference_broker.types import COPIES, IdRange, Outcome

Settle = tuple[ConsumeSession, Outcome, tuple[IdRange, ...]]


class HandOut:
    """Follows the publishes of a transaction to their queues: the acknowledgements are next. Handled like an event of
    the core, so that it waits behind publishes that wait."""

    __slots__ = ("number", "settles")

    def __init__(self, number: int, settles: list[Settle]) -> None:
        self.number = number
        """Of the channel."""
        self.settles = settles


class TransactionalChannel(Protocol):
    """The channel, which has other handlers in tx mode."""

    @property
    def is_open(self) -> bool:
        """Whether the channel has not ended."""

    def keep_back(self, keeps: bool) -> None:
        """Give publishes and acknowledgements to the transaction from now on, or to their queues."""


class Transaction:
    """The kept commands of a channel in tx mode, and the state of its commit."""

    __slots__ = (
        "_channel", "_commands", "_committed", "_consuming", "_is_handed_out", "_publishes", "_publishing", "_settles",
        "octets", "tracker",
    )  # fmt: skip

    def __init__(self, channel: TransactionalChannel, publishing: Publishing, consuming: Consuming) -> None:
        self._channel = channel
        self._publishing = publishing
        self._consuming = consuming
        self.tracker = CommitTracker(self._look)
        self._publishes: list[Publish] = []
        self._settles: list[Settle] = []
        self.octets = 0
        """Octets of the messages that are kept."""
        self._commands = 0
        """Runs of messages, and ranges of acknowledgements, that are kept."""
        self._is_handed_out = False
        """The queues have everything, and some have not confirmed yet."""
        self._committed: Callable[[None], None] | None = None

    def publish(self, event: Publish) -> None:
        """Keep a run of publishes. As in RabbitMQ, an exchange that the client may not publish to is refused at
        once."""
        publishing = self._publishing
        if not may_publish(publishing, event):
            return
        if event.ttl_ms == COPIES:
            try:
                for _start, run, address in addressing.stretches(event.run):
                    address.check()
                    publishing.replies.addressed(run, address)
            except SoftError as refused:
                publishing.refuse(refused.code, refused.text)
                return
        self._publishes.append(event)
        self.octets += len(event.run.data)
        self._commands += 1
        publishing.context.ports.flow.published()
        self._check_size("basic.publish")

    def settle(self, event: Settled) -> None:
        """Keep acknowledgements."""
        consumer = self._consuming.consumers.get(event.consumer_tag)
        if consumer is not None:
            self._settles.append((consumer, event.outcome, event.ranges))
            self._commands += len(event.ranges)
            self._check_size("basic.ack")

    def _check_size(self, method: str) -> None:
        limits = self._publishing.context.node.limits
        if self.octets > limits.transaction_bytes_max:
            what = f"{limits.transaction_bytes_max} octets (transaction_bytes_max)"
        elif self._commands > limits.transaction_commands_max:
            what = f"{limits.transaction_commands_max} publishes and acknowledgements (transaction_commands_max)"
        else:
            return
        self._clear()
        text = f"transaction is larger than {what}: commit more often"
        self._publishing.answers.refuse(ReplyCode.PRECONDITION_FAILED, text, method)

    def _clear(self) -> None:
        """Keep nothing any more."""
        self._publishes, self._settles = [], []
        self.octets = self._commands = 0

    def commit(self, event: TxCommit) -> None:
        """tx.commit: hand out the publishes, and the acknowledgements behind them."""
        self._channel.keep_back(False)
        everything: list[Any] = [*self._publishes, HandOut(event.channel, self._settles)]
        self._clear()
        for each in everything:
            if not self._channel.is_open:
                return  # a publish was refused
            self._publishing.answers.handle(each)

    def hand_out(self, event: HandOut) -> None:
        """The queues have the publishes. Hand out the acknowledgements, and wait for the confirms."""
        for consumer, outcome, ranges in event.settles:
            if any(each is consumer for each in self._consuming.consumers.values()):  # else its queue is gone
                self._consuming.settle(consumer, outcome, ranges)
        if self._publishing.answers.is_gone:
            return  # the client has ended the channel behind its commit
        self._committed = self._publishing.answers.until(lambda _: self._end(event.number))
        self._is_handed_out = True
        self._look()

    def _look(self) -> None:
        """End the commit if all queues have confirmed."""
        if self._is_handed_out and self.tracker.is_resolved and self._committed is not None:
            committed, self._committed, self._is_handed_out = self._committed, None, False
            committed(None)

    def _end(self, number: int) -> None:
        refused = self.tracker.refused
        self.tracker.forget()
        self._channel.keep_back(True)
        if refused:
            self._publishing.answers.refuse(ReplyCode.PRECONDITION_FAILED, "partial tx completion", "tx.commit")
        else:
            self._publishing.context.core.tx_ended(number, committed=True)

    def rollback(self, event: TxRollback) -> None:
        """tx.rollback: drop the kept commands."""
        self._clear()
        self.tracker.forget()
        self._publishing.context.core.tx_ended(event.channel, committed=False)
