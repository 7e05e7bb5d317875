"""Raft's promises, checked from outside on every step: I1 to I12, I15 and X4.

The checks do not trust what a member says of itself. The log's notices tell what is on a disk, and each crash shows
whether the notices told the truth, when the log is read back. All checks are incremental: they look only at what has
changed since the last look.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from reference_broker.checksum import crc32
from reference_broker.log.errors import LogError
from reference_broker.log.notices import HardStateSynced, Notice, SnapshotInstalled, SnapshotTaken, Written
from reference_broker.log.opening import RecoveredGroup
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.raft import wire
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.core import RaftCore
from reference_broker.raft.messages import AppendReply, VoteReply, VoteRequest
from reference_broker.raft.quorum import majority
from reference_broker.raft.roles import Role
from reference_broker.sim.checks.invariants import ViolationError, check
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId

ANYBODY: Final = -1
_PRUNE_EVERY: Final = 512
_KEPT_BELOW: Final = 64


class MemberTruth:
    """One member of one group over all starts of its node: what it was asked to store, and what of it is on disk."""

    def __init__(self) -> None:
        self.terms: dict[int, int] = {}
        """The term of each entry that the member's log should hold above its snapshot, by index."""
        self.durable = 0
        """The log is on disk up to here."""
        self.lost: dict[int, int] = {}
        """The term of each entry that was on disk, and that damage took, by index. The member counts for these while
        it is forgetful."""
        self.snapshot = 0
        self.installing: tuple[int, int] = (0, 0)
        self.hard_state: tuple[int, int] = (0, NOBODY)
        self.commit = 0
        self.applied = 0
        self.leads_in = 0
        self.votes: dict[int, int] = {}
        """The candidate that this replica voted for, by term. A node that left and came back has another replica."""
        self.is_gone = False
        """The member was deleted. Notices that still come are about the deleted member."""

    def holds(self, index: int, term: int) -> bool:
        """Whether an entry is on this member's disk, or was lost and nobody may count on the member."""
        return self.has(index, term) or self.lost.get(index) == term

    def has(self, index: int, term: int) -> bool:
        """Whether an entry is on this member's disk now."""
        return index <= self.snapshot or (index <= self.durable and self.terms.get(index) == term)


class GroupTruth:
    """One group: everything that was appended anywhere and may still be seen, and what is committed."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, int], tuple[int, int]] = {}
        """(index, term) -> CRC of the entry, term of the previous entry."""
        self.committed: dict[int, tuple[int, int]] = {}
        """index -> term, CRC"""
        self.last_committed = 0
        self.commit_terms: list[int] = []
        self.commit_ends: list[int] = []
        """The last index committed by the leader of each term."""
        self.leaders: dict[int, NodeId] = {}
        self.founders: tuple[NodeId, ...] = ()
        self.configurations: dict[tuple[int, int], tuple[NodeId, ...]] = {}
        """(index, term) -> the voters after a change of members, from the moment in which it is appended."""
        self.decided: dict[int, tuple[NodeId, ...]] = {}
        """index -> the voters after a change of members that is committed."""
        self.state_hashes: dict[int, int] = {}
        self.members: dict[NodeId, MemberTruth] = {}
        self.deleted = False
        """A node has deleted the group, so the deletion is committed and the promises of the group are over. A member
        that restarts on older metadata may have the group once more, empty, until it comes to the deletion."""

    def member(self, node: NodeId) -> MemberTruth:
        """What is known of a member."""
        if node not in self.members:
            self.members[node] = MemberTruth()
        return self.members[node]

    def voters(self, node: NodeId) -> tuple[NodeId, ...]:
        """The voters according to the log of a member: those of the newest change in it, committed or not (section
        6)."""
        member = self.member(node)
        newest = max((index for index in self.decided if index <= member.snapshot), default=0)
        voters = self.decided[newest] if newest else self.founders
        for (index, term), found in self.configurations.items():
            if newest < index and member.terms.get(index) == term:
                newest, voters = index, found
        return voters

    def newest_change(self, node: NodeId, below: int) -> int:
        """The index of the newest change of members below an index in a member's log; 0 if there is none."""
        terms = self.member(node).terms
        return max((at for at, term in self.configurations if at < below and terms.get(at) == term), default=0)

    def prune(self) -> None:
        """Forget everything that no member can ask for any more."""
        low = min((member.snapshot for member in self.members.values()), default=0) - _KEPT_BELOW
        for index in [index for index in self.committed if index < low]:
            del self.committed[index]
            self.state_hashes.pop(index, None)
        for key in [key for key in self.entries if key[0] < low]:
            del self.entries[key]


