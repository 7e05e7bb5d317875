"""A quorum queue: a Ra leader and its followers, each an Erlang process on its node, over the logs of these nodes.

The leader appends commands to its node's log and sends them to its followers at once. A command is committed when the
logs of a majority have synced the command. Then the leader applies the command: the publisher's channel hears of it,
consumers get messages. Each member takes a snapshot when enough of its log is of no use any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from perftest.rabbitmq_model.consumer import ChannelEnd
from perftest.rabbitmq_model.messages import AckLot, Cancelled, EnqueuesApplied, MessageLot, SettlesApplied, Subscribed
from perftest.rabbitmq_model.node import ModelledNode
from perftest.rabbitmq_model.processes import ErlangProcess, Notice
from perftest.rabbitmq_model.ready import ReadyMessages
from perftest.rabbitmq_model.wal import LogEntries, LogWriter, WrittenNotice

ENQUEUE_OCTETS: Final = 230
"""Octets of an enqueue command in the log, beside the frames of the message."""
SETTLE_OCTETS: Final = 150
SNAPSHOT_ENTRIES: Final = 10_240
"""Entries between two snapshots: a release cursor comes every 2048 messages, and Ra lets 8192 entries pass first."""
SNAPSHOT_OCTETS: Final = 4096


class _Append(Notice):
    """The leader's entries for a follower."""

    def __init__(self, entries: int, octets: int, last: int, floor: int) -> None:
        self.entries = entries
        self.octets = octets
        self.last = last
        self.floor = floor


class _Reply(Notice):
    """The last index that a follower has synced."""

    def __init__(self, follower: int, last: int) -> None:
        self.follower = follower
        self.last = last


class _Follower:
    """A follower on one node. ``reply`` carries its answers to the leader."""

    def __init__(self, node: ModelledNode, reply: Callable[[int], None]) -> None:
        self._node = node
        self._reply = reply
        self.process = ErlangProcess(node.agenda, node.cores, node.costs.wake, self._cost, self._act)
        self.member = LogWriter(lambda last: self.process.tell(WrittenNotice(last)))

    def _cost(self, items: list[Any]) -> int:
        costs = self._node.costs
        return costs.turn_ns + costs.follower_entry_ns * sum(item.entries for item in items if type(item) is _Append)

    def _act(self, items: list[Any]) -> None:
        for item in items:
            if type(item) is _Append:
                self._node.log(LogEntries(self.member, item.last, item.entries, item.octets))
                self._node.snapshot(self.member, item.floor, SNAPSHOT_ENTRIES, SNAPSHOT_OCTETS)
            else:
                self._reply(item.last)


class QuorumQueue:
    """One queue, whose leader is on the first of ``nodes``."""

    limits_commands = True

    def __init__(self, name: str, nodes: list[ModelledNode]) -> None:
        self.name = name
        self.node = node = nodes[0]
        self.ready = ReadyMessages()
        self._process = ErlangProcess(node.agenda, node.cores, node.costs.wake, self._cost, self._act)
        self._member = LogWriter(lambda last: self._process.tell(WrittenNotice(last)))
        self._followers = [
            _Follower(each, self._way_back(number, each)) for number, each in enumerate(nodes[1:], start=1)
        ]
        self._nodes = nodes
        self._last = self._committed = 0
        self._synced = [0] * len(nodes)
        self._waiting: deque[tuple[int, MessageLot | AckLot]] = deque()
        """Commands that are not committed yet, by their last index."""

    def _way_back(self, number: int, node: ModelledNode) -> Callable[[int], None]:
        return lambda last: node.send(self.node, 0, self._process.tell, _Reply(number, last))

    def tell(self, item: Any, sender: ModelledNode) -> None:
        """Send something to the leader."""
        octets = item.count * item.octets if isinstance(item, MessageLot) else 0
        sender.send(self.node, octets, self._process.tell, item)

    @property
    def processes(self) -> list[tuple[str, ModelledNode, ErlangProcess]]:
        """The kind, the node and the process of each member."""
        followers = zip(self._nodes[1:], self._followers, strict=True)
        return [("leader", self.node, self._process), *(("follower", node, each.process) for node, each in followers)]

    def _cost(self, items: list[Any]) -> int:
        costs, total = self.node.costs, self.node.costs.turn_ns
        for item in items:
            if type(item) is MessageLot:
                total += costs.leader_enqueue_ns * item.count
            elif type(item) is AckLot:
                total += costs.leader_settle_ns * item.entries
            else:
                total += costs.leader_event_ns
        return total

    def _act(self, items: list[Any]) -> None:
        entries = octets = 0
        for item in items:
            match item:
                case MessageLot():
                    entries += item.count
                    octets += item.count * (item.octets + ENQUEUE_OCTETS)
                    self._waiting.append((self._last + entries, item))
                case AckLot():
                    entries += item.entries
                    octets += SETTLE_OCTETS * item.entries
                    self._waiting.append((self._last + entries, item))
                case WrittenNotice():
                    self._synced[0] = item.last
                case _Reply():
                    self._synced[item.follower] = max(self._synced[item.follower], item.last)
                case Subscribed():
                    self.ready.consumers.append(item.consumer)
                case Cancelled():
                    self.ready.consumers.remove(item.consumer)
        if entries:
            self._append(entries, octets)
        self._commit()

    def _append(self, entries: int, octets: int) -> None:
        self._last += entries
        floor = self._committed - 2 * (self.ready.count + self.ready.unacked)
        self.node.log(LogEntries(self._member, self._last, entries, octets))
        self.node.snapshot(self._member, floor, SNAPSHOT_ENTRIES, SNAPSHOT_OCTETS)
        for follower, node in zip(self._followers, self._nodes[1:], strict=True):
            self.node.send(node, octets, follower.process.tell, _Append(entries, octets, self._last, floor))

    def _commit(self) -> None:
        """Apply what a majority has synced, and have consumers get what is ready."""
        self._committed = sorted(self._synced)[(len(self._synced) - 1) // 2]
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._committed:
            _, item = waiting.popleft()
            if isinstance(item, MessageLot):
                self._to_channel(item.channel, EnqueuesApplied(item), 0)
                self.ready.add(item)
            else:
                self.ready.settle(item.consumer, item.count)
                self._to_channel(item.consumer.channel, SettlesApplied(item.consumer, item.entries), 0)
        for delivery in self.ready.deliveries():
            octets = delivery.lot.octets * delivery.count
            self._to_channel(delivery.consumer.channel, delivery, octets)

    def _to_channel(self, channel: ChannelEnd, item: Any, octets: int) -> None:
        self.node.send(channel.node, 0 if channel.node in self._nodes else octets, channel.process.tell, item)
