"""The queue of one consumer alone, which the server names: PerfTest's consumers without ``-u``.

Each such queue gets a copy of every message, so the ledger has to know when the queue comes and when it is gone with
its messages. If a queue is not exclusive and does not delete itself, the broker keeps it while the consumer is away,
and the consumer finds the queue again by its name. Any other queue is declared anew after a loss, and begins empty.
"""

from __future__ import annotations

from perftest.amqp.errors import ChannelClosedError
from perftest.amqp.transport import Connection
from perftest.engine.connections import topology
from perftest.engine.context import Context
from perftest.spec.plan import QueueSpec


class OwnQueue:
    """The own queue of one consumer. ``number`` stands for the queue in the ledger, ``name`` is given by the server;
    both change when the queue is declared anew."""

    def __init__(self, context: Context, queue: QueueSpec) -> None:
        self.name = ""
        self.number = 0
        self._context = context
        self._queue = queue
        polled = context.plan.consuming.polling  # a client that polls is no consumer for the broker
        self._kept = not context.plan.connecting.exclusive and (polled or not queue.auto_delete)

    async def declare(self, connection: Connection, channel: int) -> None:
        """Declare and bind the queue, unless it still exists; ``channel`` stays open. May raise
        :class:`~perftest.amqp.errors.AmqpError`."""
        if self.name and self._kept and await self._is_there(connection):
            return
        self.forget()
        self.name = await topology.declare_own(connection, channel, self._queue, self._context.plan)
        self.number = self._context.bind_own_queue()

    async def _is_there(self, connection: Connection) -> bool:
        """Ask on a channel of its own, because the broker closes the channel if the queue is gone."""
        channel = await connection.open_channel()
        try:
            await topology.waiting(connection, channel, self.name)
        except ChannelClosedError as error:
            if error.code != topology.NOT_FOUND:
                raise
            return False
        await connection.close_channel(channel)
        return True

    async def delete(self, connection: Connection) -> None:
        """Delete a queue that the broker would keep, if the plan deletes queues."""
        if self.name and self._kept and self._context.plan.delete_queues:
            channel = await connection.open_channel()
            await topology.delete(connection, channel, QueueSpec(name=self.name))
            await connection.close_channel(channel)

    def forget(self) -> None:
        """The queue is gone with all its messages, on purpose or with its connection: no message of it is lost."""
        if self.name:
            self._context.unbind_own_queue(self.number)
            self.name = ""
