"""The quorum queue: a deterministic machine over a replicated log of commands.

Theory of operation
-------------------
Every member of a queue's group applies the same entries in the same order, so all members know at each
index who holds which message and who is next in the service queue. Each *executes* only the effects meant for
channels of its own node (:mod:`reference_broker.machines.locality`): local delivery without coordination, after
RabbitMQ's ``rabbit_fifo``.

The state holds positions, not bodies. A message enters as part of a run and keeps a *message number* for life. It is at
any time in exactly one of three places:

    ready       never delivered, or returned and then served first (:mod:`~reference_broker.machines.ready`)
    held        by one consumer, under a message id (:mod:`~reference_broker.machines.consumers`)

and leaves by being settled, discarded, expired (:mod:`~reference_broker.machines.expiry`), dropped by a full queue
(:mod:`~reference_broker.machines.limits`) or above the delivery limit, or purged; a counter each. Of these, all but the
settled and purged may be dead-lettered (:mod:`~reference_broker.machines.dead_letters`).

After *each command* the ready messages are dealt as far as credit goes, and then limits are kept, so what happens
depends on the order of the commands alone and not on how they were cut into entries. The effects of an entry are then
put into as few as possible (:mod:`~reference_broker.machines.outbox`).

Differences from RabbitMQ 3.10, all towards one simple rule: a returned message always goes back to its place in message
order (there a client's requeue goes to the tail, a dead consumer's messages to the front); a consumer out of service is
out of the service queue at once; credit is always ``max(0, prefetch - unacked)``.

Invariants (the numbers are those of the property tests)
    I13  equal logs give equal :meth:`FifoMachine.snapshot` octets, from any snapshot on
    I14  enqueued = ready + unacked + settled + discarded + delivery-limited + expired + dropped + purged
    I18  after a command, either nothing is ready or no consumer in service has credit
    I19  of the consumers of a queue with a single active one, at most one is served
    I20  message ids of a consumer are given +1 and never again, as long as its channel lives
    I23  a sequence number of a channel is enqueued at most once
    I24  a delivery count never decreases; above the limit the message is dropped
    I28  publishes are refused only while the queue is above four fifths of a limit
    I27  settling, returning or discarding ids that are not held changes nothing

Back of the envelope: an entry with a run of 500 messages and a settle of 500 ids takes 12 us with one consumer, a third
of it for decoding, and 24 us with three: 0.02-0.05 us per message and member. Runs of one, a hundred in an entry, take
6 us each with their confirms and deliveries. A record of the backlog takes 32 octets, whatever its run's size. Measured
by tests/reference_broker/machines/bench_fifo.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from reference_broker.machines import dead_letters, expiry, inspection, limits, single_active
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
from reference_broker.machines.consumers import IN_SERVICE, Consumer, Status
from reference_broker.machines.dealing import deal
from reference_broker.machines.effects import Confirm, DeadLetterReason, Deliver, Effect, Reject
from reference_broker.machines.enqueuing import enqueue
from reference_broker.machines.fifo_snapshot import decode_state, encode_state
from reference_broker.machines.fifo_state import Channel, State
from reference_broker.machines.held_ranges import HeldRange
from reference_broker.machines.inspection import QueueCounts
from reference_broker.machines.origins import Origin
from reference_broker.machines.outbox import Outbox
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId, Term

PACED_MESSAGES_MIN: Final = 16
_PACED_PREFETCHES: Final = 4
_PACED_ENTRIES: Final = 8
"""So many entries after such a consumer's settle publishes flow freely again."""
_NEVER: Final = (-_PACED_ENTRIES, 0)


@dataclass(frozen=True, slots=True)
class Meta:
    """Where in the log a command stands."""

    index: LogIndex
    term: Term


