"""A consumer: takes deliveries, acknowledges exactly every N-th, and hands what it saw to the observations.

Acknowledgements that fall due within one read are written in one piece at its end. Cost: about 1 µs a message of 1 KB
in runs with single acknowledgements, accounting included.
"""

from __future__ import annotations

from pamqp import commands

from perftest.amqp.encode import AckEncoder
from perftest.amqp.errors import AmqpError
from perftest.amqp.events import Confirms, Delivery, DeliveryRun, Returned
from perftest.amqp.transport import Connection
from perftest.engine.acking import AckPolicy, Acks
from perftest.engine.client import Client
from perftest.engine.context import Context
from perftest.engine.link import Link
from perftest.metrics.interval import Series
from perftest.spec.plan import QueueSpec, Settings


class ConsumerCancelledError(AmqpError):
    """The broker cancelled the consumer: its queue was deleted, or is moving to another node."""

    temporary = True


class Consumer(Client):
    """Consumer number ``number`` of the run."""

    def __init__(
        self, context: Context, *, number: int, queue: QueueSpec, settings: Settings, link: Link | None = None
    ) -> None:
        super().__init__(context, kind="consumer", number=number, queue=queue, link=link)
        self.settings = settings
        self._acks = AckPolicy(max(settings.ack_interval, 1))
        self._encoder: AckEncoder | None = None
        self._due: list[Acks] = []
        self._queue_number = number % len(context.plan.queues)
        self._scope = context.new_scope(self._queue_number)
        self._tag = ""
        self._subscriptions = 0

    async def attach(self, connection: Connection) -> None:
        """Subscribe on a fresh channel: a new order of deliveries begins."""
        self._scope = self.context.new_scope(self._queue_number)
        self._channel = await connection.open_channel(self)
        self._encoder = AckEncoder(self._channel)
        self._connection = connection
        await self._subscribe(connection)

    def detach(self) -> None:
        """What is unacknowledged will be delivered again."""
        self._encoder = None
        self._due.clear()
        self._acks.forget()

    async def apply(self, settings: Settings) -> None:
        """Change what differs, while messages flow. A new prefetch counts for new consumers only, so the consumer
        is cancelled and subscribed again; nothing unacknowledged is given back by that."""
        before, self.settings = self.settings, settings
        again = before.prefetch != settings.prefetch or bool(before.ack_interval) != bool(settings.ack_interval)
        self._acks.interval = max(settings.ack_interval, 1)
        if again and self._encoder is not None and self._connection is not None:
            self.settings = before  # until the last delivery of the old subscription is here
            try:
                await self._unsubscribe(self._connection)
            finally:
                self.settings = settings
            await self._subscribe(self._connection)
        if self._acks.pending >= self._acks.interval:
            self._due.append(self._acks.flush())
            self.on_read_end()

    async def close(self) -> None:
        """Take no more deliveries, acknowledge what is left, disconnect."""
        self._closing = True
        if self._connection is not None and self._encoder is not None and not self._connection.lost.done():
            try:
                await self._unsubscribe(self._connection)
            except AmqpError as error:
                self.context.emit("error", f"{self.name} could not unsubscribe: {error}")
        await self.disconnect()

    async def _subscribe(self, connection: Connection) -> None:
        qos = commands.Basic.Qos(prefetch_count=self.settings.prefetch)
        await connection.call(self._channel, qos, commands.Basic.QosOk)
        self._subscriptions += 1
        self._tag = f"perftest-{self.name.split()[-1]}-{self._subscriptions}"
        consume = commands.Basic.Consume(
            queue=self.queue.name, consumer_tag=self._tag, no_ack=self.settings.ack_interval == 0
        )
        await connection.call(self._channel, consume, commands.Basic.ConsumeOk)

    async def _unsubscribe(self, connection: Connection) -> None:
        await connection.call(self._channel, commands.Basic.Cancel(self._tag), commands.Basic.CancelOk)
        self._due.append(self._acks.flush())
        self.on_read_end()

    # What comes

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        """Note what came and which acknowledgements it makes due."""
        counters, observations = self.context.counters, self.context.observations
        if isinstance(event, Delivery):
            first_tag, count, again = event.tag, 1, int(event.redelivered)
            observations.add_one(self._scope, event, now_ns)
        else:
            first_tag, count, again = event.first_tag, len(event), int(event.redelivered.sum())
            observations.add_run(self._scope, event, now_ns)
        counters.delivered += count
        counters.redelivered += again
        if self.settings.ack_interval:
            self._due.append(self._acks.delivered(first_tag, count, now_ns))

    def on_read_end(self) -> None:
        """Write what is due."""
        encoder, connection = self._encoder, self._connection
        if not self._due or encoder is None or connection is None:
            return
        due, self._due = self._due, []
        octets = b"".join([encoder.many(acks.tags, multiple=acks.multiple) for acks in due if acks.covered])
        if not octets:
            return
        written_ns = self.context.clock()
        connection.write(octets)
        latencies = self.context.recorder[Series.ACK]
        for acks in due:
            for arrived_ns, count in acks.covered:
                latencies.repeated(written_ns - arrived_ns, count)
            self.context.counters.acked += acks.messages

    def on_cancelled(self) -> None:
        """The broker ended the subscription: subscribe again, on a fresh channel."""
        self.context.emit("consumer_cancelled", f"{self.name}: the broker cancelled it on queue {self.queue.name!r}")
        self.on_channel_closed(ConsumerCancelledError(f"the broker cancelled the consumer of {self.queue.name!r}"))

    def on_writable(self) -> None:
        """Acknowledgements never wait: they are bounded by the prefetch."""

    def on_confirms(self, event: Confirms, now_ns: int) -> None:
        """Consumers publish nothing."""

    def on_returned(self, event: Returned, now_ns: int) -> None:
        """Consumers publish nothing."""

    def on_get_empty(self, now_ns: int) -> None:
        """Nothing was polled."""
