"""The election timer, and one round of votes.

Ra has no heartbeat-driven timeouts: a member of an idle queue costs nothing. The timer runs only while there is a
reason to doubt that the group has a leader (no leader is known, the leader's node is suspected, or the leader is being
removed). Its length is drawn anew each time, so that members which start together seldom ask together (section 5.2). A
member that may not campaign (a learner, a member that joins, a member that was removed) has no timer.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.quorum import VoteResult, vote_result
from reference_broker.types import NodeId


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
        """End with the next tick: there is nobody to collide with."""
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
    """One round of pre-votes or votes: who was asked under which token, and who answered.

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
