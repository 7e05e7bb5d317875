"""The leader's side, for one term: what is committed, who is a member, who may read, and when to step down.

Theory of operation
-------------------
A :class:`Leadership` is made when an election is won and dropped when the member leads no more. Everything that must
not outlive the term goes with it: each follower's progress, reads, a transfer under way.

* *Commitment* counts the entries on the disks of the voters; the newest configuration in the log names the voters.
* *Membership*: :meth:`add` makes a learner. The leader promotes the learner as soon as it is at most one message
  behind. Every step is an entry, and waits until the step before is committed. A leader that removed itself goes on
  until its removal is committed, without counting itself, and then makes the best follower start an election
  (thesis 4.2.2).
* *Transfer* (thesis 3.10): take no proposals, wait until the heir has everything, send TimeoutNow; give up after an
  election time.
* *Check-quorum* (thesis 6.2): a leader that could not reach a majority for an election time steps down, so that its
  clients look for another leader.

Invariants: at most one uncommitted configuration change; the log is never overwritten; a read is answered only after
a majority answered a round that began after it came.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from reference_broker.checksum import crc32
from reference_broker.raft.config import RaftConfig
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.errors import ChangeUnderWayError, TransferUnderWayError
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    LeaderSynced,
    TimeoutNow,
)
from reference_broker.raft.progress import Flow, Progress
from reference_broker.raft.quorum import PAIR, committed_index, majority
from reference_broker.raft.reads import Reads
from reference_broker.raft.ready import NextReady, SendEntries
from reference_broker.raft.roles import RoleEvent
from reference_broker.types import Entry, EntryKind, LogIndex, NodeId, Term


class _Transfer:
    """Handing over to ``to``."""

    __slots__ = ("sent", "ticks_left", "to")

    def __init__(self, to: NodeId, ticks: int) -> None:
        self.to = to
        self.ticks_left = ticks
        self.sent = False


class Leadership:
    """The leadership of one member in one term. It calls ``step_down`` when the member must lead no more."""

    __slots__ = (
        "_alone_ticks",
        "_down",
        "_node",
        "_replica_id",
        "_step_down",
        "_told",
        "change",
        "config",
        "first_index",
        "is_voter",
        "log",
        "majority",
        "next_ready",
        "progress",
        "reads",
        "term",
        "transferring",
        "voting",
        "watching",
    )

    def __init__(
        self,
        *,
        node: NodeId,
        replica_id: int,
        term: Term,
        log: LogView,
        down: Container[NodeId],
        config: RaftConfig,
        next_ready: NextReady,
        step_down: Callable[[RoleEvent, Term], None],
    ) -> None:
        """``node`` leads in ``term``; the nodes ``down`` are suspected now until :meth:`node_up` says otherwise."""
        self._node, self._replica_id, self.term = node, replica_id, term
        self.log, self._down, self.config, self.next_ready = log, down, config, next_ready
        self._step_down = step_down
        self.first_index = LogIndex(log.last_index + 1)
        """The first entry of the term: all from there on are of this term, because the log is never overwritten."""
        self.progress: dict[NodeId, Progress] = {}
        self.voting: list[Progress] = []
        """Of the voters beside this member."""
        self.is_voter = False
        """Whether this member itself counts."""
        self.majority = 0
        """Of the voters."""
        newest = log.configurations.latest_index
        self.change = newest if newest > log.commit_index else LogIndex(0)
        """The entry of the newest configuration until it is committed; then 0."""
        self._told = LogIndex(0)
        """The last entry on this leader's disk that followers were told: they may know later commits than the
        leader."""
        self.reads = Reads()
        self.transferring: _Transfer | None = None
        self._alone_ticks = 0
        """Ticks until this leader gives up; 0 while it reaches a majority."""
        self.watching = False
        """A learner is to be promoted, or an heir waited for."""
        self._configured()

    # Proposals

    def propose(self, kind: EntryKind, payload: bytes, crc: int) -> LogIndex:
        """Append an entry. Raises TransferUnderWayError."""
        if self.transferring is not None:
            raise TransferUnderWayError(self.transferring.to)
        log = self.log
        index = LogIndex(log.last_index + 1)
        entry = Entry(index, self.term, kind, crc, payload)
        log.append_entry(entry)
        self.next_ready.entries.append(entry)
        self.next_ready.pending = True
        return index

    def notice(self, node: NodeId) -> SendEntries | None:
        """A notice of the commit index for ``node``, counted as sent; None if the node needs none, or cannot be told
        now."""
        progress = self.progress.get(node)
        return progress.notice(self.log, self.term) if progress is not None else None

    def tell_synced(self, node: NodeId) -> LeaderSynced | None:
        """The message that lets a follower find commits by itself, counted as told; None if none does now."""
        progress, log = self.progress.get(node), self.log
        is_pair = self.is_voter and self.majority == PAIR
        if progress is None or progress not in self.voting or not is_pair or self.change or self.transferring:
            return None
        index = log.synced_index
        if not progress.may_know(index, log.configurations.latest_index) or log.term_at(index) != self.term:
            return None
        progress.told_synced = self._told = index
        return LeaderSynced(term=self.term, leader=self._node, index=index)

    def is_told(self, node: NodeId) -> bool:
        """Whether a follower was told enough to find every commit by itself, once its disk has the entries."""
        return self.progress[node].told_synced >= self.log.commit_index

    @property
    def accepting(self) -> bool:
        """Whether proposals are taken: not while this leader hands over."""
        return self.transferring is None

    # Commitment

    def append_answered(self, sender: NodeId, message: AppendReply) -> None:
        """A follower names the entry that it wants next and its last entry on disk."""
        progress = self.progress.get(sender)
        if progress is None:
            return
        log = self.log
        if not message.success:
            if sender in log.configuration.learners:
                progress.match_index = LogIndex(0)  # an earlier replica there may have answered: not counted yet
            self.next_ready.pending |= progress.rejected(message.next_index)
            return
        was_asked = progress.flow is not Flow.PIPELINE
        if progress.accepted(message, log):
            self.advance_commit()
            if self.watching:
                self._look_after(progress)
        self.next_ready.pending |= progress.lacks_entries(log.last_index)
        if was_asked:
            self.next_ready.committed |= progress.lacks_commit(log.commit_index)

    def install_answered(self, sender: NodeId, message: InstallReply) -> None:
        """A follower has a chunk of a snapshot, or all of it."""
        progress = self.progress.get(sender)
        if progress is not None:
            self.next_ready.pending |= progress.chunk_answered(message, self.log)

    def advance_commit(self) -> None:
        """Section 5.4.2: only an entry of the own term commits by being counted, and with it all entries before it.

        Only entries on disk count, and only on the voters of the configuration in effect.
        """
        log = self.log
        synced = [progress.match_index for progress in self.voting]
        if self.is_voter:
            synced.append(log.synced_index)
        index = committed_index(synced)
        if index > log.commit_index and log.term_at(index) == self.term:
            log.commit_index = index
            self.next_ready.committed = True
            if self.reads.open:  # before this member may lead no more
                self._answer_reads()
            if self.watching or self.change:
                self.next_ready.pending = True
                self._committed()

    # Membership

    def add(self, node: NodeId, replica_id: int) -> LogIndex:
        """See :meth:`RaftCore.add`."""
        configuration = self._changeable()
        if node in configuration.members:
            raise ValueError(f"node {node} is a member already: {configuration}")
        return self._change_to(configuration.with_learner(node, replica_id))

    def remove(self, node: NodeId) -> LogIndex:
        """See :meth:`RaftCore.remove`."""
        configuration = self._changeable()
        if node not in configuration.members:
            raise ValueError(f"node {node} is not a member: {configuration}")
        if configuration.voters == (node,):
            raise ValueError(f"node {node} is the last voter of {configuration}: add another first")
        return self._change_to(configuration.without(node))

    def _changeable(self) -> Configuration:
        if self.transferring is not None:
            raise TransferUnderWayError(self.transferring.to)
        if self.log.change_under_way(self.term):
            raise ChangeUnderWayError("another change of membership is not committed yet: try again when it is")
        return self.log.configuration

    def _change_to(self, configuration: Configuration) -> LogIndex:
        payload = configuration.encode()
        index = self.change = self.propose(EntryKind.CONFIG, payload, crc32(payload))
        self._configured()
        return index

    def _configured(self) -> None:
        """A configuration has come into effect: it counts from now on (section 6)."""
        configuration, after = self.log.configuration, LogIndex(self.log.last_index + 1)
        self.progress = {
            node: self.progress.get(node) or Progress(node, after, node not in self._down)
            for node in configuration.members
            if node != self._node
        }
        self.voting = [self.progress[node] for node in configuration.voters if node != self._node]
        self.is_voter = configuration.has_voter(self._node, self._replica_id)
        self.majority = majority(len(configuration.voters))
        self.watching = bool(configuration.learners)
        self._count_reachable()
        self._answer_reads()  # there may be no member left to answer the round under way

    def _committed(self) -> None:
        """The commit index has risen: a change of membership may be committed."""
        if self.change and self.log.commit_index >= self.change:
            self.change = LogIndex(0)
            if not self.is_voter:
                self._leave()
                return
        for progress in list(self.progress.values()):
            self._promote(progress)

    def _leave(self) -> None:
        """This member's own removal is committed. The followers learn it, and the best of them stands at once."""
        heir = max(self.voting, key=lambda progress: progress.match_index)
        self.collect()
        self.next_ready.send(heir.node, TimeoutNow(term=self.term, leader=self._node))
        self._step_down(RoleEvent.REMOVED, self.term)

    def _look_after(self, progress: Progress) -> None:
        self._promote(progress)
        self._hand_over()

    def _promote(self, progress: Progress) -> None:
        """A learner that is at most one message behind becomes a voter (thesis 4.2.1).

        It must have the entry that made it a learner on disk: a voter whose log does not name it yet could not vote.
        """
        log = self.log
        named = max(log.configurations.latest_index, log.snapshot_index)
        if (
            progress.node in log.configuration.learners
            and progress.flow is Flow.PIPELINE
            and progress.match_index >= named
            and log.last_index - progress.match_index <= self.config.max_entries_per_append
            and self.transferring is None
            and not log.change_under_way(self.term)
        ):
            self._change_to(log.configuration.promoted(progress.node))

    # Reads

    def read(self, token: int) -> None:
        """See :meth:`RaftCore.read`."""
        self.reads.waiting.append(token)
        self.next_ready.pending = True

    def heartbeat_answered(self, sender: NodeId, message: HeartbeatReply) -> None:
        """A follower still follows."""
        if sender in self.progress:
            self.reads.answered(sender, message.round)
            self._answer_reads()

    def _begin_reads(self) -> None:
        log = self.log
        if log.term_at(log.commit_index) != self.term:
            return  # a former leader may have committed more than is known here
        self.reads.begin(max(log.commit_index, self._told))
        self._ask_round()
        self._answer_reads()

    def _ask_round(self) -> None:
        reads = self.reads
        for progress in self.voting:
            if progress.reachable and reads.lacks(progress.node):
                self.next_ready.send(progress.node, Heartbeat(term=self.term, leader=self._node, round=reads.round))

    def _answer_reads(self) -> None:
        nodes = [progress.node for progress in self.voting]
        confirmed = self.reads.confirmed(nodes, self.is_voter, self.log.commit_index)
        self.next_ready.reads += confirmed
        self.next_ready.pending |= bool(confirmed)

    def refused(self) -> list[int]:
        """The reads that end unanswered with this leadership."""
        return self.reads.refused()

    # Transfer

    def may_inherit(self, node: NodeId) -> bool:
        """Whether a transfer to ``node`` can soon be done: it is a voter that can be reached and has everything that is
        committed on disk, and no transfer is under way."""
        progress = self.progress.get(node)
        is_current = progress is not None and progress.reachable and progress.match_index >= self.log.commit_index
        return is_current and progress in self.voting and self.accepting

    def transfer(self, to: NodeId) -> None:
        """Hand over to ``to`` as soon as it has the whole log; a transfer under way to another node is given up."""
        configuration = self.log.configuration
        if to == self._node or to not in configuration.voters:
            raise ValueError(f"leadership can be transferred to another voter only: node {to}, of {configuration}")
        self.transferring = _Transfer(to, self.config.election_ticks_max)
        self.watching = True
        self._hand_over()

    def _hand_over(self) -> None:
        transfer = self.transferring
        if transfer is None or transfer.sent or self.progress[transfer.to].match_index < self.log.last_index:
            return
        transfer.sent = True
        self.next_ready.send(transfer.to, TimeoutNow(term=self.term, leader=self._node))

    def _give_up_transfer(self) -> None:
        self.transferring = None
        self.watching = bool(self.log.configuration.learners)
        self.next_ready.pending = True
        self._committed()

    # The world outside

    def node_down(self, node: NodeId) -> None:
        """Stop sending to ``node``."""
        if node in self.progress:
            self.progress[node].reachable = False
            self._count_reachable()

    def node_up(self, node: NodeId) -> None:
        """Begin again with ``node``, because messages under way may be lost."""
        if node in self.progress:
            self.progress[node].reconnect()
            self._count_reachable()
            if self.reads.open:
                self._ask_round()
            self.next_ready.pending = True

    def _count_reachable(self) -> None:
        reachable = self.is_voter + sum(progress.reachable for progress in self.voting)
        if reachable >= self.majority:
            self._alone_ticks = 0
        elif not self._alone_ticks:
            self._alone_ticks = self.config.election_ticks_max

    @property
    def needs_tick(self) -> bool:
        """Whether a tick would do anything."""
        return (
            self.transferring is not None
            or self._alone_ticks > 0
            or self.reads.open
            or any(progress.waits for progress in self.progress.values())
        )

    def tick(self) -> None:
        """One unit of time has passed."""
        resend_ticks = self.config.resend_ticks
        for progress in self.progress.values():
            self.next_ready.pending |= progress.tick(resend_ticks)
        if self.reads.tick(resend_ticks):
            self._ask_round()
        if self.transferring is not None:
            self.transferring.ticks_left -= 1
            if not self.transferring.ticks_left:
                self._give_up_transfer()
        if self._alone_ticks:
            self._alone_ticks -= 1
            if not self._alone_ticks:
                self._step_down(RoleEvent.MAJORITY_LOST, self.term)

    def collect(self) -> None:
        """Add to the next Ready the messages that may be sent now, and count them as sent."""
        log, term, config, messages = self.log, self.term, self.config, self.next_ready.messages
        if self.reads.waiting:
            self._begin_reads()
        for progress in self.progress.values():
            progress.collect(log, term, log.commit_index, config, messages)
