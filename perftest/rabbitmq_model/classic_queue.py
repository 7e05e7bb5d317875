"""A classic queue, also a lazy one: one Erlang process on one node, with a journal of its own.

The process delivers a persistent message at once, and confirms it after a sync. It writes and syncs whenever it has
unconfirmed messages and nothing else to do, and does nothing else meanwhile: a message that comes alone costs a write
and a sync.
"""

from __future__ import annotations

from typing import Any, Final

from perftest.rabbitmq_model.consumer import ChannelEnd
from perftest.rabbitmq_model.files import JournaledAppends
from perftest.rabbitmq_model.messages import AckLot, Cancelled, EnqueuesApplied, MessageLot, SettlesApplied, Subscribed
from perftest.rabbitmq_model.node import ModelledNode
from perftest.rabbitmq_model.processes import ErlangProcess
from perftest.rabbitmq_model.ready import ReadyMessages

ENTRY_OCTETS: Final = 200
"""Octets of a message in the journal, beside the frames of the message."""


class ClassicQueue:
    """One queue, on ``node``."""

    limits_commands = False

    def __init__(self, name: str, node: ModelledNode) -> None:
        self.name = name
        self.node = node
        self.ready = ReadyMessages()
        self._process = ErlangProcess(node.agenda, node.cores, node.costs.wake, self._cost, self._act)
        self._journal: JournaledAppends = node.new_file("classic")
        self._unconfirmed: list[MessageLot] = []

    def tell(self, item: Any, sender: ModelledNode) -> None:
        """Send something to the process."""
        octets = item.count * item.octets if isinstance(item, MessageLot) else 0
        sender.send(self.node, octets, self._process.tell, item)

    @property
    def processes(self) -> list[tuple[str, ModelledNode, ErlangProcess]]:
        """The kind, the node and the process of the queue."""
        return [("classic", self.node, self._process)]

    def _cost(self, items: list[Any]) -> int:
        costs, total = self.node.costs, self.node.costs.turn_ns
        for item in items:
            each = costs.classic_publish_ns if type(item) is MessageLot else costs.classic_ack_ns
            total += each * item.count
        return total

    def _act(self, items: list[Any]) -> None:
        for item in items:
            match item:
                case MessageLot():
                    self._publish(item)
                case AckLot():
                    self.ready.settle(item.consumer, item.count)
                    self._to_channel(item.consumer.channel, SettlesApplied(item.consumer, item.entries), 0)
                case Subscribed():
                    self.ready.consumers.append(item.consumer)
                case Cancelled():
                    self.ready.consumers.remove(item.consumer)
        for delivery in self.ready.deliveries():
            octets = delivery.lot.octets * delivery.count
            self._to_channel(delivery.consumer.channel, delivery, octets)
        if self._unconfirmed and not self._process.waiting:
            self._sync()

    def _publish(self, lot: MessageLot) -> None:
        self.ready.add(lot)
        if lot.seq and lot.persistent:
            self._unconfirmed.append(lot)
        else:
            self._to_channel(lot.channel, EnqueuesApplied(lot), 0)

    def _sync(self) -> None:
        lots, self._unconfirmed = self._unconfirmed, []
        self._process.hold()
        octets = sum(lot.count * (lot.octets + ENTRY_OCTETS) for lot in lots)
        self._journal.append_and_sync(octets, lambda: self._synced(lots))

    def _synced(self, lots: list[MessageLot]) -> None:
        for lot in lots:
            self._to_channel(lot.channel, EnqueuesApplied(lot), 0)
        self._process.release()

    def _to_channel(self, channel: ChannelEnd, item: Any, octets: int) -> None:
        self.node.send(channel.node, octets, channel.process.tell, item)