class RaftChecks:
    """The checks of all groups of all nodes."""

    def __init__(self) -> None:
        self.groups: dict[GroupId, GroupTruth] = {}

    def group(self, group: GroupId) -> GroupTruth:
        """What is known of a group."""
        if group not in self.groups:
            self.groups[group] = GroupTruth()
        return self.groups[group]

    # What a member asks of its log

    def appended(self, node: NodeId, group: GroupId, entries: Sequence[Entry]) -> None:
        """Entries were handed to a member's log."""
        truth = self.group(group)
        if truth.deleted:
            return
        member = truth.member(node)
        self._check_follows(truth, node, group, entries)
        if entries and entries[0].index <= member.durable:
            self.truncated(node, group, entries[0].index)
        for entry in entries:
            before = member.terms.get(entry.index - 1, -1)
            known_crc, known_before = truth.entries.setdefault((entry.index, entry.term), (entry.crc, before))
            same = known_crc == entry.crc and (before in (-1, known_before) or known_before == -1)
            if not same:
                raise ViolationError(
                    "I2", f"group {group:x}: node {node} has another entry {entry.index} of term {entry.term}"
                )
            member.terms[entry.index] = entry.term
            if entry.kind is EntryKind.CONFIG:
                former = truth.newest_change(node, entry.index)
                where = f"group {group:x}: node {node} appends a change at {entry.index}"
                check(former <= truth.last_committed, "I8", f"{where} with one at {former}")
                truth.configurations[entry.index, entry.term] = Configuration.decode(entry.payload).voters

    def _check_follows(self, truth: GroupTruth, node: NodeId, group: GroupId, entries: Sequence[Entry]) -> None:
        member = truth.member(node)
        end = max(member.terms, default=0) or member.snapshot
        for before, entry in enumerate(entries):
            fits = entry.index == entries[0].index + before and member.snapshot < entry.index <= end + before + 1
            check(fits, "I9", f"group {group:x}: node {node} appends {entry.index} behind {end}, {before} in between")

    def truncated(self, node: NodeId, group: GroupId, index: int) -> None:
        """A member was told to drop the end of its log."""
        member = self.group(group).member(node)
        for above in [above for above in member.terms if above >= index]:
            del member.terms[above]
        member.durable = min(member.durable, index - 1)

    def reset(self, node: NodeId, group: GroupId, index: int, _term: int) -> None:
        """A snapshot replaced a member's log."""
        member = self.group(group).member(node)
        member.terms.clear()
        member.snapshot = member.durable = index

    def left(self, node: NodeId, group: GroupId) -> None:
        """A node deletes its member. If the node has a member again, that is another replica."""
        self.group(group).members[node] = gone = MemberTruth()
        gone.is_gone = True

    def deleted(self, group: GroupId) -> None:
        """The whole group is deleted."""
        self.group(group).deleted = True

    def noticed(self, node: NodeId, notices: Sequence[Notice]) -> None:
        """The log says that something is on disk."""
        for notice in notices:
            group = getattr(notice, "group", None)
            if group is not None and self.group(group).member(node).is_gone:
                continue
            match notice:
                case Written(group, index, term):
                    member = self.group(group).member(node)
                    if member.terms.get(index) == term:
                        member.durable = max(member.durable, index)
                case HardStateSynced(group, term, voted_for):
                    self._hard_state(node, group, term, voted_for)
                case SnapshotTaken(group, index, _term):
                    truth = self.group(group)
                    covered = index <= truth.last_committed or truth.deleted
                    check(covered, "I11", f"group {group:x}: snapshot of node {node} at {index}")
                    self._snapshot(truth.member(node), index)
                case SnapshotInstalled(group, index, term):
                    member = self.group(group).member(node)
                    member.installing = (index, term)
                    if member.terms.get(index) == term:
                        self._snapshot(member, index)

    def _hard_state(self, node: NodeId, group: GroupId, term: int, voted_for: int) -> None:
        truth = self.group(group)
        member = truth.member(node)
        old_term, old_vote = member.hard_state
        back = term < old_term or (term == old_term and old_vote not in (NOBODY, voted_for))
        check(
            not back or truth.deleted,
            "I6",
            f"group {group:x}: node {node} stores {term}/{voted_for} over {old_term}/{old_vote}",
        )
        member.hard_state = (term, voted_for)

    def _snapshot(self, member: MemberTruth, index: int) -> None:
        if index > member.snapshot:
            member.snapshot = index
            member.durable = max(member.durable, index)
            for below in [below for below in member.terms if below < index]:
                del member.terms[below]

    # What a member says

    def sends(self, node: NodeId, to: NodeId, head: bytes | memoryview, last: bool) -> None:
        """A Raft message leaves a node. ``head`` is its first buffer, ``last`` whether it is the only one."""
        kind, group = head[0], GroupId(int.from_bytes(head[1:9], "big"))
        term = int.from_bytes(head[9:17], "big")
        truth = self.group(group)
        if truth.deleted:
            return
        member = truth.member(node)
        stored, vote = member.hard_state
        check(term <= stored, "I6", f"group {group:x}: node {node} speaks in term {term}, on disk is {stored}")
        if not last or kind == wire._K_APPEND:
            return
        if stored > term:
            vote = ANYBODY  # the member can never vote in this term again
        _, message = wire.decode(head)
        match message:
            case VoteReply(granted=True):
                self._vote(truth, group, node, term, to, vote)
            case VoteRequest():
                self._vote(truth, group, node, term, node, vote)
            case AppendReply(success=True, synced_index=synced):
                claimed = max(member.durable, member.snapshot)
                check(synced <= claimed, "I5", f"group {group:x}: node {node} claims {synced}, on disk is {claimed}")

    def _vote(self, truth: GroupTruth, group: GroupId, node: NodeId, term: int, candidate: int, stored: int) -> None:
        check(
            stored in (candidate, ANYBODY),
            "I6",
            f"group {group:x}: node {node} votes for {candidate}, on disk is {stored}",
        )
        first = truth.member(node).votes.setdefault(term, candidate)
        check(first == candidate, "I1", f"group {group:x}: node {node} votes for {first} and {candidate} in {term}")

    # Where a member stands

    def recovered(self, node: NodeId, runner: GroupRunner, state: RecoveredGroup | None) -> None:
        """A member begins with the log that was found on its disk."""
        truth = self.group(runner.group)
        member, log = truth.member(node), runner.core.log
        if truth.deleted:
            return
        truth.member(node).is_gone = False
        truth.founders = truth.founders or runner.core.configuration.voters
        where = f"group {runner.group:x}: node {node}"
        term, vote = (state.term, state.voted_for) if state is not None else (0, NOBODY)
        own_term, own_vote = runner.core.term, runner.core.voted_for
        taken_over = own_term > term or (own_term, own_vote) == (term, vote)
        check(taken_over, "I6", f"{where} begins with {own_term}/{own_vote}, on disk is {term}/{vote}")
        old_term, old_vote = member.hard_state
        kept = term > old_term or (term == old_term and old_vote in (NOBODY, vote))
        check(kept, "I6", f"{where} recovered {term}/{vote}, on disk was {old_term}/{old_vote}")
        replaced = (log.snapshot_index, log.snapshot_term) == member.installing
        replaced = replaced and member.terms.get(log.snapshot_index) != log.snapshot_term
        if state is not None and state.forgetful:
            member.lost |= {index: term for index, term in member.terms.items() if index <= member.durable}
        elif not replaced:
            self._check_recovered(where, member, runner.core)
        # The member of a group of one leads from its first moment, and has appended already.
        last = min(log.last_index, max(state.last_index, log.snapshot_index)) if state is not None else 0
        for index in range(max(log.snapshot_index, member.durable) + 1, last + 1):
            known = (index, log.term_at(LogIndex(index)) or 0) in truth.entries
            check(known, "I10", f"{where} recovered entry {index}, which nobody ever appended")
        before = member.terms
        member.terms = {
            index: log.term_at(LogIndex(index)) or 0 for index in range(max(1, log.snapshot_index), last + 1)
        }
        self._forget_unheard(truth, before.items() - member.terms.items(), term)
        member.durable, member.snapshot, member.hard_state = last, log.snapshot_index, (term, vote)
        member.commit = member.applied = log.snapshot_index
        member.leads_in = 0

    def _forget_unheard(self, truth: GroupTruth, lost: Iterable[tuple[int, int]], term: int) -> None:
        """Entries were lost with the power. A sole voter may have appended them before its term was on disk. Then no
        other node heard of them, and the voter may lead the same term again with other entries."""
        for key in lost:
            if key[1] > term and not any(member.terms.get(key[0]) == key[1] for member in truth.members.values()):
                truth.entries.pop(key, None)
                truth.configurations.pop(key, None)

    def _check_recovered(self, where: str, member: MemberTruth, core: RaftCore) -> None:
        log = core.log
        check(log.snapshot_index >= member.snapshot, "I10", f"{where} lost its snapshot at {member.snapshot}")
        check(log.last_index >= member.durable, "I10", f"{where} lost entries up to {member.durable}")
        for index in range(log.snapshot_index + 1, member.durable + 1):
            found, wanted = log.term_at(LogIndex(index)), member.terms.get(index)
            check(found == wanted, "I10", f"{where} recovered entry {index} of term {found}, written was {wanted}")

    def looked_at(self, node: NodeId, runner: GroupRunner) -> None:
        """Compare a member with what it was at the last look."""
        core = runner.core
        truth = self.group(runner.group)
        if truth.deleted:
            return
        member = truth.member(node)
        # The only voter of a group leads at once. Nobody hears of it before term and vote are on disk.
        if core.role is Role.LEADER and member.leads_in != core.term and core.term <= member.hard_state[0]:
            self._leads(truth, node, runner)
        if core.commit_index != member.commit:
            self._commits(truth, node, member, runner)
        if member.lost and not core.forgetful:
            self._remembers(truth, node, member, runner.group)
        if runner.applied != member.applied:
            where = f"group {runner.group:x}: node {node} applied {runner.applied} after {member.applied}"
            check(member.applied < runner.applied <= core.commit_index, "I7", where)
            member.applied = runner.applied

    def _remembers(self, truth: GroupTruth, node: NodeId, member: MemberTruth, group: GroupId) -> None:
        """A forgetful member counts again: it must have all that it lost and that is committed."""
        lost, member.lost = member.lost, {}
        for index, term in lost.items():
            if index in truth.committed and truth.committed[index][0] == term:
                check(member.has(index, term), "I5", f"group {group:x}: node {node} counts again without entry {index}")

    def _leads(self, truth: GroupTruth, node: NodeId, runner: GroupRunner) -> None:
        core, log = runner.core, runner.core.log
        first = truth.leaders.setdefault(core.term, node)
        check(first == node, "I1", f"group {runner.group:x}: nodes {first} and {node} lead term {core.term}")
        truth.member(node).leads_in = core.term
        at = bisect_left(truth.commit_terms, core.term)
        index = LogIndex(truth.commit_ends[at - 1]) if at else LogIndex(0)
        if index <= log.snapshot_index:
            return
        term = truth.committed[index][0] if index in truth.committed else None
        where = f"group {runner.group:x}: node {node} leads term {core.term} without entry {index} of term {term}"
        check(log.term_at(index) == term, "I3", where)

    def _commits(self, truth: GroupTruth, node: NodeId, member: MemberTruth, runner: GroupRunner) -> None:
        core, where = runner.core, f"group {runner.group:x}: node {node}"
        check(core.commit_index > member.commit, "I7", f"{where} takes commit {member.commit} back")
        if core.role is Role.LEADER and core.commit_index > truth.last_committed:
            own = core.log.term_at(core.commit_index) == core.term
            check(own, "I3", f"{where} commits entry {core.commit_index} of an older term by counting (section 5.4.2)")
        for index in range(member.commit + 1, core.commit_index + 1):
            term = core.log.term_at(LogIndex(index))
            if index > truth.last_committed:
                self._newly(truth, where, node, core, index, term)
            elif term is not None and index in truth.committed:
                same = truth.committed[index][0] == term
                check(same, "I4", f"{where} commits entry {index} of term {term}, not {truth.committed[index][0]}")
        member.commit = core.commit_index

    def _newly(self, truth: GroupTruth, where: str, node: NodeId, core: RaftCore, index: int, term: int | None) -> None:
        """Check the first member that counts an entry as committed: a majority must have the entry on disk."""
        if term is None or (index, term) not in truth.entries:
            raise ViolationError("I4", f"{where} commits entry {index} of term {term}, which nobody appended")
        decide = [truth.voters(node)]
        if core.log.last_index > max(truth.member(node).terms, default=0):
            # A change may be among the appended entries, made before or after this entry was committed.
            decide.append(core.configuration.voters)
        holders = [each for each in truth.members if truth.member(each).holds(index, term)]
        text = f"{where} commits entry {index} of term {term}; on disk it is at {holders} of {list(decide[-1])}"
        check(any(len(set(holders) & set(voters)) >= majority(len(voters)) for voters in decide), "I5", text)
        truth.committed[index] = (term, truth.entries[index, term][0])
        truth.last_committed = index
        if (index, term) in truth.configurations:
            truth.decided[index] = truth.configurations[index, term]
        if not truth.commit_terms or truth.commit_terms[-1] < core.term:
            truth.commit_terms.append(core.term)
            truth.commit_ends.append(index)
        truth.commit_ends[-1] = index
        if index % _PRUNE_EVERY == 0:
            truth.prune()

    def reads(self, node: NodeId, runner: GroupRunner, index: int, *, live: bool = False) -> None:
        """Check that an entry above the snapshot, or an entry that the state refers to, can be read while files come
        and go."""
        truth = self.group(runner.group)
        if truth.deleted:
            return
        where, number = f"group {runner.group:x}: node {node}", "I15" if live else "I12"
        try:
            payload = runner.payload(LogIndex(index))
        except (LogError, LookupError) as error:
            raise ViolationError(number, f"{where} cannot read entry {index}: {error}") from error
        known = truth.entries.get((index, truth.member(node).terms.get(index, 0)))
        check(known is None or known[0] == crc32(payload), number, f"{where} reads something else at {index}")

    def applies(self, node: NodeId, group: GroupId, entry: Entry, former: int) -> None:
        """A member applies an entry; ``former`` is the last entry that its machine applied."""
        truth, where = self.group(group), f"group {group:x}: node {node}"
        if truth.deleted:
            return
        check(entry.index > former, "I4", f"{where} applies entry {entry.index} after {former}")
        known = truth.committed.get(entry.index)
        if known is not None:
            check(known == (entry.term, entry.crc), "I4", f"{where} applies another entry {entry.index}")


class MemberChecks:
    """Every membership that was ever to end, as any node applied it. A queue may lose a member only then (X4)."""

    def __init__(self) -> None:
        self._leaving: set[tuple[GroupId, NodeId, int]] = set()

    def heard(self, records: Iterable[QueueRecord]) -> None:
        """A node has applied an entry of the metadata log, and these are the queues after it."""
        self._leaving.update(
            (record.group, node, record.membership_epoch(node)) for record in records for node in record.leaving
        )

    def changed(self, group: GroupId, former: Configuration, now: Configuration) -> None:
        """The leader of a queue's group appends a change of members. A membership that was once to end is to end for
        good, so the time does not matter. The next membership of the same node is a new one."""
        for node in set(former.members) - set(now.members):
            epoch = former.replica_id_of(node)
            text = f"group {group:x}: node {node} is removed in membership epoch {epoch}, which nobody asked for"
            check((group, node, epoch) in self._leaving, "X4", text)
