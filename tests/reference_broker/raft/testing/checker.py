"""The invariants of Raft, compared with everything that ever happened in a cluster and with the truth of its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from reference_broker.raft.configuration import Configuration
from reference_broker.raft.core import RaftCore
from reference_broker.raft.messages import AppendReply, Message, VoteReply
from reference_broker.raft.quorum import majority
from reference_broker.raft.roles import Role
from reference_broker.types import Entry, LogIndex, NodeId, Term
from tests.reference_broker.raft.testing.disk import Disk


class Violation(AssertionError):  # noqa: N818 - a failed check, not an error to be handled
    """An invariant of Raft does not hold."""


class CheckedMember(Protocol):
    """The parts of a member that the checker looks at. ``changes`` are the entries of its log that hold
    configurations."""

    node: NodeId
    core: RaftCore
    disk: Disk
    changes: list[LogIndex]

    def term_of(self, index: LogIndex) -> Term:
        """The term of an entry, from memory or from the state."""


class Checker:
    """The invariants, compared with everything that ever happened in this cluster."""

    def __init__(self, disks: Mapping[NodeId, Disk], voters: tuple[NodeId, ...]) -> None:
        self._disks = disks
        self._counted = Configuration(voters)
        self._counted_at = LogIndex(0)
        self._reads: dict[int, int] = {}
        self._leaders: dict[Term, NodeId] = {}
        self._seen: dict[tuple[LogIndex, Term], tuple[int, Term]] = {}
        self._votes: dict[tuple[NodeId, Term], NodeId] = {}
        self._spoken: dict[NodeId, Term] = {}
        self.committed: list[tuple[Term, int]] = []

    def leads(self, member: CheckedMember) -> None:
        """I1 election safety, I3 leader completeness."""
        core = member.core
        if self._leaders.setdefault(core.term, member.node) != member.node:
            raise Violation(f"I1: {self._leaders[core.term]} and {member.node} both lead term {core.term}")
        for index, (term, _) in enumerate(self.committed[core.log.snapshot_index :], core.log.snapshot_index + 1):
            if core.log.term_at(LogIndex(index)) != term:
                raise Violation(f"I3: leader {member.node} of term {core.term} lacks committed entry {index}@{term}")

    def appended(self, member: CheckedMember, entry: Entry) -> None:
        """I2 log matching, by induction: one entry for each (index, term), with one predecessor."""
        if len(member.core.configuration.voters) == 1:
            return  # alone it may lead in one term twice, if a crash took the first time without a trace
        before = Term(0)
        if entry.index > 1:
            before = member.term_of(LogIndex(entry.index - 1))
        known = self._seen.setdefault((entry.index, entry.term), (entry.crc, before))
        if known != (entry.crc, before):
            raise Violation(f"I2: {member.node} has another {entry.index}@{entry.term}, or another entry before it")

    def applied(self, member: CheckedMember, index: LogIndex, term: Term, crc: int) -> None:
        """I4 state machine safety."""
        if index > len(self.committed):
            self.committed.append((term, crc))
        if self.committed[index - 1] != (term, crc):
            raise Violation(f"I4: {member.node} applies another entry {index}")

    def commits(self, member: CheckedMember, index: LogIndex, counted: Sequence[Configuration]) -> None:
        """I5: a leader commits what a majority of the configuration in effect has on disk.

        ``counted`` are the configurations that were in effect since its last Ready, nearly always one configuration.
        """
        term = member.term_of(index)
        holders = self._holders(index, term)
        for configuration in counted:
            if sum(node in holders for node in configuration.voters) >= majority(len(configuration.voters)):
                if index >= self._counted_at:  # a follower that knows by itself may be ahead of its leader
                    self._counted, self._counted_at = configuration, index
                return
        raise Violation(f"I5: {member.node} commits {index}@{term} of {counted[-1]}, on the disks of {holders} only")

    def durable(self) -> None:
        """I5, at every moment from then on."""
        if not self.committed:
            return
        index, term = LogIndex(len(self.committed)), self.committed[-1][0]
        holders = self._holders(index, term)
        voters = self._counted.voters
        if sum(node in holders for node in voters) < majority(len(voters)):
            raise Violation(f"I5: {index}@{term}, committed by {self._counted}, is on the disks of {holders} only")

    def _holders(self, index: LogIndex, term: Term) -> list[NodeId]:
        """A member that lost the entry counts as long as it is forgetful, and not later."""
        return [node for node, disk in self._disks.items() if disk.had(index, term)]

    def changes(self, member: CheckedMember, entry: Entry, before: Configuration) -> None:
        """I8: a leader changes one voter at a time, when the change before is committed and a no-op of its term too."""
        core, after = member.core, Configuration.decode(entry.payload)
        if before.voters and len(set(before.voters) ^ set(after.voters)) > 1:
            raise Violation(f"I8: {member.node} goes from {before} to {after} in one step")
        if core.role is not Role.LEADER or entry.term != core.term:
            return
        if member.term_of(core.commit_index) != core.term:
            raise Violation(f"I8: {member.node} changes members before an entry of term {core.term} is committed")
        under_way = [at for at in member.changes if at > core.commit_index]
        if len(under_way) > 1:
            raise Violation(f"I8: {member.node} has uncommitted changes of members at {under_way}")

    def asked(self, token: int) -> None:
        """A read begins: everything committed by now must be in its answer."""
        self._reads[token] = len(self.committed)

    def forgotten(self, token: int) -> None:
        """The member that was asked crashed."""
        self._reads.pop(token, None)

    def answered(self, member: CheckedMember, token: int, index: LogIndex) -> None:
        """Reads are linearizable (section 8), and answered once."""
        floor = self._reads.pop(token)
        if index < floor:
            raise Violation(f"read {token} on {member.node} answers with {index}, but {floor} was committed before it")

    @property
    def open_reads(self) -> int:
        """Reads that nobody answered or refused."""
        return len(self._reads)

    def refused(self, token: int) -> None:
        """A read ends without an answer."""
        del self._reads[token]

    def wiped(self, node: NodeId) -> None:
        """``node`` lost its replica, and may speak of older terms; it may not vote again in one that it voted in."""
        self._spoken.pop(node, None)

    def sent(self, member: CheckedMember, message: Message) -> None:
        """I6 term and vote outlive a crash; and a follower claims no entry that is not on its disk."""
        if message.term < self._spoken.get(member.node, 0):
            raise Violation(f"I6: {member.node} spoke of term {self._spoken[member.node]}, and now of {message.term}")
        self._spoken[member.node] = max(message.term, self._spoken.get(member.node, Term(0)))
        if message.term > member.disk.hard_state.term:
            raise Violation(f"I6: {member.node} speaks of term {message.term}, which a crash would make it forget")
        if not isinstance(message, AppendReply) or not message.success or not message.synced_index:
            return
        if not member.disk.has(message.synced_index, message.synced_term):
            raise Violation(f"{member.node} claims {message.synced_index}@{message.synced_term}, not on its disk")

    def voted(self, member: CheckedMember, candidate: NodeId, message: VoteReply) -> None:
        """One vote a term, even over crashes."""
        if self._votes.setdefault((member.node, message.term), candidate) != candidate:
            raise Violation(f"I6: {member.node} voted twice in term {message.term}")
