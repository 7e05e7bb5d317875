"""The context of a client's channel, shared by all its parts."""

from __future__ import annotations

from reference_broker.node.clients.client_ports import ClientPorts, ConnectionPorts
from reference_broker.queues.port import Queue
from reference_broker.types import ChannelId, GroupId


class ChannelContext:
    """The channel ``number`` of a connection, which queues know by its ``id``."""

    __slots__ = ("core", "id", "node", "number", "ports", "used", "vhost")

    def __init__(self, ports: ConnectionPorts, node: ClientPorts, number: int, identity: ChannelId) -> None:
        self.core = ports.core
        """The receiver of answers to the client."""
        self.ports = ports
        """The connection of the channel."""
        self.node = node
        self.number = number
        self.id = identity
        self.vhost = ports.virtual_host
        self.used: dict[GroupId, Queue] = {}
        """The queues that the channel has used, which must be told its end."""
