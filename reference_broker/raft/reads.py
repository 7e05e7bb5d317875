"""Consistent queries without the log: ReadIndex (section 8, thesis 6.4), batched by rounds.

A read needs three things of its leader. An entry of the leader's own term must be committed, so that its commit index
is not behind a former leader's. The leader must take its commit index, or, if it is later, the entry up to which
followers may find commits by themselves. And a majority must still know of no later term. This takes one round of
heartbeats, and all reads that came before the round began share the round. A round that began before a read came proves
nothing for that read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from reference_broker.idle import NOTHING
from reference_broker.raft.quorum import committed_index
from reference_broker.types import LogIndex, NodeId


class Reads:
    """The reads of one leader in one term."""

    __slots__ = ("_acked", "_quiet_ticks", "asked", "round", "waiting")

    def __init__(self) -> None:
        self.waiting: list[int] = []
        """Tokens for which no round has begun."""
        self.round = 0
        self.asked: deque[tuple[int, int, LogIndex]] = NOTHING
        """Round, token and index of the reads whose round waits for answers."""
        self._acked: dict[NodeId, int] = {}
        self._quiet_ticks = 0

    @property
    def open(self) -> bool:
        """Whether a round waits for answers."""
        return bool(self.asked)

    def begin(self, index: LogIndex) -> None:
        """A round begins for all waiting reads; they will be answered at ``index``, which covers every entry that any
        member knows as committed."""
        self.round += 1
        if self.asked is NOTHING:
            self.asked = deque()
        self.asked.extend((self.round, token, index) for token in self.waiting)
        self.waiting.clear()
        self._quiet_ticks = 0

    def lacks(self, node: NodeId) -> bool:
        """Whether ``node`` has not answered the newest round."""
        return self._acked.get(node, 0) < self.round

    def answered(self, node: NodeId, number: int) -> None:
        """``node`` knew of no later term when it answered round ``number``."""
        self._acked[node] = max(number, self._acked.get(node, 0))

    def confirmed(self, others: Iterable[NodeId], own: bool, commit: LogIndex) -> list[tuple[int, LogIndex]]:
        """Take the reads whose round a majority of the voters answered (``others``, and this member if ``own``), and
        whose index is committed."""
        rounds = [LogIndex(self._acked.get(node, 0)) for node in others]
        if own:
            rounds.append(LogIndex(self.round))
        up_to = committed_index(rounds)
        done = []
        while self.asked and self.asked[0][0] <= up_to and self.asked[0][2] <= commit:
            _, token, index = self.asked.popleft()
            done.append((token, index))
        return done

    def tick(self, resend_ticks: int) -> bool:
        """One tick without the answer. True when the round has to be asked for again."""
        if not self.asked:
            return False
        self._quiet_ticks = (self._quiet_ticks + 1) % resend_ticks
        return not self._quiet_ticks

    def refused(self) -> list[int]:
        """Everything unanswered: the leadership is lost."""
        return [*(token for _, token, _ in self.asked), *self.waiting]
