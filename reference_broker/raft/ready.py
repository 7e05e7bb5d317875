"""The work that the Raft core asks of its shell: the durability contract.

The core never waits and never does I/O. After each input the shell takes one :class:`Ready` and carries it out
in the order written beside the fields. Nothing may be reordered across a line that says "before".
"""

from __future__ import annotations

from reference_broker.raft.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    LeaderSynced,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.roles import Role
from reference_broker.records import record
from reference_broker.types import Entry, LogIndex, NodeId, Term


@record(kw_only=True)
class HardState:
    """The state that a member must never forget (Figure 2, "persistent state on all servers"). It is one record and one
    write, so a new term and its cleared vote cannot be torn apart."""

    term: Term
    voted_for: NodeId
    forgetful: bool = False
    """The member may have forgotten entries that it had on disk. Not in the paper, whose servers never forget
    (:mod:`reference_broker.raft.core` tells what follows)."""


@record(kw_only=True)
class SendEntries:
    """An AppendEntries to ``to`` for the entries ``first..last`` (``last < first``: none).

    It names a range instead of holding entries, because the core knows terms and indexes only; the shell
    reads the entries from memory or disk when it encodes them.
    """

    to: NodeId
    term: Term
    prev_index: LogIndex
    prev_term: Term
    commit: LogIndex
    first: LogIndex
    last: LogIndex


@record(kw_only=True)
class SendSnapshot:
    """Start (or go on) sending the newest snapshot to ``to``: its next entry is no longer in the log. ``index`` names
    the snapshot, ``number`` the wanted chunk. Chunk 1 may come from a newer snapshot instead, and has to if the wanted
    chunk cannot be read any more. A snapshot must stay readable while :meth:`RaftCore.pinned_snapshots` names it."""

    to: NodeId
    term: Term
    index: LogIndex
    number: int


SmallMessage = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | AppendReply
    | InstallReply
    | Heartbeat
    | HeartbeatReply
    | TimeoutNow
    | LeaderSynced
)


@record(kw_only=True)
class Send:
    """A small message to one member."""

    to: NodeId
    message: SmallMessage


Outgoing = SendEntries | SendSnapshot | Send


@record(kw_only=True)
class Ready:
    """Everything that one input, or several in a row, made necessary.

    hard_state
        Write and fsync **before** any message of this Ready, or of a later one, leaves the node. Entries may be
        handed to the WAL meanwhile.
    truncate_from
        Drop every entry at or above this index **before** ``append``: a new leader overwrote them. All of them are
        on disk by then, so no notice about them is under way.
    append
        Hand to the WAL, in order. Messages need not wait for the write: ``synced()`` tells the core once the entries
        are on disk, and the core counts them only then (thesis 10.2.1: the leader writes in parallel with its
        followers).
    messages
        Send **after** ``hard_state`` is durable. To lose a message is harmless, and so is to send it twice.
    commit
        Entries up to here may be applied; at once, in order, each exactly once. Never goes back.
    role, leader
        The present role, and the known leader. Tell the machine of a change **after** entries up to ``commit`` are
        applied.
    reset_to
        A snapshot replaces the log: drop the log, **before** ``append``; the next entry is ``reset_to + 1``. Otherwise
        None, also when a snapshot was installed whose entries the log holds already: then the log must stay, because
        entries behind the snapshot may have been counted.
    reads
        (token, index): answer ``read(token)`` **after** entries up to ``index`` are applied here; then the answer is
        not older than the question.
    reads_refused
        Tokens of reads that were lost with the leadership: ask the new leader.
    """

    hard_state: HardState | None
    truncate_from: LogIndex | None
    append: tuple[Entry, ...]
    messages: tuple[Outgoing, ...]
    commit: LogIndex
    role: Role
    leader: NodeId
    reset_to: LogIndex | None = None
    reads: tuple[tuple[int, LogIndex], ...] = ()
    reads_refused: tuple[int, ...] = ()


class NextReady:
    """The content of the next :class:`Ready`, kept consistent while several inputs gather.

    ``pending`` is true when there may be something for a Ready; an input that changes anything sets it. If only a
    leader's commit index has changed, ``committed`` is true instead. The leader's AppendEntries are not gathered here,
    but made when the Ready is taken.
    """

    __slots__ = (
        "committed",
        "entries",
        "hard_state_changed",
        "messages",
        "pending",
        "reads",
        "reads_refused",
        "reset_to",
        "truncate_from",
    )

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.messages: list[Outgoing] = []
        self.reads: list[tuple[int, LogIndex]] = []
        self.reads_refused: list[int] = []
        self.truncate_from: LogIndex | None = None
        self.reset_to: LogIndex | None = None
        self.hard_state_changed = False
        self.pending = self.committed = False

    def send(self, to: NodeId, message: SmallMessage) -> None:
        """Queue a message that holds no entries."""
        self.messages.append(Send(to=to, message=message))
        self.pending = True

    def truncate(self, index: LogIndex) -> None:
        """Entries at or above ``index`` are overwritten. None of them waits here, because all are on disk
        (see ``log_view``)."""
        assert not self.entries
        self.truncate_from = index
        self.pending = True

    def reset(self, index: LogIndex) -> None:
        """A snapshot up to ``index`` replaces the log. Entries that wait here must not reach the WAL after it."""
        self.entries.clear()
        self.truncate_from = None
        self.reset_to = index
        self.pending = True

    def clear(self) -> None:
        """Everything was taken."""
        self.entries.clear()
        self.messages.clear()
        self.reads.clear()
        self.reads_refused.clear()
        self.truncate_from = None
        self.reset_to = None
        self.hard_state_changed = False
        self.pending = self.committed = False
