"""Declaring and deleting the queues of a plan."""

from __future__ import annotations

from pamqp import commands
from pamqp.common import FieldTable

from perftest.amqp.transport import Connection
from perftest.spec.plan import QueueSpec


async def declare(connection: Connection, channel: int, queue: QueueSpec) -> int:
    """Declare a queue, or only look whether it is there if it is predeclared; the number of messages in it.

    Raises :class:`~perftest.amqp.errors.AmqpError`.
    """
    arguments: FieldTable = {} if queue.predeclared else {"x-queue-type": queue.type.value, **queue.arguments}
    method = commands.Queue.Declare(
        queue=queue.name,
        passive=queue.predeclared,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        arguments=arguments,
    )
    answer = await connection.call(channel, method, commands.Queue.DeclareOk)
    return answer.message_count or 0


async def waiting(connection: Connection, channel: int, name: str) -> int:
    """How many messages are ready in a queue."""
    answer = await connection.call(channel, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
    return answer.message_count or 0


async def purge(connection: Connection, channel: int, queue: QueueSpec) -> int:
    """Empty a queue; how many messages were in it."""
    answer = await connection.call(channel, commands.Queue.Purge(queue=queue.name), commands.Queue.PurgeOk)
    return answer.message_count or 0


async def delete(connection: Connection, channel: int, queue: QueueSpec) -> int:
    """Delete a queue; how many messages went with it. A queue that is not there is no error."""
    answer = await connection.call(channel, commands.Queue.Delete(queue=queue.name), commands.Queue.DeleteOk)
    return answer.message_count or 0
