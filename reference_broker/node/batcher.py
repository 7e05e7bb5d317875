"""How commands become entries: the commands that gather on a node for one group, and when the node proposes them.

Commands gather in the *outbox* until the group's previous entry is on this node's disk, or the outbox is full. Then all
of them become one entry. So the batch grows with the load and with the slowness of the disk, and a lone command waits
for nothing. This rule makes group commit pay at both ends of the in-flight curve.

A settle that nobody waits for is *lazy*: it waits a while for an enqueue to ride with, which at low load halves the
number of rounds. A settle whose consumer is short of credit is not lazy. If there is a backlog and the consumer's
prefetch is small, the enqueues wait for the next settle instead, and the consumer has each round for itself.

A member that follows sends its outbox to the leader. A command is kept until it is applied, and is proposed again to
each new leader (:mod:`~reference_broker.node.proposals`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

from reference_broker.anatomy.track import Track
from reference_broker.node.command_queue import ANY, CommandQueue
from reference_broker.node.node_ports import ProposingPorts, Runner
from reference_broker.node.peers import Kind
from reference_broker.node.proposals import Proposal, Segment, UnappliedCommands, seal, sealed_at, unseal
from reference_broker.queues.port import HostedMachine
from reference_broker.raft.core import RaftCore
from reference_broker.raft.roles import Role
from reference_broker.types import NOBODY, EntryKind, GroupId, LogIndex, NodeId, Priority, Term

_FEW: Final = 512
"""Below so many messages an entry is soon written: one at a time is enough to keep publishers going."""
_RIDE_S: Final = 0.002
"""How long, or twice as long, publishes wait for the next settle of a consumer with a small prefetch: longer than a
round takes, shorter than a publisher would notice if no settle comes."""


Standing = tuple[Role, NodeId, Term]
"""A member's role, the leader that it knows, and its term."""


