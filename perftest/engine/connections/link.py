"""A connection that several clients share: opened, watched over, made again after a loss, closed with the last client.

A link connects to one of the URIs. When the connection is lost, the link writes an event (``connection_lost``), tries
the next URI, declares the queues of its clients again, and gives each client a channel on the new connection
(``reconnected``). A channel that ends alone is made again alone (``channel_closed``, ``reconnected``); the other
clients of the link do not notice. An error that cannot pass by itself (a refused login, a queue with other properties)
ends the run. So does an error that does not pass in time (:class:`~perftest.engine.connections.recovery.LinkRecovery`).

A client joins with :meth:`Link.join` and leaves with :meth:`Link.leave`. The first client to join opens the connection,
and the last client to leave closes it. Each client opens its own channel, in :meth:`LinkMember.attach`.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from perftest.amqp.errors import AmqpError, BrokerProtocolError, ConnectionLostError, UnreachableError
from perftest.amqp.transport import Connection
from perftest.engine.connections import topology
from perftest.engine.connections.dialing import dial
from perftest.engine.connections.recovery import LinkRecovery, first_uri, uri_order
from perftest.engine.context import Context
from perftest.engine.schedule.intended_times import SECOND_NS
from perftest.spec.plan import Plan, QueueSpec

CONNECTS_AT_ONCE: Final = 128
"""Number of links of a worker that connect again at the same time after a node was lost. A listening socket usually
lets as many connections wait."""


class LinkMember(Protocol):
    """A client, as its link knows it."""

    name: str
    queue: QueueSpec

    async def attach(self, connection: Connection) -> None:
        """Open a channel on a fresh connection and go on. May raise :class:`AmqpError`."""

    def detach(self) -> None:
        """The client's channel, or the whole connection, is gone."""


