"""A member of a quorum queue: the machine on one node, and the execution of its effects there.

Effects gather over all entries of one apply and run once. The machine knows only positions; bodies are read from the
log when a delivery runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from reference_broker import message_run
from reference_broker.anatomy.track import Track
from reference_broker.idle import NONE
from reference_broker.machines.batch import encode_batch
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import (
    NodeDown,
    NodeUp,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.effects import (
    Confirm,
    Deliver,
    Effect,
    MonitorNode,
    Reply,
    Span,
    local_effects,
)
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.machines.inspection import QueueCounts
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.queues.doubt import Doubt
from reference_broker.queues.effect_runner import EffectRunner, Runs, is_on
from reference_broker.queues.fifo_commands import decode_forwarded, missed_effects
from reference_broker.queues.onward_clock import OnwardClock
from reference_broker.queues.port import Channels, MemberPorts
from reference_broker.queues.settings import config_of
from reference_broker.types import Entry, LogIndex, NodeId, Term

MACHINE_VERSION: Final = 2
"""Version of the queue's commands and state. It rises when older programs cannot apply this program's commands."""


class QuorumMember:
    """The machine of one queue on one node (:class:`~reference_broker.queues.port.QueueMember`)."""

    def __init__(self, record: QueueRecord, channels: Channels, node: MemberPorts, now_ms: Callable[[], int]) -> None:
        self.record = record
        self.version = MACHINE_VERSION
        self.machine = FifoMachine(config_of(record))
        self.payload: Callable[[LogIndex], bytes] = _no_log
        self.track: Track | None = None
        """Where the latency anatomy of the queue is kept, if it is."""
        self.leading = False
        """Whether this member leads, and has applied everything of earlier terms."""
        self._channels = channels
        self._node = node
        self._wall_ms = now_ms
        self._clock = OnwardClock(now_ms)
        self._runner = EffectRunner(record.group, node, self._read, self._on_the_wall)
        self._effects: list[Effect] = []
        self._doubt = Doubt()
        self.client_nodes: frozenset[NodeId] = NONE
        """All nodes with channels here, and maybe nodes whose channels ended since this member last became leader."""

    def encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        """The commands as one batch, stamped with the time of the queue on this node."""
        reached_ms = self.machine.state.now_ms
        now_ms = self._wall_ms() + self._clock.ahead_ms
        return encode_batch(now_ms if now_ms >= reached_ms else self._clock.now_ms(reached_ms), commands)

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a forwarded batch; their runs are views into it."""
        return decode_forwarded(sealed, end, sent_ns)

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry and keep its effects."""
        self._effects.extend(self.machine.apply(Meta(entry.index, entry.term), entry.payload, end, skip))

    def run_effects(self, non_members: Collection[Channels] = ()) -> None:
        """Execute this node's effects: first the answers to enqueues, then the rest in order. A leader does the same
        for the channels of ``non_members`` (nodes without a member)."""
        if not self._effects:
            return
        effects, self._effects = self._effects, []
        are_confirms = True
        for effect in effects:
            are_confirms = are_confirms and type(effect) is Confirm
            if type(effect) is MonitorNode:
                self.client_nodes |= {effect.node}
        runs: Runs = {}
        local = effects
        if self._doubt.is_on and not are_confirms:
            local = local_effects(effects, self._channels.node, self.leading, self.record.members)
            local = self._keep_back(local, runs)
        self._runner.execute(local, self._channels, runs, self.track, leads=self.leading)
        for non_member in non_members:
            self._runner.execute(effects, non_member, runs, None)

    def reproposed(self, command: Any) -> Any:
        """The same command, except news of nodes, which only a leader reports. A deposed leader that was cut off saw
        all other nodes go down. Under the next leader, this news would take messages from healthy consumers."""
        return Tick() if isinstance(command, NodeDown | NodeUp) else command

    # Doubt: see reference_broker.queues.doubt

    def doubt(self) -> None:
        """Doubt deliveries: messages dealt to this node's clients may have gone to other consumers."""
        self._doubt.begin()
        self._ask()

    def after_doubt(self, call: Callable[[], None]) -> None:
        """Call once there is no doubt."""
        if not self._doubt.is_on:
            call()
            return
        self._doubt.wait(call)
        self._ask()

    def _ask(self) -> None:
        if self._doubt.has_to_ask():
            self._node.when_current(self.record.group, partial(self._doubt_over, self._doubt.number))

    def _doubt_over(self, number: int) -> None:
        """This member has applied everything that was committed when doubt ``number`` was asked about."""
        if number != self._doubt.number:
            return
        kept, waiting = self._doubt.end()
        runs: Runs = {}
        for each in kept:
            delivery = each[0] if isinstance(each, tuple) else each
            held = self.machine.still_held(delivery) if isinstance(delivery, Deliver) else []
            if isinstance(each, tuple) and not held:
                self._redeliver(*each)
            for effect in held if isinstance(delivery, Deliver) else (delivery,):
                self._runner.run(effect, self._channels, runs, self.track)
        for call in waiting:
            call()

    def _redeliver(self, delivery: Deliver, slices: list[RunSlice]) -> None:
        """Deliver as redelivered: another consumer may have had these messages."""
        last = delivery.first_message_id + sum(each[2] for each in slices) - 1
        if not self._channels.takes(self.record.group, delivery.consumer, last):
            return
        count = max(delivery.delivery_count, 1)
        self._channels.deliver(self.record.group, delivery.consumer, delivery.first_message_id, slices, count)

    def _keep_back(self, local: list[Effect], runs: Runs) -> list[Effect]:
        """Keep deliveries and the replies behind them. Returns the effects that may run in doubt."""
        effects: list[Effect] = []
        for effect in local:
            if isinstance(effect, Deliver) and is_on(effect.consumer.channel, self._channels):
                is_held = self.machine.holds_deliveries(effect.consumer)
                self._doubt.keep_delivery(effect, None if is_held else self._runner.slices(effect.spans, runs))
            elif not (isinstance(effect, Reply) and self._doubt.keeps(effect)):
                effects.append(effect)
        self._ask()
        return effects

    def stop(self) -> None:
        """The member is gone from this node: run the kept effects, with all deliveries as redelivered."""
        self._doubt.begin()  # the answer to an open question comes too late
        for each in self._doubt.end()[0]:
            if isinstance(each, Reply):
                self._runner.run(each, self._channels, {}, self.track)
                continue
            for delivery in (each[0],) if isinstance(each, tuple) else self.machine.still_held(each):
                self._redeliver(
                    delivery, each[1] if isinstance(each, tuple) else self._runner.slices(delivery.spans, {})
                )

    def pace(self) -> int | None:
        """The most messages that an entry should enqueue: the machine's hint."""
        machine = self.machine
        return machine.pace() if machine.is_paced else None

    def became_leader(self, term: Term) -> None:
        """Start what only a leader does."""
        self.leading = True
        self.client_nodes = NONE
        self._effects.extend(self.machine.become_leader(self._clock.now_ms(self.machine.now_ms)))
        self.run_effects()

    def lost_leadership(self) -> None:
        """Leave to the new leader what only a leader does."""
        self.leading = False

    def snapshot(self) -> bytes:
        """The machine's state."""
        return self.machine.snapshot()

    def restore(self, state: bytes) -> None:
        """Take over this member's own snapshot at the start, when no client is connected yet."""
        self.machine = FifoMachine.restore(state)

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        """Take over a newer state, and give local clients the news of the skipped entries."""
        self.machine = FifoMachine.restore(state)
        self._effects.clear()
        self.catch_up(self._channels, skipped)

    def catch_up(self, channels: Channels, asked: Sequence[Any]) -> None:
        """Tell channels what they may have missed: confirms and refusals, replies to their commands ``asked``, and
        deliveries of their held messages."""
        effects = missed_effects(self.machine, channels, asked)
        if self._doubt.is_on and channels is self._channels:
            effects = self._keep_back(effects, {})
        self._runner.execute(effects, channels, {}, self.track if channels is self._channels else None)

    def counts(self) -> QueueCounts:
        """The counts of the queue."""
        return self.machine.counts()

    def settings_change(self, record: QueueRecord) -> UpdateConfig | None:
        """The command that gives the queue the settings of this record; None if it has them."""
        wanted = config_of(record)
        return UpdateConfig(wanted) if wanted != self.machine.config else None

    def live_entries(self) -> Sequence[tuple[int, int]]:
        """Ranges of entries that hold messages of the queue."""
        return self.machine.live_entries()

    def lowest_live_entry(self) -> int | None:
        """The lowest live entry."""
        return self.machine.lowest_live_entry()

    def _on_the_wall(self, at_ms: int) -> int:
        return self._clock.on_the_wall(at_ms, self.machine.now_ms)

    def _read(self, span: Span) -> MessageRun:
        return message_run.decode(self.payload(span.index), span.offset)


def _no_log(index: LogIndex) -> bytes:
    raise AssertionError(f"entry {index} asked for before the queue was attached to its log")
