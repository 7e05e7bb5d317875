"""The quorum queue: a deterministic machine over a replicated log of commands.

Theory of operation
-------------------
Every member of a queue's group applies the same entries in the same order. So all members know at each index which
consumer holds which message and which consumer is served next. Each member *executes* only the effects for channels of
its own node (:func:`~reference_broker.machines.effects.local_effects`). This is local delivery without coordination,
after RabbitMQ's ``rabbit_fifo``.

The state holds positions, not bodies. A message enters as part of a run and keeps its *message number*. At any time,
the message is in exactly one of two places:

    ready       never delivered, or returned and then served first (:mod:`~reference_broker.machines.messages.ready`)
    held        by one consumer, under a message id (:mod:`~reference_broker.machines.consumers`)

Messages enter and are dealt to consumers by :mod:`~reference_broker.machines.enqueue`. They come back by
:mod:`~reference_broker.machines.settlement`. A message leaves the queue when it is settled, discarded, expired
(:mod:`~reference_broker.machines.expiry`), dropped by a full queue (:mod:`~reference_broker.machines.limits`), returned
above the delivery limit, or purged. Each way has a counter. Settled and purged messages are gone; the others may become
dead letters (:mod:`~reference_broker.machines.burial`). Subscriptions, and the ends of channels and nodes, are in
:mod:`~reference_broker.machines.subscriptions`. A store of single messages hears which messages have left
(:mod:`~reference_broker.machines.messages.departures`). Each of these modules is functions over the
:class:`~reference_broker.machines.fifo_state.State`. This module maps each command to its function.

After *each command* the queue deals ready messages as far as credit goes, and then keeps its limits. So the outcome
depends on the order of the commands alone, and not on how they were cut into entries. The effects of an entry are then
merged into as few as possible (:mod:`~reference_broker.machines.outbox`).

Differences from RabbitMQ 3.10, each for a simpler rule: a returned message always goes back to its place in message
order (in RabbitMQ a client's requeue goes to the tail, a dead consumer's messages to the front); a consumer out of
service leaves the service queue at once; credit is always ``max(0, prefetch - unacked)``.

Invariants (the numbers are those of the property tests)
    I13  equal logs give equal :meth:`FifoMachine.snapshot` octets, from any snapshot on
    I14  enqueued = ready + unacked + settled + discarded + delivery-limited + expired + dropped + purged
    I18  after a command, either nothing is ready or no consumer in service has credit
    I19  a queue with a single active consumer serves at most one consumer
    I20  message ids of a consumer go up by 1 and are never reused while its channel lives
    I23  a sequence number of a channel is enqueued at most once
    I24  a delivery count never decreases; above the limit the message is dropped
    I28  publishes are refused only while the queue is above four fifths of a limit
    I27  settlement, returning or discarding ids that are not held changes nothing

Back of the envelope: an entry with a run of 500 messages and a settle of 500 ids takes 12 us with one consumer, a third
of it for decoding, and 24 us with three: 0.02-0.05 us per message and member. Runs of one, a hundred in an entry, take
6 us each with their confirms and deliveries. A record of the backlog takes 32 octets, whatever its run's size. Measured
by tests/reference_broker/machines/bench_fifo.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from reference_broker.idle import NOTHING
from reference_broker.machines import (
    burial,
    expiry,
    inspection,
    keyed_rules,
    limits,
    settlement,
    single_active,
    subscriptions,
)
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
    GetCheckedOut,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import FifoConfig
from reference_broker.machines.consumers import Status
from reference_broker.machines.effects import Confirm, Deliver, Effect, Reject
from reference_broker.machines.enqueue import deal, enqueue
from reference_broker.machines.fifo_snapshot import decode_state, encode_state
from reference_broker.machines.fifo_state import State
from reference_broker.machines.inspection import QueueCounts
from reference_broker.machines.messages.departures import Departure
from reference_broker.machines.messages.priorities import PriorityReady
from reference_broker.machines.messages.ready import FoundStretch
from reference_broker.machines.outbox import Outbox
from reference_broker.records import record
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId, Term

PACED_MESSAGES_MIN: Final = 24
_PACED_PREFETCHES: Final = 4
_PACED_ENTRIES: Final = 8
"""Entries for which a queue paces publishes after a consumer with a backlog has settled."""
_REFRESH_ENTRIES: Final = 64
"""Entries between two updates of the flags of a queue with timed messages."""
_NEVER: Final = (-_PACED_ENTRIES, 0)


PlacedCommand = tuple[int, int, Command]
"""The place of an enqueue's run, in two numbers that name the run in spans and departures; and a command."""


