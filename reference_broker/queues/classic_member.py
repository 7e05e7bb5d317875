"""A classic queue on its owner: the machine, the queue's messages in the store, and the execution of the effects.

Theory of operation
-------------------
There is no log. The owner's node gives the member a batch of commands (:meth:`ClassicMember.apply`), which the machine
applies at once. An enqueue goes into the store first. The store cuts a run into *parts*, and each part becomes one
enqueue of the machine, whose place is the sequence number of the part's first message. So spans and departures of the
machine name messages of the store.

*Bodies* come from the store. A body that is not in memory is read from the drive, one read in a call of
:meth:`run_effects`: the rest of the effects waits for the next call, which the node makes in its next turn. So the
event loop is never held up longer than one read takes, and effects keep their order.

*Departures* go to the store behind the effects of their batch, because the effects may need the bodies.

*Confirms* of a channel with persistent messages of a durable queue wait until the store says that the messages survive
(:meth:`stored`). Later answers to the same channel wait behind them. All other answers go at once, before any effect.

*After a restart* the machine begins with what the store has found. Channels and consumers are gone with the process.
The labels of messages with keys are read again from their headers.

Invariants
    a message that the store keeps is ready, held, a dead letter, or its departure waits for effects
    no message of a durable queue is confirmed before the store has told that it survives, if it is persistent
    the answers to a channel keep their order, and so do all other effects
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from reference_broker.anatomy.track import Track
from reference_broker.classic.message_store import MessageStore
from reference_broker.classic.part_codec import cut
from reference_broker.classic.parts import FoundPart
from reference_broker.machines.batch import encode_batch
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import ChannelDown, Enqueue, Labels, UpdateConfig
from reference_broker.machines.effects import (
    Confirm,
    DeadLetter,
    Deliver,
    Effect,
    Reject,
    Reply,
    Span,
)
from reference_broker.machines.fifo import FifoMachine, PlacedCommand
from reference_broker.machines.inspection import QueueCounts
from reference_broker.machines.messages.departures import Departure
from reference_broker.machines.messages.ready import FoundStretch
from reference_broker.message_run import MessageRun
from reference_broker.mirroring.master import RecordingStore
from reference_broker.queues.effect_runner import Answers, EffectRunner, Runs, add_answer, is_on
from reference_broker.queues.fifo_commands import decode_forwarded, missed_effects
from reference_broker.queues.keyed_labels import cut_labels, labels_of
from reference_broker.queues.message_properties import Stretch, stretches
from reference_broker.queues.onward_clock import OnwardClock
from reference_broker.queues.port import Channels, MemberPorts
from reference_broker.queues.settings import classic_config_of, key_source_of, max_priority_of
from reference_broker.types import UNCOUNTED, ChannelId, NodeId

Batch = tuple[deque[Effect], list[Departure]]
"""The results of a batch of commands: effects in order, and the messages that have left."""


class ClassicMember:
    """A classic queue on its owner. The owner's node calls; nothing here blocks but the read of one part."""

    def __init__(
        self,
        record: QueueRecord,
        store: MessageStore,
        channels: Channels,
        node: MemberPorts,
        now_ms: Callable[[], int],
    ) -> None:
        """``channels`` are the owner's. Takes over the messages that the store has found."""
        self.record = record
        self.track: Track | None = None
        self._store: MessageStore = store
        self._plain_store = store
        self._channels = channels
        self._clock = OnwardClock(now_ms)
        self._max_priority = max_priority_of(record)
        self._key_source = key_source_of(record)
        self.machine = FifoMachine.beside_a_store(classic_config_of(record), has_priorities=self._max_priority > 0)
        self._runner = EffectRunner(record.group, node, self._read, self._on_the_wall)
        self._batches: deque[Batch] = deque()
        self._answers: Answers = {}
        """Answers that may go."""
        self._late: dict[int, Answers] = {}
        """Answers that wait until the messages below a sequence number survive; the numbers ascend."""
        self._waits_for: dict[ChannelId, int] = {}
        """The last such number of each channel with waiting answers."""
        self._late_channels: dict[ChannelId, None] = {}
        """Channels with messages in the present batch that are confirmed late."""
        self._may_deliver: Callable[[int], bool] | None = None
        """Whether messages below a sequence number may be delivered; None: all may."""
        self._late_end = 0
        """The end of the last part that is confirmed late."""
        self._taken_over = range(0)
        """The messages that came from the publishers of a former owner, and not from that owner."""
        self.machine.load(self._found(), store.next_seq, now_ms())

    # Commands

    def encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        """The commands as one batch, for another node."""
        return encode_batch(self._now_ms(), commands)

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a forwarded batch, each with its size; their runs are views into it."""
        return decode_forwarded(sealed, end, sent_ns)

    def apply(self, commands: Sequence[Any]) -> None:
        """Apply commands, in order. The effects wait for :meth:`run_effects`."""
        effects = self.machine.apply_at_once(self._now_ms(), self._placed(commands))
        self._keep(effects, self.machine.take_departures())
        self._late_channels.clear()

    def _placed(self, commands: Sequence[Any]) -> Iterator[PlacedCommand]:
        """The commands for the machine. A run is stored when the commands before it are applied."""
        for command in commands:
            if type(command) is Enqueue:
                yield from self._enqueues(command)
            else:
                yield 0, 0, command

    def _enqueues(self, command: Enqueue) -> Iterator[PlacedCommand]:
        """One enqueue for each part of the run."""
        expires = self.machine.expiry_of(command.ttl_ms)
        for piece, priority, persistent in self._pieces(command.run):
            start, run = piece.start, cut(command.run, piece.start, piece.count)
            for part in self._store.add(run, persistent, expires):
                if command.first_seq and self._store.is_confirmed_late(part):
                    self._late_channels[command.channel] = None
                    self._late_end = part.seq + part.count
                first_seq = command.first_seq and command.first_seq + start
                messages = cut(command.run, start, part.count)
                start += part.count
                labels = labels_of(messages, self._key_source) if self._key_source else ()
                yield part.seq, priority, replace(command, first_seq=first_seq, run=messages, labels=labels)

    def _pieces(self, run: MessageRun) -> Iterator[tuple[Stretch, int, bool | npt.NDArray[np.bool_]]]:
        """The run, cut where its priority changes: messages, priority, and which of them are persistent."""
        found = stretches(run)
        if len(found) == 1 or self._max_priority:
            for each in found:
                yield each, min(each.sort.priority, self._max_priority), each.sort.is_persistent
            return
        persistent = np.repeat([each.sort.is_persistent for each in found], [each.count for each in found])
        yield Stretch(0, run.count, found[0].sort), 0, persistent

    # Effects

    def _keep(self, effects: Sequence[Effect], departures: list[Departure]) -> None:
        """Keep the results of a batch."""
        rest: deque[Effect] = deque()
        for effect in effects:
            if isinstance(effect, Confirm | Reject):
                self._keep_answer(effect)
            else:
                rest.append(effect)
        if rest or departures:
            self._batches.append((rest, departures))

    def _keep_answer(self, answer: Confirm | Reject) -> None:
        channel = answer.channel
        if channel in self._late_channels:
            self._waits_for[channel] = self._late_end
        end = self._waits_for.get(channel)
        answers = self._answers if end is None else self._late.setdefault(end, {})
        add_answer(answers.setdefault(channel, []), answer)

    def stored(self, seq_end: int) -> None:
        """The store has told that the messages below ``seq_end`` survive. Answers go with :meth:`run_effects`."""
        while self._late and (end := next(iter(self._late))) <= seq_end:
            for channel, answers in self._late.pop(end).items():
                if self._waits_for.get(channel) == end:
                    del self._waits_for[channel]
                for answer in answers:
                    add_answer(self._answers.setdefault(channel, []), answer)

    def run_effects(self, non_members: Collection[Channels] = (), *, only_answers: bool = False) -> bool:
        """Execute the waiting effects for the channels of this node and of ``non_members``: answers to enqueues, then,
        without ``only_answers``, the other effects in order, up to the second part that must be read from the drive, or
        to a delivery that mirrors do not know yet. Returns whether effects remain that can be executed in the node's
        next turn.

        Raises OSError or :class:`~reference_broker.classic.part_codec.DamagedPartError` if the drive does not give a
        message back: the node must stop.
        """
        targets = {(each.node, each.boot_id): each for each in (self._channels, *non_members)}
        if self._answers:
            answers, self._answers = self._answers, {}
            for target in targets.values():
                self._runner.answer({key: value for key, value in answers.items() if is_on(key, target)}, target)
        are_left = not only_answers and self._run_batches(targets)
        for target in targets.values():
            target.flush()
        return are_left

    def _run_batches(self, targets: Mapping[tuple[NodeId, int], Channels]) -> bool:
        reads = _Reads(self._store)
        runs: Runs = {}
        while self._batches:
            effects, departures = self._batches[0]
            while effects:
                effect = effects.popleft()
                if isinstance(effect, Deliver):
                    if self._may_deliver is not None and not self._may_deliver(_end_of(effect)):
                        effects.appendleft(effect)
                        return False  # the node calls when the mirrors know
                    if not self._is_taken(effect, targets):
                        continue  # before anything is read for it
                now, later = reads.split(effect)
                if now is not None:
                    self._run(now, targets, runs)
                if later is not None:
                    effects.appendleft(later)
                    return True
            for entry, _level, start, count, step in departures:
                self._store.take(entry, start, count, step)
            self._batches.popleft()
        return False

    def _is_taken(self, effect: Deliver, targets: Mapping[tuple[NodeId, int], Channels]) -> bool:
        channel = effect.consumer.channel
        target = targets.get((channel.node, channel.boot_id))
        last = effect.first_message_id + sum([span.count for span in effect.spans]) - 1
        return target is None or target.takes(self.record.group, effect.consumer, last)

    def _run(self, effect: Effect, targets: Mapping[tuple[NodeId, int], Channels], runs: Runs) -> None:
        match effect:
            case Deliver(consumer):
                channel = consumer.channel
                if (effect.delivery_count and not self._key_source) or self._is_taken_over(effect):
                    effect = replace(effect, delivery_count=UNCOUNTED)
                self._store.delivered(_end_of(effect))
            case Reply():
                channel = effect.channel
            case _:
                self._runner.run(effect, self._channels, runs)
                return
        if (target := targets.get((channel.node, channel.boot_id))) is not None:
            self._runner.run(effect, target, runs)

    def _is_taken_over(self, effect: Deliver) -> bool:
        known = self._taken_over
        return bool(known) and any(
            span.index + span.start < known.stop and _end(span) > known.start for span in effect.spans
        )

    def _now_ms(self) -> int:
        """The time of the queue."""
        return self._clock.now_ms(self.machine.now_ms)

    def _on_the_wall(self, at_ms: int) -> int:
        return self._clock.on_the_wall(at_ms, self.machine.now_ms)

    def _read(self, span: Span) -> MessageRun:
        return self._store.run(span.index)

    # For the node

    def started(self) -> None:
        """The node serves the queue from now on: keep the effects of the found messages, such as the timer."""
        self._keep(self.machine.become_leader(self._now_ms()), [])

    def catch_up(self, channels: Channels, asked: Sequence[Any]) -> None:
        """Keep what channels may have missed: answers, replies to their applied commands ``asked``, and deliveries of
        the messages that their consumers hold. Goes with :meth:`run_effects` for these channels."""
        self._keep(missed_effects(self.machine, channels, asked), [])

    def ends_of(self, node: NodeId) -> list[ChannelDown]:
        """The commands that end all channels of a node. The answers that wait for them are dropped."""
        by_channel: list[dict[ChannelId, Any]] = [self._answers, self._waits_for, *self._late.values()]
        for waiting in by_channel:
            for channel in [channel for channel in waiting if channel.node == node]:
                del waiting[channel]
        return [ChannelDown(channel) for channel in self.machine.channels() if channel.node == node]

    def counts(self) -> QueueCounts:
        """The counts of the queue."""
        return self.machine.counts()

    def settings_change(self, record: QueueRecord) -> UpdateConfig | None:
        """The command that gives the queue the settings of this record; None if it has them."""
        wanted = classic_config_of(record)
        return UpdateConfig(wanted) if wanted != self.machine.config else None

    def taken_over(self, commands: Sequence[Any]) -> list[Enqueue]:
        """The publishes among commands that a former owner may have applied, without numbers: their channels are not
        known here. They are applied first. The former owner may have delivered their messages."""
        publishes = [replace(command, first_seq=0) for command in commands if type(command) is Enqueue]
        first = self._store.next_seq
        self._taken_over = range(first, first + sum(command.run.count for command in publishes))
        return publishes

    def record_changes(self) -> RecordingStore:
        """Mirrors follow the queue from now on: its store records all changes to the messages. Answers that wait for
        the drive now wait until all of them may go."""
        recording = RecordingStore(self._plain_store)
        self._may_deliver = recording.deliveries.allow
        if self._late:
            recording.stored_end.added(0, max(self._late), is_written=True)
            recording.stored_end.starts_at(recording.next_seq)
        self._store = recording
        return recording

    def delete(self) -> None:
        """The queue is deleted: give up its messages, with everything that they have on the drive."""
        self._batches.clear()
        self._store.delete()

    # After a restart

    def _found(self) -> Iterator[FoundStretch]:
        """The messages that the store has found, as stretches of one size, cut where the deliveries end."""
        delivered_end = self._store.delivered_end
        for found in self._store.found:
            part = found.part
            was_delivered = found.positions + part.seq < delivered_end
            levels = self._found_levels(found)
            labels = self._found_labels(found)
            breaks = (np.diff(found.positions) != 1) | (np.diff(found.sizes) != 0) | np.diff(was_delivered)
            breaks |= np.diff(levels) != 0
            begins = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(found.positions)]
            for begin, end in pairwise(begins):
                yield FoundStretch(
                    entry=part.seq,
                    offset=int(levels[begin]),
                    start=int(found.positions[begin]),
                    count=end - begin,
                    expires=part.expires,
                    size=int(found.sizes[begin]),
                    was_delivered=bool(was_delivered[begin]),
                    labels=cut_labels(labels, int(found.positions[begin]), end - begin),
                )

    def _found_levels(self, found: FoundPart) -> npt.NDArray[np.int64]:
        """The priorities of the messages found in a part. Only a queue with priorities reads the part again."""
        levels = np.zeros(len(found.positions), np.int64)
        if self._max_priority:
            sorts = stretches(self._store.run(found.part.seq))
            priorities = np.repeat([each.sort.priority for each in sorts], [each.count for each in sorts])
            levels[:] = np.minimum(priorities[found.positions], self._max_priority)
        return levels

    def _found_labels(self, found: FoundPart) -> Labels:
        """The labels of all messages of a part. Only a queue with keys reads the part again."""
        return labels_of(self._store.run(found.part.seq), self._key_source) if self._key_source else ()


class _Reads:
    """Cuts effects so that one part is read from the drive."""

    __slots__ = ("_has_read", "_known", "_store")

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._has_read = False
        self._known = -1

    def split(self, effect: Effect) -> tuple[Effect | None, Effect | None]:
        """The part that can be executed now, and the part that must wait."""
        if not isinstance(effect, Deliver | DeadLetter):
            return effect, None
        for position, span in enumerate(effect.spans):
            if self._may_read(span.index):
                continue
            first, later = effect.spans[:position], effect.spans[position:]
            return _front(effect, first), _behind(effect, first, later)
        return effect, None

    def _may_read(self, seq: int) -> bool:
        """Whether the part is at hand, or is the first to be read."""
        if seq == self._known or not self._store.needs_reading(seq):
            return True
        if self._has_read:
            return False
        self._has_read, self._known = True, seq
        return True


def _front(effect: Deliver | DeadLetter, spans: tuple[Span, ...]) -> Effect | None:
    return replace(effect, spans=spans) if spans else None


def _behind(effect: Deliver | DeadLetter, done: tuple[Span, ...], spans: tuple[Span, ...]) -> Effect:
    """The effect with its later messages. Messages without ids (0) stay without."""
    count = sum(span.count for span in done)
    if isinstance(effect, Deliver):
        return replace(effect, first_message_id=effect.first_message_id + count, spans=spans)
    return replace(effect, first_id=effect.first_id and effect.first_id + count, spans=spans)


def _end_of(effect: Deliver) -> int:
    """Above the sequence numbers of all messages."""
    return max(_end(span) for span in effect.spans)


def _end(span: Span) -> int:
    """Above the sequence numbers of the messages."""
    return int(span.index) + span.start + (span.count - 1) * span.step + 1
