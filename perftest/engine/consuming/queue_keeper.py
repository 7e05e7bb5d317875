"""Keeping queues alive that end with their last consumer, until it was seen whether they still hold anything.

PerfTest's queues delete themselves by default, and what they hold goes with them: after the last consumer has left
nobody could tell a message that was lost from one that was late. So before consumers leave a queue, a consumer of ours
joins it that takes one message at most; what consumers had on their hands goes back to the queue when they leave, and
is then seen: it waits there, or came to us.
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
"""More queues than that are not held: a connection has no more channels than 2047."""
SETTLE_S: Final = 0.2
"""Brokers put back what a closed channel had a moment after they said that it is closed."""


class QueueKeeper:
    """Call :meth:`hold` before consumers leave, :meth:`emptied` after; the connection ends with it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._connection: Connection | None = None
        self._queues: Sequence[str] = ()
        self._taken = _Taken()

    async def hold(self, queues: Sequence[str]) -> bool:
        """Join these queues; whether that could be done."""
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
        """Whether the queues hold nothing; they may go now."""
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
    """Notes that a queue gave a message, whatever it was."""

    def __init__(self) -> None:
        self.count = 0

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        self.count += 1 if isinstance(event, Delivery) else len(event)

    def on_cancelled(self) -> None:
        """The queue was deleted under our hands: nothing is known of it."""
        self.count += 1

    def on_channel_closed(self, error: ChannelClosedError) -> None:
        """The same."""
        self.count += 1
