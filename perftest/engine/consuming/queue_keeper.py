"""Keeps queues that delete themselves with their last consumer, until it is known whether they still hold messages.

PerfTest's queues delete themselves by default, with all their messages. After the last consumer has left, a lost
message would look like a late one. So a consumer of the keeper, which takes one message at most, joins before the
consumers leave a queue. When the other consumers leave, their unacknowledged messages go back to the queue. Then each
of them waits in the queue, or has come to the keeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perftest.amqp.errors import AmqpError, ChannelClosedError
from perftest.amqp.events import Delivery, DeliveryRun
from perftest.amqp.transport import Connection
from perftest.engine.connections import topology
from perftest.engine.connections.client import InattentiveListener
from perftest.engine.connections.dialing import dial
from perftest.engine.consuming.source import anchor
from perftest.engine.context import Context

HELD_MAX: Final = 1000
"""Largest number of queues that are held: a connection has at most 2047 channels."""
SETTLE_S: Final = 0.2
"""Time in which a broker puts back the messages of a channel after it said that the channel is closed."""


class QueueKeeper:
    """Call :meth:`hold` before the consumers leave and :meth:`emptied` after, which closes the keeper's connection."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._connection: Connection | None = None
        self._queues: Sequence[str] = ()
        self._taken = _Taken()

    async def hold(self, queues: Sequence[str]) -> bool:
        """Join these queues; returns whether that could be done."""
        if len(queues) > HELD_MAX:
            return False
        if not queues:
            return True
        try:
            connection = await dial(self._context, 0, name="control")
        except AmqpError:
            return False
        self._connection, self._queues = connection, queues
        try:
            for queue in queues:
                await anchor(connection, queue, self._taken)
        except AmqpError:
            await self._release()
            return False
        return True

    async def emptied(self) -> bool:
        """Whether the queues hold no messages; they may delete themselves now."""
        if self._connection is None:
            return not self._queues
        try:
            channel = await self._connection.open_channel()
            spent = [await topology.is_spent(self._connection, channel, queue, ours=1) for queue in self._queues]
            return all(spent) and not self._taken.count
        except AmqpError:
            return False
        finally:
            await self._release()

    async def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class _Taken(InattentiveListener):
    """Counts the messages that the keeper got."""

    def __init__(self) -> None:
        self.count = 0

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        self.count += 1 if isinstance(event, Delivery) else len(event)

    def on_cancelled(self) -> None:
        """The queue was deleted: whether it was empty is not known."""
        self.count += 1

    def on_channel_closed(self, error: ChannelClosedError) -> None:
        """The channel is lost: whether the queue is empty is not known."""
        self.count += 1
