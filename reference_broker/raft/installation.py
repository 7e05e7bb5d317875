"""The receiving side of InstallSnapshot: which chunks are taken, and what a snapshot does to the log (Figure 13).

Theory of operation
-------------------
The leader sends a snapshot in numbered chunks. The shell stores those that :meth:`Installation.accepts` says, and the
core acknowledges each but the last, which is answered when the whole is durable. A chunk out of turn is answered with
0: begin again. Chunk 1 always begins a new file, for the sender may have started over too.

Once it is durable, the snapshot replaces the log, unless the log has come to hold the same entries meanwhile: what is
on disk may have been counted, so nothing of it may go.

Invariant: of one snapshot chunks are taken in order, each once, and none after the last.
"""

from __future__ import annotations

from collections.abc import Callable

from reference_broker.raft.configuration import Configuration
from reference_broker.raft.errors import SafetyViolationError
from reference_broker.raft.follower import Follower
from reference_broker.raft.messages import InstallReply, InstallSnapshot
from reference_broker.raft.ready import Role
from reference_broker.raft.standing import Standing
from reference_broker.types import NOBODY, LogIndex, NodeId, Term


class Installation:
    """Lives as long as the member; :meth:`over` ends what is under way."""

    __slots__ = ("_at", "_become_follower", "_follower", "_incoming")

    def __init__(self, at: Standing, follower: Follower, become_follower: Callable[[Term, NodeId], None]) -> None:
        self._at = at
        self._follower = follower
        self._become_follower = become_follower
        self._incoming: _Incoming | None = None

    def over(self) -> None:
        """The snapshot is installed, or could not be, or comes from a leader that is followed no more."""
        self._incoming = None

    # Chunks

    def accepts(self, message: InstallSnapshot) -> bool:
        """Whether the shell must store this chunk."""
        at = self._at
        if message.term < at.term or self._has(message.index, message.index_term):
            return False
        known = message.term == at.term and at.leader == message.leader
        return self._wants(message) if known else message.number == 1

    def chunk(self, sender: NodeId, message: InstallSnapshot) -> None:
        """A chunk of the leader that is followed."""
        if self._has(message.index, message.index_term):
            self._cover(message.index)
            self._reply(sender, message.index, number=message.number, done=True)
            return
        number = self._take(message)
        if number is not None:
            self._reply(sender, message.index, number=number, done=False)

    def refuse(self, sender: NodeId, message: InstallSnapshot) -> None:
        """A chunk of the leader of an older term: it learns of this one."""
        self._reply(sender, message.index, number=0, done=False)

    def _wants(self, message: InstallSnapshot) -> bool:
        incoming = self._incoming
        if incoming is None or not incoming.is_same(message):
            return message.number == 1
        return not incoming.complete and message.number in (1, incoming.next_number)

    def _take(self, message: InstallSnapshot) -> int | None:
        """Note a chunk. Returns the number to acknowledge (0: begin again), None while there is nothing to say."""
        if self._wants(message):
            self._incoming = _Incoming(message)
            return None if message.last else message.number
        incoming = self._incoming
        if incoming is None or not incoming.is_same(message):
            return 0
        if incoming.complete:
            return None
        return message.number if message.number < incoming.next_number else 0

    # The whole

    def installed(self, index: LogIndex, term: Term, configuration: Configuration, machine_version: int) -> bool:
        """It is durable: go on from there. Returns whether it has replaced the log, and the members with it."""
        replaces = not self._has(index, term)
        if replaces:
            self._reset(index, term, configuration, machine_version)
        else:
            self._adopt(index, term)
        self._finish(index, done=True)
        return replaces

    def failed(self, index: LogIndex) -> None:
        """It is unsound: ask for it again."""
        self._finish(index, done=False)

    def _finish(self, index: LogIndex, *, done: bool) -> None:
        leader = self._at.leader
        if self._incoming is not None and leader not in (NOBODY, self._at.node):
            self._reply(leader, index, number=0, done=done)
        self.over()

    def _has(self, index: LogIndex, term: Term) -> bool:
        """Figure 13, receiver step 6: the log holds the snapshot's last entry, so it holds all before it."""
        return index <= self._at.commit_index or self._at.log.term_at(index) == term

    def _adopt(self, index: LogIndex, term: Term) -> None:
        self._cover(index)
        if index > self._at.log.snapshot_index:
            self._at.compact(index, term)

    def _cover(self, index: LogIndex) -> None:
        """What a snapshot covers is committed, and the leader has it."""
        self._at.raise_commit(index)
        self._follower.verified = max(self._follower.verified, index)

    def _reset(self, index: LogIndex, term: Term, configuration: Configuration, machine_version: int) -> None:
        at = self._at
        if at.role is Role.LEADER:
            raise SafetyViolationError(f"entry {index} of term {term} is committed, but this leader does not have it")
        if at.role is not Role.FOLLOWER:  # what was asked for votes spoke of another log
            self._become_follower(at.term, NOBODY)
        at.reset(index, term, configuration, machine_version)
        self._follower.start_over_at(index)

    def _reply(self, to: NodeId, index: LogIndex, *, number: int, done: bool) -> None:
        self._at.outbox.send(to, InstallReply(term=self._at.term, index=index, number=number, done=done))


class _Incoming:
    """A snapshot on its way: two leaders may cut one snapshot differently, so the term is part of its identity."""

    __slots__ = ("_identity", "complete", "next_number")

    def __init__(self, latest: InstallSnapshot) -> None:
        self._identity = (latest.term, latest.index)
        self.next_number = latest.number + 1
        self.complete = latest.last

    def is_same(self, message: InstallSnapshot) -> bool:
        return self._identity == (message.term, message.index)
