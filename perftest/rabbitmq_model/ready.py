"""The messages of a queue that wait for a consumer, and the consumers with credit, in their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from perftest.rabbitmq_model.consumer import Subscriber
from perftest.rabbitmq_model.messages import DeliveryLot, MessageLot


class ReadyMessages:
    """Messages and consumers of one queue. Several consumers get one message each in turn."""

    def __init__(self) -> None:
        self.count = 0
        self.unacked = 0
        self.consumers: deque[Subscriber] = deque()
        self._lots: deque[MessageLot] = deque()

    def add(self, lot: MessageLot) -> None:
        """Messages are ready."""
        self._lots.append(lot)
        self.count += lot.count

    def settle(self, consumer: Subscriber, count: int) -> None:
        """A consumer is done with messages."""
        self.unacked -= count
        consumer.unacked -= count

    def purge(self) -> int:
        """Drop what is ready; returns the number of messages."""
        dropped, self.count = self.count, 0
        self._lots.clear()
        return dropped

    def deliveries(self) -> Iterator[DeliveryLot]:
        """What consumers get now."""
        idle = 0
        while self._lots and idle < len(self.consumers):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            room = min(consumer.room, 1 if len(self.consumers) > 1 else self.count)
            idle = 0 if room else idle + 1
            while room and self._lots:
                lot = self._lots.popleft()
                if lot.count > room:
                    lot, rest = lot.split(room)
                    self._lots.appendleft(rest)
                room -= lot.count
                self._hand_out(consumer, lot)
                yield DeliveryLot(consumer, lot)

    def _hand_out(self, consumer: Subscriber, lot: MessageLot) -> None:
        self.count -= lot.count
        if not consumer.no_ack:
            self.unacked += lot.count
            consumer.unacked += lot.count
