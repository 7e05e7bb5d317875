"""The receiving side of InstallSnapshot: which chunks to take, and how a snapshot and the log fit (Figure 13).

Theory of operation
-------------------
The leader sends a snapshot in numbered chunks. The shell stores the chunks that :meth:`Installation.wants` names, and
the member acknowledges each chunk but the last. It answers the last chunk when the whole snapshot is durable. A chunk
out of turn is answered with 0, which means: begin again. Chunk 1 always begins a new file, for the sender may have
started over too.

A durable snapshot replaces the log, unless the log has come to hold the same entries meanwhile. Entries on disk may
have been counted, so none of them may go.

Invariant: the chunks of one snapshot are taken in order, each once, and none after the last.
"""

from __future__ import annotations

from reference_broker.raft.follower import Follower
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import InstallReply, InstallSnapshot
from reference_broker.types import LogIndex, Term


class Installation:
    """Lives as long as the member; :meth:`over` ends a transfer that is under way."""

    __slots__ = ("_follower", "_incoming", "_log")

    def __init__(self, log: LogView, follower: Follower) -> None:
        self._log = log
        self._follower = follower
        self._incoming: _Incoming | None = None

    def over(self) -> bool:
        """The snapshot is installed or unsound, or its leader is followed no more. True if one was under way."""
        was_under_way = self._incoming is not None
        self._incoming = None
        return was_under_way

    # Chunks

    def wants(self, message: InstallSnapshot) -> bool:
        """Whether this chunk of the leader that is followed is the next to store."""
        incoming = self._incoming
        if incoming is None or not incoming.is_same(message):
            return message.number == 1
        return not incoming.complete and message.number in (1, incoming.next_number)

    def chunk(self, message: InstallSnapshot) -> InstallReply | None:
        """Note a chunk of the leader that is followed. Returns the answer, or None while there is nothing to say."""
        if self.covers(message.index, message.index_term):
            self._cover(message.index)
            number, done = message.number, True
        elif self.wants(message):
            self._incoming = _Incoming(message)
            if message.last:
                return None
            number, done = message.number, False
        else:
            incoming = self._incoming
            if incoming is None or not incoming.is_same(message):
                number = 0
            elif incoming.complete:
                return None
            else:
                number = message.number if message.number < incoming.next_number else 0
            done = False
        return InstallReply(term=message.term, index=message.index, number=number, done=done)

    # The whole

    def covers(self, index: LogIndex, term: Term) -> bool:
        """Figure 13, receiver step 6: the log holds the snapshot's last entry, so it holds all entries before it."""
        return index <= self._log.commit_index or self._log.term_at(index) == term

    def adopt(self, index: LogIndex, term: Term) -> None:
        """The snapshot is durable and the log holds its last entry: the log before that entry may go."""
        self._cover(index)
        if index > self._log.snapshot_index:
            self._log.compact(index, term)

    def _cover(self, index: LogIndex) -> None:
        """Entries that a snapshot covers are committed, and the leader has them."""
        self._follower.commit(index)
        self._follower.verified = max(self._follower.verified, index)


class _Incoming:
    """A snapshot on its way: two leaders may cut one snapshot differently, so the term is part of its identity."""

    __slots__ = ("_identity", "complete", "next_number")

    def __init__(self, latest: InstallSnapshot) -> None:
        self._identity = (latest.term, latest.index)
        self.next_number = latest.number + 1
        self.complete = latest.last

    def is_same(self, message: InstallSnapshot) -> bool:
        return self._identity == (message.term, message.index)
