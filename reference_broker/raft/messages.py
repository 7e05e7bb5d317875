"""The messages that the members of one Raft group exchange.

Each cites its place in the paper (Ongaro and Ousterhout, "In Search of an Understandable Consensus
Algorithm", extended version; "thesis" is Ongaro's dissertation); fields beyond the paper say why they exist.
The group is not part of a message: the envelope on the wire carries it, because one link serves all groups. The fields
of a class stand in the order of the wire (:mod:`reference_broker.raft.wire`), so a field must not change its place.
"""

from __future__ import annotations

from reference_broker.records import record
from reference_broker.types import Entry, LogIndex, NodeId, Term


@record
class PreVoteRequest:
    """Thesis 9.6: ask whether a vote would be granted, without raising anybody's term.

    ``term`` is the asker's current term. ``token`` is beyond the thesis: it ties a reply to the round that
    asked, so that a late reply to an abandoned round never counts (Ra does the same).
    ``machine_version`` keeps a member with an older machine from leading members with a newer one.
    """

    term: Term
    token: int
    candidate: NodeId
    last_index: LogIndex
    last_term: Term
    machine_version: int


@record
class PreVoteReply:
    """Answer to :class:`PreVoteRequest`; ``term`` lets a stale asker catch up."""

    term: Term
    token: int
    granted: bool


@record
class VoteRequest:
    """Figure 2, RequestVote.

    ``transfer`` is beyond the figure: the leader itself wished for this election (thesis 3.10), so members that
    trust it do not refuse (thesis 4.2.3).
    """

    term: Term
    candidate: NodeId
    last_index: LogIndex
    last_term: Term
    transfer: bool = False


@record
class VoteReply:
    """Figure 2, RequestVote results. Sent only after the vote is on disk."""

    term: Term
    granted: bool


@record
class AppendEntries:
    """Figure 2, AppendEntries. Empty ``entries`` probe, assert leadership, or carry a new commit index."""

    term: Term
    leader: NodeId
    prev_index: LogIndex
    prev_term: Term
    commit: LogIndex
    entries: tuple[Entry, ...] = ()


@record
class AppendReply:
    """Figure 2, AppendEntries results, with two indexes instead of none.

    ``next_index`` is the entry the follower wants next (flow); ``synced_index`` is the last entry that is on
    its disk (durability). They differ while a write is under way. ``next_index`` keeps the leader from sending entries
    in flight again, and ``synced_index`` keeps the leader from counting entries that a crash could take.
    ``synced_term`` is the term of that entry: a late reply about an overwritten entry must not count.
    """

    term: Term
    success: bool
    next_index: LogIndex
    synced_index: LogIndex
    synced_term: Term


@record
class InstallSnapshot:
    """Figure 13, InstallSnapshot: one chunk.

    ``number`` counts chunks from 1, ``last`` marks the final one. The octets are the log layer's business:
    the state of the machine followed by the entries that the state still refers to.
    """

    term: Term
    leader: NodeId
    index: LogIndex
    index_term: Term
    number: int
    last: bool
    data: bytes


@record
class InstallReply:
    """Answer to one chunk. ``number`` acknowledges it; with ``done`` the follower holds the snapshot durably."""

    term: Term
    index: LogIndex
    number: int
    done: bool


@record
class Heartbeat:
    """Section 8, read-only operations: is this leader still the leader?

    Sent only while a read waits (thesis 6.4), never to hold elections off. ``round`` grows with each question of a
    term: an answer to a question asked before a read began says nothing about it.
    """

    term: Term
    leader: NodeId
    round: int


@record
class HeartbeatReply:
    """Answer to :class:`Heartbeat`: when it was sent, its sender knew of no later term."""

    term: Term
    round: int


@record
class TimeoutNow:
    """Thesis 3.10: the leader hands over. The receiver has all of its log and starts an election at once."""

    term: Term
    leader: NodeId


@record
class LeaderSynced:
    """Not in the paper: the leader has entries up to ``index``, which is of its term, on its disk. A follower that has
    them on its disk, too, knows by itself that they are committed, if the two are a majority."""

    term: Term
    leader: NodeId
    index: LogIndex


Message = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | AppendEntries
    | AppendReply
    | InstallSnapshot
    | InstallReply
    | Heartbeat
    | HeartbeatReply
    | TimeoutNow
    | LeaderSynced
)
