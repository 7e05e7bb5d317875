"""The clients of this node, as its queues see them: what members here say to a channel finds its connection.

A channel has a number of its own beside that of its connection (:class:`reference_broker.types.ChannelId`), for channel
numbers are used again and again, and a late effect must not reach the wrong one. What is for a channel that is gone is
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.machines.metadata import QueueRecord
from reference_broker.queues.quorum import Piece
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId


class Connection(Protocol):
    """A client connection, as the node sees it."""

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int
    ) -> None:
        """Messages for a consumer of this connection."""

    def committed(self, channel: int, group: GroupId, last: int) -> bool:
        """Enqueues of a channel are committed; whether its client gets a confirm of any."""

    def rejected(self, channel: int, group: GroupId, first: int, last: int) -> None:
        """Enqueues of a channel were refused by a full queue."""

    def replied(self, correlation: int, value: int) -> None:
        """A command of a channel was applied."""

    def flush(self) -> None:
        """Write what has gathered."""

    def stood_still(self) -> None:
        """The process did, and what has gathered may have gone to others since."""

    def tick(self) -> None:
        """Heartbeats and time-outs."""

    def close(self, text: str) -> None:
        """The node stops."""

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue that the connection may use is gone."""


class LocalClients:
    """The part of :class:`~reference_broker.node.shard.Shard` that connections use and members tell."""

    node: NodeId
    boot_id: int
    anatomy: Anatomy
    touch: Callable[[Connection], None]
    """Has a connection flushed at the end of this turn."""

    def __init__(self) -> None:
        self.clients: dict[Connection, None] = {}  # a set, in the order of arrival
        self.connections: dict[int, Connection] = {}
        """By the number that stands in the identity of a channel of theirs."""
        self.delivered = 0
        self.redelivered = 0
        self._channels = 0

    def new_channel(self, connection: Connection, number: int) -> ChannelId:
        """An identity that no channel had before: channel numbers are used again and again."""
        self._channels += 1
        self.connections[self._channels] = connection
        return ChannelId(self.node, self.boot_id, self._channels, number)

    def forget_channel(self, channel: ChannelId) -> None:
        """The channel is gone."""
        self.connections.pop(channel.connection, None)

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, pieces: list[Piece], delivery_count: int
    ) -> None:
        """Hand messages to the connection of the consumer."""
        if (connection := self.connections.get(consumer.channel.connection)) is not None:
            connection.deliver(group, consumer, first_message_id, pieces, delivery_count)
            self.anatomy.hold(connection)
            count = sum(piece[2] for piece in pieces)
            self.delivered += count
            self.redelivered += count if delivery_count else 0
            self.touch(connection)

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        """Hand commits to the connection of the publisher."""
        if (connection := self.connections.get(channel.connection)) is not None:
            if connection.committed(channel.channel, group, last):
                self.anatomy.hold(connection)
            self.anatomy.drop()
            self.touch(connection)

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        """Hand refusals to the connection of the publisher."""
        if (connection := self.connections.get(channel.connection)) is not None:
            connection.rejected(channel.channel, group, first, last)
            self.touch(connection)

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        """Hand an answer to the connection that asked."""
        if (connection := self.connections.get(channel.connection)) is not None:
            connection.replied(correlation, value)
            self.touch(connection)
