"""Commands that wait on a node: for an entry, if the node's member leads, or for a message to the leader.

Commands gather by priority until a batch is cut. A batch takes commands of normal priority first. Its *segments* name
the proposers of its commands (:mod:`reference_broker.node.proposals`).
"""

from __future__ import annotations

from typing import Any, Final

from reference_broker.node.config import Limits
from reference_broker.node.proposals import Proposer, Segment
from reference_broker.types import Priority

ANY: Final = 1 << 60
"""No limit to the number of messages."""


class CommandQueue:
    """The waiting commands, oldest first in each priority. ``urgent``: not all of them are lazy. ``overdue``: lazy
    commands have waited long enough."""

    __slots__ = ("_waiting", "octets", "overdue", "urgent")

    def __init__(self) -> None:
        self._waiting: dict[Priority, list[tuple[Any, int, Proposer, int]]] = {priority: [] for priority in Priority}
        """Command, octets, proposer, number of the command; by priority."""
        self.octets = 0
        self.urgent = False
        self.overdue = False

    def add(self, command: object, size: int, proposer: Proposer, number: int) -> None:
        """Add a command. The proposer names its priority."""
        self._waiting[proposer[1]].append((command, size, proposer, number))
        self.octets += size

    def clear(self) -> None:
        """Forget all commands."""
        self._waiting = {priority: [] for priority in Priority}
        self.octets = 0
        self.urgent = self.overdue = False

    @property
    def is_due(self) -> bool:
        """Whether a batch should go now."""
        return self.urgent or self.overdue

    def holds(self, priority: Priority) -> bool:
        """Whether a command of this priority waits."""
        return bool(self._waiting[priority])

    def cut(self, bytes_max: int, commands_max: int, messages_max: int = ANY) -> tuple[list[Any], list[Segment]]:
        """The next batch and its segments.

        The batch enqueues at most ``messages_max`` messages, or one run if the first run has more. With 0, a command of
        normal priority must wait. The first command of a batch always fits. Commands of low priority wait until no
        command of normal priority waits: a channel's requests must be in the log before the channel's end, which
        has low priority.
        """
        batch: list[Any] = []
        segments: list[Segment] = []
        self._cut_queue(self._waiting[Priority.NORMAL], bytes_max, commands_max, batch, segments)
        if messages_max and not self._waiting[Priority.NORMAL]:
            low = self._waiting[Priority.LOW]
            commands_max = commands_max if messages_max == ANY else len(batch) + _leading(low, messages_max)
            self._cut_queue(low, bytes_max, commands_max, batch, segments)
        self.urgent, self.overdue = self.urgent and self.octets > 0, self.overdue and self.octets > 0
        return batch, segments

    def cut_for_link(self, limits: Limits, *, congested: bool) -> tuple[list[Any], list[Segment]] | None:
        """The next batch for another node. On a congested link only a small batch or commands of normal priority go.
        None if there are neither: publishes wait for the link."""
        many = congested and self.octets > limits.small_message_bytes
        if many and not self.holds(Priority.NORMAL):
            return None
        return self.cut(limits.batch_bytes_max, limits.batch_commands_max, 0 if many else ANY)

    def _cut_queue(
        self,
        waiting: list[tuple[Any, int, Proposer, int]],
        bytes_max: int,
        commands_max: int,
        batch: list[Any],
        segments: list[Segment],
    ) -> None:
        """Move commands into the batch until it is full."""
        size, before = 0, len(batch)
        run: tuple[Proposer, int, int] | None = None  # proposer, first number, next number
        for command, command_size, proposer, number in waiting:
            if batch and (size + command_size > bytes_max or len(batch) >= commands_max):
                break
            size += command_size
            batch.append(command)
            if run is not None and run[0] == proposer and run[2] == number:
                run = (proposer, run[1], number + 1)
            else:
                _close(run, segments)
                run = (proposer, number, number + 1)
        _close(run, segments)
        del waiting[: len(batch) - before]
        self.octets -= size


def _leading(waiting: list[tuple[Any, int, Proposer, int]], messages_max: int) -> int:
    """The number of first commands that enqueue at most ``messages_max`` messages; at least one command."""
    messages = 0
    for number, (command, *_rest) in enumerate(waiting):
        run = getattr(command, "run", None)  # a command that publishes has its messages there
        messages += run.count if run is not None else 1
        if messages > messages_max:
            return max(number, 1)
    return len(waiting)


def _close(run: tuple[Proposer, int, int] | None, segments: list[Segment]) -> None:
    if run is not None:
        (node, priority, boot_id), first, following = run
        segments.append((node, priority, boot_id, first, following - first))
