"""The base of publishers and consumers: a client has a channel on a connection, which other clients may use as well.

A client lives on a :class:`~perftest.engine.connections.link.Link`, which opens the connection, makes it and the
client's channel again when they are lost, and tells the client by :meth:`Client.attach` and :meth:`Client.detach`. All
other parts of a client (window, schedule, subscription, account) are its own, so any number of clients can share one
connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from perftest.amqp.errors import AmqpError
from perftest.amqp.events import Confirms, Delivery, DeliveryRun, Returned
from perftest.amqp.listener import Listener
from perftest.amqp.transport import Connection
from perftest.engine.connections.link import Link
from perftest.engine.connections.recovery import first_uri
from perftest.engine.context import Context
from perftest.spec.plan import QueueSpec, Settings


class InattentiveListener(Listener):
    """A listener that ignores every event; a subclass hears the events that concern it."""

    def on_confirms(self, event: Confirms, now_ns: int) -> None:
        """Publisher confirms."""
        return

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        """Deliveries."""
        return

    def on_get_empty(self, now_ns: int) -> None:
        """A basic.get found nothing."""
        return

    def on_returned(self, event: Returned, now_ns: int) -> None:
        """A mandatory message came back."""
        return

    def on_read_end(self) -> None:
        """All events of one read have been handed over."""
        return

    def on_writable(self) -> None:
        """The socket takes octets again."""
        return


class Client(InattentiveListener, ABC):
    """One channel, for one queue, on ``link``; :meth:`start` joins the link. Without a link the client has a connection
    of its own.

    A ``limited`` client may leave by itself before the end of the run. It calls :attr:`Context.finished
    <perftest.engine.context.Context.finished>` then, once.
    """

    limited = False

    def __init__(self, context: Context, *, kind: str, number: int, queue: QueueSpec, link: Link | None = None) -> None:
        self.context = context
        self.queue = queue
        self.name = f"{kind} {number}"
        self.link = link or Link(context, name=self.name, first_uri=first_uri(context.plan, kind, number, context.near))
        self._connection: Connection | None = None
        self._channel = 0
        self._closing = False

    @abstractmethod
    async def attach(self, connection: Connection) -> None:
        """Work on ``connection`` from now on, with a fresh channel. May raise :class:`AmqpError`."""

    @abstractmethod
    async def apply(self, settings: Settings) -> None:
        """Change the settings while messages flow. A temporary :class:`AmqpError` may be ignored: the next
        :meth:`attach` goes by the new settings."""

    @abstractmethod
    async def close(self) -> None:
        """End in good order."""

    @abstractmethod
    def detach(self) -> None:
        """The channel is gone, perhaps with its connection."""

    async def start(self) -> None:
        """Join the connection. Raises :class:`AmqpError` at once if no URI is reachable or the error cannot pass by
        itself."""
        await self.link.join(self)

    async def disconnect(self) -> None:
        """Leave the connection for good; its last client closes it."""
        self._closing = True
        await self.link.leave(self, self._channel)

    def on_cancelled(self) -> None:
        """The broker has cancelled the consumer on the channel."""
        return

    def on_channel_closed(self, error: AmqpError) -> None:
        """The channel is lost because of ``error``: the link makes it again if that can help."""
        self.link.channel_lost(self, error)
