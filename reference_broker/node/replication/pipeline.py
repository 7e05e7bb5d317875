"""The commands that a node proposes to a group, from the client's request until they are applied.

Commands wait on the node for an entry, if the node's member leads, or for a message to the leader. They gather by
priority until a batch is cut. A batch takes commands of normal priority first. Its *segments* name the proposers of its
commands (:mod:`reference_broker.node.replication.proposals`).

A command is kept until it is applied, and is proposed again to each new leader. A member and a proxy do this alike;
only a member may lead and make entries (:mod:`reference_broker.node.replication.batcher`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from reference_broker.node.config import Limits
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.ports import ProposingPorts, Runner
from reference_broker.node.replication.proposals import Proposal, Proposer, Segment, UnappliedCommands, seal
from reference_broker.types import NOBODY, GroupId, Priority, Term

ANY: Final = 1 << 60
"""No limit to the number of messages."""


class CommandQueue:
    """The waiting commands, oldest first in each priority. ``urgent``: not all of them are lazy. ``overdue``: lazy
    commands have waited long enough."""

    __slots__ = ("by_priority", "cuts", "held", "octets", "overdue", "urgent")

    def __init__(self) -> None:
        self.by_priority: tuple[list[tuple[Any, int, Proposer, int]], ...] = tuple([] for _ in Priority)
        """Command, octets, proposer, number of the command; by priority."""
        self.octets = 0
        self.urgent = False
        self.overdue = False
        self.cuts = 0
        """Number of batches so far."""
        self.held = False
        """Few commands need no turn: the end of the round under way brings one."""

    def add(self, command: object, size: int, proposer: Proposer, number: int) -> None:
        """Add a command. The proposer names its priority."""
        self.by_priority[proposer[1]].append((command, size, proposer, number))
        self.octets += size

    def clear(self) -> None:
        """Forget all commands."""
        for waiting in self.by_priority:
            waiting.clear()
        self.octets = 0
        self.urgent = self.overdue = False

    def holds_whole_batch(self, bytes_max: int, commands_max: int) -> bool:
        """Whether a whole batch waits."""
        return self.octets >= bytes_max or sum(map(len, self.by_priority)) >= commands_max

    def holds(self, priority: Priority) -> bool:
        """Whether a command of this priority waits."""
        return bool(self.by_priority[priority])

    def cut(self, bytes_max: int, commands_max: int, messages_max: int = ANY) -> tuple[list[Any], list[Segment]]:
        """The next batch and its segments.

        The batch enqueues at most ``messages_max`` messages, or one run if the first run has more. With 0, a command of
        normal priority must wait. The first command of a batch always fits. Commands of low priority wait until no
        command of normal priority waits: a channel's requests must be in the log before the channel's end, which
        has low priority.
        """
        batch: list[Any] = []
        segments: list[Segment] = []
        self.cuts += 1
        normal, low = self.by_priority
        if normal:
            self._cut_queue(normal, bytes_max, commands_max, batch, segments)
        if low and messages_max and not normal:
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
                if run is not None:
                    segments.append((*run[0], run[1], run[2] - run[1]))
                run = (proposer, number, number + 1)
        if run is not None:
            segments.append((*run[0], run[1], run[2] - run[1]))
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


class Pipeline:
    """The commands of one node on their way to the leader of one group, which may be the node itself."""

    __slots__ = (
        "_copied",
        "_cuts",
        "_encode",
        "_forwarded",
        "_group",
        "_has_timer",
        "_me",
        "_node",
        "_runner",
        "_small",
        "_wait_from_ns",
        "_wake",
        "leader",
        "term",
        "unapplied",
        "waiting",
    )

    def __init__(
        self,
        group: GroupId,
        node: ProposingPorts,
        runner: Runner,
        encode: Callable[[Sequence[Any]], list[bytes | memoryview]],
        unapplied: Sequence[UnappliedCommands] | None,
        *,
        forwarded: Callable[[int, int], None] = lambda _number, _now_ns: None,
        copied: Callable[[bytes, Sequence[Segment], Sequence[Any]], None] | None = None,
    ) -> None:
        """``runner`` gets a turn when there is something to send, ``encode`` makes a batch of commands. ``unapplied``:
        the node's proposals to the group so far. ``forwarded`` gets the number and time (ns) of each publish that is
        sent to another node. ``copied`` gets each batch that is sent to another node: the head of its frame, its
        segments and its commands."""
        self.unapplied = unapplied or tuple(UnappliedCommands() for _ in Priority)
        self.waiting = CommandQueue()
        self.leader = NOBODY
        """The receiver of the commands. Without one the commands are only kept."""
        self.term = Term(0)
        self._group = group
        self._node = node
        self._wake = node.wake
        self._runner = runner
        self._encode = encode
        self._forwarded = forwarded
        self._copied = copied
        self._me = (node.node, node.boot_id)
        self._small = node.limits.small_message_bytes
        self._has_timer = False  # for lazy commands
        self._cuts = -1
        self._wait_from_ns = 0
        """Since when lazy commands wait: since the turn after batch :attr:`_cuts`."""

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        """Have ``command`` applied by every member, once, in this node's order within the priority; a lazy command a
        little later. Returns the number of the command."""
        number = self.unapplied[priority].add(command, size)
        if self.leader:
            waiting = self.waiting
            waiting.by_priority[priority].append((command, size, (self._me[0], priority, self._me[1]), number))
            waiting.octets += size
            if lazy and self._has_timer and not (waiting.urgent or waiting.overdue):
                self._note_wait()
            else:
                waiting.urgent = waiting.urgent or not lazy
                if not waiting.held or waiting.octets > self._small:
                    self._wake(self._runner)
        return number

    def start_over(self) -> None:
        """Propose again every command of this node that it has not applied. Forget the commands that others forwarded:
        they start over, too."""
        self.waiting.clear()
        for priority, unapplied in zip(Priority, self.unapplied, strict=True) if self.leader else ():
            for number, command, size in unapplied.all():
                self.waiting.add(command, size, (self._me[0], priority, self._me[1]), number)
        self.waiting.urgent = self.waiting.octets > 0

    def is_due(self) -> bool:
        """Whether commands wait and should go now. If all of them are lazy, they should in a while."""
        waiting = self.waiting
        if not waiting.octets or waiting.urgent or waiting.overdue:
            return waiting.octets > 0
        self._note_wait()
        if not self._has_timer:
            self._wait(self._node.limits.settle_delay_ms * 1_000_000)
        return False

    def _note_wait(self) -> None:
        if self._cuts != self.waiting.cuts:
            self._cuts, self._wait_from_ns = self.waiting.cuts, self._node.now_ns()

    def _wait(self, delay_ns: int) -> None:
        self._has_timer = True
        self._node.later(delay_ns / 1e9, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        """The lazy commands of then may be gone, and the present ones have a right to wait, too."""
        self._has_timer = False
        waiting = self.waiting
        left_ns = self._wait_from_ns + self._node.limits.settle_delay_ms * 1_000_000 - self._node.now_ns()
        if waiting.octets and self._cuts == waiting.cuts and left_ns > 0:
            self._wait(left_ns)
        elif waiting.octets:
            waiting.overdue = True
            self._wake(self._runner)

    def forward(self) -> None:
        """Send what waits to the leader, in batches. If the link is down the commands stay unapplied; if the link is
        congested, many publishes stay here."""
        head = Proposal(group=self._group, term=self.term, lazy=not self.waiting.urgent).pack()
        limits = self._node.limits
        while self.waiting.octets:
            batch = self.waiting.cut_for_link(limits, congested=self.leader in self._node.congested)
            if batch is None:
                self._node.when_writable(self.leader, self._runner)
                return
            commands, segments = batch
            now_ns = self._node.now_ns()
            for _node, priority, _boot_id, first, count in segments:
                if priority is Priority.LOW:
                    self._forwarded(first + count - 1, now_ns)
            sealed = seal(self._encode(commands), segments, now_ns, self._node.anatomy.clock)
            self._node.send(self.leader, FrameKind.PROPOSE, [head, sealed])
            if self._copied is not None:
                self._copied(head, segments, commands)
