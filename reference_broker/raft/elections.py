"""How a leader is found: the election timer, rounds of pre-votes and votes, and who is granted one.

Ra has no heartbeat-driven timeouts: a member of an idle queue costs nothing. The timer is wound only while there is a
reason to doubt that the group has a leader (none known, its node is suspected, or it is being removed), and its length
is drawn anew each time so that members which start together seldom ask together (section 5.2). A member that may not
campaign (a learner, one that joins, one that was removed) has no timer.

Invariants: at most one vote a term, durable before it is told; a round counts the voters of the configuration that was
in effect when it began, and nothing is appended while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.messages import PreVoteReply, PreVoteRequest, VoteReply, VoteRequest
from reference_broker.raft.quorum import VoteResult, vote_result
from reference_broker.raft.ready import Role
from reference_broker.raft.standing import Standing
from reference_broker.types import NOBODY, NodeId, Term

_TOKEN_MAX: Final = 2**31


class ElectionTimer:
    """A count of ticks, or stopped."""

    __slots__ = ("_jitter", "_left", "_max", "_min")

    def __init__(self, config: RaftConfig, jitter: Jitter) -> None:
        self._min, self._max, self._jitter = config.election_ticks_min, config.election_ticks_max, jitter
        self._left = 0

    @property
    def running(self) -> bool:
        """Whether a tick would do anything."""
        return self._left > 0

    def wind(self) -> None:
        """Start, or start again, with a length drawn anew."""
        self._left = self._jitter(self._min, self._max)

    def hurry(self) -> None:
        """End with the next tick: there is nobody to collide with."""
        self._left = 1

    def stop(self) -> None:
        """There is a leader and no reason to doubt it."""
        self._left = 0

    def tick(self) -> bool:
        """One tick. True when the time is up; the timer has stopped then."""
        if not self._left:
            return False
        self._left -= 1
        return not self._left


class Round:
    """One round of pre-votes or votes: who was asked under which token, and who answered.

    Answers to another round never count; repeated answers of one member count once.
    """

    __slots__ = ("_voters", "_votes", "token")

    def __init__(self, voters: Sequence[NodeId], own: NodeId, token: int) -> None:
        self._voters = voters
        self._votes = {own: True}
        self.token = token

    def answer(self, voter: NodeId, granted: bool) -> VoteResult:
        """Note an answer and say where the vote stands."""
        self._votes.setdefault(voter, granted)
        return self.result

    @property
    def result(self) -> VoteResult:
        """Where the vote stands. The own vote counts only if the configuration counts this member (thesis 4.2.2)."""
        return vote_result(self._voters, self._votes)


class Elections:
    """The part of a member that elects. ``won`` makes it leader, ``become_follower`` ends its candidacy."""

    __slots__ = ("_at", "_become_follower", "_round", "_token", "_transfer", "_won", "timer")

    def __init__(
        self,
        at: Standing,
        jitter: Jitter,
        become_follower: Callable[[Term, NodeId], None],
        won: Callable[[], None],
    ) -> None:
        self._at = at
        self._become_follower = become_follower
        self._won = won
        self.timer = ElectionTimer(at.config, jitter)
        self._token = jitter(0, _TOKEN_MAX)
        self._round: Round | None = None
        self._transfer = False

    # The timer

    def over(self) -> None:
        """This member is a follower now: no round is under way, and the timer starts over or stands still."""
        self._round = None
        self.timer.stop()
        self.reconsider()

    def reconsider(self) -> None:
        """Whom this member trusts, or the configuration, has changed: does the timer of a follower have to run?"""
        if self._at.role is not Role.FOLLOWER:
            return
        if self._at.trusts_leader or not self._at.may_campaign:
            self.timer.stop()
        elif not self.timer.running:
            if self._at.configuration.voters == (self._at.node,):
                self.timer.hurry()
            else:
                self.timer.wind()

    # Asking

    def pre_vote(self) -> None:
        """Ask whether votes would be granted (thesis 9.6)."""
        self._at.role, self._at.leader = Role.PRE_CANDIDATE, NOBODY
        self._start_round()

    def stand(self, *, transfer: bool = False) -> None:
        """Raise the term and ask for votes; with ``transfer`` at the leader's own wish (thesis 3.10).

        A member whose machine is older than the log's gives up: it could not apply what it would have to commit.
        """
        at = self._at
        if at.machine_version < at.machine_version_in_effect:
            self._become_follower(at.term, NOBODY)
            return
        at.raise_term(Term(at.term + 1))
        at.vote_for(at.node)
        at.role, at.leader = Role.CANDIDATE, NOBODY
        self._transfer = transfer
        self._start_round()
        if self._round is not None and self._round.result is VoteResult.WON:
            self._won()

    def _start_round(self) -> None:
        at = self._at
        self._token += 1
        self._round = Round(at.configuration.voters, at.node, self._token)
        self.timer.wind()
        at.pending = True
        for node in self._asked:
            self.ask(node)

    @property
    def _asked(self) -> list[NodeId]:
        """The voters; and in a pre-vote those, too, whom only a change that is not committed has taken out.

        Their answers do not count. But such a one may still trust this member, which led when it made the change, and
        be trusted by the others from an earlier term; nobody else tells it that this member leads no more.
        """
        at = self._at
        voters = list(at.configuration.voters)
        if at.role is Role.PRE_CANDIDATE:
            voters += (node for node in at.configurations.at(at.commit_index).voters if node not in voters)
        return voters

    def ask(self, node: NodeId) -> None:
        """Send ``node`` the request of the round under way, if there is one and ``node`` is asked."""
        at = self._at
        if node == at.node or node not in self._asked:
            return
        last_index, last_term = at.log.last_index, at.log.last_term
        request: PreVoteRequest | VoteRequest
        if at.role is Role.PRE_CANDIDATE:
            request = PreVoteRequest(
                term=at.term,
                token=self._token,
                candidate=at.node,
                last_index=last_index,
                last_term=last_term,
                machine_version=at.machine_version,
            )
        elif at.role is Role.CANDIDATE:
            request = VoteRequest(
                term=at.term,
                candidate=at.node,
                last_index=last_index,
                last_term=last_term,
                transfer=self._transfer,
            )
        else:
            return
        at.outbox.send(node, request)

    def pre_vote_answered(self, sender: NodeId, message: PreVoteReply) -> None:
        """An answer to this round or an older one."""
        at = self._at
        if message.term > at.term:
            self._become_follower(message.term, NOBODY)
        elif at.role is Role.PRE_CANDIDATE and self._round and message.token == self._round.token:
            self._count(self._round, sender, message.granted, self.stand)

    def vote_answered(self, sender: NodeId, message: VoteReply) -> None:
        """An answer to this candidacy or an older one."""
        at = self._at
        if message.term > at.term:
            self._become_follower(message.term, NOBODY)
        elif at.role is Role.CANDIDATE and self._round and message.term == at.term:
            self._count(self._round, sender, message.granted, self._won)

    def _count(self, votes: Round, sender: NodeId, granted: bool, won: Callable[[], None]) -> None:
        result = votes.answer(sender, granted)
        if result is VoteResult.WON:
            won()
        elif result is VoteResult.LOST:
            self._become_follower(self._at.term, NOBODY)

    # Granting

    def pre_vote_asked(self, sender: NodeId, message: PreVoteRequest) -> None:
        """Would this member vote for the sender? Nobody's term rises because of the question, unless it is behind."""
        at = self._at
        if message.term >= at.term and sender == at.leader:
            self._become_follower(message.term, NOBODY)  # it asks for votes, so it leads no more
        elif message.term > at.term and not at.trusts_leader:
            self._become_follower(message.term, NOBODY)
        granted = (
            message.term >= at.term
            and at.may_vote
            and not at.trusts_leader
            and message.machine_version >= at.machine_version_in_effect
            and at.log.is_up_to_date(message.last_index, message.last_term)
        )
        at.outbox.send(sender, PreVoteReply(term=at.term, token=message.token, granted=granted))

    def vote_asked(self, sender: NodeId, message: VoteRequest) -> None:
        """RequestVote. Who trusts its leader neither votes nor learns the term, unless the leader wished it so."""
        at = self._at
        if message.term > at.term and (message.transfer or sender == at.leader or not at.trusts_leader):
            self._become_follower(message.term, NOBODY)
        granted = (
            message.term == at.term
            and at.may_vote
            and at.voted_for in (NOBODY, message.candidate)
            and at.leader == NOBODY
            and at.log.is_up_to_date(message.last_index, message.last_term)
        )
        if granted:
            at.vote_for(message.candidate)
            if at.role is not Role.FOLLOWER:
                self._become_follower(at.term, NOBODY)
            if at.may_campaign:
                self.timer.wind()
        at.outbox.send(sender, VoteReply(term=at.term, granted=granted))