@record
class Meta:
    """The place of a command in the log."""

    index: LogIndex
    term: Term


class FifoMachine:
    """One member's copy of a queue. Not thread-safe; :meth:`apply` is the only way its state changes."""

    __slots__ = ("_outbox", "_paced", "is_paced", "state")

    def __init__(self, config: FifoConfig) -> None:
        self.state = State(config)
        """For :meth:`apply` to change, and for others to read."""
        self._paced = _NEVER
        self.is_paced = False
        """Whether :meth:`pace` may have a number to tell."""
        self._outbox: Outbox = NOTHING  # of the entry that is being applied

    def apply(
        self, meta: Meta, payload: bytes, end: int | None = None, skip: frozenset[int] = frozenset()
    ) -> list[Effect]:
        """Apply one committed entry. ``meta.index`` must be above that of the entry before.

        ``end`` is where the batch ends within ``payload`` (default: its end). Commands at the positions ``skip`` are
        left out: an earlier entry held them already.

        Raises :class:`~reference_broker.machines.batch.DamagedBatchError` before anything has changed.
        """
        state = self.state
        assert meta.index > state.applied, f"entry {meta.index} after {state.applied}"
        time_ms, commands = decode_batch(payload, end)
        was_due = self._begin(meta.index, time_ms)
        for position, (run_offset, command) in enumerate(commands):
            if position in skip:
                continue
            if type(command) is Enqueue:  # by far the most
                enqueue(state, self._outbox, command, meta.index, run_offset)
            else:
                self._apply_command(command, meta.index, run_offset)
            deal(state, self._outbox)
            if state.is_limited:
                limits.enforce(state, self._outbox)
        if skip and keyed_rules.is_behind(state):
            self._outbox.timer(state.now_ms)
        return self._end(was_due)

    def apply_at_once(self, time_ms: int, commands: Iterable[PlacedCommand]) -> list[Effect]:
        """Apply commands that are in no log. Each enqueue comes with the place of its run, ascending in the first
        number; other commands come with any place. ``commands`` may be a generator that makes a command when the
        commands before it are applied."""
        state = self.state
        was_due = self._begin(LogIndex(state.applied + 1), time_ms)
        for part, level, command in commands:
            self._apply_command(command, LogIndex(part), level)
            deal(state, self._outbox)
            if state.is_limited:
                limits.enforce(state, self._outbox)
            if state.is_expiring and type(command) is Enqueue:
                expiry.expire_at_once(state, self._outbox, command.ttl_ms)
        return self._end(was_due)

    def _begin(self, index: LogIndex, time_ms: int) -> int | None:
        """Begin an entry. Returns the time that was due next before."""
        state = self.state
        state.applied = index
        self._outbox = Outbox()
        was_due = None if state.is_plain else self._let_time_pass(time_ms)
        state.now_ms = max(state.now_ms, time_ms)
        return was_due

    def _end(self, was_due: int | None) -> list[Effect]:
        """End an entry. Returns its effects."""
        state = self.state
        if state.is_timed:
            self._set_timer(was_due)
            if not state.applied % _REFRESH_ENTRIES:
                state.refresh_flags()
        effects = self._outbox.effects()
        self._outbox = NOTHING
        return effects

    def _let_time_pass(self, time_ms: int) -> int | None:
        state = self.state
        was_due = expiry.due_ms(state)
        state.now_ms = max(state.now_ms, time_ms)
        if state.config.expires_ms >= 0:
            state.last_used_ms = state.last_used_ms or state.now_ms
        burial.send_at_most_once(state, self._outbox)
        if state.keyed is not None:
            state.keyed.now_ms = state.now_ms
            keyed_rules.take_back_overdue(state.keyed, state, self._outbox)
        expiry.expire_heads(state, self._outbox)
        return was_due

    def _set_timer(self, was_due: int | None) -> None:
        due = expiry.due_ms(self.state)
        if due is not None and due != was_due:
            self._outbox.timer(due)

    def _apply_command(self, command: Command, index: LogIndex, run_offset: int) -> None:
        state, outbox = self.state, self._outbox
        match command:
            case Enqueue():
                enqueue(state, outbox, command, index, run_offset)
            case Settle():
                consumer = settlement.settle(state, command)
                if consumer is not None and state.ready.count:  # the consumer has a backlog
                    self._paced, self.is_paced = (state.applied, consumer.prefetch), True
            case Return():
                settlement.give_back(state, outbox, command)
            case Discard():
                settlement.discard(state, outbox, command)
            case Checkout():
                subscriptions.checkout(state, outbox, command)
            case Cancel():
                subscriptions.cancel(state, outbox, command)
            case ChannelDown():
                subscriptions.channel_down(state, outbox, command.channel)
            case NodeDown():
                subscriptions.node_down(state, outbox, command.node)
            case NodeUp():
                subscriptions.node_up(state, outbox, command.node, command.boot_id)
            case Purge():
                self._purge(command)
            case Get():
                subscriptions.get(state, outbox, command)
            case GetCheckedOut():
                subscriptions.get_checked_out(state, outbox, command)
            case UpdateConfig():
                self._update_config(command.config)
            case Tick():
                expiry.tick(state, outbox)
            case DeadLetterSettled():
                state.departures.held(state.dead_letters.settle(command.ranges))
                burial.announce(state, outbox)
            case _:
                assert_never(command)

    def _purge(self, command: Purge) -> None:
        ready, departures = self.state.ready, self.state.departures
        if departures.is_collecting:
            for _number, count, start, step, origin in ready.returned:
                departures.stretch(count, start, step, origin)
            for records in ready.backlog.pieces():
                departures.records(records)
        purged = ready.clear()
        self.state.totals.purged += purged
        self._outbox.reply(command.channel, command.correlation, purged)

    def _update_config(self, config: FifoConfig) -> None:
        """Change the settings. Messages that are here keep their times to live."""
        self.state.configure(config)
        self.state.last_used_ms = self.state.now_ms
        self._outbox.settings_changed()
        single_active.elect(self.state)

    # Beside a store instead of in a log -----------------------------------------------------------------------------

    @classmethod
    def beside_a_store(cls, config: FifoConfig, *, has_priorities: bool = False) -> FifoMachine:
        """A machine whose messages are in a store: it says which messages leave (:meth:`take_departures`), deals
        messages to gets beside a single active consumer, and takes a publish as soon as there is room. With
        ``has_priorities``, the second number of the place of a run is the priority of its messages."""
        machine = cls(config)
        state = machine.state
        state.departures.collect()
        state.gets_beside_single_active = True
        state.refuses_until_well_below = False
        if has_priorities:
            state.ready = PriorityReady()
        return machine

    def load(self, found: Iterable[FoundStretch], next_number: int, now_ms: int) -> None:
        """Take over the messages that a store has found at a start, in order. ``next_number`` is above all sequence
        numbers found. No command was applied before."""
        state = self.state
        if state.keyed is not None:
            state.now_ms = state.keyed.now_ms = now_ms
        state.ready.load_found(found, next_number)
        state.totals.enqueued = state.ready.count
        if state.ready.expires_ever():
            state.expect_expiry()

    def expiry_of(self, ttl_ms: int) -> int:
        """The time at which a message of the next command expires, whose own time to live is ``ttl_ms`` (-1: none)."""
        return expiry.expiry_of(self.state, ttl_ms)

    # Outside the log -------------------------------------------------------------------------------------------------

    def become_leader(self, now_ms: int) -> list[Effect]:
        """The effects by which a new leader takes over the watched nodes, the dead letters and the timer. The time of
        the queue is ``now_ms``."""
        state, outbox = self.state, Outbox()
        state.led_since_ms = now_ms
        for node in sorted({channel.node for channel in state.channels}):
            outbox.monitor(node)
        for letters in state.dead_letters.in_flight:
            place = letters.count, letters.start, letters.step, letters.origin
            outbox.dead_letter(letters.first_id, *place, letters.reason, is_repeat=True)
        due = now_ms if keyed_rules.is_behind(state) else expiry.due_ms(state)
        if due is not None:
            outbox.timer(due)
        return outbox.effects()

    def redeliver_local(self, node: NodeId, boot_id: int) -> list[Deliver]:
        """All messages that consumers on this start of this node hold, as deliveries, ascending in id per consumer.

        A member needs these deliveries after it skipped entries (snapshot) or did not execute their effects (role
        gap). Receivers drop the ids that they have.
        """
        return inspection.held_deliveries(self.state, node, boot_id)

    def still_held(self, delivery: Deliver) -> list[Deliver]:
        """The messages of a delivery that the consumer still holds, with their present delivery counts.

        A member asks this before it makes a late delivery: a message that was taken back may be another consumer's.
        """
        return inspection.still_held(self.state, delivery)

    def holds_deliveries(self, consumer_id: ConsumerId) -> bool:
        """Whether the consumer holds its messages until it settles them. False for gets and automatic settling."""
        consumer = self.state.consumer(consumer_id)
        return consumer is None or not (consumer.status is Status.GETTING or consumer.auto_settle)

    def reconfirm_local(self, node: NodeId, boot_id: int) -> list[Confirm | Reject]:
        """Confirms and rejects for all enqueues of the channels on this start of this node.

        A member needs these answers after it skipped entries. Receivers drop the answers that they have.
        """
        return inspection.enqueue_answers(self.state, node, boot_id)

    def next_message_id(self, consumer_id: ConsumerId) -> int:
        """The id that the consumer's next delivery starts with; 0 if the consumer is unknown."""
        consumer = self.state.consumer(consumer_id)
        return consumer.next_id if consumer is not None else 0

    def take_departures(self) -> list[Departure]:
        """The messages that have left since the last call."""
        return self.state.departures.take()

    def live_entries(self) -> list[tuple[LogIndex, LogIndex]]:
        """The log entries that ready, held or dead messages lie in: merged ranges, ascending. All others may go."""
        return inspection.live_entries(self.state)

    def lowest_live_entry(self) -> LogIndex | None:
        """The lowest of :meth:`live_entries`, None if there are none."""
        return inspection.lowest_live_entry(self.state)

    def pace(self) -> int | None:
        """The most messages that the next entries should enqueue, so that settles do not wait behind publishes.

        None unless a consumer has just settled while messages waited for it. The number is a hint and no part of the
        state: it decides which commands share an entry, never their effects.
        """
        entry, prefetch = self._paced
        if self.state.applied - entry >= _PACED_ENTRIES or not self.state.ready.count:
            self.is_paced = self.state.applied - entry < _PACED_ENTRIES
            return None
        return max(PACED_MESSAGES_MIN, _PACED_PREFETCHES * prefetch)

    @property
    def config(self) -> FifoConfig:
        """The present settings: from the declaration, or from the last update."""
        return self.state.config

    def snapshot(self) -> bytes:
        """The state as octets. Equal states give equal octets, so tests compare members by their snapshots."""
        return encode_state(self.state)

    @classmethod
    def restore(cls, snapshot: bytes) -> FifoMachine:
        """The machine as it was when :meth:`snapshot` was taken.

        Raises :class:`~reference_broker.machines.fifo_snapshot.DamagedSnapshotError` for anything else.
        """
        state = decode_state(snapshot)
        machine = cls(state.config)
        machine.state = state
        return machine

    @property
    def applied(self) -> LogIndex:
        """Index of the last entry applied, 0 at first."""
        return LogIndex(self.state.applied)

    @property
    def now_ms(self) -> int:
        """The time of the queue: the latest time of all batches."""
        return self.state.now_ms

    def channels(self) -> list[ChannelId]:
        """All channels that enqueue or consume here, ascending."""
        return sorted(self.state.channels)

    def service_order(self) -> list[ConsumerId]:
        """The consumers in the service queue, first to last. Equal on all members at the same index."""
        return [consumer.id for consumer in self.state.service.order()]

    def counts(self) -> QueueCounts:
        """The counts of messages by place. O(consumers)."""
        return inspection.counts(self.state)
