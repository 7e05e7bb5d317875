"""A consumer: gets deliveries, works on them, acknowledges exactly every N-th, and notes each for the accounts.

A message passes three objects. A :class:`~perftest.engine.consuming.source.Source` brings it. With a latency or a rate
it waits in the :class:`~perftest.engine.consuming.processing.WorkQueue`; without, it is done at once. The
:class:`~perftest.engine.consuming.acknowledger.Acknowledger` acknowledges it. End-to-end latency ends when the message
is here, before any work on it. The latency of the acknowledgement counts from there.

Cost: about 1 µs a message of 1 KB in runs with single acknowledgements, accounting included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from perftest.amqp.errors import AmqpError
from perftest.amqp.events import Delivery, DeliveryRun
from perftest.amqp.transport import Connection
from perftest.engine.connections import topology
from perftest.engine.connections.client import Client
from perftest.engine.connections.link import Link
from perftest.engine.consuming.acknowledger import Acknowledger
from perftest.engine.consuming.own_queue import OwnQueue
from perftest.engine.consuming.processing import TagRun, WorkQueue
from perftest.engine.consuming.source import Poller, Subscription, anchor
from perftest.engine.context import Context
from perftest.engine.schedule.cycle import CycleTimer, CycleTimes
from perftest.engine.schedule.intended_times import SECOND_NS
from perftest.metrics.figures import plain_number
from perftest.spec.behaviour import Consuming, ExitWhen
from perftest.spec.plan import QueueSpec, Settings

MESSAGE_LIMIT: Final = "Consumer reached message limit"
QUEUE_EMPTY: Final = "Consumer queue(s) empty"
CONSUMER_IDLE: Final = "Consumer is idle for more than 1 second"
"""Reasons for a consumer to leave, in PerfTest's words."""


IDLE_NS: Final = 1_000_000_000
"""Time without a message after which a consumer is idle (PerfTest's ``-ew idle``)."""

LOOK_NS: Final = 200_000_000
"""Time without a message after which a consumer asks whether the queue is empty."""


