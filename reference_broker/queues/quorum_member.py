"""A member of a quorum queue: the machine on one node, and the execution of its effects there.

Effects gather over all entries of one apply and run once. The machine knows only positions; bodies are read from the
log when a delivery runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeGuard

from reference_broker import message_run
from reference_broker.anatomy.track import Track
from reference_broker.machines.batch import decode_batch, encode_batch
from reference_broker.machines.commands import (
    Cancel,
    Checkout,
    Command,
    Enqueue,
    Get,
    NodeDown,
    NodeUp,
    Purge,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import NO_LIMIT, DeadLetterStrategy, FifoConfig, Overflow
from reference_broker.machines.effects import (
    Confirm,
    DeadLetter,
    Deliver,
    Effect,
    MonitorNode,
    QueueExpired,
    Reject,
    Reply,
    SetTimer,
    SettingsChanged,
    Span,
    local_effects,
)
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.machines.inspection import QueueCounts
from reference_broker.machines.metadata import ArgumentValue, QueueRecord
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.queues.doubt import Doubt
from reference_broker.queues.port import Channels, DeadMessage, MemberPorts
from reference_broker.types import ChannelId, Entry, LogIndex, NodeId, Term

Runs = dict[tuple[int, int], MessageRun]
"""Decoded runs by entry and offset: several spans often lie in one."""

MACHINE_VERSION: Final = 1
"""Version of the queue's commands and state. It rises when older programs cannot apply this program's commands."""

SMALL_COMMAND_BYTES = 64
_OVERFLOWS = {"drop-head": Overflow.DROP_HEAD, "reject-publish": Overflow.REJECT_PUBLISH}
_STRATEGIES = {
    "at-most-once": DeadLetterStrategy.AT_MOST_ONCE,
    "at-least-once": DeadLetterStrategy.AT_LEAST_ONCE,
}


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
        self._leading_term = Term(0)
        self._channels = channels
        self._node = node
        self._now_ms = now_ms
        self._effects: list[Effect] = []
        self._doubt = Doubt()
        self._client_nodes: set[NodeId] = set()
        """All nodes with channels here, and maybe nodes whose channels ended since this member last became leader."""

    def encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        """The commands as one batch, stamped with the time of this node."""
        return encode_batch(self._now_ms(), commands)

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a forwarded batch; their runs are views into it."""
        commands = [_sent(command, sent_ns) for _offset, command in decode_batch(sealed, end)[1]]
        return [(command, command_size(command)) for command in commands]

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry and keep its effects.

        A leader may apply entries that an earlier leader has applied too, as after a restart. Dead letters sent at
        most once are only for the leader of the term of their entry.
        """
        effects = self.machine.apply(Meta(entry.index, entry.term), entry.payload, end, skip)
        if self.leading and entry.term != self._leading_term:
            effects = [each for each in effects if not (isinstance(each, DeadLetter) and not each.first_id)]
        self._effects.extend(effects)

    def run_effects(self, non_members: Collection[Channels] = ()) -> None:
        """Execute this node's effects: first the answers to enqueues, then the rest in order. A leader does the same
        for the channels of ``non_members`` (nodes without a member)."""
        if not self._effects:
            return
        effects, self._effects = self._effects, []
        for effect in effects:
            if isinstance(effect, MonitorNode):
                self._client_nodes.add(effect.node)
        local = local_effects(effects, self._channels.node, self.leading, self.record.members)
        runs: Runs = {}
        if self._doubt.is_on:
            local = self._keep_back(local, runs)
        self._execute(local, self._channels, runs)
        for non_member in non_members:
            self._execute(local_effects(effects, non_member.node, False, ()), non_member, runs)

    def _execute(self, effects: list[Effect], channels: Channels, runs: Runs) -> None:
        self._answer_enqueues(effects, channels)
        for effect in effects:
            self._run(effect, channels, runs)
        channels.flush()

    def _answer_enqueues(self, effects: list[Effect], channels: Channels) -> None:
        """Answer each channel with one confirm for all enqueues up to a number, interrupted only by refusals."""
        answers: dict[ChannelId, list[Confirm | Reject]] = {}
        for effect in effects:
            if isinstance(effect, Confirm | Reject) and _is_on(effect.channel, channels):
                channel_answers = answers.setdefault(effect.channel, [])
                if channel_answers and type(channel_answers[-1]) is type(effect) is Confirm:
                    channel_answers[-1] = effect
                else:
                    channel_answers.append(effect)
        for channel, channel_answers in answers.items():
            if (
                self.track is not None
                and channels is self._channels
                and len(channel_answers) == 1
                and type(channel_answers[0]) is Confirm
            ):
                self.track.confirmed(channel)
            for answer in channel_answers:
                if isinstance(answer, Confirm):
                    channels.confirm(channel, self.record.group, answer.last)
                else:
                    channels.rejected(channel, self.record.group, answer.first, answer.last)

    def _run(self, effect: Effect, channels: Channels, runs: Runs) -> None:
        match effect:
            case Deliver(consumer) if _is_on(consumer.channel, channels):
                slices = self._slices(effect.spans, runs)
                if self.track is not None and channels is self._channels and not effect.delivery_count:
                    self.track.delivered(effect.spans, slices)
                channels.deliver(self.record.group, consumer, effect.first_message_id, slices, effect.delivery_count)
            case Reply(channel) if _is_on(channel, channels):
                channels.reply(channel, effect.correlation, effect.value)
            case MonitorNode(node):
                self._node.watch_node(self.record.group, node)
            case DeadLetter():
                self._node.dead_letter(self.record.group, effect, _dead_messages(self._slices(effect.spans, runs)))
            case SetTimer(at_ms):
                self._node.set_timer(self.record.group, at_ms)
            case QueueExpired():
                self._node.queue_expired(self.record.group)
            case SettingsChanged():
                self._node.settings_changed(self.record.group)

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
                self._run(effect, self._channels, runs)
        for call in waiting:
            call()

    def _redeliver(self, delivery: Deliver, slices: list[RunSlice]) -> None:
        """Deliver as redelivered: another consumer may have had these messages."""
        count = max(delivery.delivery_count, 1)
        self._channels.deliver(self.record.group, delivery.consumer, delivery.first_message_id, slices, count)

    def _keep_back(self, local: list[Effect], runs: Runs) -> list[Effect]:
        """Keep deliveries and the replies behind them. Returns the effects that may run in doubt."""
        effects: list[Effect] = []
        for effect in local:
            if isinstance(effect, Deliver) and _is_on(effect.consumer.channel, self._channels):
                is_held = self.machine.holds_deliveries(effect.consumer)
                self._doubt.keep_delivery(effect, None if is_held else self._slices(effect.spans, runs))
            elif not (isinstance(effect, Reply) and self._doubt.keeps(effect)):
                effects.append(effect)
        self._ask()
        return effects

    def stop(self) -> None:
        """The member is gone from this node: run the kept effects, with all deliveries as redelivered."""
        self._doubt.begin()  # the answer to an open question comes too late
        for each in self._doubt.end()[0]:
            if isinstance(each, Reply):
                self._run(each, self._channels, {})
                continue
            for delivery in (each[0],) if isinstance(each, tuple) else self.machine.still_held(each):
                self._redeliver(delivery, each[1] if isinstance(each, tuple) else self._slices(delivery.spans, {}))

    def pace(self) -> int | None:
        """The most messages that an entry should enqueue: the machine's hint."""
        return self.machine.pace()

    def has_clients_on(self, node: NodeId) -> bool:
        """Whether a channel on that node publishes to the queue or consumes from it."""
        return node in self._client_nodes

    def became_leader(self, term: Term) -> None:
        """Start what only a leader does."""
        self.leading, self._leading_term = True, term
        self._client_nodes.clear()
        self._effects.extend(self.machine.become_leader())
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
        """Take over a newer state, and tell local clients what the skipped entries would have told them."""
        self.machine = FifoMachine.restore(state)
        self._effects.clear()
        self.catch_up(self._channels, skipped)

    def catch_up(self, channels: Channels, asked: Sequence[Any]) -> None:
        """Tell channels what they may have missed: confirms and refusals, replies to their commands ``asked``, and
        deliveries of the messages that they hold."""
        machine, node, boot_id = self.machine, channels.node, channels.boot_id
        held = machine.redeliver_local(node, boot_id)
        replies = [Reply(*_asked_by(each), _late_answer(machine, each, held)) for each in asked if expects_reply(each)]
        effects: list[Effect] = [*machine.reconfirm_local(node, boot_id), *replies, *held]
        if self._doubt.is_on and channels is self._channels:
            effects = self._keep_back(effects, {})
        self._execute(effects, channels, {})

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

    def _slices(self, spans: Sequence[Span], runs: Runs) -> list[RunSlice]:
        slices: list[RunSlice] = []
        for span in spans:
            place = (span.index, span.offset)
            if (run := runs.get(place)) is None:
                run = runs[place] = message_run.decode(self.payload(span.index), span.offset)
            slices.append((run, span.start, span.count, span.step))
        return slices


