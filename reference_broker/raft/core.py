"""One member of one Raft group: messages, ticks, proposals and notices of the disk in, a :class:`Ready` out.

Theory of operation
-------------------
The core holds no entries and does no I/O. It knows the term of each entry (``log_view``) and who is a member since
when (``configuration``). Its work is done by four parts with one owner each, which share a ``standing``: finding a
leader (``elections``), following one (``follower``), receiving its snapshot (``installation``), being one
(``leadership``, made anew for each term). Which of them a message concerns, and what it makes of the member, is for
``roles`` to say; this module is what the shell sees: it takes the inputs and makes the Ready. The shell calls one input
or several, then takes :meth:`RaftCore.ready` and carries it out in the order that ``ready`` documents.

What it takes from the paper it takes unchanged: terms, the vote and its log comparison, log matching, commitment by
counting, for entries of the own term only, membership by one-at-a-time changes. What differs is Ra's:

* Everybody, the leader too, counts for what is on *disk*. The leader's write runs beside the followers' writes, and an
  entry may be committed before the leader itself has it on disk (thesis 10.2.1).
* No heartbeats. Whether a node lives is told by the shell once for all groups (``node_down``, ``node_up``); the timer
  of a follower stands still while it knows a leader on a node that nobody suspects. A leader that hears a pre-vote
  of its own term or an older one says that it is there.
* Pre-vote (thesis 9.6) before each election, with a token, so a member that comes back never disturbs. Only an
  election that the leader itself wished for (``transfer``) goes without.
* AppendEntries are made when the Ready is taken: many inputs, one message a follower.

Invariants: term, commit index and vote within a term never go back; a message says only what the hard state of the
same or an earlier Ready covers; a leader never overwrites its own log; the commit index covers only what a majority
has on disk.

Back of the envelope: the leader of three pays about 15 us for an entry (propose, two answers, its own notice, two
Readys). At 1,000 entries/s, a batch of commands each, that is 1.5 % of a core.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.errors import NotLeaderError, SafetyViolationError
from reference_broker.raft.leadership import Leadership
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import InstallSnapshot
from reference_broker.raft.quorum import majority
from reference_broker.raft.ready import HardState, Ready, Role
from reference_broker.raft.roles import Roles
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term

FIRST_TERM: Final = Term(1)

__all__ = ["FIRST_TERM", "NotLeaderError", "RaftConfig", "RaftCore", "SafetyViolationError"]


class RaftCore(Roles):
    """The Raft state machine of one member. Not thread-safe: one owner calls it.

    Its inputs are the methods here and :meth:`~reference_broker.raft.roles.Roles.step`. Everything that
    :class:`~reference_broker.raft.standing.Standing` says may be read; only this class and its parts write it.
    """

    __slots__ = ()

    def __init__(
        self,
        node: NodeId,
        members: tuple[NodeId, ...],
        log: LogView,
        hard_state: HardState,
        config: RaftConfig,
        jitter: Jitter,
        machine_version: int = 1,
        replica_id: int = 0,
    ) -> None:
        """``log`` and ``hard_state`` are what recovery found; ``jitter`` is the only source of chance.

        ``members`` are the voters that the group was created with; none for a member that joins a group, which knows
        of no configuration before it receives one. ``replica_id`` tells this replica from an earlier replica of the
        same node in this group, which was removed and deleted. It is a number that the node never used in this group
        before, the number that :meth:`add` was given, and it stays the same over restarts. If the log is not empty,
        :meth:`restored` and :meth:`recovered` follow before any other input.
        Raises ValueError if ``node`` is not one of ``members`` or the settings are unsound.
        """
        problems = config.validate()
        if members and (node not in members or len(set(members)) != len(members)):
            problems.append(f"raft.members: node {node} must be one of {members}, and each member named once")
        if problems:
            raise ValueError("\n".join(problems))
        super().__init__(node, members, log, hard_state, config, jitter, machine_version, replica_id)

    # Recovery

    def restored(self, configuration: Configuration, machine_version: int = 0) -> None:
        """The member's own snapshot was restored: the configuration, and the machine version, at its last entry."""
        self.configurations.reset(configuration)
        self.versions.reset(machine_version)
        self._reconfigured()

    def recovered(self, entry: Entry) -> None:
        """Recovery found this NOOP or CONFIG entry above the snapshot. Call in the order of the log."""
        if self.log.snapshot_index < entry.index <= self.log.last_index:
            self.note(entry)
            self._reconfigured()

    def founded(self, leader: NodeId, *, blank: bool) -> None:
        """The decision that created the group has elected the leader of its first term: every founder's vote in it is
        given to ``leader``. Call it on each founder after each start, before any input.

        Since all founders begin in that term, nobody can stand for it, and ``leader`` needs to ask nobody. It leads
        at once if it is ``blank``, that is, if nothing of this replica was found on disk: then nothing of it was heard
        by anybody, as no message leaves before the term is on disk. Otherwise it may have led that term before, and
        waits for an election like all others.
        """
        if self.term > FIRST_TERM:
            return
        self.raise_term(FIRST_TERM)
        if self.voted_for == NOBODY:
            self.vote_for(leader)
        if blank and leader == self.node:
            self._become_leader()

    def _reconfigured(self) -> None:
        """Another configuration is in effect; a timer that was drawn under the one before is drawn anew."""
        self._elections.timer.stop()
        self._elections.reconsider()

    # Inputs

    def tick(self) -> None:
        """One unit of time has passed."""
        if self._leadership is not None:
            self._leadership.tick()
        elif self._elections.timer.tick():
            self.campaign()

    def propose(self, kind: EntryKind, payload: bytes, crc: int) -> LogIndex:
        """Append an entry and replicate it. Returns its index; it is committed once ``commit_index`` reaches that
        while this member still leads in the same term.

        Raises NotLeaderError, naming the leader if one is known, and TransferUnderWayError unless :attr:`accepting`.
        """
        return self._led().propose(kind, payload, crc)

    def synced(self, index: LogIndex, term: Term) -> None:
        """The WAL has entries up to ``index``, the last of them of ``term``, on disk. A late notice is ignored."""
        if not self.log.mark_synced(index, term):
            return
        if self._leadership is not None:
            self._leadership.advance_commit()
        elif self.leader != NOBODY:
            self._follower.synced()

    def node_down(self, node: NodeId) -> None:
        """``node`` is suspected. A follower of it starts its timer, a leader stops sending to it."""
        self.down.add(node)
        if self._leadership is not None:
            self._leadership.node_down(node)
        elif node == self.leader:
            self._elections.reconsider()

    def node_up(self, node: NodeId) -> None:
        """``node`` answers again, over a new link: whatever was under way may be lost.

        Call it for each new link, even if the old one's end went unnoticed.
        """
        self.down.discard(node)
        if self._leadership is not None:
            self._leadership.node_up(node)
        elif node == self.leader:
            self._elections.reconsider()
        else:
            self._elections.ask(node)

    def campaign(self) -> None:
        """Ask for votes now instead of when the timer ends, as the node does that has just created a group.

        Nothing happens if this member leads, or has no say in the group.
        """
        if self._leadership is not None or not self.may_campaign:
            return
        self._follow_anew()
        if self.configuration.voters == (self.node,):
            self._elections.stand()
        else:
            self._elections.pre_vote()

    # Inputs for the leader

    def _led(self) -> Leadership:
        if self._leadership is None:
            raise NotLeaderError(self.leader)
        return self._leadership

    @property
    def accepting(self) -> bool:
        """Whether :meth:`propose` takes entries: this member leads, and is not handing over."""
        return self._leadership is not None and self._leadership.accepting

    def has_majority_without(self, nodes: Collection[NodeId], index: LogIndex) -> bool:
        """Whether what follows ``index`` can soon be committed without any of ``nodes``: enough other voters can be
        reached and have everything up to ``index`` on disk. Never of a member that does not lead."""
        return self._leadership is not None and self._leadership.has_majority_without(nodes, index)

    def add(self, node: NodeId, replica_id: int = 0) -> LogIndex:
        """Let ``node`` join: a learner at once, a voter by itself as soon as it has caught up (thesis 4.2.1).

        The node runs a core with ``members=()`` and the same ``replica_id``. Returns the index of the learner's entry.
        Raises NotLeaderError, ChangeUnderWayError, TransferUnderWayError, and ValueError if it is a member already.
        """
        return self._led().add(node, replica_id)

    def remove(self, node: NodeId) -> LogIndex:
        """Go on without ``node``, voter or learner; a leader that removes itself steps down once that is committed.

        Returns the index of the entry that does it; the removed member's log may go once that is committed, and only
        then may it be added again. Raises as :meth:`add`, and ValueError if it is no member, or the last voter.
        """
        return self._led().remove(node)

    def can_do_without(self, node: NodeId) -> bool:
        """Whether the voters that are left without ``node`` could commit its removal now: a majority is not suspected.

        :meth:`remove` does not ask. But a leader that is lost after a removal that reached nobody may leave a group
        that has no majority for it, and none against it.
        """
        left = self.configuration.without(node).voters
        return sum(other not in self.down for other in left) >= majority(len(left))

    def transfer(self, to: NodeId) -> None:
        """Hand the leadership over to ``to`` (thesis 3.10): no proposals are taken until it leads or an election time
        is over, after which this member goes on as leader.

        Raises NotLeaderError, and ValueError if ``to`` is no voter or this member itself.
        """
        self._led().transfer(to)

    def read(self, token: int) -> None:
        """Have ``token`` come back in ``Ready.reads`` with an index that covers everything committed before this call,
        or in ``Ready.reads_refused``. Raises NotLeaderError."""
        self._led().read(token)

    # Snapshots

    def configuration_at(self, index: LogIndex) -> Configuration:
        """The configuration in effect right after the entry at ``index``: it belongs into a snapshot up to there."""
        return self.configurations.at(index)

    def machine_version_at(self, index: LogIndex) -> int:
        """The version of the newest no-op up to ``index``; 0 if none is known."""
        return self.versions.at(index)

    def snapshot_taken(self, index: LogIndex, term: Term) -> None:
        """An own snapshot up to ``index`` is durable: the log up to there may go. An older one than known is ignored.

        Raises ValueError for a snapshot of what is not committed.
        """
        if index > self.commit_index:
            raise ValueError(f"snapshot up to {index}, but only {self.commit_index} is committed")
        if index > self.log.snapshot_index:
            self.compact(index, term)

    def accepts(self, sender: NodeId, message: InstallSnapshot) -> bool:
        """Whether the shell must store this chunk, *before* it passes the message to :meth:`step`.

        Chunk 1 begins a new file and discards what an earlier transfer left. After the last chunk the shell checks
        the whole, makes it durable and calls :meth:`installed`, or :meth:`install_failed`.
        """
        return self._installation.accepts(message)

    def installed(self, index: LogIndex, term: Term, configuration: Configuration, machine_version: int = 0) -> None:
        """A snapshot received from the leader is durable. ``Ready.reset_to`` says whether the log goes with it.

        ``configuration`` is the one at its last entry, as the sender's :meth:`configuration_at` said.
        If meanwhile the log came to hold the same entries, nothing is reset: what is on disk may have been counted.
        """
        if self._installation.installed(index, term, configuration, machine_version):
            self._elections.reconsider()
        self.pending = True

    def install_failed(self, index: LogIndex) -> None:
        """What was received for the snapshot up to ``index`` is unsound: ask for it again."""
        self._installation.failed(index)

    def pinned_snapshots(self) -> set[LogIndex]:
        """Snapshots that are being sent and must stay readable."""
        followers = self._leadership.progress.values() if self._leadership is not None else ()
        return {progress.snapshot_index for progress in followers if progress.chunk}

    # Output

    @property
    def has_ready(self) -> bool:
        """Whether :meth:`ready` may hold anything. Cheap; a true now and then for nothing is possible."""
        return self.pending or self._follower.answer_due or bool(self.outbox)

    def ready(self) -> Ready:
        """Take everything accumulated; an empty one when there is nothing."""
        outbox = self.outbox
        if self._leadership is not None:
            self._leadership.collect()
        elif self._follower.answer_due:
            answer = self._follower.answer(self.term)
            if not self.is_superseded:
                outbox.send(self.leader, answer)
        ready = Ready(
            hard_state=HardState(term=self.term, voted_for=self.voted_for) if outbox.hard_state_changed else None,
            truncate_from=outbox.truncate_from,
            append=tuple(outbox.entries),
            messages=tuple(outbox.messages),
            commit=self.commit_index,
            role=self.role,
            leader=self.leader,
            reset_to=outbox.reset_to,
            reads=tuple(outbox.reads),
            reads_refused=tuple(outbox.reads_refused),
        )
        outbox.clear()
        self.pending = False
        return ready

    @property
    def needs_tick(self) -> bool:
        """False when a tick would do nothing, so that hundreds of idle groups cost nothing."""
        return self._elections.timer.running if self._leadership is None else self._leadership.needs_tick

    def status(self) -> dict[str, Any]:
        """For people: what a member knows, with each follower's progress on the leader."""
        return {
            "node": self.node,
            "role": str(self.role),
            "term": self.term,
            "leader": self.leader,
            "voted_for": self.voted_for,
            "commit_index": self.commit_index,
            "first_index": self.log.first_index,
            "last_index": self.log.last_index,
            "synced_index": self.log.synced_index,
            "log": self.log.describe(),
            "suspected": sorted(self.down),
            "voters": list(self.configuration.voters),
            "learners": list(self.configuration.learners),
            "change_under_way": self.role is Role.LEADER and self.change_under_way,
            "machine_version_in_effect": self.machine_version_in_effect,
            "followers": self._leadership.status() if self._leadership is not None else {},
        }