class Consumer(Client):
    """Consumer number ``number`` of the run. ``finished`` is its reason to leave by itself; empty while it stays."""

    def __init__(
        self, context: Context, *, number: int, queue: QueueSpec, settings: Settings, link: Link | None = None
    ) -> None:
        super().__init__(context, kind="consumer", number=number, queue=queue, link=link)
        consuming = context.plan.consuming
        self.settings = settings
        self.limited = bool(consuming.messages) or consuming.exit_when is not ExitWhen.NEVER
        self._acknowledger = Acknowledger(context, settings, self.on_channel_closed, number=number)
        self._number = number
        self._cycle: CycleTimer | None = None
        latency_us = consuming.latency_cycle[0][0] if consuming.latency_cycle else settings.consumer_latency_us
        self._work = WorkQueue(context, latency_us=latency_us, rate=consuming.rate, on_done=self._on_work_done)
        self._exit = ExitCondition(consuming)
        self._poller = Poller(context, self._may_ask) if consuming.polling else None
        self._source = self._poller or Subscription(context, f"perftest-{number}")
        self._queue_number = number % len(context.plan.queues)
        self._own = None if queue.name else OwnQueue(context, queue)
        self._scope = 0
        self._receiving = False
        self._ready = not consuming.start_delay_s
        self._tasks: set[asyncio.Task[None]] = set()
        self.finished = ""
        self._left = False
        self._watching = False

    # Life

    async def start(self) -> None:
        """Connect when it is this consumer's turn."""
        await self.context.turn()
        await super().start()

    async def attach(self, connection: Connection) -> None:
        """Receive messages on a fresh channel: a new order of deliveries begins."""
        self._channel = await connection.open_channel(self)
        if self._own is not None:
            await self._own.declare(connection, self._channel)
            self._queue_number = self._own.number
        self._scope = self.context.new_scope(self._queue_number)
        await self._acknowledger.attach(connection, self._channel)
        self._connection = connection
        if self._ready:
            await self._start_source(connection)

    def begin(self) -> None:
        """The load begins now: start the cycle, and the start delay if there is one."""
        context, consuming = self.context, self.context.plan.consuming
        if consuming.latency_cycle:
            times = CycleTimes(consuming.latency_cycle, start_ns=context.began_ns)
            self._cycle = CycleTimer(times, self._change_latency, clock=context.clock, timers=context.wakeups)
        if not self._ready:
            delay_ns = round(consuming.start_delay_s * SECOND_NS)
            context.wakeups.at(context.clock() + delay_ns, self._on_delay_over)

    def detach(self) -> None:
        """The channel is gone: unacknowledged messages will be delivered again."""
        self._receiving = False
        self._work.take_from(None, bounded=True)
        self._acknowledger.detach()
        self._source.detach()
        if self.settings.ack_interval:
            self._exit.lose(self._work.forget())

    async def apply(self, settings: Settings) -> None:
        """Change the settings that differ, while messages flow.

        A new prefetch counts for new subscriptions only, so the consumer cancels its subscription and subscribes again.
        It keeps its unacknowledged messages meanwhile.
        """
        before = self.settings
        switched = bool(before.ack_interval) != bool(settings.ack_interval)
        again = self._connection if self._receiving and (switched or before.prefetch != settings.prefetch) else None
        # Messages that came under the old settings are acknowledged, or not, as these say.
        self._work.go_on(everything=switched and again is None)
        if not self.context.plan.consuming.latency_cycle:
            self._work.change(settings.consumer_latency_us)
        self.settings = settings
        if again is not None:
            await self._subscribe_again(again, before, work_off=switched)
        self._acknowledger.apply(settings)
        self._work.go_on()

    def _change_latency(self, latency_us: float, change: int) -> None:
        """The cycles of all consumers begin together, so consumer 0 writes the event for all."""
        self._work.change(latency_us)
        if self._number == 0 and change:
            text = f"{plain_number(latency_us)} µs of work on each message from now on"
            self.context.emit("setting_changed", text, consumer_latency_us=latency_us)

    async def _subscribe_again(self, connection: Connection, before: Settings, *, work_off: bool) -> None:
        settings, self.settings = self.settings, before  # until the last delivery of the old subscription has come
        anchored = self.queue.auto_delete and self._poller is None
        channel = await anchor(connection, self.queue_name) if anchored else 0
        try:
            await self._stop_source(work_off=work_off)
        finally:
            self.settings = settings
        self._acknowledger.apply(settings)
        if not self.finished:
            await self._start_source(connection)
        if channel:
            await connection.close_channel(channel)

    @property
    def queue_name(self) -> str:
        """The queue it consumes from; empty until the server has named the queue."""
        return self.queue.name if self._own is None else self._own.name

    async def close(self) -> None:
        """Receive no more messages, acknowledge the processed ones, leave the connection."""
        self._closing = True
        if self._cycle is not None:
            self._cycle.stop()
        if self._left:
            return
        try:
            await self._leave_channel()
        except AmqpError as error:
            self.context.emit("error", f"{self.name} could not unsubscribe: {error}")
        self._tell_polls()
        await self.disconnect()
        for task in self._tasks:
            task.cancel()

    async def _start_source(self, connection: Connection) -> None:
        self._receiving = True
        self.context.subscribed_ns = self.context.subscribed_ns or self.context.clock()
        bounded = self.settings.prefetch or self.context.plan.consuming.channel_prefetch
        self._work.take_from(connection, bounded=bool(self.settings.ack_interval and bounded))
        await self._source.start(connection, self._channel, self.queue_name, self.settings)
        self._exit.begin(self.context.clock())
        self._watch()
        if self._exit.finished:  # the connection was lost before it could leave
            self._leave(MESSAGE_LIMIT)

    async def _stop_source(self, *, work_off: bool = False) -> None:
        """Receive no more messages; acknowledge the processed ones, with ``work_off`` also those in work."""
        self._receiving = False
        self._work.take_from(None, bounded=True)
        await self._source.stop()
        self._work.go_on(everything=work_off)
        self._acknowledger.flush()

    async def _leave_channel(self) -> None:
        if self._connection is not None and not self._connection.lost.done():
            await self._stop_source()
            await self._acknowledger.finish()
            if self._own is not None:
                await self._own.delete(self._connection)

    def _tell_polls(self) -> None:
        if self._poller is not None:
            polls, empty = self._poller.polls, self._poller.empty_answers
            text = f"{self.name}: {empty} of {polls} polls found the queue empty"
            self.context.emit("polled", text, polls=polls, empty=empty)

    def flush(self) -> None:
        """Acknowledge the messages that are done, without waiting for the rest of an interval."""
        self._work.go_on()
        self._acknowledger.flush()

    @property
    def committing(self) -> bool:
        """Whether acknowledgements are due that the broker has not committed yet."""
        return self._acknowledger.committing

    def forget_queue(self) -> None:
        """The consumer has left a load that goes on: no more deliveries are expected from its own queue."""
        if self._own is not None:
            self._own.forget()

    def _on_delay_over(self) -> None:
        self._ready = True
        if self._connection is not None and not self._closing and not self._connection.lost.done():
            self._do(self._start_source(self._connection))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Talk to the broker in a task of its own."""
        task = asyncio.create_task(self._attempt(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except AmqpError as error:
            if self._connection is not None and not self._connection.lost.done():
                self.on_channel_closed(error)  # else the link knows already

    # Deliveries

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        """Note the deliveries, and work on them."""
        if isinstance(event, Delivery):
            self._take_one(event, now_ns)
        else:
            self._take_run(event, now_ns)

    def _take_one(self, event: Delivery, now_ns: int) -> None:
        if self._poller is not None:
            self._poller.answered(empty=False)
        taken = self._exit.take(1, now_ns)
        if taken or not self.settings.ack_interval:
            self.context.observations.add_one(self._scope, event, now_ns)
        if taken:
            self._took(event.tag, 1, int(event.redelivered), now_ns)

    def _take_run(self, event: DeliveryRun, now_ns: int) -> None:
        """Messages beyond a limit go back to the queue. They count as delivered only with automatic acknowledgement."""
        taken = self._exit.take(len(event), now_ns)
        if taken < len(event) and self.settings.ack_interval:
            event = event.first(taken)
        if len(event):
            self.context.observations.add_run(self._scope, event, now_ns)
        if taken:
            self._took(event.first_tag, taken, int(event.redelivered[:taken].sum()), now_ns)

    def _took(self, first_tag: int, count: int, again: int, now_ns: int) -> None:
        counters = self.context.counters
        counters.delivered += count
        counters.redelivered += again
        if self._work.needed:
            counters.put_to_work += count
            self._work.arrived(first_tag, count, now_ns)
        else:
            self._done(first_tag, count, now_ns, now_ns)

    def _done(self, first_tag: int, count: int, arrived_ns: int, now_ns: int) -> None:
        self._exit.done(count)
        if self.settings.ack_interval:
            self._acknowledger.done(first_tag, count, arrived_ns, now_ns)

    def on_read_end(self) -> None:
        """Write the acknowledgements that are due."""
        if self._work.waiting:
            self._work.go_on()
        else:
            self._write()

    def on_get_empty(self, now_ns: int) -> None:
        """A poll found the queue empty."""
        if self._poller is not None:
            self._poller.answered(empty=True)
            self._poller.free()

    def _on_work_done(self, handled: list[TagRun], now_ns: int) -> None:
        if handled:
            self.context.worked_ns = now_ns
        for run in handled:
            self.context.counters.worked_on += run.count
            self._done(run.first_tag, run.count, run.arrived_ns, now_ns)
        self._write()

    def _write(self) -> None:
        self._acknowledger.write()
        if self._work.waiting:
            return
        if self._exit.finished:
            self._leave(MESSAGE_LIMIT)
        self._source.free()

    def _may_ask(self) -> bool:
        return not (self._closing or self._exit.satisfied or self._work.waiting)

    # Leaving, and coming back

    def _leave(self, reason: str) -> None:
        if not self.finished and not self._closing:
            self.finished = reason
            self._do(self._leave_now(reason))

    async def _leave_now(self, reason: str) -> None:
        """Acknowledge the rest of an interval, give back the other messages, leave the connection."""
        try:
            await self._leave_channel()
        except AmqpError:
            self.finished = ""  # unacknowledged messages come again
            raise
        if not self._closing:
            self._left = True
            self._tell_polls()
            await self.disconnect()
            self.forget_queue()
            self.context.finished(self.name, reason)

    def _watch(self) -> None:
        if self._exit.exit_when is not ExitWhen.NEVER and not self._watching:
            self._watching = True
            self.context.wakeups.at(self._exit.quiet_at_ns(), self._on_quiet)

    def _on_quiet(self) -> None:
        """Look whether a message has come since the timer was set."""
        self._watching = False
        if not self._receiving or self._connection is None:
            return
        if self._work.waiting:
            self._exit.begin(self.context.clock())  # a consumer that works is not idle
        if self.context.clock() < self._exit.quiet_at_ns():
            self._watch()
        elif self._exit.exit_when is ExitWhen.IDLE:
            self._leave(CONSUMER_IDLE)
        else:
            self._do(self._leave_if_empty(self._connection))

    async def _leave_if_empty(self, connection: Connection) -> None:
        if await topology.waiting(connection, self._channel, self.queue_name):
            self._exit.begin(self.context.clock())
            self._watch()
        else:
            self._leave(QUEUE_EMPTY)

    def on_cancelled(self) -> None:
        """The broker ended the subscription: subscribe again on a fresh channel, and declare the queue again first."""
        self.context.emit("consumer_cancelled", f"{self.name}: the broker cancelled it on queue {self.queue_name!r}")
        if self._connection is not None and not self.finished and not self._closing:
            self._do(self._come_back(self._connection))

    async def _come_back(self, connection: Connection) -> None:
        self.detach()
        await connection.close_channel(self._channel)
        channel = await connection.open_channel()
        if self._own is None:
            plan = self.context.plan
            await topology.restore(connection, channel, plan, [self.queue], exclusive=plan.connecting.exclusive)
        await connection.close_channel(channel)
        await self.attach(connection)
        self.context.emit("reconnected", f"{self.name} is subscribed to queue {self.queue_name!r} again")


class ExitCondition:
    """The number of messages that one consumer has taken, and whether it has enough."""

    def __init__(self, consuming: Consuming) -> None:
        self.exit_when = consuming.exit_when
        self._messages = consuming.messages
        self._taken = 0
        self._done = 0
        self._last_ns = 0

    def begin(self, now_ns: int) -> None:
        """The time without messages counts from now on."""
        self._last_ns = now_ns

    def take(self, count: int, now_ns: int) -> int:
        """``count`` messages came; returns the number that the consumer takes."""
        self._last_ns = now_ns
        if self._messages:
            count = min(count, self._messages - self._taken)
        self._taken += count
        return count

    def done(self, count: int) -> None:
        """The consumer is done with ``count`` messages."""
        self._done += count

    def lose(self, count: int) -> None:
        """``count`` messages that were taken will come again."""
        self._taken -= count

    @property
    def satisfied(self) -> bool:
        """Whether the consumer has taken as many messages as it may."""
        return bool(self._messages) and self._taken >= self._messages

    @property
    def finished(self) -> bool:
        """Whether the consumer is done with as many messages as it may take."""
        return bool(self._messages) and self._done >= self._messages

    def quiet_at_ns(self) -> int:
        """When the consumer may think of leaving, if no message comes until then."""
        if self.exit_when is ExitWhen.IDLE or not self._taken:  # publishers may only be starting
            return self._last_ns + IDLE_NS
        return self._last_ns + LOOK_NS
