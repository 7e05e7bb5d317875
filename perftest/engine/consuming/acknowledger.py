"""Writes the acknowledgements of a consumer: ``basic.ack`` or ``basic.nack``, their time limit, and transactions.

A share of the deliveries may fail (:attr:`Settings.failing <perftest.spec.plan.Settings.failing>`): these are rejected,
each by itself. Acknowledgements that fall due within one read are written in one piece at its end. A transaction takes
:attr:`Consuming.transaction <perftest.spec.behaviour.Consuming.transaction>` messages, or as many as the first
acknowledgement that reaches this number covers. Then the transaction is committed, and later acknowledgements wait for
the broker's answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np
from pamqp import commands

from perftest.amqp.encode import AckEncoder
from perftest.amqp.errors import AmqpError, ChannelClosedError
from perftest.amqp.transport import Connection
from perftest.engine.consuming.ack_policy import AckPolicy, Acks
from perftest.engine.context import Context
from perftest.metrics.interval import Series
from perftest.spec.plan import Settings

_MS_NS = 1_000_000
_FATES = 2
"""Part of a seed, so that the fates of deliveries are independent of arrivals and keys."""


class Acknowledger:
    """The acknowledgements of consumer ``number``, over all its channels. ``lose`` is called for a commit that cost the
    channel."""

    def __init__(
        self, context: Context, settings: Settings, lose: Callable[[AmqpError], None], *, number: int = 0
    ) -> None:
        self._context = context
        self._consuming = context.plan.consuming
        self._lose = lose
        self._policy = AckPolicy(max(settings.ack_interval, 1))
        self._after_ns = settings.ack_after_ms * _MS_NS
        self._failing = settings.failing
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((context.plan.seed, number, _FATES))))
        self._timer_armed = False
        self._due: deque[Acks] = deque()
        self._encoder: AckEncoder | None = None
        self._rejecter = AckEncoder(0)
        self._connection: Connection | None = None
        self._channel = 0
        self._uncommitted = 0
        self._commit: asyncio.Task[None] | None = None

    async def attach(self, connection: Connection, channel: int) -> None:
        """Write acknowledgements to this channel from now on."""
        if self._consuming.transaction:
            await connection.call(channel, commands.Tx.Select(), commands.Tx.SelectOk)
        self._encoder = AckEncoder(channel, nack=self._consuming.nack, requeue=self._consuming.requeue)
        self._rejecter = AckEncoder(channel, nack=True, requeue=self._consuming.requeue)
        self._connection, self._channel = connection, channel

    def detach(self) -> None:
        """The channel is gone: messages that were not acknowledged, or not committed, will be delivered again."""
        self._encoder = None
        self._due.clear()
        self._policy.forget()
        self._uncommitted = 0
        if self._commit is not None:
            self._commit.cancel()
            self._commit = None

    def apply(self, settings: Settings) -> None:
        """Go by other settings. Pending messages that need not wait any longer become due."""
        self._policy.interval = max(settings.ack_interval, 1)
        self._after_ns = settings.ack_after_ms * _MS_NS
        self._failing = settings.failing
        if self._policy.pending >= self._policy.interval:
            self.flush()
        self._arm_timer()

    def done(self, first_tag: int, count: int, arrived_ns: int, now_ns: int) -> None:
        """The consumer is done with ``count`` messages: note which acknowledgements are due now."""
        acks = self._policy.delivered(first_tag, count, arrived_ns, now_ns)
        if acks.covered:
            self._due.append(acks)
        if self._after_ns:
            self._arm_timer()

    def flush(self) -> None:
        """Acknowledge all pending messages, without waiting for the rest of the interval."""
        if self._policy.pending:
            self._due.append(self._policy.flush())
        self.write()

    @property
    def committing(self) -> bool:
        """Whether acknowledgements wait for a commit that is under way, or for their turn after this commit."""
        return self._commit is not None

    async def finish(self) -> None:
        """Acknowledge all pending messages and wait until they are committed. Raises :class:`AmqpError`."""
        self.flush()
        while self._encoder is not None and (self._due or self._commit is not None or self._uncommitted):
            if self._commit is None:
                self._begin_commit()
            assert self._commit is not None
            await asyncio.wait({self._commit})
            self.write()

    def write(self) -> None:
        """Write the acknowledgements that are due."""
        if not self._due or self._encoder is None or self._commit is not None:
            return
        if self._consuming.transaction:
            self._send(self._encoder, self._take_transaction())
            if self._uncommitted >= self._consuming.transaction:
                self._begin_commit()
        else:
            due, self._due = self._due, deque()
            self._send(self._encoder, due)

    def _send(self, encoder: AckEncoder, due: deque[Acks]) -> None:
        assert self._connection is not None
        if self._failing:
            octets = b"".join([self._fates(encoder, acks.tags) for acks in due])
        else:
            octets = b"".join([encoder.many(acks.tags, multiple=acks.multiple) for acks in due])
        written_ns = self._context.clock()
        self._connection.write(octets)
        latencies, counters = self._context.recorder[Series.ACK], self._context.counters
        for acks in due:
            for arrived_ns, count in acks.covered:
                latencies.repeated(written_ns - arrived_ns, count)
                counters.acked += count

    def _fates(self, encoder: AckEncoder, tags: range) -> bytes:
        """A frame for each tag, in their order: most succeed, some fail."""
        failed = (self._random.random(len(tags)) < self._failing).tolist()
        return b"".join(
            [
                (self._rejecter if fails else encoder).one(tag, multiple=False)
                for tag, fails in zip(tags, failed, strict=True)
            ]
        )

    # Transactions

    def _take_transaction(self) -> deque[Acks]:
        """The due acknowledgements that the open transaction takes."""
        taken: deque[Acks] = deque()
        while self._due and (room := self._consuming.transaction - self._uncommitted) > 0:
            head, rest = self._due.popleft().split(room)
            if rest.covered:
                self._due.appendleft(rest)
            taken.append(head)
            self._uncommitted += head.messages
        return taken

    def _begin_commit(self) -> None:
        assert self._connection is not None
        self._uncommitted = 0
        self._commit = asyncio.create_task(self._commit_now(self._connection, self._channel))

    async def _commit_now(self, connection: Connection, channel: int) -> None:
        try:
            await connection.call(channel, commands.Tx.Commit(), commands.Tx.CommitOk)
        except ChannelClosedError as error:
            self._commit = None
            self._encoder = None
            self._lose(error)
        except AmqpError:
            self._commit = None
            self._encoder = None  # the link watches over the connection and knows
        else:
            self._commit = None
            self.write()

    # The time limit

    def _arm_timer(self) -> None:
        if self._after_ns and self._policy.pending and not self._timer_armed:
            self._timer_armed = True
            self._context.wakeups.at(self._policy.pending_since_ns + self._after_ns, self._on_time)

    def _on_time(self) -> None:
        """The time limit of an interval is over. One timer serves all intervals, one after the other."""
        self._timer_armed = False
        if self._policy.pending and self._context.clock() >= self._policy.pending_since_ns + self._after_ns:
            self.flush()
        self._arm_timer()
