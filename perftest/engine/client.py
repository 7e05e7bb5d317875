"""What publishers and consumers have in common: a connection that is made again when it is lost.

A client connects to one of several URIs, round-robin. When its connection ends, it says so (``connection_lost``), tries
the next URI with a short back-off, declares its queue again, and resumes (``reconnected``). What cannot pass by itself
(a refused login, a queue with other properties) and what does not pass within the plan's confirm timeout ends the run.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from perftest.amqp.errors import AmqpError, UnreachableError
from perftest.amqp.events import Confirms, Delivery, DeliveryRun, Returned
from perftest.amqp.transport import Connection
from perftest.engine import topology
from perftest.engine.context import Context
from perftest.engine.recovery import backoff, uri_order
from perftest.spec.plan import QueueSpec, Settings


class Client(ABC):
    """One connection with one channel, for one queue."""

    def __init__(self, context: Context, *, kind: str, number: int, queue: QueueSpec) -> None:
        self.context = context
        self.queue = queue
        self.name = f"{kind} {number}"
        self._uri_index = number % len(context.uris)
        self._connection: Connection | None = None
        self._channel = 0
        self._closing = False
        self._supervisor: asyncio.Task[None] | None = None

    @abstractmethod
    def on_confirms(self, event: Confirms, now_ns: int) -> None:
        """See :class:`~perftest.amqp.transport.Listener`, also for the next five."""

    @abstractmethod
    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        """Deliveries."""

    @abstractmethod
    def on_get_empty(self, now_ns: int) -> None:
        """A basic.get found nothing."""

    @abstractmethod
    def on_returned(self, event: Returned, now_ns: int) -> None:
        """A returned message."""

    @abstractmethod
    def on_cancelled(self) -> None:
        """The consumer was cancelled."""

    @abstractmethod
    def on_read_end(self) -> None:
        """All of a read was handed over."""

    @abstractmethod
    def on_writable(self) -> None:
        """The socket takes octets again."""

    @abstractmethod
    async def attach(self, connection: Connection) -> None:
        """Make the client work on a fresh connection. May raise :class:`AmqpError`."""

    @abstractmethod
    async def apply(self, settings: Settings) -> None:
        """Change the settings, while messages flow. An :class:`AmqpError` that is temporary may be ignored: the next
        :meth:`attach` works by the new settings."""

    @abstractmethod
    async def close(self) -> None:
        """End in good order."""

    @abstractmethod
    def detach(self) -> None:
        """The connection is gone."""

    async def start(self) -> None:
        """Connect. Raises :class:`AmqpError` at once if no URI is reachable or something permanent is wrong."""
        await self._connect(self.attach, patient=False)
        self._supervisor = asyncio.create_task(self._supervise())

    async def disconnect(self) -> None:
        """Close the connection for good."""
        self._closing = True
        if self._supervisor is not None:
            self._supervisor.cancel()
        if self._connection is not None:
            await self._connection.close()

    def on_blocked(self, reason: str) -> None:
        """connection.blocked: the broker stops reading; that is its business, but it must be known."""
        self.context.emit("blocked", f"{self.name}: the broker reads no more publishes: {reason}")

    def on_unblocked(self) -> None:
        """connection.unblocked."""
        self.context.emit("unblocked", f"{self.name}: the broker reads publishes again")

    def on_channel_closed(self, error: AmqpError) -> None:
        """A channel exception ends the connection too: there is nothing else on it."""
        if self._connection is not None:
            self._connection.fail(error)

    async def _attach_again(self, connection: Connection) -> None:
        channel = await connection.open_channel()
        await topology.declare(connection, channel, self.queue)
        await connection.close_channel(channel)
        await self.attach(connection)

    async def _supervise(self) -> None:
        while True:
            assert self._connection is not None
            error = await asyncio.shield(self._connection.lost)
            if self._closing:
                return
            where = self._connection.uri.redacted
            self.detach()
            self.context.emit("connection_lost", f"{self.name} at {where}: {error}")
            if not error.temporary:
                self.context.fail(error, f"{self.name} at {where}, queue {self.queue.name!r}")
                return
            self._uri_index += 1
            try:
                await self._connect(self._attach_again, patient=True)
            except AmqpError as final:
                self.context.fail(final, "")
                return
            self.context.emit("reconnected", f"{self.name} at {self._connection.uri.redacted}")

    async def _connect(self, attach: Callable[[Connection], Awaitable[None]], *, patient: bool) -> None:
        """Try URI after URI until one works; raises what the last try said when it cannot, or takes too long."""
        loop = asyncio.get_running_loop()
        uris = self.context.uris
        deadline = loop.time() + self.context.plan.confirm_timeout_s
        delays = backoff()
        for tries, index in enumerate(uri_order(len(uris), self._uri_index), start=1):
            try:
                await self._connect_to(index, attach)
                return
            except AmqpError as error:
                hopeless = not patient and isinstance(error, UnreachableError) and tries >= len(uris)
                if not error.temporary or hopeless or loop.time() > deadline:
                    error.add_note(f"{self.name} at {uris[index].redacted}, queue {self.queue.name!r}")
                    raise
            await asyncio.sleep(next(delays))

    async def _connect_to(self, index: int, attach: Callable[[Connection], Awaitable[None]]) -> None:
        name = f"perftest {self.name}"
        connection = await Connection.open(self.context.uris[index], name=name, clock=self.context.clock, watcher=self)
        try:
            await attach(connection)
        except AmqpError:
            connection.abort()
            raise
        self._connection, self._uri_index = connection, index
