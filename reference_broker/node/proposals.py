"""Commands on their way into the log: each applied exactly once, whatever happens to leaders and links.

A node numbers the commands that it proposes to a group: 1, 2, 3 ... anew at each start. It keeps a command until it
has *applied* the entry that carries it, and proposes all that it still keeps again, in order, whenever the group's term
changes or the link to the leader was lost. So a command survives the leader that received it, and may enter the log
twice.

Each log entry therefore ends with *segments*: "the next n commands of this batch are numbers k, k+1, ... of that lane
of that start of that node". Every member remembers the highest number applied, and skips what it has seen. The table is
a function of the log alone, so all members skip the same, and it travels in snapshots.

That is only right if commands enter the log without gaps, and they do: within one term a link delivers in order or
breaks, and a proposal that names another term than the leader's own is refused, because after a term change the sender
starts over from its first unapplied command.

There are two *lanes*, numbered apart. A deep in-flight window fills the outbox with publishes; if settles had to queue
behind them, consumers would starve for credit while the backlog grows (Ra has normal and low priority commands for
the same reason). So what consumers do goes in the express lane and overtakes what publishers do. Within a lane order is
kept; what must stay behind a channel's publishes (the end of the channel, a purge) goes in their lane.

Layout of an entry: the machine's batch, the segments, a stamp (ns u64, clock u32: when the payload was sealed, for the
latency anatomy), the number of segments (u16). They stand at the end so that offsets into the batch are offsets into
the entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final

from reference_broker.types import GroupId, NodeId, Term

_SEGMENT: Final = Struct(">HBIQI")
_COUNT: Final = Struct(">H")
_TAIL: Final = Struct(">QIH")
_PROPOSAL: Final = Struct(">QQ?")
_SEEN: Final = Struct(">HBIQ")


class Lane(IntEnum):
    """Which of a node's two sequences a command belongs to; the lower number goes first."""

    EXPRESS = 0
    BULK = 1

    __hash__ = int.__hash__  # lanes are keys of the hot path; an enumeration's own hash is a function in Python


Proposer = tuple[NodeId, Lane, int]
"""A lane of one boot of a node: id, lane, boot id."""

Segment = tuple[NodeId, Lane, int, int, int]
"""Node, lane, boot id, first number, count."""


class Pending:
    """The commands of this node in one lane that are not yet seen applied, oldest first."""

    __slots__ = ("_commands", "_next")

    def __init__(self) -> None:
        self._commands: deque[tuple[int, Any, int]] = deque()
        self._next = 1

    def add(self, command: object, size: int) -> int:
        """Keep a command; returns its number."""
        number = self._next
        self._next += 1
        self._commands.append((number, command, size))
        return number

    @property
    def is_used(self) -> bool:
        """Whether anything was ever proposed."""
        return self._next > 1

    @property
    def applied_up_to(self) -> int:
        """The number of the last command that is seen applied."""
        return self._commands[0][0] - 1 if self._commands else self._next - 1

    def applied(self, number: int) -> list[Any]:
        """Forget everything up to ``number``; returns those commands."""
        commands, done = self._commands, []
        while commands and commands[0][0] <= number:
            done.append(commands.popleft()[1])
        return done

    def change(self, changed: Callable[[Any], Any]) -> None:
        """Put what ``changed`` makes of each command in its place."""
        self._commands = deque((number, changed(command), size) for number, command, size in self._commands)

    def all(self) -> Iterable[tuple[int, Any, int]]:
        """(number, command, octets) in order."""
        return tuple(self._commands)


class Seen:
    """The highest number applied of each lane of a node's latest start: what makes "at least once" into "once"."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, int], tuple[int, int]] = {}  # (node, lane) -> (boot id, number)

    def take(self, segments: Sequence[Segment]) -> frozenset[int]:
        """Note an entry's segments; returns the positions in its batch that were applied before and must be skipped."""
        skip: list[int] = []
        position = 0
        for node, lane, boot_id, first, count in segments:
            newest, number = self._lanes.get((node, lane), (0, 0))
            if boot_id > newest:
                newest, number = boot_id, 0
            known = count if boot_id < newest else min(max(number - first + 1, 0), count)
            skip.extend(range(position, position + known))
            position += count
            if boot_id == newest:
                self._lanes[node, lane] = (newest, max(number, first + count - 1))
        return frozenset(skip)

    def highest(self, proposer: Proposer) -> int:
        """The highest number applied in this lane of that start; 0 if none was."""
        node, lane, boot_id = proposer
        newest, number = self._lanes.get((node, lane), (0, 0))
        return number if newest == boot_id else 0

    def pack(self) -> bytes:
        """The table for a snapshot; canonical."""
        rows = b"".join(_SEEN.pack(*lane, *reached) for lane, reached in sorted(self._lanes.items()))
        return _COUNT.pack(len(self._lanes)) + rows

    @classmethod
    def unpack(cls, state: bytes) -> tuple[Seen, bytes]:
        """The table at the head of ``state``, and what follows it."""
        (count,) = _COUNT.unpack_from(state)
        end = _COUNT.size + count * _SEEN.size
        seen = cls()
        for node, lane, boot_id, number in _SEEN.iter_unpack(state[_COUNT.size : end]):
            seen._lanes[node, lane] = (boot_id, number)
        return seen, state[end:]


def seal(batch: list[bytes | memoryview], segments: Sequence[Segment], now_ns: int = 0, clock: int = 0) -> bytes:
    """The payload of a log entry: the batch and the segments, joined in one copy; and when that was on which clock."""
    tail = b"".join([_SEGMENT.pack(*segment) for segment in segments])
    return b"".join([*batch, tail, _TAIL.pack(now_ns, clock, len(segments))])


def sealed_at(payload: bytes | memoryview) -> tuple[int, int]:
    """When a payload was sealed, in ns, and on which clock."""
    now_ns, clock, _count = _TAIL.unpack_from(payload, len(payload) - _TAIL.size)
    return now_ns, clock


def unseal(payload: bytes) -> tuple[int, list[Segment]]:
    """Where the batch ends, and the segments. Raises ValueError for what :func:`seal` did not make."""
    if len(payload) < _TAIL.size:
        raise ValueError("a sealed batch without the number of its segments")
    _now_ns, _clock, count = _TAIL.unpack_from(payload, len(payload) - _TAIL.size)
    end = len(payload) - _TAIL.size - count * _SEGMENT.size
    if end < 0:
        raise ValueError(f"a sealed batch of {len(payload)} octets with {count} segments")
    rows = _SEGMENT.iter_unpack(payload[end : -_TAIL.size])
    return end, [(NodeId(node), Lane(lane), boot_id, first, number) for node, lane, boot_id, first, number in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Commands forwarded to the leader, valid only in ``term``. What :func:`seal` makes of them follows it."""

    group: GroupId
    term: Term
    lazy: bool = False
    """Nobody waits for any of them: they may wait once more, for an entry to ride with."""

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
