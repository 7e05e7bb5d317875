"""Declaring, binding and deleting exchanges and queues: a function for each AMQP method, on any connection.

Every function may raise :class:`~perftest.amqp.errors.AmqpError`. :mod:`perftest.engine.connections.plan_topology` does
it for a whole plan.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from pamqp import commands
from pamqp.common import FieldTable

from perftest.amqp.errors import ChannelClosedError
from perftest.amqp.transport import Connection
from perftest.spec.behaviour import Exchange, RoutingKeys
from perftest.spec.plan import Plan, QueueSpec

NOT_FOUND = 404
PRECONDITION_FAILED = 406


async def declare(connection: Connection, channel: int, queue: QueueSpec, *, exclusive: bool = False) -> int:
    """Declare a queue, or check a predeclared queue; returns the number of messages in the queue."""
    answer = await _declare(connection, channel, queue, exclusive=exclusive)
    return answer.message_count or 0


async def declare_own(connection: Connection, channel: int, queue: QueueSpec, plan: Plan) -> str:
    """Declare a queue that the server names, for one consumer, and bind it as the plan says; returns its name.

    With the plan's ``connecting.exclusive`` the queue belongs to this connection.
    """
    answer = await _declare(connection, channel, queue, exclusive=plan.connecting.exclusive)
    name = answer.queue or ""
    if queue.bound:
        await bind(connection, channel, name, plan.exchange, binding_key(plan, queue))
    return name


async def _declare(
    connection: Connection, channel: int, queue: QueueSpec, *, exclusive: bool
) -> commands.Queue.DeclareOk:
    arguments: FieldTable = {} if queue.predeclared else {"x-queue-type": queue.type.value, **queue.arguments}
    method = commands.Queue.Declare(
        queue=queue.name,
        passive=queue.predeclared,
        durable=queue.durable,
        exclusive=exclusive,
        auto_delete=queue.auto_delete,
        arguments=arguments,
    )
    return await connection.call(channel, method, commands.Queue.DeclareOk)


async def declare_exchange(connection: Connection, channel: int, exchange: Exchange, *, passive: bool) -> None:
    """Declare the exchange, or only check that it exists (``passive``). The default exchange always exists."""
    if exchange.name:
        method = commands.Exchange.Declare(
            exchange=exchange.name, exchange_type=exchange.type, passive=passive, durable=exchange.durable
        )
        await connection.call(channel, method, commands.Exchange.DeclareOk)


async def exchange_exists(connection: Connection, exchange: Exchange) -> bool:
    """Whether an exchange of this name exists, of whatever type."""
    return await _exists(connection, lambda channel: declare_exchange(connection, channel, exchange, passive=True))


async def queue_exists(connection: Connection, queue: QueueSpec) -> bool:
    """Whether a queue of this name exists, with whatever properties."""
    return await _exists(connection, lambda channel: declare(connection, channel, replace(queue, predeclared=True)))


async def _exists(connection: Connection, declare_passively: Callable[[int], Awaitable[object]]) -> bool:
    """Ask on a channel of its own, because the broker closes the channel if nothing of this name exists."""
    channel = await connection.open_channel()
    try:
        await declare_passively(channel)
    except ChannelClosedError as error:
        if error.code == NOT_FOUND:
            return False
        raise
    await connection.close_channel(channel)
    return True


def binding_key(plan: Plan, queue: QueueSpec) -> str:
    """The key to bind a queue with: its name if messages are routed by the names of queues, otherwise the only key of
    the plan, also if messages carry random keys."""
    by_name = plan.publishing.routing_keys is RoutingKeys.QUEUE
    return queue.name if by_name else plan.publishing.routing_key


async def bind(connection: Connection, channel: int, queue: str, exchange: Exchange, key: str) -> None:
    """Bind a queue. The default exchange needs no binding and allows none."""
    if exchange.name:
        method = commands.Queue.Bind(queue=queue, exchange=exchange.name, routing_key=key)
        await connection.call(channel, method, commands.Queue.BindOk)


async def restore(
    connection: Connection, channel: int, plan: Plan, queues: list[QueueSpec], *, exclusive: bool
) -> None:
    """Declare the exchange and these queues again, for a broker that may have forgotten them. The consumer of a queue
    that the server names declares this queue itself."""
    await declare_exchange(connection, channel, plan.exchange, passive=plan.exchange.predeclared)
    for queue in queues:
        if not queue.name:
            continue
        await declare(connection, channel, queue, exclusive=exclusive)
        if queue.bound:
            await bind(connection, channel, queue.name, plan.exchange, binding_key(plan, queue))


async def waiting(connection: Connection, channel: int, name: str) -> int:
    """The number of messages that are ready in a queue."""
    answer = await connection.call(channel, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
    return answer.message_count or 0


async def is_spent(connection: Connection, channel: int, name: str, *, ours: int = 0) -> bool:
    """Whether a queue has no ready message and no more consumers than ``ours``: a message that another consumer has got
    is not lost."""
    answer = await connection.call(channel, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
    return not answer.message_count and (answer.consumer_count or 0) <= ours


async def purge(connection: Connection, channel: int, queue: QueueSpec) -> int:
    """Empty a queue; returns the number of its messages."""
    answer = await connection.call(channel, commands.Queue.Purge(queue=queue.name), commands.Queue.PurgeOk)
    return answer.message_count or 0


async def delete(connection: Connection, channel: int, queue: QueueSpec) -> int:
    """Delete a queue; returns the number of its messages. A queue that does not exist is no error."""
    answer = await connection.call(channel, commands.Queue.Delete(queue=queue.name), commands.Queue.DeleteOk)
    return answer.message_count or 0


async def delete_exchange(connection: Connection, channel: int, exchange: Exchange) -> bool:
    """Delete the exchange unless others have bound queues to it; returns whether it is gone. After False the channel
    is closed."""
    method = commands.Exchange.Delete(exchange=exchange.name, if_unused=True)
    try:
        await connection.call(channel, method, commands.Exchange.DeleteOk)
    except ChannelClosedError as error:
        if error.code == PRECONDITION_FAILED:
            return False
        raise
    return True
