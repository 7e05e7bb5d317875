"""How commands become entries: which of the commands that gather on a member share an entry, and when.

Commands gather in the *pipeline* (:mod:`~reference_broker.node.replication.pipeline`) until the group's previous entry
is on this node's disk, or a batch is full. Few commands gather until the round under way is committed
(:class:`Rounds`). Then all of them become one entry. So the batch grows with the load and with the slowness of the
disk, and a lone command waits for nothing. This rule makes group commit pay at both ends of the in-flight curve.

A *round* takes a frame to each peer, a batch of the log on each node, and a frame back, however many groups it carries.
So few commands do not begin a round of their own while a round of few commands is under way: the commands that all
groups of the node gather meanwhile leave together when the round is committed. The rounds clock themselves, without a
timer: they carry more as the load grows or the drives slow down. A group with many commands neither waits nor is waited
for. No group waits for longer than ``wait_ms``: a group that has lost its majority must not hold up the others.

A settle that nobody waits for is *lazy*: it waits a while for an enqueue to share an entry with, which at low load
halves the number of rounds. A settle whose consumer is short of credit is not lazy. If there is a backlog and the
consumer's prefetch is small, the enqueues wait for the next settle instead, and the consumer has each round for itself.

A follower sends its gathered commands to the leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from reference_broker.checksum import crc32
from reference_broker.idle import NOTHING
from reference_broker.node.ports import ProposingPorts, Runner
from reference_broker.node.replication.pipeline import ANY, Pipeline
from reference_broker.node.replication.proposals import Proposal, Segment, read_proposal, seal
from reference_broker.queues.port import HostedMachine
from reference_broker.raft.core import RaftCore
from reference_broker.raft.roles import Role
from reference_broker.types import LogIndex, NodeId, Priority, Term

_FEW: Final = 512
"""Number of messages below which an entry is soon written, so that one entry at a time keeps publishers going."""
_RIDE_S: Final = 0.002
"""Time (at most twice as long) for which publishes wait for the next settle of a consumer with a small prefetch: longer
than a round takes, shorter than a publisher would notice if no settle comes."""


_ALL: Final = LogIndex(1 << 62)


class RoundTurns(Protocol):
    """The turns of a node."""

    @property
    def count(self) -> int:
        """Which turn this is."""


class Rounds:
    """The round under way, if there is one, and the runners that wait for its end."""

    def __init__(
        self,
        wake: Callable[[Runner], None],
        after: Callable[[float, Callable[[], None]], None],
        turns: RoundTurns,
        wait_ms: int,
    ) -> None:
        """``wake`` gives a runner its turn, ``after`` calls after a number of seconds, ``turns`` gives the number of
        this turn."""
        self._wake = wake
        self._after = after
        self._turns = turns
        self._wait_s = wait_ms / 1000
        self._under_way: dict[Runner, None] = {}
        """The groups whose entries of this round are not committed."""
        self._waiting: dict[Runner, None] = {}
        self._began = -1
        """The turn in which the round began: commands gathered until then go together."""
        self._next = -1
        """The turn in which the next round may begin."""
        self._number = 0
        self.octets_under_way = 0
        """Octets of this node's own entries, over all groups that it leads, that no majority has yet. A small entry
        waits on every drive and link for the entries before it."""

    def join(self, runner: Runner) -> bool:
        """Whether a group may make an entry of few commands now, which is then part of the round. If it may not, it
        gets a turn when it may."""
        turn = self._turns.count
        if self._under_way and self._began != turn:
            self._wait(runner)
            return False
        if turn < self._next:  # the waiting runners have their turns in the next turn: go with them
            self._wake(runner)
            return False
        if not self._under_way:
            self._began = turn
            self._number += 1
        self._under_way[runner] = None
        return True

    def _wait(self, runner: Runner) -> None:
        if not self._waiting:
            number = self._number
            self._after(self._wait_s, lambda: self._give_up(number))
        self._waiting[runner] = None

    def done(self, runner: Runner) -> None:
        """The group's entries are committed, or it leads no more."""
        if runner in self._under_way:
            del self._under_way[runner]
            if self._waiting and not self._under_way:
                self._release()

    def _give_up(self, number: int) -> None:
        """A round lasts too long: wait for it no longer."""
        if number == self._number and self._waiting:
            self._under_way.clear()
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._next = self._turns.count + 1
        for runner in waiting:
            self._wake(runner)


