"""The times of the entries of one group on one node, and the rows that its deliveries and confirms become.

Theory of operation
-------------------
An entry's stamps are kept by log index from the moment when the entry is handed to the log. The table holds a bounded
number of entries over all groups of the node, and the oldest entry goes first. A message that is dealt out of a deeper
queue is counted as ``forgotten`` and not recorded.

When an effect is executed, its row lacks only the last stamp, and belongs to a connection.
:meth:`~reference_broker.anatomy.anatomy.Anatomy.written` completes the row once the connection's octets went to the
socket.

Measured: 12 us for an entry of one run with one row of each chain, clock reads and bucketing included. A row stands
for all messages that one effect takes out of one run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.anatomy.stages import Chain
from reference_broker.idle import NOTHING
from reference_broker.machines.commands import Enqueue
from reference_broker.machines.effects import Span
from reference_broker.message_run import MessageRun, stamped
from reference_broker.types import ChannelId


class EntryTimes:
    """The stamps of one entry as this node sees them, in ns; 0: not yet. ``clock`` is the clock of ``made``."""

    __slots__ = ("applied", "begun", "clock", "committed", "handed", "made", "synced", "written")

    def __init__(self, clock: int, made: int, handed: int) -> None:
        self.clock = clock
        self.made = made
        self.handed = handed
        self.begun = self.written = self.synced = self.committed = self.applied = 0


class Track:
    """One group's part of an :class:`~reference_broker.anatomy.anatomy.Anatomy`; its runner and its host call it."""

    __slots__ = ("_anatomy", "_dealt", "_forwarded", "_settling", "_synced_to", "confirming", "entries")

    def __init__(self, anatomy: Anatomy) -> None:
        self.entries: dict[int, EntryTimes] = {}
        self._anatomy = anatomy
        self.confirming: dict[ChannelId, list[tuple[int, MessageRun]]] = {}
        """The runs in applied entries, by their channel, until the effects are executed: the rest will get no
        answer."""
        self._forwarded: deque[tuple[int, int]] = NOTHING  # number of the last command, when sent
        self._settling: deque[tuple[int, int, int]] = NOTHING  # number of the command, messages, when read
        self._synced_to = 0
        self._dealt = 0

    # An entry's way

    def handed(self, index: int, clock: int, made: int, now: int) -> None:
        """Entry ``index``, made at ``made`` of ``clock``, goes to this node's log; it replaces an old entry there."""
        self.entries[index] = EntryTimes(clock, made, now)
        self._synced_to = min(self._synced_to, index - 1)
        kept = self._anatomy.kept
        kept.append((self.entries, index))
        if len(kept) > self._anatomy.entries_max:
            entries, oldest = kept.popleft()
            entries.pop(oldest, None)

    def synced(self, index: int, begun: int, written: int, synced: int) -> None:
        """Entries up to ``index`` are on this node's disk: begin of the write, its end, end of the sync."""
        for number in range(max(self._synced_to, index - len(self.entries)) + 1, index + 1):
            if (times := self.entries.get(number)) is not None:
                times.begun, times.written, times.synced = begun, written, synced
        self._synced_to = max(self._synced_to, index)

    def applied(self, first: int, last: int, committed: int, applied: int) -> None:
        """Entries ``first..last`` were known as committed, and are applied; their effects are executed next."""
        self._dealt = applied
        for index in range(max(first, last - len(self.entries) + 1), last + 1):
            if (times := self.entries.get(index)) is not None:
                times.committed, times.applied = committed, applied

    # Answers to clients

    def forwarded(self, number: int, now: int) -> None:
        """Commands of low priority up to ``number`` are on their way to the leader."""
        if self._forwarded is NOTHING:
            self._forwarded = deque()
        self._forwarded.append((number, now))

    def proposals_applied(self, index: int, number: int, commands: Sequence[object]) -> None:
        """Entry ``index`` held these commands of this node's own clients for the first time; ``number`` is that of the
        last in the low priority."""
        forwarded, first = self._forwarded, number - len(commands) + 1
        for at, command in enumerate(commands, first):
            while forwarded and forwarded[0][0] < at:
                forwarded.popleft()
            if type(command) is Enqueue:
                run = command.run
                if forwarded and run.stamp[0]:
                    clock, read, parsed, _waited = run.stamp
                    run = stamped(run, clock, read, read + parsed, forwarded[0][1])
                self.confirming.setdefault(command.channel, []).append((index, run))

    def confirmed(self, channel: ChannelId) -> None:
        """The runs of this channel in the applied entries are being confirmed to it."""
        for index, run in self.confirming.pop(channel, ()):
            if (row := self._row(index, run, run.count)) is not None:
                self._anatomy.begun.append((Chain.CONFIRM, run.count, row))

    def delivered(self, spans: Sequence[Span], pieces: Sequence[tuple[MessageRun, int, int, int]]) -> None:
        """For the first time, messages are dealt to a consumer here: their places, and the runs these stand for."""
        for span, (run, _start, count, _step) in zip(spans, pieces, strict=True):
            if (row := self._row(span.index, run, count)) is not None:
                self._anatomy.begun.append((Chain.DELIVERY, count, (*row, self._dealt)))

    def settling(self, number: int, count: int, read: int) -> None:
        """The command of normal priority with this ``number`` settles ``count`` messages; its acknowledgement was read
        then."""
        if self._settling is NOTHING:
            self._settling = deque()
        self._settling.append((number, count, read))

    def settled(self, number: int, now: int) -> None:
        """Commands of normal priority up to ``number`` are applied."""
        settling = self._settling
        while settling and settling[0][0] <= number:
            _number, count, read = settling.popleft()
            self._anatomy.record(Chain.SETTLE, count, (read, now))

    def _row(self, index: int, run: MessageRun, count: int) -> tuple[int, ...] | None:
        """The stamps up to ``applied``; a first stamp of 0 if other clocks were involved."""
        clock, read, parsed, waited = run.stamp
        times = self.entries.get(index)
        anatomy = self._anatomy
        if times is None or not read or not times.applied:
            anatomy.forgotten += count
            return None
        local = (times.handed, times.begun, times.written, times.synced, times.committed, times.applied)
        if clock != anatomy.clock or times.clock != clock:
            anatomy.foreign += count
            return (0, 0, 0, 0, *local)
        proposed = read + parsed
        return (read, proposed, proposed + waited if waited else times.made, times.made, *local)
