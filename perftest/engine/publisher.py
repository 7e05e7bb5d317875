"""A publisher: sends what its window and its schedule allow, as soon as they allow it, in one piece.

Theory of operation. There is one decision, :meth:`Publisher._pump`: how many messages may leave now? Without a schedule
as many as the in-flight window has room for (a closed loop); with one as many as are due, but no more than the window
has room for. It is asked when confirms came, when the next message becomes due, and when the socket takes octets again.
What may leave is built from the template and written at once, in bursts that carry one clock reading: the messages of a
burst are octets of one write, so they do leave at the same time.

Cost: about 0.5 µs a message of 1 KB in bursts, 10 µs for a burst of one (most of it the system call).
"""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np
from pamqp import commands

from perftest.amqp.encode import PublishTemplate
from perftest.amqp.errors import AmqpError, BrokerProtocolError
from perftest.amqp.events import Confirms, Delivery, DeliveryRun, Returned
from perftest.amqp.transport import Connection
from perftest.engine import stamp
from perftest.engine.account import CONFIRMED, NACKED, RETURNED
from perftest.engine.client import Client
from perftest.engine.context import Context
from perftest.engine.inflight import ConfirmWindow, Settled, UnknownTag
from perftest.engine.link import Link
from perftest.engine.pacing import SECOND_NS, Schedule
from perftest.metrics.interval import Series
from perftest.spec.plan import QueueSpec, Settings

BURSTS_PER_TURN: Final = 4
"""After so many bursts the event loop gets its turn, so that confirms and deliveries are read in time."""

QUANTUM_NS: Final = 200_000
"""A schedule faster than one message per quantum is served once a quantum: waking up for each message would cost more
than the messages. The lag this makes is at most the quantum, and it is recorded."""


class ConfirmTimeoutError(AmqpError):
    """The broker has confirmed nothing for too long."""


