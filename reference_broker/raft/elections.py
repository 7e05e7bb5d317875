"""Elections: when a member asks for votes, whom it asks, and how the answers are counted.

A member asks for pre-votes first (thesis 9.6), and for votes if these are granted. The changes of its term, vote and
role are in :class:`~reference_broker.raft.core.RaftCore`.

Ra has no heartbeat-driven timeouts: a member of an idle queue costs nothing. The timer runs only while there is a
reason to doubt that the group has a leader (no leader is known, the leader's node is suspected, or the leader is being
removed). Its length is drawn anew each time, so that members which start together seldom ask together (section 5.2). A
member that may not campaign (a learner, a member that joins, a member that was removed) has no timer.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import PreVoteReply, PreVoteRequest, VoteReply, VoteRequest
from reference_broker.raft.quorum import VoteResult, vote_result
from reference_broker.raft.ready import NextReady
from reference_broker.types import NodeId, Term


class ElectionTimer:
    """A count of ticks. The timer runs while ``left`` is above 0."""

    __slots__ = ("_jitter", "_max", "_min", "left")

    def __init__(self, config: RaftConfig, jitter: Jitter) -> None:
        self._min, self._max, self._jitter = config.election_ticks_min, config.election_ticks_max, jitter
        self.left = 0

    def wind(self) -> None:
        """Start, or start again, with a length drawn anew."""
        self.left = self._jitter(self._min, self._max)

    def hurry(self) -> None:
        """End with the next tick: no other candidate can collide."""
        self.left = 1

    def stop(self) -> None:
        """There is a leader and no reason to doubt it."""
        self.left = 0

    def tick(self) -> bool:
        """Count one tick. True when the time is up; the timer has stopped then."""
        if not self.left:
            return False
        self.left -= 1
        return not self.left


class Round:
    """One round of pre-votes or votes: its token, the members asked, and the members that answered.

    A round counts the voters of the configuration that was in effect when the round began; nothing is appended while
    it lasts. Answers to another round never count, and repeated answers of one member count once. The own vote counts
    only if the configuration counts this member (thesis 4.2.2).
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
        """Where the vote stands."""
        return vote_result(self._voters, self._votes)


class Elections:
    """The rounds of one member, one after the other: at most one is under way, of pre-votes or of votes."""

    __slots__ = (
        "_is_pre_vote",
        "_log",
        "_machine_version",
        "_next_ready",
        "_node",
        "_round",
        "_term",
        "_token",
        "_transfer",
    )

    def __init__(self, node: NodeId, log: LogView, next_ready: NextReady, machine_version: int, token: int) -> None:
        """``token`` is drawn by chance, so that no answer to a former start of the member counts."""
        self._node, self._log, self._next_ready, self._machine_version = node, log, next_ready, machine_version
        self._token = token
        self._round: Round | None = None
        self._term = Term(0)
        self._is_pre_vote = self._transfer = False

    def begin(self, term: Term, *, is_pre_vote: bool, transfer: bool = False) -> VoteResult:
        """Ask for pre-votes or for votes in ``term``. ``transfer``: the leader itself wished for it. Returns where the
        vote stands with the own vote alone."""
        self._token += 1
        self._round = Round(self._log.configuration.voters, self._node, self._token)
        self._term, self._is_pre_vote, self._transfer = term, is_pre_vote, transfer
        self._next_ready.pending = True
        for node in self._asked:
            self.ask(node)
        return self._round.result

    def end(self) -> None:
        """No round is under way any more."""
        self._round = None

    @property
    def _asked(self) -> list[NodeId]:
        """The voters; in a pre-vote also the voters that only an uncommitted change has removed.

        The answers of removed voters do not count. But such a voter may still trust this member, which led when it made
        the change, and others may trust the voter from an earlier term; no other member tells it that this member leads
        no more.
        """
        voters = list(self._log.configuration.voters)
        if self._is_pre_vote:
            former = self._log.configurations.at(self._log.commit_index).voters
            voters += (node for node in former if node not in voters)
        return voters

    def ask(self, node: NodeId) -> None:
        """Send ``node`` the request of the round under way, if there is one and ``node`` is asked."""
        if self._round is None or node == self._node or node not in self._asked:
            return
        last_index, last_term = self._log.last_index, self._log.last_term
        request: PreVoteRequest | VoteRequest
        if self._is_pre_vote:
            request = PreVoteRequest(
                term=self._term,
                token=self._token,
                candidate=self._node,
                last_index=last_index,
                last_term=last_term,
                machine_version=self._machine_version,
            )
        else:
            request = VoteRequest(
                term=self._term,
                candidate=self._node,
                last_index=last_index,
                last_term=last_term,
                transfer=self._transfer,
            )
        self._next_ready.send(node, request)

    def pre_vote_answered(self, sender: NodeId, reply: PreVoteReply) -> VoteResult:
        """The state of the pre-vote. An answer to an older round changes nothing."""
        if self._round is None or not self._is_pre_vote or reply.token != self._round.token:
            return VoteResult.PENDING
        return self._round.answer(sender, reply.granted)

    def vote_answered(self, sender: NodeId, reply: VoteReply) -> VoteResult:
        """The state of the vote. An answer to an older candidacy changes nothing."""
        if self._round is None or self._is_pre_vote or reply.term != self._term:
            return VoteResult.PENDING
        return self._round.answer(sender, reply.granted)
