"""The channels of this node, as its queues see them: every result of a queue finds its channel.

A channel's identity (:class:`reference_broker.types.ChannelId`) has a number that is never reused. AMQP's channel
numbers are reused, and a late effect must not reach the wrong channel. Effects for channels that are gone are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.message_run import RunSlice
from reference_broker.node.hosting.slices import Slices
from reference_broker.node.observer import NodeObserver, before
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId


class NodeConnection(Protocol):
    """A client connection, as the node sees it."""

    user: str
    """The user who opened a virtual host; empty before that."""
    vhost: str
    rests_until_s: float
    """When it needs a tick again, by the clock of the loop."""

    @property
    def channel_count(self) -> int:
        """The channels that are open on it."""

    def access_changed(self) -> None:
        """Users may do other things than before."""

    def flush(self) -> None:
        """Write the output that has gathered."""

    def was_suspended(self) -> None:
        """The process was suspended: other consumers may have the messages of the gathered deliveries by now."""

    def tick(self) -> None:
        """Heartbeats and time-outs."""

    def close(self, text: str) -> None:
        """The node stops."""

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue that the connection may use is gone."""

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the only node of a queue broke."""


class Deliveries(Protocol):
    """The receiver of queues' deliveries to the consumers of a channel."""

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Messages of a queue for a consumer of this channel."""

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        """Whether the client reads what a consumer gets. If not, the channel asks for the messages up to id ``last``
        itself."""

    def missed(self, group: GroupId, consumer: ConsumerId, last: int) -> None:
        """A consumer gets no messages up to id ``last`` until the channel asks for them."""


class Publishes(Protocol):
    """The receiver of queues' answers to the publishes of a channel."""

    def committed(self, group: GroupId, last: int) -> bool:
        """Enqueues of the channel are committed. Returns whether its client gets a confirm."""

    def rejected(self, group: GroupId, first: int, last: int) -> None:
        """Enqueues of the channel were refused by a full queue."""


class Replied(Protocol):
    """The receiver of queues' answers to the other commands of a channel."""

    def replied(self, correlation: int, value: int) -> None:
        """A command of the channel was applied."""


class LocalChannel(Protocol):
    """A channel on this node, as queues see it: its parts."""

    @property
    def connection(self) -> NodeConnection | None:
        """The connection to flush after a call; None for a channel of the node itself."""

    @property
    def deliveries(self) -> Deliveries:
        """The receiver of messages."""

    @property
    def publishing(self) -> Publishes:
        """The receiver of confirms."""

    @property
    def answers(self) -> Replied:
        """The receiver of other answers."""


class LocalClients:
    """All connections and channels of a node (:class:`reference_broker.queues.port.Channels`)."""

    def __init__(
        self, node: NodeId, boot_id: int, anatomy: Anatomy, touch: Callable[[NodeConnection], None], slices: Slices,
        observer: NodeObserver,
    ) -> None:  # fmt: skip
        """``touch``: flush the connection at the end of this turn. ``slices``: for the octets of the connections."""
        self.slices = slices
        self.node = node
        self.boot_id = boot_id
        self.touch = touch
        self.deliver = before(observer.delivers, self._deliver)
        self._misses = observer.misses
        self.connections: dict[NodeConnection, None] = {}  # a set, in the order of arrival
        self.channels: dict[int, LocalChannel] = {}
        """By the number in the channel's identity."""
        self.logging_in = 0
        """Connections whose client has not opened a virtual host yet."""
        self.octets_come = 0
        """Octets that clients have sent since the node last looked at its memory because of them."""
        self.look_again_ns = 0
        """When it looks again, however few they are."""
        self.unread = 0
        """Octets that wait in sockets until their clients read."""
        self.delivered = 0
        self.redelivered = 0
        self._anatomy = anatomy
        self._last_number = 0
        self._last_connection = 0

    def new_connection(self) -> int:
        """A number for a connection that no other connection of this start has."""
        self._last_connection += 1
        return self._last_connection

    def access_changed(self) -> None:
        """Users may do other things than before."""
        for connection in list(self.connections):
            connection.access_changed()

    def tick(self, now_s: float, *, calm: bool) -> None:
        """Half a second has passed. While the node is ``calm`` (no alarm, every leader known, every node up),
        connections that wait for nothing rest."""
        for connection in list(self.connections):
            if connection.rests_until_s <= now_s or not calm:
                connection.tick()

    def new_channel(self, channel: LocalChannel, number: int) -> ChannelId:
        """A new identity for a channel of AMQP's channel number ``number``."""
        self._last_number += 1
        self.channels[self._last_number] = channel
        return ChannelId(self.node, self.boot_id, self._last_number, number)

    def forget_channel(self, channel: ChannelId) -> None:
        """The channel is gone."""
        self.channels.pop(channel.connection, None)

    def _deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Hand messages to the channel of the consumer."""
        if (channel := self.channels.get(consumer.channel.connection)) is not None:
            channel.deliveries.deliver(group, consumer, first_message_id, slices, delivery_count)
            self._anatomy.hold(channel.connection)
            count = sum(each[2] for each in slices)
            self.delivered += count
            self.redelivered += count if delivery_count else 0
            if channel.connection is not None:
                self.touch(channel.connection)

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        """Ask the channel of the consumer. A delivery to a channel that is gone is dropped anyway."""
        channel = self.channels.get(consumer.channel.connection)
        if channel is None or channel.deliveries.takes(group, consumer, last):
            return channel is not None
        self._misses(group, consumer, last)
        return False

    def missed(self, group: GroupId, consumer: ConsumerId, last: int) -> None:
        """Have the channel of the consumer ask for messages, when its connection is flushed."""
        if (channel := self.channels.get(consumer.channel.connection)) is not None:
            self._misses(group, consumer, last)
            channel.deliveries.missed(group, consumer, last)
            if channel.connection is not None:
                self.touch(channel.connection)

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        """Hand commits to the publisher's channel."""
        if (known := self.channels.get(channel.connection)) is not None:
            is_told = known.publishing.committed(group, last)
            if self._anatomy.begun:
                if is_told:
                    self._anatomy.hold(known.connection)
                else:
                    self._anatomy.begun.clear()
            if known.connection is not None:
                self.touch(known.connection)

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        """Hand refusals to the publisher's channel."""
        if (known := self.channels.get(channel.connection)) is not None:
            known.publishing.rejected(group, first, last)
            if known.connection is not None:
                self.touch(known.connection)

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        """Hand an answer to the channel that asked."""
        if (known := self.channels.get(channel.connection)) is not None:
            known.answers.replied(correlation, value)
            if known.connection is not None:
                self.touch(known.connection)

    def flush(self) -> None:
        """Connections are flushed at the end of the turn."""
