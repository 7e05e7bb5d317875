"""The source of a consumer's messages: a subscription, or basic.get over and over again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pamqp import commands

from perftest.amqp.listener import Listener
from perftest.amqp.methods import encode
from perftest.amqp.transport import Connection
from perftest.engine.context import Context
from perftest.spec.plan import Settings

_MS_NS = 1_000_000


class Source(Protocol):
    """The source of messages, on one channel at a time."""

    async def start(self, connection: Connection, channel: int, queue: str, settings: Settings) -> None:
        """Begin to receive messages. May raise :class:`~perftest.amqp.errors.AmqpError`."""

    async def stop(self) -> None:
        """Receive no more messages: when this returns, the last message has come. May raise
        :class:`~perftest.amqp.errors.AmqpError`."""

    def detach(self) -> None:
        """The channel is gone."""

    def free(self) -> None:
        """The consumer is done with all messages that came."""


class Subscription:
    """basic.consume. Consumer tags begin with ``name``."""

    def __init__(self, context: Context, name: str) -> None:
        self._consuming = context.plan.consuming
        self._name = name
        self._subscriptions = 0
        self._connection: Connection | None = None
        self._channel = 0
        self._tag = ""

    async def start(self, connection: Connection, channel: int, queue: str, settings: Settings) -> None:
        """Set the prefetch of the channel and of the consumer, and subscribe."""
        # In this order: RabbitMQ lifts the channel's limit when the consumers' own one is set.
        qos = commands.Basic.Qos(prefetch_count=settings.prefetch)
        await connection.call(channel, qos, commands.Basic.QosOk)
        if self._consuming.channel_prefetch:
            qos = commands.Basic.Qos(prefetch_count=self._consuming.channel_prefetch, global_=True)
            await connection.call(channel, qos, commands.Basic.QosOk)
        self._subscriptions += 1
        self._tag = f"{self._name}-{self._subscriptions}"
        consume = commands.Basic.Consume(
            queue=queue,
            consumer_tag=self._tag,
            no_ack=settings.ack_interval == 0,
            arguments=dict(self._consuming.arguments),
        )
        await connection.call(channel, consume, commands.Basic.ConsumeOk)
        self._connection, self._channel = connection, channel

    async def stop(self) -> None:
        """Cancel the subscription."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.call(self._channel, commands.Basic.Cancel(self._tag), commands.Basic.CancelOk)

    def detach(self) -> None:
        """The subscription is gone."""
        self._connection = None

    def free(self) -> None:
        """Nothing to do: the broker sends as many messages as the prefetch allows."""


async def anchor(connection: Connection, queue: str, listener: Listener | None = None) -> int:
    """Keep a queue that deletes itself with its last consumer: a further consumer on a channel of its own, which is
    returned, keeps the queue as long as the channel is open. A consumer that changes its subscription needs this. The
    message that the further consumer gets is delivered again, as redelivered. ``listener`` gets the message.
    """
    channel = await connection.open_channel(listener)
    await connection.call(channel, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    await connection.call(channel, commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)
    return channel


class Poller:
    """basic.get: the next request leaves when the consumer is done with the last message, and after a pause.

    ``may_ask`` says whether the consumer wants another message.
    """

    def __init__(self, context: Context, may_ask: Callable[[], bool]) -> None:
        self._context = context
        self._may_ask = may_ask
        self._pause_ns = context.plan.consuming.polling_interval_ms * _MS_NS
        self._connection: Connection | None = None
        self._request = b""
        self._asked = False
        self._pausing = False
        self._answered: asyncio.Future[None] | None = None
        self.polls = self.empty_answers = 0

    async def start(self, connection: Connection, channel: int, queue: str, settings: Settings) -> None:
        """Ask for the first message."""
        self._request = encode(channel, commands.Basic.Get(queue=queue, no_ack=settings.ack_interval == 0))
        self._connection = connection
        self._ask()

    async def stop(self) -> None:
        """Ask no more, and wait for an answer that is under way."""
        connection, self._connection = self._connection, None
        if connection is not None and self._asked:
            self._answered = asyncio.get_running_loop().create_future()
            either: set[asyncio.Future[Any]] = {self._answered, connection.lost}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._answered = None

    def detach(self) -> None:
        """There will be no answer."""
        self._connection = None
        self._answer()

    def answered(self, *, empty: bool) -> None:
        """A message came, or the answer that the queue is empty."""
        self.empty_answers += empty
        self._answer()

    def free(self) -> None:
        """Ask for the next message, after the pause."""
        if self._asked or self._pausing:
            return
        if self._pause_ns:
            self._pausing = True
            self._context.wakeups.at(self._context.clock() + self._pause_ns, self._on_pause_over)
        else:
            self._ask()

    def _on_pause_over(self) -> None:
        self._pausing = False
        self._ask()

    def _ask(self) -> None:
        if self._connection is not None and not self._asked and self._may_ask():
            self._asked = True
            self.polls += 1
            self._connection.write(self._request)

    def _answer(self) -> None:
        self._asked = False
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)