class Link:
    """A connection and its clients.

    ``first_uri`` is the index of the URI to begin with. A link that ``owns_queues`` declares the queues of its clients
    itself, because exclusive queues live and die with their connection. ``gate`` lets some links connect at a time.
    """

    def __init__(
        self,
        context: Context,
        *,
        name: str,
        first_uri: int,
        owns_queues: bool = False,
        gate: asyncio.Semaphore | None = None,
    ) -> None:
        self.context = context
        self.name = name
        self.closed = False
        self.blocked = ""
        self._owns_queues = owns_queues
        self._gate = gate or asyncio.Semaphore()
        self._recovery = LinkRecovery.of(context.plan, name)
        self._members: list[LinkMember] = []
        self._uri_index = first_uri
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._supervisor: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._repairs: dict[LinkMember, asyncio.Task[None]] = {}
        self._blocked_ns: int | None = None

    # Calls of clients

    async def join(self, member: LinkMember) -> None:
        """Connect, if the link is not connected yet, and attach ``member``. Raises :class:`AmqpError` at once if no URI
        is reachable or the error cannot pass by itself."""
        async with self._opening:
            if self._supervisor is None:
                self._members.append(member)
                try:
                    await self._connect(self._members, patient=False)
                except AmqpError:
                    self._members.remove(member)
                    raise
                self._supervisor = asyncio.create_task(self._supervise())
                return
        await self._up.wait()
        if self.closed:
            raise ConnectionLostError(f"{self.name} was closed")
        self._members.append(member)
        try:
            await self._attach(member, self._connection)
        except AmqpError:
            self._members.remove(member)
            raise

    async def leave(self, member: LinkMember, channel: int) -> None:
        """Close the channel of ``member``; with the last member the connection too."""
        if member in self._members:
            self._members.remove(member)
        if (repair := self._repairs.pop(member, None)) is not None:
            repair.cancel()
        connection = self._connection
        if not self._members:
            await self.close()
        elif channel and connection is not None and not connection.lost.done():
            try:
                await connection.close_channel(channel)
            except AmqpError as error:
                if not self.closed:  # the last client to leave closes the connection and all its channels
                    self.context.emit("error", f"{member.name} could not close its channel: {error}")

    async def close(self) -> None:
        """Close the connection for good, in good order if the plan allows time for this."""
        patience_s = self.context.plan.connecting.shutdown_timeout_s
        self._stop()
        if self._connection is not None and patience_s > 0:
            await self._connection.close(patience_s)
        self.abort()

    def abort(self) -> None:
        """Drop the connection for good."""
        self._stop()
        self._members.clear()
        if self._connection is not None:
            self._connection.abort()
        self._end_block()

    def _stop(self) -> None:
        self.closed = True
        self._up.set()
        if self._supervisor is not None:
            self._supervisor.cancel()
        for repair in self._repairs.values():
            repair.cancel()

    def channel_lost(self, member: LinkMember, error: AmqpError) -> None:
        """The channel of ``member`` is lost: make it again, if that can help. A breach of the protocol costs the whole
        connection."""
        connection = self._connection
        if connection is None or connection.lost.done() or self.closed:
            return
        if isinstance(error, BrokerProtocolError):
            connection.fail(error)
            return
        member.detach()
        self.context.emit("channel_closed", f"{member.name} at {connection.uri.redacted}: {error}")
        if not error.temporary or not self._recovery.on:
            self.context.fail(self._recovery.final(error), self._where(member))
            return
        self._repairs[member] = asyncio.create_task(self._repair(member, connection))

    # Events of the connection

    def on_blocked(self, reason: str) -> None:
        """connection.blocked: the broker stops reading. The event tells the user."""
        self.blocked = reason or "for no reason that it gives"
        if self._blocked_ns is None:
            self._blocked_ns = self.context.clock()
        self.context.emit("blocked", f"{self.name}: the broker reads no more publishes: {reason}")

    def on_unblocked(self) -> None:
        """connection.unblocked."""
        self._end_block()

    def _end_block(self) -> None:
        """Write the event that tells for how long the broker did not read."""
        if self._blocked_ns is not None:
            blocked_ns = self.context.clock() - self._blocked_ns
            self._blocked_ns, self.blocked = None, ""
            text = f"{self.name}: was blocked for {blocked_ns / SECOND_NS:.3f} s"
            self.context.emit("unblocked", text, blocked_ns=blocked_ns)

    # Recovery

    async def _supervise(self) -> None:
        while True:
            connection = self._connection
            assert connection is not None
            error = await asyncio.shield(connection.lost)
            self._up.clear()
            self._end_block()
            where = connection.uri.redacted
            for member in self._members:
                member.detach()
            self.context.emit("connection_lost", f"{self.name} at {where}: {error}")
            if not error.temporary or not self._recovery.on:
                self.context.fail(self._recovery.final(error), self._where())
                return
            self._uri_index += 1
            try:
                await self._connect(self._members, patient=True)
            except AmqpError as final:
                self.context.fail(final, "")
                return
            self.context.emit("reconnected", f"{self.name} at {self._connection_uri()}")

    async def _connect(self, members: list[LinkMember], *, patient: bool) -> None:
        """Try URI after URI until a connection is open. Raises the error of the last try when the error cannot pass, or
        the tries take too long."""
        loop = asyncio.get_running_loop()
        uris = self.context.uris
        deadline = loop.time() + (self._recovery.limit_s if patient else self.context.plan.confirm_timeout_s)
        delays = self._recovery.delays(lost=patient)
        for tries, index in enumerate(uri_order(len(uris), self._uri_index), start=1):
            if patient or tries > 1:
                await asyncio.sleep(next(delays))
            try:
                async with self._gate:
                    await self._connect_to(index, members, again=patient)
                return
            except AmqpError as error:
                hopeless = not patient and isinstance(error, UnreachableError) and tries >= len(uris)
                if not error.temporary or hopeless or loop.time() > deadline:
                    error.add_note(f"{self.name} at {uris[index].redacted}, {self._queues()}")
                    raise

    async def _connect_to(self, index: int, members: list[LinkMember], *, again: bool) -> None:
        connection = await dial(self.context, index, name=self.name, watcher=self)
        try:
            if again or self._owns_queues:
                await self._declare(connection, members)
            attached = await asyncio.gather(*(member.attach(connection) for member in members), return_exceptions=True)
            for problem in attached:
                if isinstance(problem, BaseException):
                    raise problem
        except (AmqpError, asyncio.CancelledError):
            connection.abort()
            for member in members:
                member.detach()
            raise
        self._connection, self._uri_index = connection, index
        self._up.set()

    async def _declare(self, connection: Connection, members: list[LinkMember]) -> None:
        """Declare the queues of ``members`` again: a broker that lost its disk has forgotten them, and exclusive queues
        went with their connection."""
        queues = {member.queue.name: member.queue for member in members}
        channel = await connection.open_channel()
        plan, exclusive = self.context.plan, self._owns_queues
        await topology.restore(connection, channel, plan, list(queues.values()), exclusive=exclusive)
        await connection.close_channel(channel)

    async def _attach(self, member: LinkMember, connection: Connection | None) -> None:
        """Attach ``member`` to a connection that others use already, in as many tries as it takes. If the connection is
        lost meanwhile, the supervisor attaches all members to the next connection."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._recovery.limit_s
        delays = self._recovery.delays(lost=False)
        while connection is not None and not connection.lost.done() and member in self._members:
            try:
                await member.attach(connection)
                return
            except AmqpError as error:
                if connection.lost.done():
                    return
                if not error.temporary or loop.time() > deadline:
                    error.add_note(self._where(member))
                    raise
                member.detach()
            await asyncio.sleep(next(delays))

    async def _repair(self, member: LinkMember, connection: Connection) -> None:
        try:
            await self._attach(member, connection)
        except AmqpError as error:
            self.context.fail(error, "")
            return
        if member in self._members and not connection.lost.done():
            self.context.emit("reconnected", f"{member.name} has a new channel at {connection.uri.redacted}")

    # Names in events and errors

    def _connection_uri(self) -> str:
        return self.context.uris[self._uri_index % len(self.context.uris)].redacted

    def _where(self, member: LinkMember | None = None) -> str:
        if member is None:
            return f"{self.name} at {self._connection_uri()}, {self._queues()}"
        return f"{member.name} at {self._connection_uri()}, queue {member.queue.name!r}"

    def _queues(self) -> str:
        names = sorted({member.queue.name for member in self._members})
        return f"queue {names[0]!r}" if len(names) == 1 else f"{len(names)} queues"


def home(plan: Plan, kind: str, number: int) -> tuple[str, int]:
    """The connection of client ``number``; ``kind`` is ``publisher`` or ``consumer``. Clients with the same home must
    live in the same process.

    Without exclusive queues, connection ``c`` of the publishers has publisher ``c * channels`` and the following ones;
    consumers likewise. With exclusive queues, all publishers and consumers of a queue share one connection.
    """
    position = number % len(plan.queues)
    if plan.connecting.exclusive and plan.queues[position].name:
        return "queue", position
    channels = plan.publishing.channels if kind == "publisher" else plan.consuming.channels
    return kind, number // channels


class ClientLinks:
    """The links of a worker's clients, by :func:`home`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._links: dict[tuple[str, int], Link] = {}
        self._gate = asyncio.Semaphore(CONNECTS_AT_ONCE)

    def of(self, kind: str, number: int) -> Link:
        """The link of client ``number`` of this kind."""
        place = home(self._context.plan, kind, number)
        link = self._links.get(place)
        if link is None or link.closed:
            link = self._links[place] = self._make(*place)
        return link

    def _make(self, kind: str, number: int) -> Link:
        plan = self._context.plan
        name = f"{kind} {number}"
        if kind == "queue":
            name = f"connection of queue {plan.queues[number].name!r}"
        elif (plan.publishing if kind == "publisher" else plan.consuming).channels > 1:
            name = f"{kind} connection {number}"
        first = first_uri(plan, kind, number, self._context.near)
        return Link(self._context, name=name, first_uri=first, owns_queues=kind == "queue", gate=self._gate)

    def abort(self) -> None:
        """Drop every connection that is still there."""
        for link in self._links.values():
            link.abort()
        self._links.clear()
