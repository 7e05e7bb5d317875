"""One member of one Raft group: messages, ticks, proposals and notices of the disk in, a :class:`Ready` out.

Theory of operation
-------------------
The core holds no entries and does no I/O. It knows the term of each entry (``log_view``), each follower's progress
(``progress``), how far a leader is to be believed (``follower``), and one round of votes (``election``). The shell
calls one input or several, then takes :meth:`RaftCore.ready` and carries it out in the order that ``ready`` documents.

What it takes from the paper it takes unchanged: terms, the vote and its log comparison, log matching, and commitment
by counting, for entries of the own term only. What differs is Ra's:

* Everybody, the leader too, counts for what is on *disk*. The leader's write runs beside the followers' writes, and an
  entry may be committed before the leader itself has it on disk (thesis 10.2.1).
* No heartbeats. Whether a node lives is told by the shell once for all groups (``node_down``, ``node_up``); the timer
  of a follower stands still while it knows a leader on a node that nobody suspects. A leader that hears a pre-vote
  of its own term or an older one says that it is there.
* Pre-vote (thesis 9.6) before each election, with a token, so a member that comes back never disturbs.
* AppendEntries are made when the Ready is taken: many inputs, one message a follower.

Invariants: term, commit index and vote within a term never go back; a message says only what the hard state of the
same or an earlier Ready covers; a leader never overwrites its own log; the commit index covers only what a majority
has on disk.

Back of the envelope: the leader of three pays about 15 us for an entry (propose, two answers, its own notice, two
Readys). At 1,000 entries/s, a batch of commands each, that is 1.5 % of a core.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final
from zlib import crc32

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.election import ElectionTimer, Round
from reference_broker.raft.errors import NotLeaderError, SafetyViolationError
from reference_broker.raft.follower import Follower
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    InstallReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.outbox import Outbox
from reference_broker.raft.progress import Progress
from reference_broker.raft.quorum import VoteResult, committed_index
from reference_broker.raft.ready import HardState, Ready, Role
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term

__all__ = ["NotLeaderError", "RaftConfig", "RaftCore", "SafetyViolationError"]

_MACHINE_VERSION: Final = Struct(">I")
_TOKEN_MAX: Final = 2**31


class RaftCore:
    """The Raft state machine of one member. Not thread-safe: one owner calls it."""

    __slots__ = (
        "_down",
        "_effective_version",
        "_follower",
        "_others",
        "_outbox",
        "_pending",
        "_progress",
        "_round",
        "_timer",
        "_token",
        "_voted_for",
        "commit_index",
        "config",
        "leader",
        "log",
        "machine_version",
        "members",
        "node",
        "role",
        "term",
    )

    def __init__(
        self,
        node: NodeId,
        members: tuple[NodeId, ...],
        log: LogView,
        hard_state: HardState,
        config: RaftConfig,
        jitter: Jitter,
        machine_version: int = 1,
    ) -> None:
        """``log`` and ``hard_state`` are what recovery found; ``jitter`` is the only source of chance.

        Raises ValueError if ``node`` is not one of ``members`` or the settings are unsound.
        """
        problems = config.validate()
        if node not in members or len(set(members)) != len(members):
            problems.append(f"raft.members: node {node} must be one of {members}, and each member named once")
        if problems:
            raise ValueError("\n".join(problems))
        self.node, self.members, self.log, self.config = node, members, log, config
        self.machine_version = machine_version
        self.role = Role.FOLLOWER
        self.leader = NOBODY
        self.commit_index = log.snapshot_index
        self.term, self._voted_for = hard_state.term, hard_state.voted_for
        self._others = tuple(member for member in members if member != node)
        self._down: set[NodeId] = set()
        self._effective_version = 0
        self._outbox = Outbox()
        self._follower = Follower(log, self._outbox)
        self._progress: dict[NodeId, Progress] = {}
        self._round: Round | None = None
        self._timer = ElectionTimer(config, jitter)
        self._token = jitter(0, _TOKEN_MAX)
        self._pending = False
        # Entries and hard state are written side by side, so a crash may leave an entry of a term that the hard
        # state never heard of. No message of that term has left: it is as good as a term just heard of.
        self._raise_term(max(hard_state.term, log.last_term))
        self._timer.wind()
        if not self._others:
            self.campaign()

    # Inputs

    def step(self, sender: NodeId, message: Message) -> None:
        """Take a message. One from a node that is not a member is dropped.

        Raises SafetyViolationError if it contradicts what is committed, or claims a second leader for a term.
        """
        if sender in self._others:
            _HANDLERS[type(message)](self, sender, message)

    def tick(self) -> None:
        """One unit of time has passed."""
        if self.role is Role.LEADER:
            for progress in self._progress.values():
                self._pending |= progress.tick(self.config.resend_ticks)
        elif self._timer.tick():
            self.campaign()

    def propose(self, kind: EntryKind, payload: bytes, crc: int) -> LogIndex:
        """Append an entry and replicate it. Returns its index; it is committed once ``commit_index`` reaches that
        while this member still leads in the same term.

        Raises NotLeaderError, naming the leader if one is known.
        """
        if self.role is not Role.LEADER:
            raise NotLeaderError(self.leader)
        index = self.log.append(self.term)
        self._outbox.entries.append(Entry(index, self.term, kind, crc, payload))
        self._pending = True
        return index

    def synced(self, index: LogIndex, term: Term) -> None:
        """The WAL has entries up to ``index``, the last of them of ``term``, on disk. A late notice is ignored."""
        if not self.log.mark_synced(index, term):
            return
        if self.role is Role.LEADER:
            self._advance_commit()
        elif self.leader != NOBODY:
            self._follower.synced()

    def node_down(self, node: NodeId) -> None:
        """``node`` is suspected. A follower of it starts its timer, a leader stops sending to it."""
        self._down.add(node)
        if node in self._progress:
            self._progress[node].reachable = False
        elif node == self.leader and not self._timer.running:
            self._timer.wind()

    def node_up(self, node: NodeId) -> None:
        """``node`` answers again, over a new link: whatever was under way may be lost.

        Call it for each new link, even if the old one's end went unnoticed.
        """
        self._down.discard(node)
        if node in self._progress:
            self._progress[node].reconnect()
            self._pending = True
        elif node == self.leader:
            self._timer.stop()
        elif node in self._others:
            self._ask_for_vote(node)

    def campaign(self) -> None:
        """Ask for votes now instead of when the timer ends, as the node does that has just created a group."""
        if self.role is Role.LEADER:
            return
        if not self._others:
            self._become_candidate()
            return
        self.role, self.leader = Role.PRE_CANDIDATE, NOBODY
        self._follower.follow(self.commit_index)
        self._start_round()

    def snapshot_taken(self, index: LogIndex, term: Term) -> None:
        """An own snapshot up to ``index`` is durable: the log up to there may go. An older one than known is ignored.

        Raises ValueError for a snapshot of what is not committed.
        """
        if index > self.commit_index:
            raise ValueError(f"snapshot up to {index}, but only {self.commit_index} is committed")
        if index > self.log.snapshot_index:
            self.log.compact(index, term)

    def accepts(self, sender: NodeId, message: InstallSnapshot) -> bool:
        """Whether the shell must store this chunk, *before* it passes the message to :meth:`step`.

        Chunk 1 begins a new file and discards what an earlier transfer left. After the last chunk the shell checks
        the whole, makes it durable and calls :meth:`installed`, or :meth:`install_failed`.
        """
        if sender not in self._others or message.term < self.term or self._has(message.index, message.index_term):
            return False
        known = message.term == self.term and self.leader == message.leader
        return self._follower.wants(message) if known else message.number == 1

    def installed(self, index: LogIndex, term: Term) -> None:
        """A snapshot received from the leader is durable. ``Ready.reset_to`` says whether the log goes with it.

        If meanwhile the log came to hold the same entries, nothing is reset: what is on disk may have been counted.
        """
        if self._has(index, term):
            self._adopt(index, term)
        else:
            self._reset(index, term)
        if self.leader not in (NOBODY, self.node) and self._follower.receiving:
            self._send_install_reply(self.leader, index, number=0, done=True)
        self._follower.stop_receiving()
        self._pending = True

    def install_failed(self, index: LogIndex) -> None:
        """What was received for the snapshot up to ``index`` is unsound: ask for it again."""
        if self._follower.receiving and self.leader not in (NOBODY, self.node):
            self._send_install_reply(self.leader, index, number=0, done=False)
        self._follower.stop_receiving()

    def version_in_effect(self, version: int) -> None:
        """Recovery came across a no-op of this machine version: no older machine may lead any more."""
        self._effective_version = max(self._effective_version, version)

    # Output

    @property
    def has_ready(self) -> bool:
        """Whether :meth:`ready` may hold anything. Cheap; a true now and then for nothing is possible."""
        return self._pending or self._follower.answer_due or bool(self._outbox)

    def ready(self) -> Ready:
        """Take everything accumulated; an empty one when there is nothing."""
        outbox = self._outbox
        if self.role is Role.LEADER:
            for progress in self._progress.values():
                progress.collect(self.log, self.term, self.commit_index, self.config, outbox.messages)
        elif self._follower.answer_due:
            outbox.send(self.leader, self._follower.answer(self.term))
        ready = Ready(
            hard_state=HardState(term=self.term, voted_for=self._voted_for) if outbox.hard_state_changed else None,
            truncate_from=outbox.truncate_from,
            append=tuple(outbox.entries),
            messages=tuple(outbox.messages),
            commit=self.commit_index,
            role=self.role,
            leader=self.leader,
            reset_to=outbox.reset_to,
        )
        outbox.clear()
        self._pending = False
        return ready

    @property
    def needs_tick(self) -> bool:
        """False when a tick would do nothing, so that hundreds of idle groups cost nothing."""
        if self.role is Role.LEADER:
            return any(progress.waits for progress in self._progress.values())
        return self._timer.running

    def pinned_snapshots(self) -> set[LogIndex]:
        """Snapshots that are being sent and must stay readable."""
        return {progress.snapshot_index for progress in self._progress.values() if progress.chunk}

    def status(self) -> dict[str, Any]:
        """For people: what a member knows, with each follower's progress on the leader."""
        return {
            "node": self.node,
            "role": str(self.role),
            "term": self.term,
            "leader": self.leader,
            "voted_for": self._voted_for,
            "commit_index": self.commit_index,
            "first_index": self.log.first_index,
            "last_index": self.log.last_index,
            "synced_index": self.log.synced_index,
            "log": self.log.describe(),
            "suspected": sorted(self._down),
            "machine_version_in_effect": self._effective_version,
            "followers": {node: progress.describe() for node, progress in self._progress.items()},
        }

    # Roles

    def _raise_term(self, term: Term) -> None:
        """A new term and its cleared vote are one change: a crash between the two could vote twice."""
        if term > self.term:
            self.term, self._voted_for = term, NOBODY
            self._outbox.hard_state_changed = True

    def _become_follower(self, term: Term, leader: NodeId) -> None:
        self._raise_term(term)
        self.role, self.leader = Role.FOLLOWER, leader
        self._progress.clear()
        self._round = None
        self._follower.follow(self.commit_index)
        if leader == NOBODY or leader in self._down:
            self._timer.wind()
        else:
            self._timer.stop()
        self._pending = True

    def _become_candidate(self) -> None:
        self._raise_term(Term(self.term + 1))
        self._voted_for = self.node
        self.role, self.leader = Role.CANDIDATE, NOBODY
        self._start_round()
        if not self._others:
            self._become_leader()

    def _become_leader(self) -> None:
        self.role, self.leader = Role.LEADER, self.node
        self._round = None
        self._timer.stop()
        after = LogIndex(self.log.last_index + 1)
        self._progress = {node: Progress(node, after, node not in self._down) for node in self._others}
        payload = _MACHINE_VERSION.pack(self.machine_version)
        self.version_in_effect(self.machine_version)
        self.propose(EntryKind.NOOP, payload, crc32(payload))

    # Elections

    def _start_round(self) -> None:
        self._token += 1
        self._round = Round(self.members, self.node, self._token)
        self._timer.wind()
        self._pending = True
        for node in self._others:
            self._ask_for_vote(node)

    def _ask_for_vote(self, node: NodeId) -> None:
        """Send the request of the round under way, if there is one."""
        last_index, last_term = self.log.last_index, self.log.last_term
        request: PreVoteRequest | VoteRequest
        if self.role is Role.PRE_CANDIDATE:
            request = PreVoteRequest(
                term=self.term,
                token=self._token,
                candidate=self.node,
                last_index=last_index,
                last_term=last_term,
                machine_version=self.machine_version,
            )
        elif self.role is Role.CANDIDATE:
            request = VoteRequest(term=self.term, candidate=self.node, last_index=last_index, last_term=last_term)
        else:
            return
        self._outbox.send(node, request)

    def _on_pre_vote_request(self, sender: NodeId, message: PreVoteRequest) -> None:
        if self.role is Role.LEADER and message.term <= self.term:
            self._progress[sender].announce()
            self._pending = True
            return
        if message.term >= self.term and sender == self.leader:
            self._become_follower(message.term, NOBODY)  # it asks for votes, so it leads no more
        elif message.term > self.term and not self._trusts_leader:
            self._become_follower(message.term, NOBODY)
        granted = (
            message.term >= self.term
            and not self._trusts_leader
            and message.machine_version >= self._effective_version
            and self.log.is_up_to_date(message.last_index, message.last_term)
        )
        self._outbox.send(sender, PreVoteReply(term=self.term, token=message.token, granted=granted))

    @property
    def _trusts_leader(self) -> bool:
        """A leader is known, it is somebody else, and nobody suspects its node."""
        return self.leader not in (NOBODY, self.node) and self.leader not in self._down

    def _on_pre_vote_reply(self, sender: NodeId, message: PreVoteReply) -> None:
        if message.term > self.term:
            self._become_follower(message.term, NOBODY)
        elif self.role is Role.PRE_CANDIDATE and self._round and message.token == self._round.token:
            self._count(self._round, sender, message.granted, self._become_candidate)

    def _on_vote_request(self, sender: NodeId, message: VoteRequest) -> None:
        if message.term > self.term:
            self._become_follower(message.term, NOBODY)
        granted = (
            message.term == self.term
            and self._voted_for in (NOBODY, message.candidate)
            and self.leader == NOBODY
            and self.log.is_up_to_date(message.last_index, message.last_term)
        )
        if granted:
            self._grant(message.candidate)
        self._outbox.send(sender, VoteReply(term=self.term, granted=granted))

    def _grant(self, candidate: NodeId) -> None:
        if self._voted_for != candidate:
            self._voted_for = candidate
            self._outbox.hard_state_changed = True
        if self.role is not Role.FOLLOWER:
            self._become_follower(self.term, NOBODY)
        self._timer.wind()

    def _on_vote_reply(self, sender: NodeId, message: VoteReply) -> None:
        if message.term > self.term:
            self._become_follower(message.term, NOBODY)
        elif self.role is Role.CANDIDATE and self._round and message.term == self.term:
            self._count(self._round, sender, message.granted, self._become_leader)

    def _count(self, votes: Round, sender: NodeId, granted: bool, won: Callable[[], None]) -> None:
        result = votes.answer(sender, granted)
        if result is VoteResult.WON:
            won()
        elif result is VoteResult.LOST:
            self._become_follower(self.term, NOBODY)

    # Replication, follower

    def _follow(self, message: AppendEntries | InstallSnapshot) -> None:
        """The sender leads ``message.term``, which is not below ours."""
        if message.term == self.term and self.role is Role.LEADER:
            raise SafetyViolationError(f"node {message.leader} claims to lead term {self.term}, and so does this one")
        if message.term > self.term or self.role is not Role.FOLLOWER or self.leader == NOBODY:
            self._become_follower(message.term, message.leader)
        elif self.leader != message.leader:
            raise SafetyViolationError(f"nodes {self.leader} and {message.leader} both lead term {self.term}")
        elif self._timer.running:
            self._timer.wind()

    def _on_append(self, sender: NodeId, message: AppendEntries) -> None:
        if message.term < self.term:
            self._outbox.send(sender, self._follower.stale(self.term))
            return
        self._follow(message)
        rejection = self._follower.append(message, self.commit_index)
        if rejection is not None:
            self._outbox.send(sender, rejection)
            return
        for entry in message.entries:
            if entry.kind is EntryKind.NOOP:
                self.version_in_effect(int.from_bytes(entry.payload, "big"))
        self._raise_commit(LogIndex(min(message.commit, self._follower.verified)))

    def _raise_commit(self, index: LogIndex) -> None:
        if index > self.commit_index:
            self.commit_index = index
            self._pending = True

    def _on_install(self, sender: NodeId, message: InstallSnapshot) -> None:
        if message.term < self.term:
            self._send_install_reply(sender, message.index, number=0, done=False)
            return
        self._follow(message)
        if self._has(message.index, message.index_term):
            self._raise_commit(message.index)
            self._follower.verified = max(self._follower.verified, message.index)
            self._send_install_reply(sender, message.index, number=message.number, done=True)
            return
        number = self._follower.take(message)
        if number is not None:
            self._send_install_reply(sender, message.index, number=number, done=False)

    def _has(self, index: LogIndex, term: Term) -> bool:
        """Figure 13, receiver step 6: the log holds the snapshot's last entry, so it holds all before it."""
        return index <= self.commit_index or self.log.term_at(index) == term

    def _adopt(self, index: LogIndex, term: Term) -> None:
        self._raise_commit(index)
        self._follower.verified = max(self._follower.verified, index)
        if index > self.log.snapshot_index:
            self.log.compact(index, term)

    def _reset(self, index: LogIndex, term: Term) -> None:
        if self.role is Role.LEADER:
            raise SafetyViolationError(f"entry {index} of term {term} is committed, but this leader does not have it")
        if self.role is not Role.FOLLOWER:  # what was asked for votes spoke of another log
            self._become_follower(self.term, NOBODY)
        self.log.reset(index, term)
        self._outbox.reset(index)
        self.commit_index = index
        self._follower.start_over_at(index)

    def _send_install_reply(self, to: NodeId, index: LogIndex, *, number: int, done: bool) -> None:
        self._outbox.send(to, InstallReply(term=self.term, index=index, number=number, done=done))

    # Replication, leader

    def _on_append_reply(self, sender: NodeId, message: AppendReply) -> None:
        if message.term > self.term:
            self._become_follower(message.term, NOBODY)
        elif self.role is Role.LEADER and message.term == self.term:
            progress = self._progress[sender]
            if not message.success:
                self._pending |= progress.rejected(message.next_index)
                return
            if progress.accepted(message, self.log):
                self._advance_commit()
            self._pending |= progress.has_news(self.log.last_index, self.commit_index)

    def _on_install_reply(self, sender: NodeId, message: InstallReply) -> None:
        if message.term > self.term:
            self._become_follower(message.term, NOBODY)
        elif self.role is Role.LEADER and message.term == self.term:
            self._pending |= self._progress[sender].chunk_answered(message, self.log)

    def _advance_commit(self) -> None:
        """Section 5.4.2: only an entry of the own term commits by being counted, and with it all before it."""
        synced = [progress.match_index for progress in self._progress.values()]
        synced.append(self.log.synced_index)
        index = committed_index(synced)
        if index > self.commit_index and self.log.term_at(index) == self.term:
            self.commit_index = index
            self._pending = True


_HANDLERS: Final[dict[type, Callable[[RaftCore, NodeId, Any], None]]] = {
    AppendEntries: RaftCore._on_append,
    AppendReply: RaftCore._on_append_reply,
    PreVoteRequest: RaftCore._on_pre_vote_request,
    PreVoteReply: RaftCore._on_pre_vote_reply,
    VoteRequest: RaftCore._on_vote_request,
    VoteReply: RaftCore._on_vote_reply,
    InstallSnapshot: RaftCore._on_install,
    InstallReply: RaftCore._on_install_reply,
}
