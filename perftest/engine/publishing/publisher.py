"""A publisher: sends as many messages as its window and its schedule allow, at once, in one piece.

Theory of operation. There is one decision, :meth:`Publisher._pump`: how many messages may leave now? Without a schedule
as many as the in-flight window has room for (a closed loop). With a schedule as many as are due, and no more than the
window has room for. The question is asked when confirms came, when the next message is due, and when the socket takes
octets again. The messages are built from a template and written at once, in bursts with one clock reading: the messages
of a burst are octets of one write, so they leave at the same time. The order is that of PerfTest: the schedule, the
window, the clock, the socket.

:mod:`~perftest.engine.publishing.messages` makes the messages, and
:mod:`~perftest.engine.publishing.publisher_schedule` the schedule. With transactions
(:mod:`~perftest.engine.publishing.transaction`) the window is one transaction.

Cost: about 0.5 µs a message of 1 KB in bursts, 10 µs for a burst of one message (most of it the system call).
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

import numpy as np
from pamqp import commands

from perftest.amqp.encode import Template
from perftest.amqp.errors import AmqpError, BrokerProtocolError
from perftest.amqp.events import Confirms, Returned
from perftest.amqp.transport import Connection
from perftest.engine.accounting import stamp
from perftest.engine.accounting.account import CONFIRMED, NACKED, RETURNED
from perftest.engine.connections.client import Client
from perftest.engine.connections.link import Link
from perftest.engine.context import Context
from perftest.engine.publishing.inflight import ConfirmWindow, Settled, UnknownTag
from perftest.engine.publishing.messages import Messages
from perftest.engine.publishing.publisher_schedule import PublisherSchedule
from perftest.engine.publishing.transaction import Transaction
from perftest.engine.schedule.intended_times import NEVER_NS, SECOND_NS
from perftest.metrics.interval import Series
from perftest.spec.plan import QueueSpec, Settings, is_open_loop

BURSTS_PER_TURN: Final = 4
"""Number of bursts after which the event loop gets a turn, so that confirms and deliveries are read in time."""

QUANTUM_NS: Final = 200_000
"""Shortest time between two wake-ups of a schedule: a wake-up for each message would cost more than the messages. The
schedule lag of this is at most the quantum, and is recorded."""

MESSAGE_LIMIT: Final = "Producer reached message limit"
"""Reason why a publisher is finished, in PerfTest's words."""


class ConfirmTimeoutError(AmqpError):
    """The broker has confirmed nothing for too long."""


