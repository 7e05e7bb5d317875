"""The quorum queue: a deterministic machine over a replicated log of commands.

Theory of operation
-------------------
Every member of a queue's group applies the same entries in the same order, so all members know at each
index who holds which message and who is next in the service queue. Each *executes* only the effects meant for
channels of its own node (:mod:`reference_broker.machines.locality`): local delivery without coordination, after
RabbitMQ's ``rabbit_fifo``.

The state holds positions, not bodies. A message enters as part of a run and keeps a *message number* for life. It is at
any time in exactly one of three places:

    backlog     never delivered; whole runs (:mod:`~reference_broker.machines.backlog`)
    returned    came back; a heap of stretches by message number, served before the backlog
    held        by one consumer, under a message id (:mod:`~reference_broker.machines.consumers`)

and leaves by being settled, discarded, dropped over the delivery limit, or purged; a counter each.

After *each command* the ready messages are dealt as far as credit goes, so what happens depends on the order of the
commands alone and not on how they were cut into entries. The effects of an entry are then put into as few as possible
(:mod:`~reference_broker.machines.outbox`).

Differences from RabbitMQ 3.10, all towards one simple rule: a returned message always goes back to its place in message
order (there a client's requeue goes to the tail, a dead consumer's messages to the front); a consumer out of service is
out of the service queue at once; credit is always ``max(0, prefetch - unacked)``.

Invariants (the numbers are those of the property tests)
    I13  equal logs give equal :meth:`FifoMachine.snapshot` octets, from any snapshot on
    I14  enqueued = ready + unacked + settled + discarded + dead-lettered + purged
    I18  after a command, either nothing is ready or no consumer in service has credit
    I20  message ids of a consumer are given +1 and never again, as long as its channel lives
    I23  a sequence number of a channel is enqueued at most once
    I24  a delivery count never decreases; above the limit the message is dropped
    I27  settling, returning or discarding ids that are not held changes nothing

Back of the envelope: an entry with a run of 500 messages and a settle of 500 ids takes 12 us with one consumer, a third
of it for decoding, and 24 us with three: 0.02-0.05 us per message and member. Runs of one, a hundred in an entry, take
6 us each with their confirms and deliveries. A record of the backlog takes 20 octets, whatever its run's size. Measured
by tests/reference_broker/machines/bench_fifo.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import assert_never

import numpy as np
import numpy.typing as npt

from reference_broker.machines.batch import decode_batch
from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import FifoConfig
from reference_broker.machines.consumers import Consumer, HeldRange, Status
from reference_broker.machines.effects import Confirm, Deliver, Effect, MonitorNode
from reference_broker.machines.fifo_snapshot import decode_state, encode_state
from reference_broker.machines.fifo_state import Channel, State
from reference_broker.machines.origins import Origin
from reference_broker.machines.outbox import Outbox, Parcel
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId, Term


@dataclass(frozen=True, slots=True)
class Meta:
    """Where in the log a command stands."""

    index: LogIndex
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """How many messages are where, and how many left by which way since the queue was declared.

    ``consumers`` leaves out cancelled ones; ``enqueuers`` are channels whose sequence numbers are tracked.
    """

    ready: int
    unacked: int
    consumers: int
    enqueuers: int
    enqueued: int
    settled: int
    discarded: int
    dead_lettered: int
    purged: int


class FifoMachine:
    """One member's copy of a queue. Not thread-safe; :meth:`apply` is the only way its state changes."""

    __slots__ = ("_config", "_outbox", "_state")

    def __init__(self, config: FifoConfig) -> None:
        self._config = config
        self._state = State()
        self._outbox = Outbox()

    def apply(
        self, meta: Meta, payload: bytes, end: int | None = None, skip: frozenset[int] = frozenset()
    ) -> list[Effect]:
        """Apply one committed entry. ``meta.index`` must be above that of the entry before.

        ``end`` is where the batch ends within ``payload`` (default: its end); commands at the positions ``skip`` are
        left out, because an earlier entry held them already.

        Raises :class:`~reference_broker.machines.batch.DamagedBatchError` before anything has changed.
        """
        assert meta.index > self._state.applied, f"entry {meta.index} after {self._state.applied}"
        _time_ms, commands = decode_batch(payload, end)
        self._state.applied = meta.index
        self._outbox = Outbox()
        for position, (run_offset, command) in enumerate(commands):
            if position in skip:
                continue
            self._apply_command(command, meta.index, run_offset)
            self._deal()
        return self._outbox.effects()

    def _apply_command(self, command: Command, index: LogIndex, run_offset: int) -> None:
        match command:
            case Enqueue():
                self._enqueue(command, index, run_offset)
            case Settle():
                self._state.totals.settled += self._release(command)
            case Return():
                self._return(command)
            case Discard():
                self._state.totals.discarded += self._release(command)
            case Checkout():
                self._checkout(command)
            case Cancel():
                self._cancel(command)
            case ChannelDown():
                self._channel_down(command.channel)
            case NodeDown():
                self._node_down(command.node)
            case NodeUp():
                self._node_up(command.node, command.incarnation)
            case Purge():
                self._purge(command)
            case Get() | UpdateConfig() | Tick() | DeadLetterSettled():
                raise AssertionError(f"{command} proposed to a queue of machine version 1")
            case _:
                assert_never(command)

    # Enqueueing ------------------------------------------------------------------------------------------------------

    def _enqueue(self, command: Enqueue, index: LogIndex, run_offset: int) -> None:
        """Accept what is new of the run. What is known already is confirmed once more: its confirm may have been lost.

        A run that leaves a gap is dropped and not confirmed: its channel will send it again, in order.
        """
        count = command.run.count
        if not command.first_seq:
            self._append(index, run_offset, 0, count)
            return
        channel = self._state.channels.get(command.channel)
        next_seq = channel.next_seq if channel else 1
        if command.first_seq > next_seq:
            return
        if channel is None and self._is_of_former_life(command.channel):
            return
        after = command.first_seq + count
        if after > next_seq:
            self._enqueuer(command.channel, channel).next_seq = after
            known = next_seq - command.first_seq
            self._append(index, run_offset, known, count - known)
        self._outbox.confirm(command.channel, command.first_seq, after - 1)

    def _enqueuer(self, channel_id: ChannelId, channel: Channel | None) -> Channel:
        if channel is None:
            channel = self._state.channels[channel_id] = Channel()
            self._outbox.monitor(channel_id.node)
        return channel

    def _is_of_former_life(self, channel_id: ChannelId) -> bool:
        """A command that was on its way while its node died and came back: nobody would ever end this channel."""
        return channel_id.incarnation < self._state.lives.get(channel_id.node, 0)

    def _append(self, index: LogIndex, run_offset: int, start: int, count: int) -> None:
        self._state.totals.enqueued += count
        self._state.backlog.push(index, run_offset, start, count)

    # Dealing ---------------------------------------------------------------------------------------------------------

    def _deal(self) -> None:
        """Deal ready messages, oldest first, until none is left or nobody wants any."""
        state = self._state
        while state.service:
            if state.returned:
                self._deal_returned()
            elif state.backlog.count:
                self._deal_backlog()
            else:
                return

    def _deal_backlog(self) -> None:
        backlog = self._state.backlog
        index, offset, start, count = backlog.peek()
        origin = Origin(index, offset, backlog.first_number - start, 0)
        backlog.take(self._hand_out(start, count, 1, origin))

    def _deal_returned(self) -> None:
        """Returned stretches may interleave, having been dealt in turns: go only up to where the next one begins."""
        heap = self._state.returned
        number, held, start, step, origin = heap[0]
        following = min([stretch[0] for stretch in heap[1:3]], default=None)
        count = held if following is None else min(held, -((number - following) // step))
        dealt = self._hand_out(start, count, step, origin)
        self._state.returned_count -= dealt
        if dealt == held:
            heappop(heap)
        else:
            heapreplace(heap, (number + dealt * step, held - dealt, start + dealt * step, step, origin))

    def _hand_out(self, start: int, count: int, step: int, origin: Origin) -> int:
        """Give messages of one stretch to the consumers whose turn it is; returns how many were taken."""
        dealt, width, shares = self._state.service.deal(count)
        for consumer, turn, share in shares:
            first = start + turn * step
            stride = width * step
            first_id = consumer.hold(share, first, stride, origin)
            self._outbox.deliver(consumer.id, first_id, first, share, stride, origin)
            if consumer.auto_settle:
                self._state.totals.settled += share
        return dealt

    # What consumers do with their messages ---------------------------------------------------------------------------

    def _consumer(self, consumer_id: ConsumerId) -> Consumer | None:
        channel = self._state.channels.get(consumer_id.channel)
        return channel.consumers.get(consumer_id.tag) if channel else None

    def _release(self, command: Settle | Discard) -> int:
        """The messages are done with; returns how many there were."""
        consumer = self._consumer(command.consumer)
        if consumer is None:
            return 0
        before = consumer.unacked
        for first, last in command.ranges:
            consumer.release(first, last)
        self._credited(consumer)
        return before - consumer.unacked

    def _return(self, command: Return) -> None:
        consumer = self._consumer(command.consumer)
        if consumer is None:
            return
        for first, last in command.ranges:
            self._take_back(consumer.release(first, last))
        self._credited(consumer)

    def _credited(self, consumer: Consumer) -> None:
        """It may hold fewer messages now: put it in service again, or drop it if it was only waiting to be settled.

        An estranged one stays until its channel ends: dropped and subscribed again, it would give out ids that its
        client may still settle as those of messages it lost.
        """
        if consumer.status is Status.CANCELLED and not consumer.unacked and not consumer.estranged:
            self._drop_consumer(consumer)
        else:
            self._state.service.add(consumer)

    def _take_back(self, released: list[HeldRange]) -> None:
        """Back to where they were, but for those that came back too often."""
        limit = self._config.delivery_limit
        for held in released:
            origin = held.origin.returned()
            if 0 <= limit < origin.delivery_count:
                self._state.totals.dead_lettered += held.count
            else:
                self._state.returned_count += held.count
                heappush(self._state.returned, (held.number, held.count, held.start, held.step, origin))

    # Consumers that come and go --------------------------------------------------------------------------------------

    def _checkout(self, command: Checkout) -> None:
        """Subscribe. The reply carries the id of the next message, so that a channel sees if it misses one."""
        channel_id = command.consumer.channel
        if self._is_of_former_life(channel_id):
            return
        channel = self._state.channels.setdefault(channel_id, Channel())
        consumer = channel.consumers.get(command.consumer.tag)
        if consumer is None:
            consumer = channel.consumers[command.consumer.tag] = Consumer(command.consumer)
        if consumer.priority != command.priority:
            self._state.service.remove(consumer)
        consumer.subscribe(command.credit, command.auto_settle, command.priority)
        if not consumer.credit:
            self._state.service.remove(consumer)
        self._state.service.add(consumer)
        # Also for a node that is known: if it is away, the leader must hear of this consumer, and say so again.
        self._outbox.monitor(channel_id.node)
        self._outbox.reply(channel_id, command.correlation, consumer.next_id, command.consumer)

    def _cancel(self, command: Cancel) -> None:
        consumer = self._consumer(command.consumer)
        if consumer is not None:
            consumer.status = Status.CANCELLED
            self._state.service.remove(consumer)
            self._credited(consumer)
        self._outbox.reply(command.consumer.channel, command.correlation, 0, command.consumer)

    def _drop_consumer(self, consumer: Consumer) -> None:
        channel = self._state.channels[consumer.id.channel]
        del channel.consumers[consumer.id.tag]
        if channel.next_seq == 1 and not channel.consumers:
            del self._state.channels[consumer.id.channel]

    def _channel_down(self, channel_id: ChannelId) -> None:
        channel = self._state.channels.pop(channel_id, None)
        if channel is None:
            return
        for consumer in channel.consumers.values():
            self._state.service.remove(consumer)
            self._take_back(consumer.release_all())

    def _node_down(self, node: NodeId) -> None:
        """Its consumers may live on out of sight, so they stay and go on with their ids, but hold nothing."""
        for consumer in self._state.consumers():
            if consumer.id.channel.node == node:
                self._state.service.remove(consumer)
                consumer.estranged |= bool(consumer.unacked)
                self._take_back(consumer.release_all())
                if consumer.status is Status.UP:
                    consumer.status = Status.SUSPECTED

    def _node_up(self, node: NodeId, incarnation: int) -> None:
        """Channels of this life go on where they were; those of earlier lives have died with them."""
        self._state.lives[node] = max(incarnation, self._state.lives.get(node, 0))
        for channel_id in self.channels():
            if channel_id.node != node:
                continue
            if channel_id.incarnation < incarnation:
                self._channel_down(channel_id)
            elif channel_id.incarnation == incarnation:
                self._resume(self._state.channels[channel_id])

    def _resume(self, channel: Channel) -> None:
        for tag in sorted(channel.consumers):
            consumer = channel.consumers[tag]
            if consumer.status is Status.SUSPECTED:
                consumer.status = Status.UP
                self._state.service.add(consumer)

    def _purge(self, command: Purge) -> None:
        state = self._state
        purged = state.backlog.count + state.returned_count
        state.backlog.clear()
        state.returned.clear()
        state.returned_count = 0
        state.totals.purged += purged
        self._outbox.reply(command.channel, command.correlation, purged)

    # Outside the log -------------------------------------------------------------------------------------------------

    def become_leader(self) -> list[Effect]:
        """What a new leader must take over: to watch every node that has channels here."""
        return [MonitorNode(node) for node in sorted({channel.node for channel in self._state.channels})]

    def redeliver_local(self, node: NodeId, incarnation: int) -> list[Deliver]:
        """Everything that consumers of this life of this node hold, as deliveries, ascending in id for each consumer.

        For a member that skipped entries (snapshot) or did not execute their effects (role gap). Receivers drop the
        ids they have.
        """
        deliveries = []
        for consumer in self._state.consumers():
            if consumer.id.channel.node == node and consumer.id.channel.incarnation == incarnation:
                deliveries += _deliveries(consumer)
        return deliveries

    def reconfirm_local(self, node: NodeId, incarnation: int) -> list[Confirm]:
        """Confirms for all that channels of this life of this node have enqueued: for a member that skipped entries.
        Receivers drop what they have."""
        return [
            Confirm(channel_id, 1, channel.next_seq - 1)
            for channel_id, channel in sorted(self._state.channels.items())
            if (channel_id.node, channel_id.incarnation) == (node, incarnation) and channel.next_seq > 1
        ]

    def next_message_id(self, consumer_id: ConsumerId) -> int:
        """The id that the consumer's next delivery starts with; 0 for one that is not known."""
        consumer = self._consumer(consumer_id)
        return consumer.next_id if consumer is not None else 0

    def live_entries(self) -> list[tuple[LogIndex, LogIndex]]:
        """The log entries that ready or held messages lie in: merged ranges, ascending. All others may go.

        Costs one pass in C over the backlog's records: 20 ms for a million.
        """
        state = self._state
        scattered = {stretch[4].entry for stretch in state.returned}
        scattered.update(held.origin.entry for consumer in state.consumers() for held in consumer.held)
        scattered_indexes = np.fromiter(scattered, np.int64, len(scattered))
        indexes = np.sort(np.concatenate((scattered_indexes, state.backlog.indexes())), kind="stable")
        return _merged_ranges(indexes)

    def lowest_live_entry(self) -> LogIndex | None:
        """The lowest of :meth:`live_entries`, None if there are none. O(ranges held or returned)."""
        state = self._state
        entries = [stretch[4].entry for stretch in state.returned]
        entries += [held.origin.entry for consumer in state.consumers() for held in consumer.held]
        if state.backlog.count:
            entries.append(state.backlog.peek()[0])
        return LogIndex(min(entries)) if entries else None

    @property
    def config(self) -> FifoConfig:
        """What the queue was declared with."""
        return self._config

    def snapshot(self) -> bytes:
        """The state as octets. Equal states give equal octets, so this is also what members are compared by."""
        return encode_state(self._state)

    @classmethod
    def restore(cls, config: FifoConfig, snapshot: bytes) -> FifoMachine:
        """The machine as it was when :meth:`snapshot` was taken.

        Raises :class:`~reference_broker.machines.fifo_snapshot.DamagedSnapshotError` for anything else.
        """
        machine = cls(config)
        machine._state = decode_state(snapshot)
        return machine

    @property
    def applied(self) -> LogIndex:
        """Index of the last entry applied, 0 at first."""
        return LogIndex(self._state.applied)

    def channels(self) -> list[ChannelId]:
        """Every channel that enqueues or consumes here, ascending."""
        return sorted(self._state.channels)

    def service_order(self) -> list[ConsumerId]:
        """The service queue: whose turn it is, first to last. Equal on all members at the same index."""
        return [consumer.id for consumer in self._state.service.order()]

    def counts(self) -> QueueCounts:
        """Where the messages are. O(consumers)."""
        state = self._state
        totals = state.totals
        consumers = [consumer for channel in state.channels.values() for consumer in channel.consumers.values()]
        return QueueCounts(
            ready=state.backlog.count + state.returned_count,
            unacked=sum(consumer.unacked for consumer in consumers),
            consumers=sum(consumer.status is not Status.CANCELLED for consumer in consumers),
            enqueuers=sum(channel.next_seq > 1 for channel in state.channels.values()),
            enqueued=totals.enqueued,
            settled=totals.settled,
            discarded=totals.discarded,
            dead_lettered=totals.dead_lettered,
            purged=totals.purged,
        )


def _merged_ranges(indexes: npt.NDArray[np.int64]) -> list[tuple[LogIndex, LogIndex]]:
    """Ascending indexes, repeats allowed, as ranges of neighbours."""
    if not len(indexes):
        return []
    breaks = np.flatnonzero(np.diff(indexes) > 1)
    firsts = indexes[np.concatenate(([0], breaks + 1))].tolist()
    lasts = indexes[np.concatenate((breaks, [len(indexes) - 1]))].tolist()
    return list(zip(firsts, lasts, strict=True))


def _deliveries(consumer: Consumer) -> list[Deliver]:
    parcels: list[Parcel] = []
    for held in consumer.held:
        if not parcels or not parcels[-1].fits(held.first_id, held.origin.delivery_count):
            parcels.append(Parcel(consumer.id, held.first_id, held.origin.delivery_count))
        parcels[-1].add(held.start, held.count, held.step, held.origin)
    return [parcel.seal() for parcel in parcels]
