"""The exchange and the queues of a plan, from before the first client until after the last.

Queues are declared over one connection for each URI, in turn, because a queue's leader usually is the node it was
declared at: so leaders spread over the nodes as clients do. What was declared is deleted at the end, if the plan says
so; what is predeclared never, nor an exchange that was there before or that somebody else uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from perftest.amqp.errors import AmqpError, UnreachableError
from perftest.amqp.transport import Connection
from perftest.engine.connections import topology
from perftest.engine.connections.dialing import await_servers, dial, warn_of_unchecked_certificates
from perftest.engine.connections.recovery import backoff, uri_order
from perftest.engine.context import Context
from perftest.spec.plan import QueueSpec


class PlanTopology:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._plan = context.plan
        self._started = False
        self._own_exchange = False

    async def prepare(self, *, fresh: bool) -> dict[str, object]:
        """Declare everything; the properties of the broker. ``fresh`` deletes the queues first.

        Otherwise messages that lie in them are purged if the plan deletes the queues at the end anyway, and left alone
        if it does not. Raises :class:`AmqpError`.
        """
        if not self._started:
            warn_of_unchecked_certificates(self._context)
            await await_servers(self._context)
            self._started = True
        properties = await self._at(0, self._prepare_exchange)
        await self._share_out(lambda connection, queues: self._prepare_queues(connection, queues, fresh=fresh))
        return properties

    async def remove(self) -> None:
        """Delete what was declared. Raises :class:`AmqpError`."""
        await self._share_out(self._remove_queues)
        if self._own_exchange:
            await self._at(0, self._remove_exchange)
            self._own_exchange = False

    async def is_spent(self) -> bool:
        """Whether the queues hold nothing, and nobody takes from them but who holds those that go with their last
        consumer. Raises :class:`AmqpError`."""
        found: list[bool] = []

        async def look(connection: Connection, queues: list[QueueSpec]) -> None:
            channel = await connection.open_channel()
            for queue in queues:
                ours = int(queue.auto_delete)
                found.append(await topology.is_spent(connection, channel, queue.name, ours=ours))

        await self._share_out(look)
        return all(found)

    # The exchange

    async def _prepare_exchange(self, connection: Connection) -> None:
        exchange = self._plan.exchange
        if not exchange.name:
            return
        if not exchange.predeclared and not self._own_exchange:
            self._own_exchange = not await topology.exchange_exists(connection, exchange)
        passive = exchange.predeclared
        if passive and self._plan.declare_missing:
            passive = await topology.exchange_exists(connection, exchange)
        channel = await connection.open_channel()
        try:
            await topology.declare_exchange(connection, channel, exchange, passive=passive)
        except AmqpError as error:
            error.add_note(f"{connection.uri.redacted}, exchange {exchange.name!r}")
            raise

    async def _remove_exchange(self, connection: Connection) -> None:
        exchange = self._plan.exchange
        if not await topology.delete_exchange(connection, await connection.open_channel(), exchange):
            text = f"exchange {exchange.name!r} is left: others use it"
            self._context.emit("warning", text)

    # The queues

    async def _prepare_queues(self, connection: Connection, queues: list[QueueSpec], *, fresh: bool) -> None:
        channel = await connection.open_channel()
        for queue in queues:
            try:
                await self._prepare_queue(connection, channel, queue, fresh=fresh)
            except AmqpError as error:
                error.add_note(f"{connection.uri.redacted}, queue {queue.name!r}")
                raise

    async def _prepare_queue(self, connection: Connection, channel: int, queue: QueueSpec, *, fresh: bool) -> None:
        if fresh and not queue.predeclared:
            await topology.delete(connection, channel, queue)
        if queue.predeclared and self._plan.declare_missing and not await topology.queue_exists(connection, queue):
            queue = replace(queue, predeclared=False)
        waiting = await topology.declare(connection, channel, queue)
        if waiting and self._plan.delete_queues and not queue.predeclared:
            await topology.purge(connection, channel, queue)
        elif waiting:
            self._context.emit("warning", f"{waiting} messages of somebody else wait in queue {queue.name!r}")
        if queue.bound:
            key = topology.binding_key(self._plan, queue)
            await topology.bind(connection, channel, queue.name, self._plan.exchange, key)

    async def _remove_queues(self, connection: Connection, queues: list[QueueSpec]) -> None:
        channel = await connection.open_channel()
        for queue in queues:
            if not queue.predeclared:
                await topology.delete(connection, channel, queue)

    async def _share_out(self, work: Callable[[Connection, list[QueueSpec]], Awaitable[None]]) -> None:
        """Do ``work`` with each URI's share of the queues, at the same time. Exclusive queues and those that the
        server names are the business of the clients."""
        count = len(self._context.uris)
        named = [queue for queue in self._plan.queues if queue.name and not self._plan.connecting.exclusive]
        shares = [(index, named[index::count]) for index in range(count)]
        tasks = [
            self._at(index, lambda connection, share=share: work(connection, share))  # type: ignore[misc]
            for index, share in shares
            if share
        ]
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _at(self, first: int, work: Callable[[Connection], Awaitable[None]]) -> dict[str, object]:
        """Do ``work`` on a connection of its own, at URI ``first`` if that can be reached; again as long as it fails
        for a passing reason. The properties of the broker that did it."""
        loop = asyncio.get_running_loop()
        uris = self._context.uris
        deadline = loop.time() + self._plan.confirm_timeout_s
        delays = backoff()
        for tries, index in enumerate(uri_order(len(uris), first), start=1):
            try:
                connection = await dial(self._context, index, name="control")
                try:
                    await work(connection)
                    return dict(connection.server_properties)
                finally:
                    await connection.close()
            except AmqpError as error:
                hopeless = isinstance(error, UnreachableError) and tries >= len(uris)
                if not error.temporary or hopeless or loop.time() > deadline:
                    error.add_note(uris[index].redacted)
                    raise
            await asyncio.sleep(next(delays))
        raise AssertionError("there is always a next URI")
