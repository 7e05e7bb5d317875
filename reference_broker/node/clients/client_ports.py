"""The node and the connection as a channel of a client uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import Event, QueueDeclare
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.alarms import Alarms
from reference_broker.node.clients.authorization import Handler, NodeAccess
from reference_broker.node.clients.flow_control import FlowControl
from reference_broker.node.config import Limits
from reference_broker.node.hosting.local_clients import LocalClients, NodeConnection
from reference_broker.node.hosting.virtual_hosts import VirtualHost
from reference_broker.queues.port import Queue


class ClientPorts(Protocol):
    """The ports of the node for clients."""

    limits: Limits
    alarms: Alarms
    clients: LocalClients
    access: NodeAccess

    def virtual_host(self, name: str) -> VirtualHost:
        """The queues and exchanges of a virtual host."""

    def now_ns(self) -> int:
        """The host's monotonic clock."""

    def now_ms(self) -> int:
        """The wall clock."""

    def check_alarms(self) -> None:
        """See whether the node has enough disk and memory."""

    def check_suspension(self) -> int:
        """Look at the clock, and have :meth:`ConnectionPorts.was_suspended` called if the process was suspended."""

    def new_record(self, event: QueueDeclare, name: str, connection: int) -> QueueRecord:
        """The record of a queue of this name in the cluster, which the connection may declare. Raises
        :class:`~reference_broker.node.hosting.declaration.DeclarationError`."""

    def declare(self, record: QueueRecord, answered: Callable[[Queue], None]) -> None:
        """Create the queue if its name is free; ``answered`` gets the queue of that name, which may have no leader
        yet."""

    def when_left(self, left: Sequence[Queue], owned: Sequence[Queue], call: Callable[[], None]) -> None:
        """Call when the queues are gone that end because a channel has left them (``left``: auto-delete queues) or
        because their connection has ended (``owned``). Their names are free on this node then; names of ``owned`` at
        once."""

    def home_node_down(self, record: QueueRecord) -> str | None:
        """The name of the node that has the queue, if that node alone has the queue and is out of reach."""

    def who_reaches(self, record: QueueRecord) -> str | None:
        """The name of a node that reaches one that may lead the queue, if this node reaches none of them."""

    def when_queues_current(self, call: Callable[[bool], None]) -> None:
        """Call with True once this node knows every queue that was declared or deleted before now, or with False if no
        answer came in time."""


class ConnectionPorts(NodeConnection, Protocol):
    """The ports of the connection for a channel."""

    core: ServerConnection
    read_ns: int
    is_writable: bool
    virtual_host: VirtualHost
    """The virtual host that the client has opened."""
    number: int
    """The connection among those of the node."""
    flow: FlowControl

    @property
    def is_unread_full(self) -> bool:
        """Whether more octets wait for the client to read them than may."""

    def fell_behind(self, number: int) -> None:
        """Have the channel of this number catch up once the client has read."""

    @property
    def channels(self) -> MutableMapping[int, Any]:
        """The channels of clients, by number."""

    def handle(self, events: list[Event]) -> None:
        """Handle the core's events."""

    def touch(self) -> None:
        """Have the core's output written at the end of this turn."""

    def guarded(self, handlers: Mapping[type, Handler]) -> Mapping[type, Handler]:
        """The handlers of events, behind the guard of the connection's user, if the user may not do everything."""

    def read_on(self) -> None:
        """Have the core read the octets that waited for answers."""

    def owns(self, queue: Queue) -> None:
        """Delete the queue with the connection."""
