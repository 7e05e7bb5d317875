"""Declaring, binding and deleting the exchange and the queues of a plan: one method each, on any connection.

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
    """Declare a queue, or only look whether it is there if it is predeclared; the number of messages in it."""
    answer = await _declare(connection, channel, queue, exclusive=exclusive)
    return answer.message_count or 0


async def declare_own(connection: Connection, channel: int, queue: QueueSpec, plan: Plan) -> str:
    """Declare a queue that the server names, for one consumer, and bind it as the plan says; its name.

    With the plan's ``connecting.exclusive`` it belongs to this connection.
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
    """Declare the exchange, or only look whether it is there. The default exchange always is."""
    if exchange.name:
        method = commands.Exchange.Declare(
            exchange=exchange.name, exchange_type=exchange.type, passive=passive, durable=exchange.durable
        )
        await connection.call(channel, method, commands.Exchange.DeclareOk)


async def exchange_exists(connection: Connection, exchange: Exchange) -> bool:
    """Whether there is such an exchange, of whatever type."""
    return await _exists(connection, lambda channel: declare_exchange(connection, channel, exchange, passive=True))


async def queue_exists(connection: Connection, queue: QueueSpec) -> bool:
    """Whether there is such a queue, with whatever properties."""
    return await _exists(connection, lambda channel: declare(connection, channel, replace(queue, predeclared=True)))


async def _exists(connection: Connection, declare_passively: Callable[[int], Awaitable[object]]) -> bool:
    """Ask on a channel of its own: the broker closes it for what is not there."""
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
    """What a queue is bound with: its name where messages are routed by queues' names, otherwise the one key of the
    plan, also where messages carry random ones."""
    by_name = plan.publishing.routing_keys is RoutingKeys.QUEUE
    return queue.name if by_name else plan.publishing.routing_key


async def bind(connection: Connection, channel: int, queue: str, exchange: Exchange, key: str) -> None:
    """Bind a queue. Every queue is bound to the default exchange by itself, and nothing else can be."""
    if exchange.name:
        method = commands.Queue.Bind(queue=queue, exchange=exchange.name, routing_key=key)
        await connection.call(channel, method, commands.Queue.BindOk)


async def restore(
    connection: Connection, channel: int, plan: Plan, queues: list[QueueSpec], *, exclusive: bool
) -> None:
    """Everything once more that these queues need, for a broker that may have forgotten it. Those that the server names
    are made anew by who consumes from them."""
    await declare_exchange(connection, channel, plan.exchange, passive=plan.exchange.predeclared)
    for queue in queues:
        if not queue.name:
            continue
        await declare(connection, channel, queue, exclusive=exclusive)
        if queue.bound:
            await bind(connection, channel, queue.name, plan.exchange, binding_key(plan, queue))


async def waiting(connection: Connection, channel: int, name: str) -> int:
    """How many messages are ready in a queue."""
    answer = await connection.call(channel, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
    return answer.message_count or 0


async def is_spent(connection: Connection, channel: int, name: str, *, ours: int = 0) -> bool:
    """Whether nothing is ready in a queue, and nobody but so many consumers of ours takes from it: what somebody else
    took is not lost."""
    answer = await connection.call(channel, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
    return not answer.message_count and (answer.consumer_count or 0) <= ours


async def purge(connection: Connection, channel: int, queue: QueueSpec) -> int:
    """Empty a queue; how many messages were in it."""
    answer = await connection.call(channel, commands.Queue.Purge(queue=queue.name), commands.Queue.PurgeOk)
    return answer.message_count or 0


async def delete(connection: Connection, channel: int, queue: QueueSpec) -> int:
    """Delete a queue; how many messages went with it. A queue that is not there is no error."""
    answer = await connection.call(channel, commands.Queue.Delete(queue=queue.name), commands.Queue.DeleteOk)
    return answer.message_count or 0


async def delete_exchange(connection: Connection, channel: int, exchange: Exchange) -> bool:
    """Delete the exchange unless somebody else has bound something to it; whether it is gone. After False the channel
    is closed."""
    method = commands.Exchange.Delete(exchange=exchange.name, if_unused=True)
    try:
        await connection.call(channel, method, commands.Exchange.DeleteOk)
    except ChannelClosedError as error:
        if error.code == PRECONDITION_FAILED:
            return False
        raise
    return True
