"""Commands on their way into the log: each command is applied exactly once, whatever happens to leaders and links.

A node numbers the commands that it proposes to a group: 1, 2, 3 ..., anew at each start of the node. The node keeps a
command until the node has *applied* the entry that carries it. Whenever the group's term changes or the link to the
leader was lost, the node proposes all commands that it still keeps again, in order. So a command survives the leader
that received it, and may enter the log twice.

Each log entry therefore ends with *segments*. A segment says: "the next n commands of this batch are numbers k, k+1,
... of this priority of this start of this node". Every member remembers the highest number that it applied, and skips
a command that it has applied before. This *dedup table* is a function of the log alone, so all members skip the same
commands, and the table travels in snapshots.

Skipping is right only if commands enter the log without gaps, and they do. Within one term a link delivers in order or
breaks. A proposal that names another term than the leader's own is refused, because after a change of term the sender
starts over from its first unapplied command.

There are two *priorities*, and each is numbered on its own. A deep in-flight window fills the line with publishes. If
settles had to queue behind these publishes, consumers would run out of credit while the backlog grows. So commands of
consumers have normal priority and overtake commands of publishers, which have low priority (Ra has normal and low
priority commands for the same reason). Within a priority the order is kept. Commands that must stay behind a channel's
publishes (the end of the channel, a purge) have low priority, too.

Layout of an entry: the machine's batch, the segments, a stamp (ns u64, clock u32: when the payload was sealed, for the
latency anatomy), the number of segments (u16). They stand at the end so that offsets into the batch are offsets into
the entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Final

from reference_broker.idle import NOTHING
from reference_broker.records import record
from reference_broker.types import GroupId, NodeId, Priority, Term

_SEGMENT: Final = Struct(">HBIQI")
_COUNT: Final = Struct(">H")
_TAIL: Final = Struct(">QIH")
_PROPOSAL: Final = Struct(">QQ?")
_HIGHEST: Final = Struct(">HBIQ")


Proposer = tuple[NodeId, Priority, int]
"""Whose sequence a command is numbered in: node, priority, boot id."""

Segment = tuple[NodeId, Priority, int, int, int]
"""Node, priority, boot id, first number, count."""


class UnappliedCommands:
    """The commands that this node proposed with one priority and has not applied yet, oldest first."""

    __slots__ = ("_commands", "_next")

    def __init__(self, first: int = 1) -> None:
        """``first``: the number of the next command."""
        self._commands: deque[tuple[int, Any, int]] = NOTHING
        self._next = first

    def add(self, command: object, size: int) -> int:
        """Keep a command; returns its number."""
        number = self._next
        self._next += 1
        if self._commands is NOTHING:
            self._commands = deque()
        self._commands.append((number, command, size))
        return number

    @property
    def is_used(self) -> bool:
        """Whether anything was ever proposed."""
        return self._next > 1

    @property
    def last(self) -> int:
        """The number of the last command that was proposed."""
        return self._next - 1

    @property
    def applied_up_to(self) -> int:
        """The number of the last command that this node has applied."""
        return self._commands[0][0] - 1 if self._commands else self._next - 1

    def applied(self, number: int) -> list[Any]:
        """Forget the commands up to ``number``, which are applied; returns them."""
        commands, done = self._commands, []
        while commands and commands[0][0] <= number:
            done.append(commands.popleft()[1])
        return done

    def forget(self) -> None:
        """Forget all commands: the queue was deleted. Tens of thousands may wait, and the collector would come late and
        take long."""
        self._commands = NOTHING

    def take(self, number: int) -> list[tuple[int, Any, int]]:
        """As :meth:`applied`, with numbers and octets, for :meth:`put_back`."""
        commands, done = self._commands, []
        while commands and commands[0][0] <= number:
            done.append(commands.popleft())
        return done

    def put_back(self, taken: tuple[int, Any, int]) -> None:
        """Keep the command again that was taken last."""
        if self._commands is NOTHING:
            self._commands = deque()
        self._commands.appendleft(taken)

    def change(self, changed: Callable[[Any], Any]) -> None:
        """Replace each command by ``changed(command)``."""
        if self._commands:
            self._commands = deque((number, changed(command), size) for number, command, size in self._commands)

    def all(self) -> Iterable[tuple[int, Any, int]]:
        """(number, command, octets) in order."""
        return tuple(self._commands)


class DedupTable:
    """The highest number applied of each node and priority since the node's latest start: the table that makes "once"
    of "at least once"."""

    __slots__ = ("_highest",)

    def __init__(self) -> None:
        self._highest: dict[tuple[int, int], tuple[int, int]] = {}  # (node, priority) -> (boot id, number)

    def take(self, segments: Sequence[Segment]) -> frozenset[int]:
        """Note an entry's segments. Returns the positions in its batch of the commands that were applied before."""
        skip: list[int] = []
        position = 0
        for node, priority, boot_id, first, count in segments:
            newest, number = self._highest.get((node, priority), (0, 0))
            if boot_id > newest:
                newest, number = boot_id, 0
            known = count if boot_id < newest else min(max(number - first + 1, 0), count)
            skip.extend(range(position, position + known))
            position += count
            if boot_id == newest:
                self._highest[node, priority] = (newest, max(number, first + count - 1))
        return frozenset(skip)

    def highest(self, proposer: Proposer) -> int:
        """The highest number applied of this node, priority and boot id; 0 if none was."""
        node, priority, boot_id = proposer
        newest, number = self._highest.get((node, priority), (0, 0))
        return number if newest == boot_id else 0

    def of(self, priority: Priority) -> Iterator[tuple[NodeId, int, int]]:
        """Each node's latest start and the highest number applied of this priority."""
        return ((NodeId(node), *reached) for (node, of), reached in self._highest.items() if of == priority)

    def pack(self) -> bytes:
        """The table for a snapshot; canonical."""
        rows = b"".join(_HIGHEST.pack(*sequence, *reached) for sequence, reached in sorted(self._highest.items()))
        return _COUNT.pack(len(self._highest)) + rows

    @classmethod
    def unpack(cls, state: bytes) -> tuple[DedupTable, bytes]:
        """The table at the head of ``state``, and what follows it."""
        (count,) = _COUNT.unpack_from(state)
        end = _COUNT.size + count * _HIGHEST.size
        table = cls()
        for node, priority, boot_id, number in _HIGHEST.iter_unpack(state[_COUNT.size : end]):
            table._highest[node, priority] = (boot_id, number)
        return table, state[end:]