def _is_on(channel: ChannelId, channels: Channels) -> bool:
    """Whether the channel belongs to this start of this node: channel numbers begin anew at each start."""
    return channel.node == channels.node and channel.boot_id == channels.boot_id


def _dead_messages(slices: list[RunSlice]) -> list[DeadMessage]:
    return [
        (run.route, run.content(position))
        for run, start, count, step in slices
        for position in range(start, start + count * step, step)
    ]


def _sent(command: Command, sent_ns: int) -> Command:
    """The command; a stamped run gets the time at which it was forwarded."""
    if type(command) is not Enqueue or not command.run.stamp[0] or not sent_ns:
        return command
    clock, read_ns, parsed_ns, _waited_ns = command.run.stamp
    return replace(command, run=message_run.stamped(command.run, clock, read_ns, read_ns + parsed_ns, sent_ns))


def expects_reply(command: object) -> TypeGuard[Checkout | Cancel | Purge | Get]:
    """Whether a channel waits for the reply to the command."""
    return isinstance(command, Checkout | Cancel | Purge | Get)


def _asked_by(command: Checkout | Cancel | Purge | Get) -> tuple[ChannelId, int]:
    channel = command.channel if isinstance(command, Purge) else command.consumer.channel
    return channel, command.correlation


def _late_answer(machine: FifoMachine, command: Checkout | Cancel | Purge | Get, held: Sequence[Deliver]) -> int:
    """The value of a late reply. A purge's count of messages is lost. A consumer goes on with the first message that it
    holds, because this member does not know which of its deliveries arrived."""
    if not isinstance(command, Checkout):
        return 0
    first = [delivery.first_message_id for delivery in held if delivery.consumer == command.consumer]
    return min([*first, machine.next_message_id(command.consumer)])


