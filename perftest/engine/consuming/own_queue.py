"""The queue of one consumer alone, which the server names: PerfTest's consumers without ``-u``.

Each of them gets a copy of every message, so the ledger has to know from when on a queue is there, and when it is gone
with what it held. A queue that the broker keeps when its consumer is away (it is not exclusive, and does not delete
itself when its last consumer leaves) is found again by its name; any other is declared anew after a loss, and begins
empty.
"""

from __future__ import annotations

from perftest.amqp.errors import ChannelClosedError
from perftest.amqp.transport import Connection
from perftest.engine.connections import topology
from perftest.engine.context import Context
from perftest.spec.plan import QueueSpec


class OwnQueue:
    """``number`` stands for it in the ledger, ``name`` is the server's; both change when it is declared anew."""

    def __init__(self, context: Context, queue: QueueSpec) -> None:
        self.name = ""
        self.number = 0
        self._context = context
        self._queue = queue
        polled = context.plan.consuming.polling  # whoever polls is no consumer, so does not count as the last one
        self._kept = not context.plan.connecting.exclusive and (polled or not queue.auto_delete)

    async def declare(self, connection: Connection, channel: int) -> None:
        """Declare and bind it, if it is not there any more; ``channel`` stays open. May raise
        :class:`~perftest.amqp.errors.AmqpError`."""
        if self.name and self._kept and await self._is_there(connection):
            return
        self.forget()
        self.name = await topology.declare_own(connection, channel, self._queue, self._context.plan)
        self.number = self._context.bind_own_queue()

    async def _is_there(self, connection: Connection) -> bool:
        """Asked on a channel of its own, because a wrong guess costs it."""
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
        """Delete what the broker would keep, if the plan deletes queues."""
        if self.name and self._kept and self._context.plan.delete_queues:
            channel = await connection.open_channel()
            await topology.delete(connection, channel, QueueSpec(name=self.name))
            await connection.close_channel(channel)

    def forget(self) -> None:
        """It is gone, with all it held: that was wanted, or nobody's fault but the connection's."""
        if self.name:
            self._context.unbind_own_queue(self.number)
            self.name = ""