def seal(batch: list[bytes | memoryview], segments: Sequence[Segment], now_ns: int = 0, clock: int = 0) -> bytes:
    """The payload of a log entry: the batch and the segments, joined in one copy, with the time and the clock of the
    sealing."""
    parts = batch[:]
    for segment in segments:
        parts.append(_SEGMENT.pack(*segment))
    parts.append(_TAIL.pack(now_ns, clock, len(segments)))
    return b"".join(parts)


def sealed_at(payload: bytes | memoryview) -> tuple[int, int]:
    """The time at which a payload was sealed, in ns, and its clock."""
    now_ns, clock, _count = _TAIL.unpack_from(payload, len(payload) - _TAIL.size)
    return now_ns, clock


def unseal(payload: bytes) -> tuple[int, list[Segment]]:
    """The end of the batch, and the segments. Raises ValueError for a payload that :func:`seal` did not make."""
    if len(payload) < _TAIL.size:
        raise ValueError("a sealed batch without the number of its segments")
    _now_ns, _clock, count = _TAIL.unpack_from(payload, len(payload) - _TAIL.size)
    end = len(payload) - _TAIL.size - count * _SEGMENT.size
    if end < 0:
        raise ValueError(f"a sealed batch of {len(payload)} octets with {count} segments")
    segments: list[Segment] = []
    for node, priority, boot_id, first, number in _SEGMENT.iter_unpack(payload[end : -_TAIL.size]):
        segments.append((node, Priority(priority), boot_id, first, number))
    return end, segments


def read_proposal(
    sealed: bytes, decode: Callable[[bytes, int, int], list[tuple[Any, int]]], clock: int
) -> tuple[list[Segment], list[tuple[Any, int]]]:
    """What a forwarded proposal holds: segments, and commands with their sizes. ``decode`` reads a batch up to its end,
    with the time when it was sealed, if that was by ``clock``. Raises ValueError if damaged."""
    end, segments = unseal(sealed)
    sent_ns, sent_by = sealed_at(sealed)
    commands = decode(sealed, end, sent_ns if sent_by == clock else 0)
    if len(commands) != sum(segment[4] for segment in segments):
        raise ValueError(f"{len(commands)} commands in a proposal whose segments are {segments}")
    return segments, commands


def low_priority(segments: Sequence[Segment], commands: Sequence[Any]) -> tuple[list[Segment], list[Any]]:
    """The publishes of a batch: what goes to mirrors directly, too."""
    chosen: list[Segment] = []
    published: list[Any] = []
    position = 0
    for segment in segments:
        count = segment[4]
        if segment[1] is Priority.LOW:
            chosen.append(segment)
            published += commands[position : position + count]
        position += count
    return chosen, published


@record(kw_only=True)
class Proposal:
    """Commands forwarded to the leader, valid only in ``term``. The payload that :func:`seal` made of
    the commands follows."""

    group: GroupId
    term: Term
    lazy: bool = False
    """No client waits for any of these commands: the leader may keep them until another entry takes them along."""

    def pack(self) -> bytes:
        """The fixed part."""
        return _PROPOSAL.pack(self.group, self.term, self.lazy)

    @classmethod
    def unpack(cls, body: memoryview) -> tuple[Proposal, memoryview]:
        """Read the fixed part, and return the rest. Raises ValueError if it is cut off."""
        if len(body) < _PROPOSAL.size:
            raise ValueError(f"a proposal of {len(body)} octets")
        group, term, lazy = _PROPOSAL.unpack_from(body)
        return cls(group=GroupId(group), term=Term(term), lazy=lazy), body[_PROPOSAL.size :]
