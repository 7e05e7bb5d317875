"""What a member is at the moment, follower, candidate or leader, and how messages change that (Figure 4).

Who does the work: finding a leader (``elections``), following one (``follower``), receiving its snapshot
(``installation``), being one (``leadership``, made anew for each term). This module hands each message to whom it
concerns, and makes one of the other when a term, a vote or a leader says so.

Invariants: a leadership exists exactly while the role is leader; what a term's leader said is forgotten with it; a
second leader in one term is never followed, it is the end of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.elections import Elections
from reference_broker.raft.errors import SafetyViolationError
from reference_broker.raft.follower import Follower
from reference_broker.raft.installation import Installation
from reference_broker.raft.leadership import Leadership
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.ready import HardState, Role
from reference_broker.raft.standing import Standing
from reference_broker.types import NOBODY, LogIndex, NodeId, Term


class Roles(Standing):
    """A member in its present role."""

    __slots__ = ("_elections", "_follower", "_installation", "_leadership")

    def __init__(
        self,
        node: NodeId,
        members: tuple[NodeId, ...],
        log: LogView,
        hard_state: HardState,
        config: RaftConfig,
        jitter: Jitter,
        machine_version: int,
        replica_id: int,
    ) -> None:
        super().__init__(node, members, log, hard_state, config, machine_version, replica_id)
        self._follower = Follower(self)
        self._leadership: Leadership | None = None
        self._elections = Elections(self, jitter, self._become_follower, self._become_leader)
        self._installation = Installation(self, self._follower, self._become_follower)
        # Entries and hard state are written side by side, so a crash may leave an entry of a term that the hard
        # state never heard of. No message of that term has left: it is as good as a term just heard of.
        self.raise_term(max(hard_state.term, log.last_term))
        self._elections.reconsider()

    def step(self, sender: NodeId, message: Message) -> None:
        """Take a message. Requests of a node that is not a member are heard (section 6: "servers accept
        [them] ... from a leader that is not part of the server's latest configuration"), its answers count nothing.

        Raises SafetyViolationError if it contradicts what is committed, or claims a second leader for a term.
        """
        answered = _ANSWERS.get(type(message))
        if answered is None:
            _HANDLERS[type(message)](self, sender, message)
        elif message.term > self.term:
            self._become_follower(message.term, NOBODY)
        elif self._leadership is not None and message.term == self.term:
            answered(self._leadership, sender, message)

    def _become_follower(self, term: Term, leader: NodeId) -> None:
        if self._leadership is not None:
            self.outbox.reads_refused += self._leadership.refused()
            self._leadership = None
        self.raise_term(term)
        if leader != NOBODY and self.voted_for == NOBODY and not self.is_voter:
            # Removed and added again within this term, it might have voted in a life that it forgot.
            self.vote_for(leader)
        self.role, self.leader = Role.FOLLOWER, leader
        self._follow_anew()
        self._elections.over()
        self.pending = True

    def _follow_anew(self) -> None:
        """What the leader before said is void."""
        self._follower.follow(self.commit_index)
        self._installation.over()

    def _become_leader(self) -> None:
        self._elections.over()
        self.role, self.leader = Role.LEADER, self.node
        self._leadership = Leadership(self, self._become_follower)

    # Messages

    def _on_pre_vote_request(self, sender: NodeId, message: PreVoteRequest) -> None:
        if self._leadership is not None and message.term <= self.term and sender in self._leadership.progress:
            self._leadership.progress[sender].announce()
            self.pending = True
        elif self._leadership is not None and sender not in self._leadership.progress:
            self.outbox.send(sender, PreVoteReply(term=self.term, token=message.token, granted=False))
        else:
            self._elections.pre_vote_asked(sender, message)

    def _on_pre_vote_reply(self, sender: NodeId, message: PreVoteReply) -> None:
        self._elections.pre_vote_answered(sender, message)

    def _on_vote_request(self, sender: NodeId, message: VoteRequest) -> None:
        if self._leadership is not None and sender not in self._leadership.progress:
            # Thesis 4.2.3: a server that was removed and does not know it must not unseat a leader that works.
            self.outbox.send(sender, VoteReply(term=self.term, granted=False))
        else:
            self._elections.vote_asked(sender, message)

    def _on_vote_reply(self, sender: NodeId, message: VoteReply) -> None:
        self._elections.vote_answered(sender, message)

    def _on_timeout_now(self, sender: NodeId, message: TimeoutNow) -> None:
        """Only the leader of the present term may ask for it, and only of a voter."""
        if message.term == self.term and sender == self.leader and self.role is Role.FOLLOWER and self.is_voter:
            self._follow_anew()
            self._elections.stand(transfer=True)

    def _follow(self, message: AppendEntries | InstallSnapshot | Heartbeat) -> None:
        """The sender leads ``message.term``, which is not below ours."""
        if message.term == self.term and self.role is Role.LEADER:
            raise SafetyViolationError(f"node {message.leader} claims to lead term {self.term}, and so does this one")
        if message.term > self.term or self.role is not Role.FOLLOWER or self.leader == NOBODY:
            self._become_follower(message.term, message.leader)
        elif self.leader != message.leader:
            raise SafetyViolationError(f"nodes {self.leader} and {message.leader} both lead term {self.term}")
        elif self._elections.timer.running:
            self._elections.timer.wind()

    def _on_append(self, sender: NodeId, message: AppendEntries) -> None:
        if message.term < self.term:
            self.outbox.send(sender, self._follower.stale(self.term))
            return
        self._follow(message)
        before = self.configurations.latest
        rejection = self._follower.append(message, self.commit_index)
        if self.configurations.latest is not before:
            self._elections.reconsider()
        if rejection is not None:
            self.outbox.send(sender, rejection)
        else:
            self.raise_commit(LogIndex(min(message.commit, self._follower.verified)))
            if self._elections.timer.running:  # this member's own removal may be what is committed now
                self._elections.reconsider()

    def _on_install(self, sender: NodeId, message: InstallSnapshot) -> None:
        if message.term < self.term:
            self._installation.refuse(sender, message)
        else:
            self._follow(message)
            self._installation.chunk(sender, message)

    def _on_heartbeat(self, sender: NodeId, message: Heartbeat) -> None:
        if message.term >= self.term:
            self._follow(message)
        self.outbox.send(sender, HeartbeatReply(term=self.term, round=message.round))


_HANDLERS: Final[dict[type, Callable[[Roles, NodeId, Any], None]]] = {
    AppendEntries: Roles._on_append,
    PreVoteRequest: Roles._on_pre_vote_request,
    PreVoteReply: Roles._on_pre_vote_reply,
    VoteRequest: Roles._on_vote_request,
    VoteReply: Roles._on_vote_reply,
    InstallSnapshot: Roles._on_install,
    Heartbeat: Roles._on_heartbeat,
    TimeoutNow: Roles._on_timeout_now,
}
_ANSWERS: Final[dict[type, Callable[[Leadership, NodeId, Any], None]]] = {
    AppendReply: Leadership.append_answered,
    InstallReply: Leadership.install_answered,
    HeartbeatReply: Leadership.heartbeat_answered,
}