class Batcher:
    """The commands of one member of one group on their way into entries."""

    __slots__ = (
        "_commands",
        "_core",
        "_expects_settle",
        "_host",
        "_leads",
        "_node",
        "_pipeline",
        "_propose",
        "_publishes",
        "_publishes_before",
        "_round_ends",
        "_rounds",
        "_runner",
        "_settled",
        "_sizes",
        "_small",
        "_wake",
    )

    def __init__(
        self,
        pipeline: Pipeline,
        core: RaftCore,
        host: HostedMachine,
        node: ProposingPorts,
        runner: Runner,
        propose: Callable[[bytes, int, int], None],
    ) -> None:
        """``runner``, the member, gets a turn when there is something to propose. ``propose`` makes an entry of a
        payload with its CRC, sealed at a time (ns)."""
        self._pipeline = pipeline
        self._commands = pipeline.waiting
        self._core = core
        self._host = host
        self._node = node
        self._wake = node.wake
        self._runner = runner
        self._propose = propose
        self._leads = False
        self._rounds = node.rounds
        self._round_ends = LogIndex(0)
        """The entry that this group has in the round under way; 0 if it has none."""
        self._small = node.limits.small_message_bytes
        self._sizes: deque[tuple[LogIndex, int]] = NOTHING
        """The entries that this leader has made and that are not committed: their indexes and octets."""
        self._expects_settle = False
        """A consumer with a small prefetch settles quickly, so publishes wait for its next settle. A timer ends the
        wait if no settle came."""
        self._settled = False
        """Whether a settle entered the log since that timer was set."""
        self._publishes = LogIndex(0)
        """The last entry of this leader that may hold publishes."""
        self._publishes_before = LogIndex(0)
        """The last but one of these entries."""

    def read_proposal(self, sealed: bytes) -> tuple[list[Segment], list[tuple[Any, int]]]:
        """What a forwarded proposal holds: segments, and commands with their sizes. Raises ValueError if damaged."""
        return read_proposal(sealed, self._host.decode, self._node.anatomy.clock)

    def proposed_by_peer(
        self, proposal: Proposal, segments: Sequence[Segment], commands: Sequence[tuple[Any, int]]
    ) -> None:
        """Another node's commands. Refused unless this member leads in just the term that the node believes in."""
        if not self._leads or proposal.term != self._pipeline.term:
            return
        remaining = iter(commands)
        for node, priority, boot_id, first, count in segments:
            for number, (command, size) in zip(range(first, first + count), remaining, strict=False):
                self._commands.add(command, size, (node, priority, boot_id), number)
        self._commands.urgent = self._commands.urgent or not proposal.lazy
        if not self._commands.held or self._commands.octets > self._small:
            self._wake(self._runner)

    def propose_gathered(self) -> None:
        """Propose the due commands, if possible: the leader makes entries while there is room for them."""
        waiting, node = self._commands, self._node
        if not (waiting.urgent or waiting.overdue) and not self._pipeline.is_due():
            return
        if not self._leads:
            self._pipeline.forward()
            return
        raft_log, anatomy, (normal, low) = self._core.log, node.anatomy, waiting.by_priority
        while waiting.octets and (room := self._room()) is not None:
            bytes_max, messages_max = room
            index = LogIndex(raft_log.last_index + 1)
            if messages_max and low:
                self._publishes_before, self._publishes = self._publishes, index
            self._settled = self._settled or bool(normal)
            commands, segments = waiting.cut(bytes_max, node.limits.batch_commands_max, messages_max)
            sealed_ns = node.now_ns()
            payload = seal(self._host.encode(commands), segments, sealed_ns, anatomy.clock)
            if self._sizes is NOTHING:
                self._sizes = deque()
            self._sizes.append((index, len(payload)))
            self._rounds.octets_under_way += len(payload)
            self._propose(payload, crc32(payload), sealed_ns)
            anatomy.gauge("entry.bytes", len(payload))

    def _room(self) -> tuple[int, int] | None:
        """The most octets and enqueued messages of the next entry, which is made then; None if none may follow yet.

        Normally one may when the disk is idle and, for few commands, when no round is under way; or when a full batch
        is there. While a consumer works through a backlog, its settles must not wait behind many publishes. Then
        settles follow each other freely, and only two entries with publishes, of half the size, are under way, or one
        if entries are to hold few messages, which waits to take a settle along.
        """
        limits, raft_log, leadership = self._node.limits, self._core.log, self._core.leadership
        whole, entries_max, commit = limits.batch_bytes_max, limits.entries_uncommitted_max, raft_log.commit_index
        if leadership is None or leadership.transferring or raft_log.last_index - commit >= entries_max:
            return None
        if self._sizes and self._rounds.octets_under_way >= whole * entries_max:
            return None  # all groups together have as much under way as one may have
        if (pace := self._host.pace()) is not None:
            in_the_way = self._publishes if pace < _FEW else self._publishes_before
            if in_the_way <= commit and not (pace < _FEW and self._wait_for_a_settle()):
                return whole // 2, pace
            return (whole, 0) if self._commands.holds(Priority.NORMAL) else None
        if self._commands.holds_whole_batch(whole, limits.batch_commands_max):
            return whole, ANY
        if raft_log.last_index - raft_log.synced_index >= limits.rounds_in_flight_max:
            return None
        if self._commands.octets <= self._small:
            if not self._rounds.join(self._runner):
                return None
            self._round_ends = LogIndex(raft_log.last_index + 1)
            self._commands.held = True
        return whole, ANY

    def committed(self, commit: LogIndex) -> None:
        """Everything up to ``commit`` is committed."""
        if self._sizes and self._sizes[0][0] <= commit:
            self._arrived(commit)
        if self._round_ends and commit >= self._round_ends:
            self._leave_round()

    def _arrived(self, commit: LogIndex) -> None:
        """The entries up to ``commit`` are not under way any more."""
        sizes = self._sizes
        while sizes and sizes[0][0] <= commit:
            self._rounds.octets_under_way -= sizes.popleft()[1]

    def _leave_round(self) -> None:
        self._round_ends = LogIndex(0)
        self._commands.held = False
        self._rounds.done(self._runner)

    def _wait_for_a_settle(self) -> bool:
        """Whether publishes have no settle to go with now, and soon will."""
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

    def stand(self, role: Role, leader: NodeId, term: Term) -> None:
        """The member stands otherwise now. Entries of the old term may have been overwritten, so no publish waits for
        them, and everything is proposed again."""
        self._leads = role is Role.LEADER
        self._arrived(_ALL)
        self._leave_round()
        self._publishes = self._publishes_before = LogIndex(0)
        self._pipeline.leader, self._pipeline.term = leader, term
        self.start_over()

    def stop(self) -> None:
        """The group is gone."""
        self._commands.clear()
        self._arrived(_ALL)
        self._rounds.done(self._runner)

    def start_over(self) -> None:
        """Propose again every command of this node that it has not applied."""
        for commands in self._pipeline.unapplied:
            commands.change(self._host.reproposed)
        self._pipeline.start_over()
