"""What the Raft core asks its shell to do: the durability contract.

The core never waits and never does I/O. After each input the shell takes one :class:`Ready` and carries it out
in the order written beside the fields. Nothing may be reordered across a line that says "before".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reference_broker.raft.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.types import Entry, LogIndex, NodeId, Term


class Role(StrEnum):
    """A member's role (Figure 4, with the pre-candidate of thesis 9.6)."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_vote"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """What a member must never forget (Figure 2, "persistent state on all servers"). One record, one write:
    a new term and its cleared vote cannot be torn apart."""

    term: Term
    voted_for: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSnapshot:
    """Start (or go on) sending the newest snapshot to ``to``: its next entry is no longer in the log.
    ``index`` says which snapshot, ``number`` the chunk wanted. Chunk 1 may as well be that of a newer snapshot, and
    has to be when the wanted chunk cannot be read any more. What was begun must stay readable while
    :meth:`RaftCore.pinned_snapshots` names it."""

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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A small message to one member."""

    to: NodeId
    message: SmallMessage


Outgoing = SendEntries | SendSnapshot | Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All that one input, or several in a row, made necessary.

    hard_state
        Write and fsync **before** any message of this Ready, or of a later one, leaves the node. Entries may be
        handed to the WAL meanwhile.
    truncate_from
        Drop every entry at or above this index **before** ``append``: a new leader overwrote them. All of them are
        on disk by then, so no notice about them is under way.
    append
        Hand to the WAL, in order. The core need not hear before sending: it is told by ``synced()`` once they
        are on disk, and counts them only then (thesis 10.2.1: the leader writes in parallel with its followers).
    messages
        Send **after** ``hard_state`` is durable. Losing one is harmless, sending one twice too.
    commit
        Entries up to here may be applied; at once, in order, each exactly once. Never goes back.
    role, leader
        Where this member stands now. The machine is told of a change **after** entries up to ``commit`` are applied.
    reset_to
        A snapshot was taken over whole: drop the log, **before** ``append``; the next entry is ``reset_to + 1``. None
        otherwise, also when a snapshot was installed but the log holds all of it: then the log must stay, because
        entries behind the snapshot may have been counted.
    reads
        (token, index): what was asked with ``read(token)`` may be answered **after** entries up to ``index`` are
        applied here; the answer is then no older than the question.
    reads_refused
        Tokens of reads that were lost with the leadership: to be asked of the new leader.
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
