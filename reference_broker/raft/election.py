"""The election timer and one round of votes.

Ra has no heartbeat-driven timeouts: a member of an idle queue costs nothing. The timer is wound only while there is a
reason to doubt that the group has a leader (none known, or its node is suspected), and its length is drawn anew each
time so that members which start together seldom ask together (section 5.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.quorum import VoteResult, vote_result
from reference_broker.types import NodeId


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

    __slots__ = ("_members", "_votes", "token")

    def __init__(self, members: Sequence[NodeId], own: NodeId, token: int) -> None:
        self._members = members
        self._votes = {own: True}
        self.token = token

    def answer(self, member: NodeId, granted: bool) -> VoteResult:
        """Note an answer and say where the vote stands."""
        self._votes.setdefault(member, granted)
        return self.result

    @property
    def result(self) -> VoteResult:
        """Where the vote stands."""
        return vote_result(self._members, self._votes)
