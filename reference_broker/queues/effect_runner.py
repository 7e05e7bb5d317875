"""The execution of a queue's effects: the calls to channels and node, in order. Every kind that hosts the FIFO machine
runs it.

The machine knows only the places of messages. A *reader* gives the run that lies at a place: out of a log, or out of a
store. Effects are for the channels of one start of one node; effects for other channels are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from reference_broker.anatomy.track import Track
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
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.queues.port import Channels, DeadMessage, MemberPorts
from reference_broker.types import ChannelId, GroupId

_FEW: Final = 4
_PART_OCTETS: Final = 256 * 1024
"""Octets that are read for a consumer before it is asked again whether its client reads, if its messages lie in more
than a few places. The messages of one entry at most lie at one place."""

Runs = dict[tuple[int, int], MessageRun]
"""Decoded runs by entry and offset: several spans often lie in one."""

Reader = Callable[[Span], MessageRun]
"""Gives the run with the messages of a span."""

Answers = dict[ChannelId, list[Confirm | Reject]]
"""The answers to enqueues, by channel, in order."""


class EffectRunner:
    """Executes the effects of one queue on one node."""

    __slots__ = ("_group", "_node", "_on_the_wall", "_read")

    def __init__(self, group: GroupId, node: MemberPorts, read: Reader, on_the_wall: Callable[[int], int]) -> None:
        """``on_the_wall`` turns a time of the queue into one of the node's wall clock."""
        self._group = group
        self._node = node
        self._read = read
        self._on_the_wall = on_the_wall

    def execute(
        self, effects: list[Effect], channels: Channels, runs: Runs, track: Track | None, *, leads: bool = False
    ) -> None:
        """Execute an entry's effects for ``channels`` and, if this member ``leads``, its effects for the leader: first
        the answers to enqueues, then the rest in order. ``track`` is given if the latency anatomy follows these
        channels.

        One confirm stands for all enqueues of a channel up to a number, interrupted only by refusals.
        """
        answers: Answers = {}
        rest: list[Effect] = []
        node, boot_id = channels.node, channels.boot_id
        for effect in effects:
            if type(effect) is not Confirm and type(effect) is not Reject:
                rest.append(effect)
            elif effect.channel.node == node and effect.channel.boot_id == boot_id:
                if (of_channel := answers.get(effect.channel)) is None:
                    answers[effect.channel] = [effect]
                else:
                    add_answer(of_channel, effect)
        if answers:
            self.answer(answers, channels, track)
        if rest:
            for effect in local_effects(rest, node, leads, ()):
                self.run(effect, channels, runs, track)
        channels.flush()

    def answer(self, answers: Answers, channels: Channels, track: Track | None = None) -> None:
        """Confirm and refuse enqueues."""
        for channel, channel_answers in answers.items():
            if track is not None and len(channel_answers) == 1 and type(channel_answers[0]) is Confirm:
                track.confirmed(channel)
            for answer in channel_answers:
                if isinstance(answer, Confirm):
                    channels.confirm(channel, self._group, answer.last)
                else:
                    channels.rejected(channel, self._group, answer.first, answer.last)

    def run(self, effect: Effect, channels: Channels, runs: Runs, track: Track | None = None) -> None:
        """Execute one effect; answers to enqueues are left out."""
        match effect:
            case Deliver() if is_on(effect.consumer.channel, channels):
                self._deliver(effect, channels, runs, track)
            case Reply(channel) if is_on(channel, channels):
                channels.reply(channel, effect.correlation, effect.value)
            case MonitorNode(node):
                self._node.watch_node(self._group, node)
            case DeadLetter():
                self._node.dead_letter(self._group, effect, _dead_messages(self.slices(effect.spans, runs)))
            case SetTimer(at_ms):
                self._node.set_timer(self._group, self._on_the_wall(at_ms))
            case QueueExpired(unused_ms):
                self._node.queue_expired(self._group, unused_ms)
            case SettingsChanged():
                self._node.settings_changed(self._group)

    def _deliver(self, effect: Deliver, channels: Channels, runs: Runs, track: Track | None) -> None:
        """Deliver, as long as the client reads. Of many places no more is read than a client that stops reading still
        takes."""
        consumer, first, spans = effect.consumer, effect.first_message_id, effect.spans
        last = first - 1
        for span in spans:
            last += span.count
        begin = 0
        while begin < len(spans):
            if not channels.takes(self._group, consumer, last):
                return
            part, slices = self._read_part(spans, begin, runs)
            if track is not None and not effect.delivery_count:
                track.delivered(part, slices)
            channels.deliver(self._group, consumer, first, slices, effect.delivery_count)
            begin += len(part)
            for each in slices:
                first += each[2]

    def _read_part(self, spans: Sequence[Span], begin: int, runs: Runs) -> tuple[Sequence[Span], list[RunSlice]]:
        """The next places, until their messages are enough for a delivery, and these messages."""
        if len(spans) <= _FEW:
            return spans, self.slices(spans, runs)
        octets, end = 0, begin
        while end < len(spans) and octets < _PART_OCTETS:
            run, _start, count, _step = self.slices(spans[end : end + 1], runs)[0]
            octets += len(run.data) * count // run.count
            end += 1
        return spans[begin:end], self.slices(spans[begin:end], runs)

    def slices(self, spans: Sequence[Span], runs: Runs) -> list[RunSlice]:
        """The messages of spans. Each run is read once, and kept in ``runs``."""
        slices: list[RunSlice] = []
        for span in spans:
            place = (span.index, span.offset)
            if (run := runs.get(place)) is None:
                run = runs[place] = self._read(span)
            slices.append((run, span.start, span.count, span.step))
        return slices


def add_answer(answers: list[Confirm | Reject], answer: Confirm | Reject) -> None:
    """Add an answer behind a channel's answers. A confirm covers all before it, so the higher of two is enough: the
    later one may be for a run that came again."""
    if answers and type(answers[-1]) is type(answer) is Confirm:
        if answer.last > answers[-1].last:
            answers[-1] = answer
    else:
        answers.append(answer)


def is_on(channel: ChannelId, channels: Channels) -> bool:
    """Whether the channel belongs to this start of this node: channel numbers begin anew at each start."""
    return channel.node == channels.node and channel.boot_id == channels.boot_id


def _dead_messages(slices: list[RunSlice]) -> list[DeadMessage]:
    return [
        (run.route, run.content(position))
        for run, start, count, step in slices
        for position in range(start, start + count * step, step)
    ]
