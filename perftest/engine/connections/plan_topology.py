"""The exchange and the queues of a plan: declared before the first client comes, deleted after the last has left.

Queues are declared over one connection for each URI, in turn. The leader of a queue usually is the node at which the
queue was declared, so leaders spread over the nodes as clients do. If the plan says so, declared queues are deleted at
the end. A predeclared queue is never deleted, nor is an exchange that existed before or that others use.
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
    """The exchange and the queues of one plan."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._plan = context.plan
        self._started = False
        self._own_exchange = False

    async def prepare(self, *, fresh: bool) -> dict[str, object]:
        """Declare the exchange and the queues; returns the properties of the broker. ``fresh`` deletes the queues
        first.

        Without ``fresh``, messages in the queues are purged if the plan deletes the queues at the end. If the plan does
        not, the messages stay. Raises :class:`AmqpError`.
        """
        if not self._started:
            warn_of_unchecked_certificates(self._context)
            await await_servers(self._context)
            self._started = True
        properties = await self._at(0, self._prepare_exchange)
        await self._share_out(lambda connection, queues: self._prepare_queues(connection, queues, fresh=fresh))
        return properties

    async def remove(self) -> None:
        """Delete the declared exchange and queues. Raises :class:`AmqpError`."""
        await self._share_out(self._remove_queues)
        if self._own_exchange:
            await self._at(0, self._remove_exchange)
            self._own_exchange = False

    async def is_spent(self) -> bool:
        """Whether the queues are empty and have no consumer, except the keeper of a queue that deletes itself. Raises
        :class:`AmqpError`."""
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
        """Do ``work`` with each URI's share of the queues, at the same time. Clients themselves declare exclusive
        queues and queues that the server names."""
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
        """Do ``work`` on a connection of its own, at URI ``first`` if this URI can be reached. Try again as long as the
        error may pass. Returns the properties of the broker."""
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