class Publisher(Client):
    """Publisher number ``number`` of the run: one channel, with a window, a schedule and a numbering of its own."""

    def __init__(
        self, context: Context, *, number: int, queue: QueueSpec, settings: Settings, link: Link | None = None
    ) -> None:
        super().__init__(context, kind="publisher", number=number, queue=queue, link=link)
        self._publishing = context.plan.publishing
        self.limited = bool(self._publishing.messages)
        self._ledger = context.ledger.publisher(number)
        self._messages = Messages(context, number=number, queue=queue)
        self._template: Template | None = None
        self._publisher_schedule = PublisherSchedule(context, number=number)
        self._schedule = self._publisher_schedule.schedule
        self._window = ConfirmWindow(0)
        self._transaction = Transaction(
            self._publishing.transaction,
            confirm_timeout_s=context.plan.confirm_timeout_s,
            on_committed=self._on_committed,
            on_closed=self.on_channel_closed,
        )
        self._sent = 0
        self._told = False
        self._waiting = False
        self._flowing = False
        self._room_made = False
        self._turn_taken = False
        self._wakeup_ns = NEVER_NS
        self._asked_ns = 0
        self._take_over(settings)

    # Life

    async def attach(self, connection: Connection) -> None:
        """Open a channel and publish unconfirmed messages again."""
        self._channel = await connection.open_channel(self)
        if self._publishing.transaction:
            await connection.call(self._channel, commands.Tx.Select(), commands.Tx.SelectOk)
        elif self.settings.in_flight:
            await connection.call(self._channel, commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._connection = connection
        self._transaction.begin_anew()
        self._make_template()
        self._asked_ns = self.context.clock()
        self._send_again()
        self._pump()

    def detach(self) -> None:
        """The channel is gone: nothing can be sent until the next :meth:`attach`. The schedule goes on."""
        self._template = None

    def begin(self, at_ns: int = 0) -> None:
        """Publish from now on, or after a random delay. The schedule counts from ``at_ns``, the common begin of all
        publishers a moment ago; 0 is now."""
        self._waiting = True
        self._publisher_schedule.begin(self.settings, at_ns, self._flow)

    def quiesce(self) -> None:
        """Send no new messages. Messages that are due and were not sent stay unsent."""
        self._waiting = self._flowing = False
        self._publisher_schedule.stop()
        self._commit_if_due()

    async def settled(self) -> None:
        """Wait until no message is unconfirmed. Raises :class:`ConfirmTimeoutError`."""
        limit_s = self.context.plan.confirm_timeout_s
        try:
            async with asyncio.timeout(limit_s if math.isfinite(limit_s) else None):
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

    @property
    def finished(self) -> bool:
        """Whether the publisher has sent as many messages as it may, and all of them are answered."""
        return self._all_sent and not self._window.unconfirmed

    def check(self, now_ns: int) -> None:
        """Give up if the oldest message waits longer than the confirm timeout on this connection."""
        sent_ns = self._window.oldest_sent_ns()
        limit_s = self.context.plan.confirm_timeout_s
        if sent_ns is not None and self._template is not None and not self._transaction.gathering:
            waited_s = (now_ns - max(sent_ns, self._asked_ns)) / SECOND_NS
            if waited_s > limit_s:
                text = f"no confirm for {waited_s:.0f} s; {self.unconfirmed} messages wait"
                if self.link.blocked:
                    text += f"; the broker blocks the connection: {self.link.blocked}"
                self.context.fail(ConfirmTimeoutError(text), f"{self.name}, queue {self.queue.name!r}")

    def intended_since_cut(self, now_ns: int) -> int:
        """Messages that the schedule asked for from the last call up to ``now_ns``; without a schedule the messages
        that were sent."""
        return self._schedule.intended_since_cut(now_ns)

    def dropped_since_cut(self) -> int:
        """Overdue messages that were dropped since the last call (``catch_up`` off)."""
        return self._schedule.dropped_since_cut()

    # Settings

    async def apply(self, settings: Settings) -> None:
        """Change the settings that differ, while messages flow. Confirms are switched on or off on a fresh channel,
        once no message is in flight."""
        before = self.settings
        self._take_over(settings)
        if self._flowing and not self._all_sent:
            self._publisher_schedule.change(settings)
        if bool(before.in_flight) != bool(settings.in_flight) and not self._publishing.transaction:
            await self._change_channel()
        elif self._template is not None:
            self._make_template()
        self._pump()

    def _take_over(self, settings: Settings) -> None:
        self.settings = settings
        self._promised = bool(self._publishing.transaction or settings.in_flight)
        self._window.limit = self._publishing.transaction or settings.in_flight
        self._scheduled = is_open_loop(settings, self._publishing)

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

    def _flow(self) -> None:
        """The random delay is over, if there was one."""
        if not self._waiting:
            return
        self._waiting, self._flowing = False, True
        self._publisher_schedule.start(self.settings, self._change_size)
        self._schedule = self._publisher_schedule.schedule
        self._pump()

    def _change_size(self, size_bytes: int) -> None:
        self._messages.resize(size_bytes)
        if self._template is not None:
            self._make_template()

    def _make_template(self) -> None:
        assert self._connection is not None
        frame_max = self._connection.frame_max
        self._template = self._messages.template(self.settings, channel=self._channel, frame_max=frame_max)

    # Sending

    @property
    def _all_sent(self) -> bool:
        return bool(self._publishing.messages) and self._sent >= self._publishing.messages

    def _pump(self) -> None:
        """Send as many messages as may be sent now."""
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

    def _allowed(self, template: Template, now_ns: int) -> int:
        count = template.burst_max
        if self._promised:
            count = min(count, self._window.room)
        if self._publishing.messages:
            count = min(count, self._publishing.messages - self._sent)
        if self._schedule.running and count:
            count = min(count, self._schedule.due(now_ns))
        return count

    def _tell_finished(self) -> None:
        if self.finished and not self._told:
            self._told = True
            self.context.finished(self.name, MESSAGE_LIMIT)

    def _take_turn(self) -> None:
        if not self._turn_taken:
            self._turn_taken = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _arm(self, now_ns: int) -> None:
        """Set the timer for the next message that is due. With a full window the next confirm wakes the publisher
        up."""
        if not self._schedule.running or (self._promised and not self._window.room):
            return
        next_ns = self._schedule.next_ns()
        if self._schedule.rate * QUANTUM_NS > SECOND_NS:
            next_ns = max(next_ns, now_ns + QUANTUM_NS)
        elif next_ns <= now_ns:
            return  # overdue: the socket or the next turn will pump
        if next_ns < self._wakeup_ns:
            self._wakeup_ns = next_ns
            self.context.wakeups.at(next_ns, self._on_due)

    def _on_due(self) -> None:
        self._wakeup_ns = NEVER_NS
        self._pump()

    def _send(self, connection: Connection, template: Template, count: int, now_ns: int) -> None:
        first = self._ledger.published(count, confirms=self._promised)
        intended = self._schedule.take(count)
        if intended is not None:
            self.context.recorder[Series.LAG].many(now_ns - intended)
        if count == 1:
            due_ns = now_ns if intended is None else int(intended[0])
            connection.write(template.single(first, intended_ns=due_ns, sent_ns=now_ns))
        else:
            connection.write(template.burst(first, count, intended_ns=intended, sent_ns=now_ns))
        if self._promised:
            self._window.sent(first, count, intended_ns=now_ns if intended is None else intended, sent_ns=now_ns)
        counters = self.context.counters
        counters.published += count
        counters.published_bytes += template.body_octets(first, count)
        self._sent += count
        if self._all_sent:
            self._schedule.finish()
            self._tell_finished()
        if self._publishing.transaction:
            self._commit_if_due()

    def _send_again(self) -> None:
        """Publish the messages again that were unconfirmed when the connection was lost, under the same numbers."""
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
        self._commit_if_due()

    def _commit_if_due(self) -> None:
        """Commit a transaction that is full, or that no message will be added to."""
        ends = not self._window.room or self._all_sent or not (self._flowing or self._waiting)
        if self._transaction.gathering and self._window.unconfirmed and ends and self._template is not None:
            assert self._connection is not None
            self._asked_ns = self.context.clock()
            self._transaction.commit(self._connection, self._channel)

    def _on_committed(self) -> None:
        self._account(self._window.confirm_to(0), self.context.clock(), nack=False)
        self._pump()
        self._commit_if_due()

    # Confirms and returned messages

    def on_confirms(self, event: Confirms, now_ns: int) -> None:
        """Settle the confirmed messages. Their room in the window is used at the end of the read."""
        try:
            if event.multiple:
                settled = self._window.confirm_to(int(event.tags[-1]))
            else:
                settled = self._window.confirm_each(event.tags)
        except UnknownTag as error:
            self.on_channel_closed(BrokerProtocolError(str(error)))
            return
        if len(settled):
            self._room_made = True
            self._account(settled, now_ns, nack=event.nack)

    def _account(self, settled: Settled, now_ns: int, *, nack: bool) -> None:
        if nack:
            self.context.counters.nacked += len(settled)
            self._ledger.answered(settled.sequences, NACKED)
        else:
            self._account_confirmed(settled, now_ns)
        if self._all_sent:
            self._tell_finished()

    def _account_confirmed(self, settled: Settled, now_ns: int) -> None:
        self.context.counters.confirmed += len(settled)
        self._ledger.answered(settled.sequences, CONFIRMED)
        self.context.recorder[Series.CONFIRM].many(now_ns - settled.sent_ns)
        if self._scheduled:
            self.context.recorder[Series.CONFIRM_SCHED].many(now_ns - settled.intended_ns)

    def on_returned(self, event: Returned, now_ns: int) -> None:
        """No queue took the message, so no consumer will get it."""
        self.context.counters.returned += 1
        mark = event.stamp or event.body[: stamp.SIZE].ljust(stamp.SIZE, b"\0")
        source, number, *_ = stamp.STAMP.unpack(mark)
        if source == self._messages.source and number < self._ledger.next:
            self._ledger.answered(np.array([number], np.int64), RETURNED)

    def on_read_end(self) -> None:
        """Use the room that confirms of this publisher have made."""
        if self._room_made:
            self._room_made = False
            self._pump()

    def on_writable(self) -> None:
        """The socket takes octets again."""
        self._pump()
