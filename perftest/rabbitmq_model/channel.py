"""A client's connection with its channel: the processes that read, decide and write, and the credit between them.

The reader hands messages to the channel only as long as it has credit: 400 messages, and 200 more whenever the channel
has dealt with 200. A channel that waits for 32 messages of a quorum queue grants no credit until fewer wait. So the
reader stops, and what waits in the socket is the client's concern. Acknowledgements need no credit, but beyond 32
commands under way they wait in the channel and become one command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

from perftest.rabbitmq_model.consumer import SOFT_LIMIT, ModelledQueue, Subscriber
from perftest.rabbitmq_model.messages import (
    AckLot,
    Cancelled,
    DeliveryLot,
    EnqueuesApplied,
    MessageLot,
    SettlesApplied,
    Subscribed,
)
from perftest.rabbitmq_model.node import ModelledNode
from perftest.rabbitmq_model.processes import ErlangProcess

CREDIT: Final = 400
"""Messages that a reader may be ahead of its channel."""
CREDIT_MORE: Final = 200


class Hearer(Protocol):
    """The client at the other end of a connection."""

    def confirm(self, channel: ModelledChannel, first_seq: int, last_seq: int) -> None:
        """Publishes are safe."""

    def deliver(self, consumer: Subscriber, lot: MessageLot) -> None:
        """Messages leave for a consumer."""


class ModelledChannel:
    """One channel, with the reader and the writer of its connection. ``queues`` finds a queue by its name."""

    def __init__(self, node: ModelledNode, client: Hearer, number: int, queues: Mapping[str, ModelledQueue]) -> None:
        self.node = node
        self.number = number
        self._client = client
        self._queues = queues
        wake = node.costs.wake
        self._reader = ErlangProcess(node.agenda, node.cores, wake, self._reading_cost, self._read)
        self.process = ErlangProcess(node.agenda, node.cores, wake, self._cost, self._act)
        self._writer = ErlangProcess(node.agenda, node.cores, wake, self._writing_cost, self._write)
        self._credit = CREDIT
        self._unread: deque[MessageLot] = deque()
        """Lots for which the reader has no credit."""
        self._handled = 0
        self._grants = 0
        """Grants of credit that wait until the channel is no longer slow."""
        self.pending: dict[str, int] = {}
        """Messages under way to each quorum queue."""

    @property
    def processes(self) -> list[ErlangProcess]:
        """Reader, channel, writer."""
        return [self._reader, self.process, self._writer]

    @property
    def unread(self) -> int:
        """Messages that the reader has not taken."""
        return self._reader.waiting + sum(lot.count for lot in self._unread)

    # What the client sends

    def publish(self, lot: MessageLot) -> None:
        """The client publishes."""
        self._reader.tell(lot)

    def acknowledge(self, consumer: Subscriber, count: int) -> None:
        """The client acknowledges messages of a consumer."""
        self._reader.tell(AckLot(consumer, count))

    def subscribe(self, consumer: Subscriber) -> None:
        """The client subscribes."""
        consumer.queue.tell(Subscribed(consumer), self.node)

    def cancel(self, consumer: Subscriber) -> None:
        """The client wants no more messages."""
        consumer.queue.tell(Cancelled(consumer), self.node)

    # The reader

    def _reading_cost(self, items: list[Any]) -> int:
        costs, total = self.node.costs, self.node.costs.turn_ns
        for item in items:
            total += item.count * (costs.reader_publish_ns if type(item) is MessageLot else costs.reader_ack_ns)
        return total

    def _read(self, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, MessageLot):
                self._unread.append(item)
            else:
                self.process.tell(item)
        self._hand_over()

    def _hand_over(self) -> None:
        """Give the channel as many messages as there is credit for; without credit, do not read."""
        unread = self._unread
        while unread and self._credit:
            lot = unread.popleft()
            if lot.count > self._credit:
                lot, rest = lot.split(self._credit)
                unread.appendleft(rest)
            self._credit -= lot.count
            self.process.tell(lot)
        if unread:
            self._reader.hold()

    def _grant(self) -> None:
        self._credit += CREDIT_MORE
        self._hand_over()
        if not self._unread:
            self._reader.release()

    # The channel

    def _cost(self, items: list[Any]) -> int:
        costs, total = self.node.costs, self.node.costs.turn_ns
        for item in items:
            match item:
                case MessageLot():
                    total += costs.channel_publish_ns * item.count
                case EnqueuesApplied():
                    total += costs.channel_confirm_ns * item.count
                case DeliveryLot():
                    total += costs.channel_deliver_ns * item.count
                case AckLot():
                    total += costs.channel_ack_ns * item.count
        return total

    def _act(self, items: list[Any]) -> None:
        for item in items:
            match item:
                case MessageLot():
                    self._route(item)
                case EnqueuesApplied():
                    self._applied(item.lot)
                case DeliveryLot():
                    self._writer.tell(item)
                case AckLot():
                    self._settle(item.consumer, item.count)
                case SettlesApplied():
                    self._settled(item.consumer, item.commands)
        self._go_on()

    def _route(self, lot: MessageLot) -> None:
        queue = self._queues.get(lot.route)
        if queue is None:
            self._confirm(lot)
        else:
            if queue.limits_commands:
                self.pending[lot.route] = self.pending.get(lot.route, 0) + lot.count
            queue.tell(lot, self.node)
        self._handled += lot.count
        self._grants += self._handled // CREDIT_MORE
        self._handled %= CREDIT_MORE

    def _applied(self, lot: MessageLot) -> None:
        if lot.route in self.pending:
            self.pending[lot.route] -= lot.count
        self._confirm(lot)

    def _confirm(self, lot: MessageLot) -> None:
        if lot.seq:
            self._client.confirm(self, lot.seq, lot.seq + lot.count - 1)

    def _go_on(self) -> None:
        if self._grants and all(count < SOFT_LIMIT for count in self.pending.values()):
            grants, self._grants = self._grants, 0
            for _ in range(grants):
                self._grant()

    def _settle(self, consumer: Subscriber, count: int) -> None:
        """Send each acknowledgement as a command, as long as few commands are under way."""
        single = min(count, max(0, SOFT_LIMIT - consumer.commands)) if not consumer.unsent else 0
        consumer.unsent += count - single
        self._send(consumer, single, single)

    def _settled(self, consumer: Subscriber, commands: int) -> None:
        """Commands are applied: send all acknowledgements that wait, as one command."""
        consumer.commands -= commands
        if consumer.commands < SOFT_LIMIT:
            count, consumer.unsent = consumer.unsent, 0
            self._send(consumer, count, 1)

    def _send(self, consumer: Subscriber, count: int, entries: int) -> None:
        if count:
            consumer.commands += entries
            consumer.queue.tell(AckLot(consumer, count, entries), self.node)

    # The writer

    def _writing_cost(self, items: list[Any]) -> int:
        messages: int = sum(item.count for item in items)
        return self.node.costs.turn_ns + self.node.costs.writer_deliver_ns * messages

    def _write(self, items: list[Any]) -> None:
        for item in items:
            self._client.deliver(item.consumer, item.lot)
