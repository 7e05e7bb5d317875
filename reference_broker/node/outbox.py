"""Commands on their way out of a node: into an entry of its own, if its member leads, or to the leader.

They gather by lane until somebody cuts a batch, express lane first, and the batch comes with its *segments*: whose
commands it holds (:mod:`reference_broker.node.proposals`).
"""

from __future__ import annotations

from typing import Any, Final

from reference_broker.machines.commands import Enqueue
from reference_broker.node.config import Limits
from reference_broker.node.proposals import Lane, Proposer, Segment

ANY: Final = 1 << 60
"""As many messages as there are."""


class Outbox:
    """What waits, oldest first in each lane. ``urgent``: not all of it is lazy; ``overdue``: it has waited enough."""

    __slots__ = ("_lanes", "octets", "overdue", "urgent")

    def __init__(self) -> None:
        self._lanes: dict[Lane, list[tuple[Any, int, Proposer, int]]] = {lane: [] for lane in Lane}
        """Command, octets, proposer, its number; by lane."""
        self.octets = 0
        self.urgent = False
        self.overdue = False

    def add(self, command: object, size: int, proposer: Proposer, number: int) -> None:
        """One more command; its lane is its proposer's."""
        self._lanes[proposer[1]].append((command, size, proposer, number))
        self.octets += size

    def clear(self) -> None:
        """Forget everything."""
        self._lanes = {lane: [] for lane in Lane}
        self.octets = 0
        self.urgent = self.overdue = False

    @property
    def is_due(self) -> bool:
        """Whether it should go now."""
        return self.urgent or self.overdue

    def holds(self, lane: Lane) -> bool:
        """Whether something waits in the lane."""
        return bool(self._lanes[lane])

    def cut(self, bytes_max: int, commands_max: int, messages_max: int = ANY) -> tuple[list[Any], list[Segment]]:
        """The next batch and whose commands it holds.

        It enqueues at most ``messages_max`` messages, or one run if the first has more; with 0, there must be something
        in the express lane. The first command of a batch always fits. The bulk lane has to wait until the express lane
        is empty: what a channel asked for must be there before its end, which goes in the bulk lane.
        """
        batch: list[Any] = []
        segments: list[Segment] = []
        self._cut_lane(self._lanes[Lane.EXPRESS], bytes_max, commands_max, batch, segments)
        if messages_max and not self._lanes[Lane.EXPRESS]:
            bulk = self._lanes[Lane.BULK]
            commands_max = commands_max if messages_max == ANY else len(batch) + _leading(bulk, messages_max)
            self._cut_lane(bulk, bytes_max, commands_max, batch, segments)
        self.urgent, self.overdue = self.urgent and self.octets > 0, self.overdue and self.octets > 0
        return batch, segments

    def cut_for_link(self, limits: Limits, *, congested: bool) -> tuple[list[Any], list[Segment]] | None:
        """The next batch for another node. On a congested link few octets go, or what is in the express lane; None if
        there is nothing in it: then many publishes wait for the link."""
        many = congested and self.octets > limits.small_message_bytes
        if many and not self.holds(Lane.EXPRESS):
            return None
        return self.cut(limits.batch_bytes_max, limits.batch_commands_max, 0 if many else ANY)

    def _cut_lane(
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
    """How many commands from the front on enqueue at most so many messages; at least one."""
    messages = 0
    for number, (command, *_rest) in enumerate(waiting):
        messages += command.run.count if isinstance(command, Enqueue) else 1
        if messages > messages_max:
            return max(number, 1)
    return len(waiting)


def _close(run: tuple[Proposer, int, int] | None, segments: list[Segment]) -> None:
    if run is not None:
        (node, lane, boot_id), first, following = run
        segments.append((node, lane, boot_id, first, following - first))