class Publisher(Client):
    """Publisher number ``number`` of the run, to the default exchange with the queue's name as routing key."""

    def __init__(
        self, context: Context, *, number: int, queue: QueueSpec, settings: Settings, link: Link | None = None
    ) -> None:
        super().__init__(context, kind="publisher", number=number, queue=queue, link=link)
        self.settings = settings
        self._number = number
        self._source = stamp.source(run=context.run, publisher=number)
        self._ledger = context.ledger.publisher(number)
        self._window = ConfirmWindow(settings.in_flight)
        self._schedule: Schedule | None = None
        self._intended_before = 0
        self._intended = 0
        self._template: PublishTemplate | None = None
        self._flowing = False
        self._wakeup_armed = False
        self._turn_taken = False
        self._attached_ns = 0

    # Life

    async def attach(self, connection: Connection) -> None:
        """Open a channel and take up again what was unconfirmed."""
        self._channel = await connection.open_channel(self)
        if self.settings.in_flight:
            await connection.call(self._channel, commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._connection = connection
        self._make_template()
        self._attached_ns = self.context.clock()
        self._send_again()
        self._pump()

    def detach(self) -> None:
        """Nothing can be sent until the next :meth:`attach`; the schedule goes on."""
        self._template = None

    def begin(self) -> None:
        """Publish from now on. Schedules of several publishers are spread evenly over one period of the rate."""
        self._flowing = True
        if self.settings.rate is not None:
            self._start_schedule(self.settings.rate)
        self._pump()

    def quiesce(self) -> None:
        """Send nothing new; what is due and was not sent stays unsent."""
        self._count_intended(self.context.clock())
        self._flowing = False
        self._schedule = None

    async def settled(self) -> None:
        """Wait until nothing is unconfirmed; raises :class:`ConfirmTimeoutError`."""
        try:
            async with asyncio.timeout(self.context.plan.confirm_timeout_s):
                while self._window.unconfirmed:
                    await asyncio.sleep(0.005)
        except TimeoutError as error:
            raise ConfirmTimeoutError(f"{self.unconfirmed} messages are still unconfirmed") from error

    async def close(self) -> None:
        """Stop and disconnect."""
        self.quiesce()
        await self.disconnect()

    @property
    def unconfirmed(self) -> int:
        """Messages in flight."""
        return self._window.unconfirmed

    def check(self, now_ns: int) -> None:
        """Give up if the oldest message waits longer than the confirm timeout on this connection."""
        sent_ns = self._window.oldest_sent_ns()
        limit_s = self.context.plan.confirm_timeout_s
        if sent_ns is not None and self._template is not None:
            waited_s = (now_ns - max(sent_ns, self._attached_ns)) / SECOND_NS
            if waited_s > limit_s:
                error = ConfirmTimeoutError(f"no confirm for {waited_s:.0f} s; {self.unconfirmed} messages wait")
                self.context.fail(error, f"{self.name}, queue {self.queue.name!r}")

    def intended_since_cut(self, now_ns: int) -> int:
        """Messages the schedule asked for from the last call up to ``now_ns``; without a schedule those that were
        sent."""
        self._count_intended(now_ns)
        intended, self._intended = self._intended, 0
        return intended

    # Settings

    async def apply(self, settings: Settings) -> None:
        """Change what differs, while messages flow. Confirms are switched on or off on a fresh channel, once what is
        in flight has settled."""
        before, self.settings = self.settings, settings
        self._change_rate(settings.rate)
        self._window.limit = settings.in_flight
        if bool(before.in_flight) != bool(settings.in_flight):
            await self._change_channel()
        elif self._template is not None:
            self._make_template()
        self._pump()

    async def _change_channel(self) -> None:
        flowing, self._flowing = self._flowing, False
        await self.settled()
        connection = self._connection
        if connection is not None and self._template is not None:
            self._template = None
            await connection.close_channel(self._channel)
            self._window.take_all()
            self._flowing = flowing
            await self.attach(connection)
        self._flowing = flowing

    def _change_rate(self, rate: float | None) -> None:
        if not self._flowing:
            return
        if rate is None:
            self._count_intended(self.context.clock())
            self._schedule = None
        elif self._schedule is None:
            self._start_schedule(rate)
        else:
            self._schedule.change(rate=rate, now_ns=self.context.clock())

    def _start_schedule(self, rate: float) -> None:
        everybody = self.settings.publishers * self.context.plan.publishing.channels
        offset = SECOND_NS / rate * (self._number % everybody) / everybody
        self._schedule = Schedule(rate=rate, start_ns=self.context.clock() + round(offset))
        self._intended_before = 0

    def _count_intended(self, now_ns: int) -> None:
        if self._schedule is not None:
            planned = self._schedule.planned(now_ns)
            self._intended += planned - self._intended_before
            self._intended_before = planned

    def _make_template(self) -> None:
        assert self._connection is not None
        settings = self.settings
        self._template = PublishTemplate(
            channel=self._channel,
            exchange="",
            routing_key=self.queue.name,
            mandatory=settings.mandatory,
            persistent=settings.persistent,
            source=self._source,
            filler=stamp.filler(settings.size_bytes - stamp.SIZE),
            frame_max=self._connection.frame_max,
            rows_max=settings.in_flight or 1 << 30,
        )

    # Sending

    def _pump(self) -> None:
        """Send what may be sent now."""
        self._turn_taken = False
        connection, template = self._connection, self._template
        if not self._flowing or connection is None or template is None:
            return
        now_ns = self.context.clock()
        for _ in range(BURSTS_PER_TURN):
            count = self._allowed(template, now_ns)
            if not count or not connection.writable:
                break
            self._send(connection, template, count, now_ns)
            now_ns = self.context.clock()
        else:
            self._take_turn()
        self._arm(now_ns)

    def _allowed(self, template: PublishTemplate, now_ns: int) -> int:
        count = template.burst_max
        if self.settings.in_flight:
            count = min(count, self._window.room)
        if self._schedule is not None and count:
            count = min(count, self._schedule.due(now_ns))
        return count

    def _take_turn(self) -> None:
        if not self._turn_taken:
            self._turn_taken = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _arm(self, now_ns: int) -> None:
        """Wake up when the next message is due. With a full window the next confirm does that."""
        if self._schedule is None or self._wakeup_armed or (self.settings.in_flight and not self._window.room):
            return
        next_ns = self._schedule.next_ns()
        if SECOND_NS / (self.settings.rate or 1) < QUANTUM_NS:
            next_ns = max(next_ns, now_ns + QUANTUM_NS)
        elif next_ns <= now_ns:
            return  # overdue: the socket or the next turn will pump
        self._wakeup_armed = True
        self.context.wakeups.at(next_ns, self._on_due)

    def _on_due(self) -> None:
        self._wakeup_armed = False
        self._pump()

    def _send(self, connection: Connection, template: PublishTemplate, count: int, now_ns: int) -> None:
        confirms = self.settings.in_flight > 0
        first = self._ledger.published(count, confirms=confirms)
        intended = None
        if self._schedule is not None:
            intended = self._schedule.take(count)
            self.context.recorder[Series.LAG].many(now_ns - intended)
        else:
            self._intended += count
        if count == 1:
            due_ns = now_ns if intended is None else int(intended[0])
            connection.write(template.single(first, intended_ns=due_ns, sent_ns=now_ns))
        else:
            connection.write(template.burst(first, count, intended_ns=intended, sent_ns=now_ns))
        if confirms:
            self._window.sent(first, count, intended_ns=now_ns if intended is None else intended, sent_ns=now_ns)
        counters = self.context.counters
        counters.published += count
        counters.published_bytes += count * template.body_size

    def _send_again(self) -> None:
        """Publish once more, under the same numbers, what was unconfirmed when the connection was lost."""
        connection, template = self._connection, self._template
        left = self._window.take_all()
        if not len(left) or connection is None or template is None:
            return
        self._ledger.republished(left.sequences)
        now_ns = self.context.clock()
        for at in range(0, len(left), template.burst_max):
            numbers = left.sequences[at : at + template.burst_max]
            intended = left.intended_ns[at : at + template.burst_max]
            connection.write(template.burst(numbers, len(numbers), intended_ns=intended, sent_ns=now_ns))
            self._window.sent(numbers, len(numbers), intended_ns=intended, sent_ns=now_ns)

    # What comes back

    def on_confirms(self, event: Confirms, now_ns: int) -> None:
        """Settle what is confirmed; room is used at the end of the read."""
        try:
            if event.multiple:
                settled = self._window.confirm_to(int(event.tags[-1]))
            else:
                settled = self._window.confirm_each(event.tags)
        except UnknownTag as error:
            self.on_channel_closed(BrokerProtocolError(str(error)))
            return
        if len(settled):
            self._account(settled, now_ns, nack=event.nack)

    def _account(self, settled: Settled, now_ns: int, *, nack: bool) -> None:
        if nack:
            self.context.counters.nacked += len(settled)
            self._ledger.answered(settled.sequences, NACKED)
            return
        self.context.counters.confirmed += len(settled)
        self._ledger.answered(settled.sequences, CONFIRMED)
        self.context.recorder[Series.CONFIRM].many(now_ns - settled.sent_ns)
        if self.settings.rate is not None:
            self.context.recorder[Series.CONFIRM_SCHED].many(now_ns - settled.intended_ns)

    def on_returned(self, event: Returned, now_ns: int) -> None:
        """No queue took it: nobody will deliver it."""
        self.context.counters.returned += 1
        source, number, *_ = stamp.STAMP.unpack_from(event.body.ljust(stamp.SIZE, b"\0"))
        if source == self._source and number < self._ledger.next:
            self._ledger.answered(np.array([number], np.int64), RETURNED)

    def on_read_end(self) -> None:
        """Confirms may have made room."""
        self._pump()

    def on_writable(self) -> None:
        """The socket takes octets again."""
        self._pump()

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        """Publishers consume nothing."""

    def on_cancelled(self) -> None:
        """Publishers consume nothing."""

    def on_get_empty(self, now_ns: int) -> None:
        """Publishers consume nothing."""