class Batcher:
    """The commands of one member of one group on their way into entries."""

    def __init__(
        self,
        group: GroupId,
        core: RaftCore,
        host: HostedMachine,
        node: ProposingPorts,
        runner: Runner,
        track: Track,
        unapplied: dict[Priority, UnappliedCommands] | None,
    ) -> None:
        """``runner``, the member, gets a turn when there is something to propose."""
        self.unapplied = (
            unapplied if unapplied is not None else {priority: UnappliedCommands() for priority in Priority}
        )
        self._group = group
        self._core = core
        self._host = host
        self._track = track
        self._node = node
        self._wake = node.wake
        self._runner = runner
        self._me = (node.node, node.boot_id)
        self._commands = CommandQueue()
        self._standing: Standing = (Role.FOLLOWER, NOBODY, core.term)
        self._waiting = False  # a timer runs for lazy commands
        self._expects_settle = False
        """A consumer with a small prefetch settles quickly, so publishes wait for its next settle. A timer ends the
        wait if no settle came."""
        self._settled = False
        """Whether a settle entered the log since that timer was set."""
        self._publishes = LogIndex(0)
        """The last entry of this leader that may hold publishes."""
        self._publishes_before = LogIndex(0)
        """The last but one of these entries."""

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        """Have ``command`` applied by every member, once, in this node's order within the priority; a lazy command a
        little later. Returns the number of the command."""
        number = self.unapplied[priority].add(command, size)
        if self._standing[0] is Role.LEADER or self._standing[1]:
            self._commands.add(command, size, (self._me[0], priority, self._me[1]), number)
        self._commands.urgent = self._commands.urgent or not lazy
        self._wake(self._runner)
        return number

    def read_proposal(self, sealed: bytes) -> tuple[list[Segment], list[tuple[Any, int]]]:
        """What a forwarded proposal holds: segments, and commands with their sizes. Raises ValueError if damaged."""
        end, segments = unseal(sealed)
        sent_ns, clock = sealed_at(sealed)
        commands = self._host.decode(sealed, end, sent_ns if clock == self._node.anatomy.clock else 0)
        if len(commands) != sum(segment[4] for segment in segments):
            raise ValueError(f"{len(commands)} commands in a proposal whose segments are {segments}")
        return segments, commands

    def proposed_by_peer(
        self, proposal: Proposal, segments: Sequence[Segment], commands: Sequence[tuple[Any, int]]
    ) -> None:
        """Another node's commands. Refused unless this member leads in just the term that the node believes in."""
        if self._standing[0] is not Role.LEADER or proposal.term != self._standing[2]:
            return
        remaining = iter(commands)
        for node, priority, boot_id, first, count in segments:
            for number, (command, size) in zip(range(first, first + count), remaining, strict=False):
                self._commands.add(command, size, (node, priority, boot_id), number)
        self._commands.urgent = self._commands.urgent or not proposal.lazy
        self._wake(self._runner)

    def propose_gathered(self) -> None:
        """Propose what is due of the outbox, where it can be."""
        if self._commands.octets and self._due():
            if self._standing[0] is Role.LEADER:
                self._lead()
            elif self._standing[1]:
                self._forward()

    def _due(self) -> bool:
        """Whether the outbox should become entries now; if it holds lazy commands only, soon."""
        if not self._commands.is_due and not self._waiting:
            self._waiting = True
            self._node.later(self._node.limits.settle_delay_ms / 1000, self._wait_no_longer)
        return self._commands.is_due

    def _wait_no_longer(self) -> None:
        self._waiting = False
        if self._commands.octets:
            self._commands.overdue = True
            self._wake(self._runner)

    def _lead(self) -> None:
        """Make entries of the outbox while there is room for them."""
        outbox, commands_max = self._commands, self._node.limits.batch_commands_max
        while outbox.octets and (room := self._room()) is not None:
            bytes_max, messages_max = room
            if messages_max and outbox.holds(Priority.LOW):
                self._publishes_before, self._publishes = self._publishes, LogIndex(self._core.log.last_index + 1)
            self._settled = self._settled or outbox.holds(Priority.NORMAL)
            commands, segments = outbox.cut(bytes_max, commands_max, messages_max)
            payload = seal(self._host.encode(commands), segments, self._node.now_ns(), self._node.anatomy.clock)
            self._core.propose(EntryKind.COMMAND, payload, zlib.crc32(payload))
            self._node.anatomy.gauge("entry.bytes", len(payload))

    def _room(self) -> tuple[int, int] | None:
        """How many octets and how many enqueued messages the next entry may hold; None if none may follow yet.

        Normally one may when the disk is idle, or when a full batch is there. While a consumer works through a backlog
        its settles must not find a long line of publishes before them: then settles follow each other freely, and of
        entries with publishes only two of half the size are under way, or one if they are to hold few messages, which
        waits for a settle to ride with.
        """
        limits, raft_log, commit = self._node.limits, self._core.log, self._core.commit_index
        if not self._core.accepting or raft_log.last_index - commit >= limits.entries_uncommitted_max:
            return None
        whole = limits.batch_bytes_max
        if (pace := self._host.pace()) is not None:
            in_the_way = self._publishes if pace < _FEW else self._publishes_before
            if in_the_way <= commit and not (pace < _FEW and self._wait_for_a_settle()):
                return whole // 2, pace
            return (whole, 0) if self._commands.holds(Priority.NORMAL) else None
        idle = raft_log.last_index - raft_log.synced_index < limits.rounds_in_flight_max
        return (whole, ANY) if idle or self._commands.octets >= whole else None

    def _wait_for_a_settle(self) -> bool:
        """Whether publishes have nothing to ride with now, and soon will."""
        if not self._expects_settle and self._commands.holds(Priority.NORMAL):
            self._expects_settle = True
            self._node.after(_RIDE_S, self._look_for_settles)
        return self._expects_settle and not self._commands.holds(Priority.NORMAL)

    def _look_for_settles(self) -> None:
        self._expects_settle, self._settled = self._settled, False
        if self._expects_settle:
            self._node.after(_RIDE_S, self._look_for_settles)
        else:
            self._wake(self._runner)

    def _forward(self) -> None:
        """Send the outbox to the leader, in batches. If the link is down the commands stay pending; if the link is
        congested, many publishes stay here."""
        _role, leader, term = self._standing
        head = Proposal(group=self._group, term=term, lazy=not self._commands.urgent).pack()
        limits = self._node.limits
        while self._commands.octets:
            batch = self._commands.cut_for_link(limits, congested=leader in self._node.congested)
            if batch is None:
                self._node.when_writable(leader, self._runner)
                return
            commands, segments = batch
            now_ns = self._node.now_ns()
            for _node, priority, _boot_id, first, count in segments:
                if priority is Priority.LOW:
                    self._track.forwarded(first + count - 1, now_ns)
            sealed = seal(self._host.encode(commands), segments, now_ns, self._node.anatomy.clock)
            self._node.send(leader, Kind.PROPOSE, [head, sealed])

    def stand(self, standing: Standing) -> None:
        """The member stands otherwise now. Entries of the old term may have been overwritten, so no publish waits for
        them, and everything is proposed again."""
        self._standing = standing
        self._publishes = self._publishes_before = LogIndex(0)
        self.start_over()

    def start_over(self) -> None:
        """Propose again every command of this node that it has not applied. Forget the commands that others forwarded:
        they start over, too."""
        self._commands.clear()
        if self._standing[0] is Role.LEADER or self._standing[1]:
            for priority, commands in self.unapplied.items():
                commands.change(self._host.reproposed)
                for number, command, size in commands.all():
                    self._commands.add(command, size, (self._me[0], priority, self._me[1]), number)
        self._commands.urgent = self._commands.octets > 0