class FifoMachine:
    """One member's copy of a queue. Not thread-safe; :meth:`apply` is the only way its state changes."""

    __slots__ = ("_outbox", "_paced", "_state")

    def __init__(self, config: FifoConfig) -> None:
        self._state = State(config)
        self._paced = _NEVER
        self._outbox = Outbox()

    def apply(
        self, meta: Meta, payload: bytes, end: int | None = None, skip: frozenset[int] = frozenset()
    ) -> list[Effect]:
        """Apply one committed entry. ``meta.index`` must be above that of the entry before.

        ``end`` is where the batch ends within ``payload`` (default: its end); commands at the positions ``skip`` are
        left out, because an earlier entry held them already.

        Raises :class:`~reference_broker.machines.batch.DamagedBatchError` before anything has changed.
        """
        state = self._state
        assert meta.index > state.applied, f"entry {meta.index} after {state.applied}"
        time_ms, commands = decode_batch(payload, end)
        state.applied = meta.index
        self._outbox = Outbox()
        was_due = None if state.is_plain else self._begin(time_ms)
        state.now_ms = max(state.now_ms, time_ms)
        for position, (run_offset, command) in enumerate(commands):
            if position in skip:
                continue
            self._apply_command(command, meta.index, run_offset)
            deal(state, self._outbox)
            if state.is_limited:
                limits.enforce(state, self._outbox)
        if state.is_timed:
            self._set_timer(was_due)
        return self._outbox.effects()

    def _begin(self, time_ms: int) -> int | None:
        """Let time pass; returns what was due next."""
        state = self._state
        was_due = expiry.due_ms(state)
        state.now_ms = max(state.now_ms, time_ms)
        state.last_used_ms = state.last_used_ms or state.now_ms
        expiry.expire_heads(state, self._outbox)
        return was_due

    def _set_timer(self, was_due: int | None) -> None:
        due = expiry.due_ms(self._state)
        if due is not None and due != was_due:
            self._outbox.timer(due)

    def _apply_command(self, command: Command, index: LogIndex, run_offset: int) -> None:
        match command:
            case Enqueue():
                enqueue(self._state, self._outbox, command, index, run_offset)
            case Settle():
                self._settle(command)
            case Return():
                self._return(command)
            case Discard():
                self._discard(command)
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
            case Get():
                self._get(command)
            case UpdateConfig():
                self._update_config(command.config)
            case Tick():
                expiry.tick(self._state, self._outbox)
            case DeadLetterSettled():
                self._state.dead_letters.settle(command.ranges)
                dead_letters.tell(self._state, self._outbox)
            case _:
                assert_never(command)

    # What consumers do with their messages ---------------------------------------------------------------------------

    def _consumer(self, consumer_id: ConsumerId) -> Consumer | None:
        channel = self._state.channels.get(consumer_id.channel)
        return channel.consumers.get(consumer_id.tag) if channel else None

    def _settle(self, command: Settle) -> None:
        consumer = self._consumer(command.consumer)
        if consumer is None:
            return
        before = consumer.unacked
        for first, last in command.ranges:
            consumer.release(first, last)
        self._state.totals.settled += before - consumer.unacked
        self._credited(consumer)
        if self._state.ready.count:  # so it is, or soon will be, out of credit
            self._paced = self._state.applied, consumer.prefetch

    def _discard(self, command: Discard) -> None:
        """Dead letters keep the order in which the client named the ids."""
        consumer = self._consumer(command.consumer)
        if consumer is None:
            return
        for first, last in command.ranges:
            for held in consumer.release(first, last):
                self._state.totals.discarded += held.count
                self._bury(held, held.origin, DeadLetterReason.REJECTED)
        self._credited(consumer)

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
        elif consumer.status is Status.QUIESCING and not consumer.unacked:
            single_active.elect(self._state)
        else:
            self._state.service.add(consumer)

    def _take_back(self, released: list[HeldRange]) -> None:
        """Back to where they were, but for those that came back too often."""
        limit = self._state.config.delivery_limit
        for held in released:
            origin = held.origin.returned()
            if 0 <= limit < origin.delivery_count:
                self._state.totals.delivery_limited += held.count
                self._bury(held, origin, DeadLetterReason.DELIVERY_LIMIT)
            else:
                self._state.ready.put_back(held, origin)

    def _bury(self, held: HeldRange, origin: Origin, reason: DeadLetterReason) -> None:
        dead_letters.bury(self._state, self._outbox, (held.count, held.start, held.step, origin), reason)

    def _get(self, command: Get) -> None:
        """One message, whatever the credit. A single active consumer has all messages, so there is none."""
        state, channel_id = self._state, command.consumer.channel
        if self._state.is_of_former_life(channel_id):
            return
        state.last_used_ms = state.now_ms
        consumer = self._met(command.consumer)
        value = 0
        if state.ready and not state.config.single_active:
            _count, start, _step, origin = state.ready.head()
            state.ready.take(1)
            message_id = consumer.hold_one(command.auto_settle, start, origin)
            state.totals.settled += command.auto_settle
            if not consumer.credit:
                state.service.remove(consumer)
            self._outbox.deliver(consumer.id, message_id, start, 1, 1, origin)
            value = 1 + state.ready.count
        self._outbox.reply(channel_id, command.correlation, value, command.consumer)

    def _met(self, consumer_id: ConsumerId) -> Consumer:
        """The consumer of this name, made if need be."""
        channel_id = consumer_id.channel
        # Also for a node that is known: if it is away, the leader must hear of this consumer, and say so again.
        self._outbox.monitor(channel_id.node)
        channel = self._state.channels.setdefault(channel_id, Channel())
        consumer = channel.consumers.get(consumer_id.tag)
        if consumer is None:
            consumer = channel.consumers[consumer_id.tag] = Consumer(consumer_id)
            consumer.next_id = channel.first_id
            consumer.status = Status.GETTING
        return consumer

    # Consumers that come and go --------------------------------------------------------------------------------------

    def _checkout(self, command: Checkout) -> None:
        """Subscribe. The reply carries the id of the next message, so that a channel sees if it misses one."""
        state, channel_id = self._state, command.consumer.channel
        if self._state.is_of_former_life(channel_id):
            return
        consumer = self._met(command.consumer)
        status = consumer.status
        if consumer.priority != command.priority:
            state.service.remove(consumer)
        if status in (Status.GETTING, Status.CANCELLED):
            state.arrivals += 1
            consumer.arrival = state.arrivals
        consumer.subscribe(command.credit, command.auto_settle, command.priority)
        if state.config.single_active and status not in (Status.UP, Status.QUIESCING):
            consumer.status = Status.WAITING
        if not consumer.credit:
            state.service.remove(consumer)
        state.service.add(consumer)
        self._consumers_changed()
        self._outbox.reply(channel_id, command.correlation, consumer.next_id, command.consumer)

    def _cancel(self, command: Cancel) -> None:
        consumer = self._consumer(command.consumer)
        if consumer is not None:
            consumer.status = Status.CANCELLED
            self._state.service.remove(consumer)
            self._credited(consumer)
            self._consumers_changed()
        self._outbox.reply(command.consumer.channel, command.correlation, 0, command.consumer)

    def _consumers_changed(self) -> None:
        self._state.last_used_ms = self._state.now_ms
        if self._state.config.single_active:
            single_active.elect(self._state)

    def _drop_consumer(self, consumer: Consumer) -> None:
        channel = self._state.channels[consumer.id.channel]
        del channel.consumers[consumer.id.tag]
        channel.first_id = max(channel.first_id, consumer.next_id)
        if channel.next_seq == 1 and not channel.consumers and not channel.first_id:
            del self._state.channels[consumer.id.channel]

    def _channel_down(self, channel_id: ChannelId) -> None:
        channel = self._state.channels.pop(channel_id, None)
        if channel is None:
            return
        for _tag, consumer in sorted(channel.consumers.items()):  # dead letters are numbered as they come
            self._state.service.remove(consumer)
            self._take_back(consumer.release_all())
        if channel.consumers:
            self._consumers_changed()

    def _node_down(self, node: NodeId) -> None:
        """Its consumers may live on out of sight, so they stay and go on with their ids, but hold nothing.

        This may be old news, told by a leader that was deposed meanwhile: if it changes anything, whoever leads now
        says how things stand.
        """
        for consumer in self._state.consumers():
            if consumer.id.channel.node == node:
                self._state.service.remove(consumer)
                consumer.estranged |= bool(consumer.unacked)
                self._take_back(consumer.release_all())
                if consumer.status in IN_SERVICE:
                    consumer.status = Status.SUSPECTED
                    self._outbox.monitor(node)
        self._consumers_changed()

    def _node_up(self, node: NodeId, incarnation: int) -> None:
        """Channels of this life go on where they were; those of earlier lives have died with them."""
        self._state.lives[node] = max(incarnation, self._state.lives.get(node, 0))
        for channel_id in self.channels():
            if channel_id.node != node:
                continue
            if channel_id.incarnation < incarnation:
                self._channel_down(channel_id)
            elif channel_id.incarnation == incarnation:
                self._resume(channel_id)
        self._consumers_changed()

    def _resume(self, channel_id: ChannelId) -> None:
        channel = self._state.channels[channel_id]
        for tag in sorted(channel.consumers):
            consumer = channel.consumers[tag]
            if consumer.status is Status.SUSPECTED:
                consumer.status = Status.WAITING if self._state.config.single_active else Status.UP
                self._state.service.add(consumer)
                self._outbox.monitor(channel_id.node)  # old news, perhaps: as when a node goes

    # The queue as a whole --------------------------------------------------------------------------------------------

    def _purge(self, command: Purge) -> None:
        purged = self._state.ready.clear()
        self._state.totals.purged += purged
        self._outbox.reply(command.channel, command.correlation, purged)

    def _update_config(self, config: FifoConfig) -> None:
        """Other settings from here on. Times to live of messages that are here stay as they were."""
        self._state.configure(config)
        self._state.last_used_ms = self._state.now_ms
        single_active.elect(self._state)

    # Outside the log -------------------------------------------------------------------------------------------------

    def become_leader(self) -> list[Effect]:
        """What a new leader must take over: to watch every node that has channels here, dead letters, the timer."""
        state, outbox = self._state, Outbox()
        for node in sorted({channel.node for channel in state.channels}):
            outbox.monitor(node)
        for letters in state.dead_letters.open():
            place = letters.count, letters.start, letters.step, letters.origin
            outbox.dead_letter(letters.first_id, *place, letters.reason)
        due = expiry.due_ms(state)
        if due is not None:
            outbox.timer(due)
        return outbox.effects()

    def redeliver_local(self, node: NodeId, incarnation: int) -> list[Deliver]:
        """Everything that consumers of this life of this node hold, as deliveries, ascending in id for each consumer.

        For a member that skipped entries (snapshot) or did not execute their effects (role gap). Receivers drop the
        ids they have.
        """
        return inspection.deliveries_of(self._state, node, incarnation)

    def reconfirm_local(self, node: NodeId, incarnation: int) -> list[Confirm | Reject]:
        """Answers for all that channels of this life of this node have enqueued: for a member that skipped entries.
        Receivers drop what they have."""
        return inspection.answers_of(self._state, node, incarnation)

    def next_message_id(self, consumer_id: ConsumerId) -> int:
        """The id that the consumer's next delivery starts with; 0 for one that is not known."""
        consumer = self._consumer(consumer_id)
        return consumer.next_id if consumer is not None else 0

    def live_entries(self) -> list[tuple[LogIndex, LogIndex]]:
        """The log entries that ready, held or dead messages lie in: merged ranges, ascending. All others may go."""
        return inspection.live_entries(self._state)

    def lowest_live_entry(self) -> LogIndex | None:
        """The lowest of :meth:`live_entries`, None if there are none."""
        return inspection.lowest_live_entry(self._state)

    def pace(self) -> int | None:
        """How many messages the next entries should enqueue at most, so that settles do not wait behind publishes.

        None unless a consumer has just settled while messages waited for it. A hint and no part of the state: it
        changes which commands share an entry, never what they do.
        """
        entry, prefetch = self._paced
        if self._state.applied - entry >= _PACED_ENTRIES or not self._state.ready.count:
            return None
        return max(PACED_MESSAGES_MIN, _PACED_PREFETCHES * prefetch)

    @property
    def config(self) -> FifoConfig:
        """The settings now: those of the declaration, or of the last update."""
        return self._state.config

    def snapshot(self) -> bytes:
        """The state as octets. Equal states give equal octets, so this is also what members are compared by."""
        return encode_state(self._state)

    @classmethod
    def restore(cls, snapshot: bytes) -> FifoMachine:
        """The machine as it was when :meth:`snapshot` was taken.

        Raises :class:`~reference_broker.machines.fifo_snapshot.DamagedSnapshotError` for anything else.
        """
        state = decode_state(snapshot)
        machine = cls(state.config)
        machine._state = state
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
        return inspection.counts(self._state)
