"""The leader's side, for one term: what is committed, who is a member, who may read, and when to let go.

Theory of operation
-------------------
A :class:`Leadership` is made when an election is won and dropped with the office, and with it everything that must not
outlive the term: each follower's progress, reads, a transfer under way.

* *Commitment* counts the voters of the configuration in effect, the newest in the log, by what they have on disk.
* *Membership*: :meth:`add` makes a learner, which is promoted as soon as it is at most one message behind; every step
  is an entry, and waits until the step before is committed. A leader that removed itself goes on until that is
  committed, without counting itself, and then makes the best follower start an election (thesis 4.2.2).
* *Transfer* (thesis 3.10): take no proposals, wait until the heir has everything, send TimeoutNow; give up after an
  election time.
* *Check-quorum* (thesis 6.2): who has not been able to reach a majority for an election time steps down, so that its
  clients look for another.

Invariants: at most one uncommitted configuration change; the log is never overwritten; a read is answered only after
a majority answered a round that began after it came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from zlib import crc32

from reference_broker.raft.configuration import Configuration
from reference_broker.raft.errors import ChangeUnderWayError, TransferUnderWayError
from reference_broker.raft.machine_version import noop_payload
from reference_broker.raft.messages import AppendReply, Heartbeat, HeartbeatReply, InstallReply, TimeoutNow
from reference_broker.raft.progress import Flow, Progress
from reference_broker.raft.quorum import committed_index, majority
from reference_broker.raft.reads import Reads
from reference_broker.raft.standing import Standing
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term


class _Transfer:
    """Handing over to ``to``."""

    __slots__ = ("sent", "ticks_left", "to")

    def __init__(self, to: NodeId, ticks: int) -> None:
        self.to = to
        self.ticks_left = ticks
        self.sent = False


class Leadership:
    """The office of one term. ``step_down`` ends it."""

    __slots__ = (
        "_alone_ticks",
        "_at",
        "_change",
        "_reads",
        "_step_down",
        "_transfer",
        "_voting",
        "_watching",
        "progress",
    )

    def __init__(self, at: Standing, step_down: Callable[[Term, NodeId], None]) -> None:
        self._at = at
        self._step_down = step_down
        self.progress: dict[NodeId, Progress] = {}
        self._voting: list[Progress] = []
        self._change = at.configurations.latest_index  # the newest one, until it is committed; then 0
        if self._change <= at.commit_index:
            self._change = LogIndex(0)
        self._reads = Reads()
        self._transfer: _Transfer | None = None
        self._alone_ticks = 0  # left until this leader gives up; 0 while it reaches a majority
        self._watching = False  # a learner is to be promoted, or an heir waited for
        self._configured()
        self._append(EntryKind.NOOP, noop_payload(at.machine_version))

    # Proposals

    def propose(self, kind: EntryKind, payload: bytes, crc: int) -> LogIndex:
        """Append an entry. Raises TransferUnderWayError."""
        if self._transfer is not None:
            raise TransferUnderWayError(self._transfer.to)
        at = self._at
        index = LogIndex(at.log.last_index + 1)
        at.append(Entry(index, at.term, kind, crc, payload))
        at.pending = True
        return index

    def _append(self, kind: EntryKind, payload: bytes) -> LogIndex:
        return self.propose(kind, payload, crc32(payload))

    @property
    def accepting(self) -> bool:
        """Whether proposals are taken: not while this leader hands over."""
        return self._transfer is None

    # Commitment

    def append_answered(self, sender: NodeId, message: AppendReply) -> None:
        """A follower says what it wants next and what it has on disk."""
        progress = self.progress.get(sender)
        if progress is None:
            return
        at = self._at
        if not message.success:
            if sender in at.configuration.learners:
                progress.match_index = LogIndex(0)  # an earlier replica there may have answered; nobody counts it yet
            at.pending |= progress.rejected(message.next_index)
            return
        if progress.accepted(message, at.log):
            self.advance_commit()
            if self._watching:
                self._look_after(progress)
        at.pending |= progress.has_news(at.log.last_index, at.commit_index)

    def install_answered(self, sender: NodeId, message: InstallReply) -> None:
        """A follower has a chunk of a snapshot, or all of it."""
        progress = self.progress.get(sender)
        if progress is not None:
            self._at.pending |= progress.chunk_answered(message, self._at.log)

    def advance_commit(self) -> None:
        """Section 5.4.2: only an entry of the own term commits by being counted, and with it all before it.

        Counted are the voters of the configuration in effect, by what they have on disk.
        """
        at = self._at
        synced = [progress.match_index for progress in self._voting]
        if at.is_voter:
            synced.append(at.log.synced_index)
        index = committed_index(synced)
        if index > at.commit_index and at.log.term_at(index) == at.term:
            at.raise_commit(index)
            if self._watching or self._change:
                self._committed()

    def has_majority_without(self, nodes: Collection[NodeId], index: LogIndex) -> bool:
        """Whether what follows ``index`` can soon be committed without any of ``nodes``: the other voters that can be
        reached and have everything up to ``index`` on disk, this member among them, are a majority."""
        at = self._at
        prompt = int(at.is_voter and at.node not in nodes and at.log.synced_index >= index)
        for progress in self._voting:
            prompt += progress.reachable and progress.match_index >= index and progress.node not in nodes
        return prompt >= majority(len(at.configuration.voters))

    # Membership

    def add(self, node: NodeId, replica_id: int) -> LogIndex:
        """Let ``node`` learn the log, and promote it when it has caught up."""
        configuration = self._changeable()
        if node in configuration.members:
            raise ValueError(f"node {node} is a member already: {configuration}")
        return self._change_to(configuration.with_learner(node, replica_id))

    def remove(self, node: NodeId) -> LogIndex:
        """Go on without ``node``."""
        configuration = self._changeable()
        if node not in configuration.members:
            raise ValueError(f"node {node} is not a member: {configuration}")
        if configuration.voters == (node,):
            raise ValueError(f"node {node} is the last voter of {configuration}: add another first")
        return self._change_to(configuration.without(node))

    def _changeable(self) -> Configuration:
        if self._transfer is not None:
            raise TransferUnderWayError(self._transfer.to)
        if self._at.change_under_way:
            raise ChangeUnderWayError("another change of membership is not committed yet: try again when it is")
        return self._at.configuration

    def _change_to(self, configuration: Configuration) -> LogIndex:
        index = self._append(EntryKind.CONFIG, configuration.encode())
        self._change = index
        self._configured()
        return index

    def _configured(self) -> None:
        """The configuration in effect is another one: it counts from now on (section 6)."""
        at = self._at
        configuration, after = at.configuration, LogIndex(at.log.last_index + 1)
        self.progress = {
            node: self.progress.get(node) or Progress(node, after, node not in at.down)
            for node in configuration.members
            if node != at.node
        }
        self._voting = [self.progress[node] for node in configuration.voters if node != at.node]
        self._watching = bool(configuration.learners)
        self._count_reachable()
        self._answer_reads()  # nobody may be left to answer the round that is under way

    def _committed(self) -> None:
        """The commit index has risen: a change of membership may be done with."""
        at = self._at
        if self._change and at.commit_index >= self._change:
            self._change = LogIndex(0)
            if not at.is_voter:
                self._leave()
                return
        for progress in list(self.progress.values()):
            self._promote(progress)

    def _leave(self) -> None:
        """This member's own removal is committed. The followers learn it, and the best of them stands at once."""
        at = self._at
        heir = max(self._voting, key=lambda progress: progress.match_index)
        self.collect()
        at.outbox.send(heir.node, TimeoutNow(term=at.term, leader=at.node))
        self._step_down(at.term, NOBODY)

    def _look_after(self, progress: Progress) -> None:
        self._promote(progress)
        self._hand_over()

    def _promote(self, progress: Progress) -> None:
        """A learner that is at most one message behind becomes a voter (thesis 4.2.1).

        It has the entry that made it a learner on disk by then: a voter whose log does not name it yet could not vote.
        """
        at = self._at
        named = max(at.configurations.latest_index, at.log.snapshot_index)
        if (
            progress.node in at.configuration.learners
            and progress.flow is Flow.PIPELINE
            and progress.match_index >= named
            and at.log.last_index - progress.match_index <= at.config.max_entries_per_append
            and self._transfer is None
            and not at.change_under_way
        ):
            self._change_to(at.configuration.promoted(progress.node))

    # Reads

    def read(self, token: int) -> None:
        """Answer ``token`` with an index that is no older than this moment."""
        self._reads.waiting.append(token)
        self._at.pending = True

    def heartbeat_answered(self, sender: NodeId, message: HeartbeatReply) -> None:
        """A follower still follows."""
        if sender in self.progress:
            self._reads.answered(sender, message.round)
            self._answer_reads()

    def _begin_reads(self) -> None:
        at = self._at
        if at.log.term_at(at.commit_index) != at.term:
            return  # what a former leader committed may not all be known yet
        self._reads.begin(at.commit_index)
        self._ask_round()
        self._answer_reads()

    def _ask_round(self) -> None:
        at, reads = self._at, self._reads
        for progress in self._voting:
            if progress.reachable and reads.lacks(progress.node):
                at.outbox.send(progress.node, Heartbeat(term=at.term, leader=at.node, round=reads.round))

    def _answer_reads(self) -> None:
        others = [progress.node for progress in self._voting]
        self._at.outbox.reads += self._reads.confirmed(others, self._at.is_voter)

    def refused(self) -> list[int]:
        """The reads that end unanswered with this leadership."""
        return self._reads.refused()

    # Transfer

    def transfer(self, to: NodeId) -> None:
        """Hand over to ``to`` as soon as it has the whole log; one under way to somebody else is given up."""
        at = self._at
        if to == at.node or to not in at.configuration.voters:
            raise ValueError(f"leadership can be transferred to another voter only: node {to}, of {at.configuration}")
        self._transfer = _Transfer(to, at.config.election_ticks_max)
        self._watching = True
        self._hand_over()

    def _hand_over(self) -> None:
        at, transfer = self._at, self._transfer
        if transfer is None or transfer.sent or self.progress[transfer.to].match_index < at.log.last_index:
            return
        transfer.sent = True
        at.outbox.send(transfer.to, TimeoutNow(term=at.term, leader=at.node))

    def _give_up_transfer(self) -> None:
        self._transfer = None
        self._watching = bool(self._at.configuration.learners)
        self._at.pending = True
        self._committed()

    # The world outside

    def node_down(self, node: NodeId) -> None:
        """Stop sending to ``node``."""
        if node in self.progress:
            self.progress[node].reachable = False
            self._count_reachable()

    def node_up(self, node: NodeId) -> None:
        """Begin again with ``node``: what was under way may be lost."""
        if node in self.progress:
            self.progress[node].reconnect()
            self._count_reachable()
            if self._reads.open:
                self._ask_round()
            self._at.pending = True

    def _count_reachable(self) -> None:
        at = self._at
        reachable = at.is_voter + sum(progress.reachable for progress in self._voting)
        if reachable >= majority(len(at.configuration.voters)):
            self._alone_ticks = 0
        elif not self._alone_ticks:
            self._alone_ticks = at.config.election_ticks_max

    @property
    def needs_tick(self) -> bool:
        """Whether a tick would do anything."""
        return (
            self._transfer is not None
            or self._alone_ticks > 0
            or self._reads.open
            or any(progress.waits for progress in self.progress.values())
        )

    def tick(self) -> None:
        """One unit of time has passed."""
        at = self._at
        for progress in self.progress.values():
            at.pending |= progress.tick(at.config.resend_ticks)
        if self._reads.tick(at.config.resend_ticks):
            self._ask_round()
        if self._transfer is not None:
            self._transfer.ticks_left -= 1
            if not self._transfer.ticks_left:
                self._give_up_transfer()
        if self._alone_ticks:
            self._alone_ticks -= 1
            if not self._alone_ticks:
                self._step_down(at.term, NOBODY)

    def collect(self) -> None:
        """Put into the outbox what may be sent now, and count it as sent."""
        at = self._at
        if self._reads.waiting:
            self._begin_reads()
        for progress in self.progress.values():
            progress.collect(at.log, at.term, at.commit_index, at.config, at.outbox.messages)

    def status(self) -> dict[NodeId, str]:
        """For people."""
        return {node: progress.describe() for node, progress in self.progress.items()}