def config_of(record: QueueRecord) -> FifoConfig:
    """The machine's settings, from the arguments of the declaration. A negative delivery limit means none."""
    arguments = dict(record.arguments)

    def number(key: str) -> int:
        return max(int(arguments.get(key, NO_LIMIT)), NO_LIMIT)

    return FifoConfig(
        name=record.name,
        delivery_limit=number("x-delivery-limit"),
        max_length=number("x-max-length"),
        max_length_bytes=number("x-max-length-bytes"),
        overflow=_OVERFLOWS[str(arguments.get("x-overflow", "drop-head"))],
        message_ttl_ms=number("x-message-ttl"),
        expires_ms=number("x-expires"),
        single_active=bool(arguments.get("x-single-active-consumer", False)),
        dead_letter=_dead_letter_strategy(arguments),
    )


def _dead_letter_strategy(arguments: Mapping[str, ArgumentValue]) -> DeadLetterStrategy | None:
    if "x-dead-letter-exchange" not in arguments:
        return None
    return _STRATEGIES[str(arguments.get("x-dead-letter-strategy", "at-most-once"))]


def command_size(command: object) -> int:
    """About how many octets a command takes in a batch."""
    return len(command.run.data) + SMALL_COMMAND_BYTES if isinstance(command, Enqueue) else SMALL_COMMAND_BYTES


def _no_log(index: LogIndex) -> bytes:
    raise AssertionError(f"entry {index} asked for before the queue was attached to its log")
