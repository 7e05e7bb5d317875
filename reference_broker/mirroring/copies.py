"""Messages that a mirror got straight from publishers' nodes, until the ring has brought them, too. Pure.

A publisher's node sends each publish to the master and, directly, to every mirror. The master sends it round the ring
as well. So a publish comes to a mirror twice. The ring's copy counts: it has its place among all messages. The direct
copy is there for the case that the master is lost before it could send: the new master takes what only the publishers
have sent.

A mirror confirms a publish when it has both copies. A direct copy is expected of a node from the first one on that came
from it; the node may know of the mirror a moment later than the master. When the link to the node breaks, no more
copies are expected."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reference_broker.types import NodeId

Process = tuple[NodeId, int]
"""A node and its boot id."""


@dataclass(slots=True)
class _FromOne:
    """The copies of one process."""

    first: int
    """The number of its first copy."""
    received: int
    applied: int = 0
    pending: deque[tuple[int, Any]] = field(default_factory=deque)
    """Number and command of each publish that the ring has not brought."""


class DirectCopies:
    """The direct copies of one mirror."""

    def __init__(self) -> None:
        self._from: dict[Process, _FromOne] = {}
        self._applied: dict[Process, int] = {}
        """The last publish of each process that the ring has brought, by number."""

    def receive(self, process: Process, first: int, commands: Sequence[Any]) -> None:
        """Commands number ``first``, ... have come from that process. The numbers go up; a copy may come again."""
        known = self._from.get(process)
        if known is None:
            known = self._from[process] = _FromOne(first, first - 1)
        applied = self._applied.get(process, 0)
        for number, command in enumerate(commands, first):
            if number > max(known.received, applied):
                known.pending.append((number, command))
        known.received = max(known.received, first + len(commands) - 1)

    def applied(self, process: Process, number: int) -> None:
        """The ring has brought the process's publishes up to ``number``."""
        self._applied[process] = max(self._applied.get(process, 0), number)
        if (known := self._from.get(process)) is not None:
            while known.pending and known.pending[0][0] <= number:
                known.pending.popleft()

    def has(self, process: Process, number: int) -> bool:
        """Whether the direct copy of this number has come, or is not expected."""
        known = self._from.get(process)
        return known is None or number < known.first or number <= known.received

    def link_broke(self, node: NodeId) -> None:
        """No more copies are expected from this node. Its earlier copies stay."""
        for process, known in list(self._from.items()):
            if process[0] == node:
                known.first = 1 << 62
                if not known.pending:
                    del self._from[process]

    def begin_anew(self) -> None:
        """Another master is followed, which knows its own copies; numbers begin anew."""
        self._from.clear()
        self._applied.clear()

    def rest(self) -> list[Any]:
        """The commands that the ring has not brought, in order for each process."""
        return [command for _process, known in sorted(self._from.items()) for _number, command in known.pending]

    @property
    def pending(self) -> int:
        """Number of commands that the ring has not brought."""
        return sum(len(known.pending) for known in self._from.values())
