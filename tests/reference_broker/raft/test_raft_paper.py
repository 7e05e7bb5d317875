"""One test a claim of "In Search of an Understandable Consensus Algorithm" (extended version), by section.

"Thesis" is Ongaro's dissertation. Where Ra differs on purpose the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from zlib import crc32

import pytest

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.configuration import Configuration, noop_payload
from reference_broker.raft.core import RaftCore
from reference_broker.raft.errors import (
    ChangeUnderWayError,
    NotLeaderError,
    SafetyViolationError,
    TransferUnderWayError,
)
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.ready import HardState, Ready, Send, SendEntries, SendSnapshot
from reference_broker.raft.roles import Role
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term

ME, PEER, OTHER = NodeId(1), NodeId(2), NodeId(3)
THREE = Configuration((ME, PEER, OTHER))
M = TypeVar("M")


def view(terms: Sequence[int]) -> LogView:
    starts = [(LogIndex(at), Term(term)) for at, term in enumerate(terms, 1) if at == 1 or terms[at - 2] != term]
    return LogView(runs=starts, last_index=LogIndex(len(terms)))


def member(terms: Sequence[int] = (), *, term: int = 0, vote: int = 0, size: int = 3, version: int = 1) -> RaftCore:
    """A member that has just started; its timer takes 4 ticks."""
    members = tuple(NodeId(node) for node in range(1, size + 1))
    hard_state = HardState(term=Term(max([term, *terms])), voted_for=NodeId(vote))
    return RaftCore(ME, members, view(terms), hard_state, RaftConfig(), lambda low, high: low, version)


def leader(terms: Sequence[int] = (), **settings: int) -> RaftCore:
    """A member that won an election; what that sent is taken."""
    core = member(terms, **settings)
    core.campaign()
    token = sent(core.ready(), PreVoteRequest)[0].token
    for peer in (PEER, OTHER):
        core.step(peer, PreVoteReply(term=core.term, token=token, granted=True))
    core.step(PEER, VoteReply(term=core.term, granted=True))
    if core.role is not Role.LEADER:
        core.step(OTHER, VoteReply(term=core.term, granted=True))
    core.ready()
    return core


def follower(terms: Sequence[int] = (), *, term: int = 1) -> RaftCore:
    """A member that follows PEER."""
    core = member(terms, term=term)
    core.step(PEER, append(core.term, len(terms), terms[-1] if terms else 0))
    core.ready()
    return core


def append(term: int, prev: int, prev_term: int, entry_terms: Sequence[int] = (), commit: int = 0) -> AppendEntries:
    entries = tuple(
        Entry(LogIndex(index), Term(entry_term), EntryKind.COMMAND, crc32(b"x"), b"x")
        for index, entry_term in enumerate(entry_terms, prev + 1)
    )
    return AppendEntries(
        term=Term(term),
        leader=PEER,
        prev_index=LogIndex(prev),
        prev_term=Term(prev_term),
        commit=LogIndex(commit),
        entries=entries,
    )


def vote_request(term: int, last: int = 0, last_term: int = 0, candidate: NodeId = PEER) -> VoteRequest:
    return VoteRequest(term=Term(term), candidate=candidate, last_index=LogIndex(last), last_term=Term(last_term))


def pre_vote_request(term: int, last: int = 0, last_term: int = 0, version: int = 1) -> PreVoteRequest:
    return PreVoteRequest(
        term=Term(term),
        token=7,
        candidate=PEER,
        last_index=LogIndex(last),
        last_term=Term(last_term),
        machine_version=version,
    )


def synced_reply(core: RaftCore, index: int, term: int | None = None) -> AppendReply:
    return AppendReply(
        term=core.term,
        success=True,
        next_index=LogIndex(index + 1),
        synced_index=LogIndex(index),
        synced_term=Term(core.term if term is None else term),
    )


def install(term: int, index: int, index_term: int, number: int = 1, *, last: bool = True) -> InstallSnapshot:
    return InstallSnapshot(
        term=Term(term),
        leader=PEER,
        index=LogIndex(index),
        index_term=Term(index_term),
        number=number,
        last=last,
        data=b"s",
    )


def sent(ready: Ready, kind: type[M]) -> list[M]:
    """What the Ready sends of one kind of message."""
    small = [outgoing.message for outgoing in ready.messages if isinstance(outgoing, Send)]
    return [message for message in [*small, *ready.messages] if isinstance(message, kind)]


HIGHER_TERM: list[Message] = [
    append(9, 0, 0),
    vote_request(9),
    AppendReply(term=Term(9), success=False, next_index=LogIndex(1), synced_index=LogIndex(0), synced_term=Term(0)),
    VoteReply(term=Term(9), granted=False),
    PreVoteReply(term=Term(9), token=0, granted=False),
    pre_vote_request(9),
    install(9, 5, 9),
    InstallReply(term=Term(9), index=LogIndex(1), number=1, done=False),
]


@pytest.mark.parametrize("message", HIGHER_TERM, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("role", ["leader", "candidate", "pre_vote"])
def test_a_higher_term_makes_a_follower_and_is_written(role: str, message: Message) -> None:
    """5.1: "If one server's current term is smaller than the other's, then it updates its current term to the larger
    value. If a candidate or leader discovers that its term is out of date, it immediately reverts to follower"."""
    core = leader() if role == "leader" else member()
    if role != "leader":
        core.campaign()
    if role == "candidate":
        core.step(PEER, PreVoteReply(term=core.term, token=sent(core.ready(), PreVoteRequest)[0].token, granted=True))
    assert core.role == role
    core.ready()
    core.step(PEER, message)
    ready = core.ready()
    assert (core.role, core.term) == (Role.FOLLOWER, 9)
    assert ready.hard_state is not None and ready.hard_state.term == 9


@pytest.mark.parametrize(
    ("message", "answer"),
    [(append(1, 0, 0), AppendReply), (vote_request(1), VoteReply), (install(1, 5, 1), InstallReply)],
)
def test_a_request_of_an_old_term_is_refused(message: Message, answer: type[Message]) -> None:
    """5.1: "If a server receives a request with a stale term number, it rejects the request"."""
    core = member(term=4)
    core.ready()
    core.step(PEER, message)
    (reply,) = sent(core.ready(), answer)
    assert reply.term == 4
    assert not getattr(reply, "success", False) and not getattr(reply, "granted", False)
    assert core.leader == NOBODY


def test_terms_and_votes_survive_because_they_are_written_together() -> None:
    """Figure 2, persistent state: a new term clears the vote, and one record says both."""
    core = member(term=3, vote=OTHER)
    core.step(PEER, vote_request(5))
    assert core.ready().hard_state == HardState(term=Term(5), voted_for=PEER)


def test_one_vote_a_term_first_come_first_served() -> None:
    """5.2: "Each server will vote for at most one candidate in a given term, on a first-come-first-served basis"."""
    core = member()
    core.step(PEER, vote_request(1, candidate=PEER))
    core.step(OTHER, vote_request(1, candidate=OTHER))
    core.step(PEER, vote_request(1, candidate=PEER))
    assert [reply.granted for reply in sent(core.ready(), VoteReply)] == [True, False, True]


def test_a_vote_is_remembered_over_a_restart() -> None:
    """5.2 with Figure 2: the same, when the vote was cast before a crash."""
    core = member(term=1, vote=OTHER)
    core.step(PEER, vote_request(1))
    assert [reply.granted for reply in sent(core.ready(), VoteReply)] == [False]


@pytest.mark.parametrize(("size", "needed"), [(2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_of_votes_makes_a_leader(size: int, needed: int) -> None:
    """5.2: "A candidate wins an election if it receives votes from a majority of the servers ... for the same term"."""
    core = member(size=size)
    core.campaign()
    token = sent(core.ready(), PreVoteRequest)[0].token
    for peer in core.configuration.voters[1:needed]:
        assert core.role is Role.PRE_CANDIDATE and core.term == 0
        core.step(peer, PreVoteReply(term=Term(0), token=token, granted=True))
    for peer in core.configuration.voters[1:needed]:
        assert core.role is Role.CANDIDATE and core.term == 1
        core.step(peer, VoteReply(term=Term(1), granted=True))
    assert core.role is Role.LEADER


def test_one_member_voting_twice_counts_once() -> None:
    """5.2, as above: a message delivered twice is not two votes."""
    core = member(size=5)
    core.campaign()
    token = sent(core.ready(), PreVoteRequest)[0].token
    for _ in range(3):
        core.step(PEER, PreVoteReply(term=Term(0), token=token, granted=True))
    assert core.role is Role.PRE_CANDIDATE
    core.step(PEER, PreVoteReply(term=Term(0), token=token, granted=False))
    core.step(OTHER, PreVoteReply(term=Term(0), token=token, granted=True))
    assert core.role is Role.CANDIDATE, "and what it said first stays said"


def test_a_vote_of_an_older_term_does_not_count() -> None:
    """5.2: votes "for the same term". A late one was given for a candidacy that is over."""
    core = member(size=5, term=3)
    core.campaign()
    token = sent(core.ready(), PreVoteRequest)[0].token
    for peer in core.configuration.voters[1:3]:
        core.step(peer, PreVoteReply(term=Term(3), token=token, granted=True))
    for peer in core.configuration.voters[1:]:
        core.step(peer, VoteReply(term=Term(3), granted=True))
    assert (core.role, core.term) == (Role.CANDIDATE, 4)


def test_who_knows_the_leader_of_a_term_votes_for_nobody_else_in_it() -> None:
    """5.2: the election of that term is decided. Granting would also start the timer under a leader that works."""
    core = follower(term=1)
    core.step(OTHER, vote_request(1, candidate=OTHER))
    assert [reply.granted for reply in sent(core.ready(), VoteReply)] == [False]
    assert core.leader == PEER and not core.needs_tick


def test_a_group_of_one_leads_with_its_first_tick_and_commits_by_its_own_disk() -> None:
    """5.2: one is a majority of one. Not before the tick: recovery may still tell of more members."""
    core = member(size=1)
    core.tick()
    assert core.role is Role.LEADER and core.commit_index == 0
    (entry,) = core.ready().append
    core.synced(entry.index, entry.term)
    assert core.ready().commit == 1
    assert not core.needs_tick


def test_a_candidate_gives_way_to_the_leader_of_its_term() -> None:
    """5.2: "If the leader's term is at least as large as the candidate's current term, then the candidate recognizes
    the leader as legitimate and returns to follower state"."""
    core = member()
    core.campaign()
    core.step(OTHER, PreVoteReply(term=Term(0), token=sent(core.ready(), PreVoteRequest)[0].token, granted=True))
    assert core.role is Role.CANDIDATE
    core.step(PEER, append(1, 0, 0))
    assert (core.role, core.leader) == (Role.FOLLOWER, PEER)


def test_a_split_vote_is_followed_by_another_round() -> None:
    """5.2: "each candidate will time out and start a new election" - here with a pre-vote, so terms rise no faster."""
    core = member()
    core.campaign()
    core.step(PEER, PreVoteReply(term=Term(0), token=sent(core.ready(), PreVoteRequest)[0].token, granted=True))
    core.ready()
    for _ in range(4):
        core.tick()
    assert (core.role, core.term) == (Role.PRE_CANDIDATE, 1)
    assert len(sent(core.ready(), PreVoteRequest)) == 2


def test_election_timers_are_drawn_anew_from_the_configured_range() -> None:
    """5.2: "election timeouts are chosen randomly from a fixed interval"."""
    drawn: list[tuple[int, int]] = []

    def jitter(low: int, high: int) -> int:
        drawn.append((low, high))
        return high

    config = RaftConfig(election_ticks_min=3, election_ticks_max=8)
    core = RaftCore(ME, (ME, PEER, OTHER), LogView(), HardState(term=Term(0), voted_for=NOBODY), config, jitter)
    for _ in range(7):
        core.tick()
    assert core.role is Role.FOLLOWER
    core.tick()
    assert core.role is Role.PRE_CANDIDATE
    assert drawn[1:] == [(3, 8), (3, 8)]


def test_no_timer_runs_while_a_leader_is_known_and_its_node_trusted() -> None:
    """Not the paper's heartbeats (5.2) but Ra's detector: an idle queue costs nothing, a dead node starts a timer."""
    core = follower()
    assert not core.needs_tick
    for _ in range(1000):
        core.tick()
    assert core.role is Role.FOLLOWER and not core.has_ready
    core.node_down(PEER)
    assert core.needs_tick
    for _ in range(4):
        core.tick()
    assert core.role is Role.PRE_CANDIDATE


def test_a_trusted_again_node_stops_the_timer() -> None:
    """The same, when the suspicion was wrong."""
    core = follower()
    core.node_down(PEER)
    core.node_up(PEER)
    assert not core.needs_tick


def test_a_follower_with_a_leader_refuses_pre_votes() -> None:
    """Thesis 9.6: a member that hears from a leader does not help to unseat it. And its term stays."""
    core = follower(term=2)
    core.step(OTHER, pre_vote_request(5))
    (reply,) = sent(core.ready(), PreVoteReply)
    assert (reply.granted, reply.term, reply.token) == (False, 2, 7)
    core.node_down(PEER)
    core.step(OTHER, pre_vote_request(5))
    assert sent(core.ready(), PreVoteReply)[0].granted


def test_a_leader_that_asks_for_votes_leads_no_more() -> None:
    """Thesis 9.6, with a detector: the node never looked down, but its member was restarted and lost its office."""
    core = follower(term=2)
    core.step(PEER, pre_vote_request(2))
    assert sent(core.ready(), PreVoteReply)[0].granted
    assert core.leader == NOBODY


def test_a_pre_vote_of_another_round_does_not_count() -> None:
    """Beyond the thesis: the token of Ra."""
    core = member()
    core.campaign()
    token = sent(core.ready(), PreVoteRequest)[0].token
    core.step(PEER, PreVoteReply(term=Term(0), token=token - 1, granted=True))
    assert core.role is Role.PRE_CANDIDATE


def test_an_older_machine_may_not_lead_a_log_with_commands_of_a_newer_one() -> None:
    """Beyond the thesis: it could not apply what it would have to commit."""
    core = member()
    core.restored(THREE, machine_version=3)
    core.step(PEER, pre_vote_request(0, version=2))
    core.step(PEER, pre_vote_request(0, version=3))
    assert [reply.granted for reply in sent(core.ready(), PreVoteReply)] == [False, True]


def test_a_leader_answers_a_pre_vote_by_showing_itself() -> None:
    """Ra: a follower that lost its leader in error finds it again without an election."""
    core = leader()
    core.step(PEER, synced_reply(core, 0, 0))
    core.ready()
    core.step(PEER, pre_vote_request(1))
    (shown,) = sent(core.ready(), SendEntries)
    assert (shown.to, shown.term) == (PEER, 1)
    assert core.role is Role.LEADER


@pytest.mark.parametrize(
    ("mine", "last", "last_term", "granted"),
    [
        ((1,), 1, 1, True),
        ((1,), 2, 1, True),
        ((1, 1), 1, 1, False),
        ((1,), 1, 2, True),
        ((1, 1), 1, 2, True),
        ((2,), 2, 1, False),
        ((2,), 9, 1, False),
    ],
)
def test_votes_go_to_logs_that_are_up_to_date(mine: tuple[int, ...], last: int, last_term: int, granted: bool) -> None:
    """5.4.1: "If the logs have last entries with different terms, then the log with the later term is more up-to-date.
    If the logs end with the same term, then whichever log is longer is more up-to-date"."""
    core = member(mine)
    core.step(PEER, pre_vote_request(5, last, last_term))
    core.step(PEER, vote_request(6, last, last_term))
    ready = core.ready()
    assert sent(ready, PreVoteReply)[0].granted is granted
    assert sent(ready, VoteReply)[0].granted is granted


def test_a_new_leader_appends_an_entry_of_its_term_and_shows_itself() -> None:
    """5.2 and 8: it sends AppendEntries at once, and "each leader commit[s] a blank no-op entry ... at the start of its
    term". The no-op carries the machine version."""
    core = member((1,), version=7)
    core.campaign()
    core.step(PEER, PreVoteReply(term=Term(1), token=sent(core.ready(), PreVoteRequest)[0].token, granted=True))
    core.step(PEER, VoteReply(term=Term(2), granted=True))
    ready = core.ready()
    payload = b"\0\0\0\7"
    assert ready.append == (Entry(LogIndex(2), Term(2), EntryKind.NOOP, crc32(payload), payload),)
    assert {(probe.to, probe.prev_index, probe.last - probe.first) for probe in sent(ready, SendEntries)} == {
        (PEER, 1, -1),
        (OTHER, 1, -1),
    }


def test_only_the_leader_takes_proposals_and_others_name_it() -> None:
    """5.1: "If a client contacts a follower, the follower redirects it to the leader"."""
    with pytest.raises(NotLeaderError, match="ask node 2") as refused:
        follower().propose(EntryKind.COMMAND, b"x", crc32(b"x"))
    assert refused.value.leader == PEER
    with pytest.raises(NotLeaderError, match="no leader is known"):
        member().propose(EntryKind.COMMAND, b"x", crc32(b"x"))


def test_an_entry_commits_when_a_majority_has_it_on_disk() -> None:
    """5.3: "A log entry is committed once the leader that created the entry has replicated it on a majority of the
    servers" - replicated means synced here."""
    core = leader()
    core.step(PEER, synced_reply(core, 0, 0))
    core.propose(EntryKind.COMMAND, b"x", crc32(b"x"))
    core.ready()
    core.step(PEER, synced_reply(core, 2))
    assert core.commit_index == 0, "one disk of three, and the leader's own is not one of them yet"
    core.synced(LogIndex(2), core.term)
    assert core.ready().commit == 2


def test_the_followers_disks_may_outrun_the_leaders() -> None:
    """Thesis 10.2.1: "the leader may ... commit an entry before it has been written to its own disk"."""
    core = leader()
    for peer in (PEER, OTHER):
        core.step(peer, synced_reply(core, 1))
    assert core.ready().commit == 1
    assert core.log.synced_index == 0


def test_entries_of_older_terms_commit_only_with_one_of_the_own_term() -> None:
    """5.4.2 and Figure 8: "Raft never commits log entries from previous terms by counting replicas"."""
    core = leader((1, 1))
    for peer in (PEER, OTHER):
        core.step(peer, synced_reply(core, 2, term=1))
    assert core.commit_index == 0
    core.step(PEER, synced_reply(core, 3))
    core.synced(LogIndex(3), core.term)
    assert core.commit_index == 3


def test_a_reply_about_an_overwritten_entry_does_not_count() -> None:
    """5.3, log matching: the follower's entry 3 is of another term than the leader's."""
    core = leader((1, 1))
    for peer in (PEER, OTHER):
        core.step(peer, synced_reply(core, 3, term=1))
    assert core.commit_index == 0


def test_followers_learn_the_commit_index() -> None:
    """5.3: "The leader ... includes that index in future AppendEntries RPCs" - at once, if there is no other."""
    core = leader()
    for peer in (PEER, OTHER):
        core.step(peer, synced_reply(core, 1))
    assert {(send.to, send.commit) for send in sent(core.ready(), SendEntries)} == {(PEER, 1), (OTHER, 1)}
    assert not core.has_ready


@pytest.mark.parametrize(("commit", "applied"), [(0, 0), (1, 1), (2, 2), (3, 2), (9, 2)])
def test_a_follower_commits_up_to_what_it_knows_to_match(commit: int, applied: int) -> None:
    """Figure 2: "set commitIndex = min(leaderCommit, index of last new entry)". Entries 3 and 4 here are of an old
    leader and were not compared: the leader's commit index is not about them."""
    core = member((1, 1, 1, 1))
    core.step(PEER, append(2, 2, 1, commit=commit))
    assert core.ready().commit == applied


@pytest.mark.parametrize(
    ("mine", "prev", "prev_term", "fits", "wanted"),
    [
        ((), 0, 0, True, 1),
        ((1,), 1, 1, True, 2),
        ((1,), 2, 1, False, 2),
        ((1, 2, 2), 3, 3, False, 2),
        ((1, 1), 2, 2, False, 1),
        ((1, 1, 1), 1, 1, True, 2),
    ],
)
def test_consistency_check(mine: tuple[int, ...], prev: int, prev_term: int, fits: bool, wanted: int) -> None:
    """5.3: "If the follower does not find an entry in its log with the same index and term, then it refuses the new
    entries" - and says where to try next: the start of the term that differs."""
    core = member(mine)
    core.step(PEER, append(4, prev, prev_term))
    (reply,) = sent(core.ready(), AppendReply)
    assert (reply.success, reply.next_index) == (fits, wanted)


@pytest.mark.parametrize(
    ("mine", "prev", "entry_terms", "drops", "appends", "last"),
    [
        ((1,), 1, (4,), None, (2,), 2),
        ((1, 1), 1, (4,), 2, (2,), 2),
        ((1, 4, 4), 1, (4,), None, (), 3),
        ((1, 4, 4), 1, (4, 4, 4), None, (4,), 4),
        ((1, 2, 3, 3), 1, (2, 4), 3, (3,), 3),
    ],
)
def test_conflicting_entries_go_and_matching_ones_stay(
    mine: tuple[int, ...],
    prev: int,
    entry_terms: tuple[int, ...],
    drops: int | None,
    appends: tuple[int, ...],
    last: int,
) -> None:
    """Figure 2, AppendEntries 3 and 4. A late message with fewer entries must not shorten the log."""
    core = member(mine)
    core.step(PEER, append(4, prev, mine[prev - 1], entry_terms))
    ready = core.ready()
    assert ready.truncate_from == drops
    assert tuple(entry.index for entry in ready.append) == appends
    assert core.log.last_index == last


def test_what_is_committed_is_never_overwritten() -> None:
    """5.4.3: it cannot be, so if it happens something is badly wrong and the member stops."""
    core = follower((1, 1))
    core.step(PEER, append(1, 2, 1, commit=2))
    with pytest.raises(SafetyViolationError, match="entry at 2, which is committed here"):
        core.step(OTHER, append(3, 1, 1, (3,)))
    with pytest.raises(SafetyViolationError, match="entry at 2, which is committed here"):
        core.step(OTHER, append(3, 2, 3))


def test_two_leaders_of_one_term_are_noticed() -> None:
    """5.2, election safety: "at most one leader can be elected in a given term"."""
    core = leader()
    with pytest.raises(SafetyViolationError, match="claims to lead term 1"):
        core.step(PEER, append(1, 0, 0))


def test_a_follower_answers_when_its_disk_has_the_entries() -> None:
    """5.3 with thesis 10.2.1: the answer means durable. One answer covers several messages."""
    core = follower()
    core.step(PEER, append(1, 0, 0, (1,)))
    core.step(PEER, append(1, 1, 1, (1,)))
    assert not sent(core.ready(), AppendReply)
    core.synced(LogIndex(2), Term(1))
    (reply,) = sent(core.ready(), AppendReply)
    assert (reply.success, reply.next_index, reply.synced_index, reply.synced_term) == (True, 3, 2, 1)


def test_an_answer_tells_flow_and_durability_apart() -> None:
    """Beyond the paper: entry 2 is under way to the disk, so it is neither wanted again nor counted."""
    core = follower()
    core.step(PEER, append(1, 0, 0, (1, 1)))
    core.synced(LogIndex(1), Term(1))
    (reply,) = sent(core.ready(), AppendReply)
    assert (reply.next_index, reply.synced_index) == (3, 1)


def test_only_the_first_of_a_row_of_rejections_is_sent_but_every_probe_is_answered() -> None:
    """Beyond the paper: one lost message must not cause 64 answers, and one lost answer no silence."""
    core = follower()
    for prev in (3, 4, 5):
        core.step(PEER, append(1, prev, 1, (1,)))
    assert len(sent(core.ready(), AppendReply)) == 1
    core.step(PEER, append(1, 6, 1))
    assert [reply.next_index for reply in sent(core.ready(), AppendReply)] == [1]


def test_a_follower_that_found_its_leader_again_says_what_it_has() -> None:
    """Beyond the paper: a mere commit index is not answered, but who suspected its leader may owe it an answer."""
    core = follower()
    core.step(PEER, append(1, 0, 0, (1,)))
    core.synced(LogIndex(1), Term(1))
    core.ready()
    core.step(PEER, append(1, 1, 1, commit=1))
    assert not sent(core.ready(), AppendReply), "a mere notice"
    core.step(PEER, append(1, 1, 1, (1,), commit=1))
    core.node_down(PEER)
    core.campaign()
    core.synced(LogIndex(2), Term(1))
    core.ready()
    core.step(PEER, append(1, 2, 1, commit=2))
    assert [reply.synced_index for reply in sent(core.ready(), AppendReply)] == [2]


def blocked_follower() -> RaftCore:
    """Its entry 2 is of an old leader and still on its way to the disk; the leader of term 3 has another one."""
    core = follower((1,))
    core.step(PEER, append(1, 1, 1, (1,)))
    core.step(PEER, append(3, 1, 1))
    core.ready()
    core.step(PEER, append(3, 1, 1, (3,)))
    return core


def test_an_entry_is_overwritten_only_when_the_disk_has_caught_up() -> None:
    """Beyond the paper, see log_view. Meanwhile the follower is quiet, whatever else is pipelined."""
    core = blocked_follower()
    core.step(PEER, append(3, 2, 3, (3,)))
    ready = core.ready()
    assert (ready.truncate_from, ready.append, ready.messages) == (None, (), ())
    core.synced(LogIndex(2), Term(1))
    (reply,) = sent(core.ready(), AppendReply)
    assert (reply.success, reply.next_index) == (False, 2)
    core.step(PEER, append(3, 1, 1, (3,)))
    ready = core.ready()
    assert (ready.truncate_from, [entry.term for entry in ready.append]) == (2, [3])


def test_a_snapshot_ends_the_wait_for_the_disk() -> None:
    """Else the follower would ask again for an entry that the snapshot brought."""
    core = blocked_follower()
    core.step(PEER, install(3, 5, 3))
    core.installed(LogIndex(5), Term(3), THREE)
    core.ready()
    core.step(PEER, append(3, 5, 3))
    assert [reply.success for reply in sent(core.ready(), AppendReply)] == [True]


def test_late_notices_of_the_disk_are_ignored() -> None:
    """An entry that was overwritten, or never was, is not on disk because a notice says so."""
    core = follower((1, 1))
    core.step(OTHER, append(3, 1, 1, (3,)))
    core.ready()
    for index, term in ((2, 1), (3, 3), (1, 1)):
        core.synced(LogIndex(index), Term(term))
    assert core.log.synced_index == 1 and not core.has_ready


def test_leaders_take_up_where_logs_agree() -> None:
    """5.3: "the leader decrements nextIndex and retries" - by whole terms, one probe at a time."""
    core = leader((1, 1, 1))
    reply = AppendReply(
        term=core.term, success=False, next_index=LogIndex(2), synced_index=LogIndex(1), synced_term=Term(1)
    )
    core.step(PEER, reply)
    core.step(PEER, reply)
    probes = [send for send in sent(core.ready(), SendEntries) if send.to == PEER]
    assert [(probe.prev_index, probe.first, probe.last) for probe in probes] == [(1, 2, 1)]
    core.step(PEER, synced_reply(core, 1, term=1))
    (entries,) = sent(core.ready(), SendEntries)
    assert (entries.prev_index, entries.first, entries.last) == (1, 2, 4)


def test_late_rejections_are_echoes() -> None:
    """5.3, pipelined: what is behind the first that was rejected is rejected too, and must not restart the probe."""
    core = leader()
    core.step(PEER, synced_reply(core, 1))
    for _ in range(3):
        core.propose(EntryKind.COMMAND, b"x", crc32(b"x"))
    core.ready()
    wanted = [2, 2, 1]  # the second is an echo, the third speaks of what is known to be on the disk
    for at, index in enumerate(wanted):
        reply = AppendReply(
            term=core.term, success=False, next_index=LogIndex(index), synced_index=LogIndex(1), synced_term=core.term
        )
        core.step(PEER, reply)
        assert len(sent(core.ready(), SendEntries)) == (1 if at == 0 else 0)


def test_silence_is_counted_from_the_last_answer() -> None:
    """5.3: "retries AppendEntries RPCs indefinitely" - after resend_ticks without an answer, not every resend_ticks."""
    core = leader()
    core.node_down(OTHER)
    core.step(PEER, synced_reply(core, 1))
    for _ in range(2):
        core.propose(EntryKind.COMMAND, b"x", crc32(b"x"))
        core.ready()
    for index in (1, 2):
        for _ in range(19):
            core.tick()
        assert not core.has_ready
        core.step(PEER, synced_reply(core, index))
        core.ready()
    for _ in range(20):
        core.tick()
    (probe,) = sent(core.ready(), SendEntries)
    assert (probe.prev_index, probe.commit, probe.last - probe.first) == (3, 0, -1)


def test_a_notice_sent_after_the_repeated_one_is_not_taken_for_answered() -> None:
    """Beyond the paper: else the newest commit index could be lost on the way and never be said again."""
    core = leader()
    for _ in range(2):
        core.propose(EntryKind.COMMAND, b"x", crc32(b"x"))
    for peer, index in ((PEER, 1), (OTHER, 1), (PEER, 3), (OTHER, 2)):
        core.ready()
        core.step(peer, synced_reply(core, index))
    assert (PEER, 2) in {(send.to, send.commit) for send in sent(core.ready(), SendEntries)}
    for _ in range(20):
        core.tick()
    assert (PEER, 2) in {(send.to, send.commit) for send in sent(core.ready(), SendEntries)}, "repeated"
    core.step(OTHER, synced_reply(core, 3))
    assert (PEER, 3) in {(send.to, send.commit) for send in sent(core.ready(), SendEntries)}
    core.step(PEER, synced_reply(core, 3))  # answers the repeated one
    for _ in range(20):
        core.tick()
    assert (PEER, 3) in {(send.to, send.commit) for send in sent(core.ready(), SendEntries)}


def test_a_compacted_follower_gets_the_snapshot_and_then_entries() -> None:
    """7: "if the next log entry that it needs to send ... was discarded" it sends the snapshot, in order, in chunks."""
    core = leader((1, 1, 1))
    for peer in (PEER, OTHER):
        core.step(peer, synced_reply(core, 4))
    core.snapshot_taken(LogIndex(3), Term(1))
    core.node_down(OTHER)
    core.node_up(OTHER)
    core.ready()
    core.step(
        OTHER,
        AppendReply(
            term=core.term, success=False, next_index=LogIndex(1), synced_index=LogIndex(0), synced_term=Term(0)
        ),
    )
    (start,) = sent(core.ready(), SendSnapshot)
    assert (start.to, start.index, start.number) == (OTHER, 3, 1)
    assert core.pinned_snapshots() == {3}
    core.step(OTHER, InstallReply(term=core.term, index=LogIndex(3), number=1, done=False))
    assert [send.number for send in sent(core.ready(), SendSnapshot)] == [2]
    core.step(OTHER, InstallReply(term=core.term, index=LogIndex(3), number=0, done=True))
    (probe,) = sent(core.ready(), SendEntries)
    assert (probe.prev_index, probe.prev_term) == (3, 1)
    assert core.pinned_snapshots() == set()


def test_a_snapshot_replaces_a_log_that_lacks_it() -> None:
    """7, Figure 13, step 7: "Discard the entire log". Acknowledged only when the shell says that it is durable."""
    core = follower((1, 1))
    message = install(1, 5, 1)
    assert core.accepts(PEER, message)
    core.step(PEER, message)
    assert not sent(core.ready(), InstallReply)
    core.installed(LogIndex(5), Term(1), THREE)
    ready = core.ready()
    assert (ready.reset_to, ready.commit) == (5, 5)
    assert [(reply.index, reply.done) for reply in sent(ready, InstallReply)] == [(5, True)]
    assert core.log.describe() == "snap 5@1 | - | synced 5"


def test_entries_that_a_snapshot_overtakes_never_reach_the_disk() -> None:
    """7, step 7, when both happen before the shell takes the Ready: after the reset they would leave a gap."""
    core = follower()
    core.step(PEER, install(1, 5, 1))
    core.ready()
    core.step(PEER, append(1, 0, 0, (1, 1)))
    core.installed(LogIndex(5), Term(1), THREE)
    ready = core.ready()
    assert (ready.reset_to, ready.append, ready.truncate_from) == (5, (), None)


def test_a_log_that_has_the_snapshots_last_entry_stays() -> None:
    """7, Figure 13, step 6: "retain log entries following it" - they may have been counted."""
    core = follower((1, 1, 1))
    message = install(1, 2, 1)
    assert not core.accepts(PEER, message)
    core.step(PEER, message)
    ready = core.ready()
    assert (ready.reset_to, ready.commit, core.log.last_index) == (None, 2, 3)
    assert sent(ready, InstallReply)[0].done


def test_a_candidate_whose_log_is_replaced_starts_over() -> None:
    """7 with 5.4.1: what it told the voters of its log is no longer so."""
    core = follower((1, 1))
    core.step(PEER, install(1, 5, 1))
    core.node_down(PEER)
    core.campaign()
    core.step(OTHER, PreVoteReply(term=Term(1), token=sent(core.ready(), PreVoteRequest)[0].token, granted=True))
    assert core.role is Role.CANDIDATE
    core.installed(LogIndex(5), Term(1), THREE)
    assert (core.role, core.ready().reset_to) == (Role.FOLLOWER, 5)


def test_chunks_are_taken_in_order_and_a_gap_starts_over() -> None:
    """7, Figure 13: chunks arrive in order; after a restart of either side they may not."""
    core = follower()
    for number, accepted, answer in (
        (2, False, 0),
        (1, True, 1),
        (2, True, 2),
        (2, False, 2),
        (4, False, 0),
        (1, True, 1),
    ):
        message = install(1, 5, 1, number, last=False)
        assert core.accepts(PEER, message) is accepted
        core.step(PEER, message)
        assert [reply.number for reply in sent(core.ready(), InstallReply)] == [answer]


def test_an_unsound_snapshot_is_asked_for_again() -> None:
    """7: beyond the paper, its checksum may fail."""
    core = follower()
    core.step(PEER, install(1, 5, 1))
    core.install_failed(LogIndex(5))
    assert [(reply.number, reply.done) for reply in sent(core.ready(), InstallReply)] == [(0, False)]
    assert core.accepts(PEER, install(1, 5, 1))


def test_only_committed_entries_may_be_compacted() -> None:
    """7: "Raft's snapshots cover just the committed entries in the log"."""
    core = follower((1, 1))
    with pytest.raises(ValueError, match="only 0 is committed"):
        core.snapshot_taken(LogIndex(1), Term(1))


def test_an_entry_of_a_term_that_the_hard_state_missed_raises_the_term() -> None:
    """5.1 with our shell: entries and hard state are synced side by side, so a crash may leave the entry alone."""
    core = RaftCore(
        ME, (ME, PEER, OTHER), view((1, 4)), HardState(term=Term(3), voted_for=PEER), RaftConfig(), lambda low, _: low
    )
    assert core.ready().hard_state == HardState(term=Term(4), voted_for=NOBODY)


def test_requests_of_servers_outside_the_configuration_are_heard() -> None:
    """6: "a server ... accepts AppendEntries ... [and] grants its vote to a candidate that is not part of the server's
    latest configuration": it may not have the entry yet that made them members."""
    core = member()
    core.step(NodeId(9), vote_request(5, candidate=NodeId(9)))
    assert [reply.granted for reply in sent(core.ready(), VoteReply)] == [True]
    core.step(NodeId(9), replace(append(5, 0, 0, [5]), leader=NodeId(9)))
    assert core.leader == 9 and len(core.ready().append) == 1


def test_answers_of_servers_outside_the_configuration_do_not_count() -> None:
    """6: majorities are of the latest configuration in the log."""
    core = leader(size=5)
    for stranger in (7, 8, 9):
        core.step(NodeId(stranger), synced_reply(core, 1))
    core.synced(LogIndex(1), core.term)
    assert core.commit_index == 0


def test_misfitting_settings_are_all_named() -> None:
    """A group that could never elect a leader, or never send, must not start."""
    config = RaftConfig(election_ticks_min=5, election_ticks_max=5, max_pipeline_entries=0)
    with pytest.raises(ValueError) as refused:
        RaftCore(ME, (PEER,), LogView(), HardState(term=Term(0), voted_for=NOBODY), config, lambda low, _: low)
    for key in ("election_ticks_max", "max_pipeline_entries", "members"):
        assert f"raft.{key}" in str(refused.value)


def test_an_idle_group_with_everything_answered_needs_no_ticks() -> None:
    """Not in the paper: hundreds of idle queues must cost nothing."""
    core = leader()
    assert core.needs_tick
    core.synced(LogIndex(1), core.term)
    for peer in (PEER, OTHER):
        core.step(peer, synced_reply(core, 1))
    core.ready()
    ticks = 0
    while core.needs_tick and ticks < 100:
        core.tick()
        ticks += 1
        for send in sent(core.ready(), SendEntries):
            core.step(send.to, synced_reply(core, 1))
    assert ticks == 20, "the last notice is repeated once, answered, and that is that"


# Section 6 and thesis chapter 4: membership


def config_entry(index: int, term: int, configuration: Configuration) -> Entry:
    payload = configuration.encode()
    return Entry(LogIndex(index), Term(term), EntryKind.CONFIG, crc32(payload), payload)


def noop_entry(index: int, term: int, version: int) -> Entry:
    payload = noop_payload(version)
    return Entry(LogIndex(index), Term(term), EntryKind.NOOP, crc32(payload), payload)


def config_append(term: int, prev: int, prev_term: int, entries: Sequence[Entry], commit: int = 0) -> AppendEntries:
    return replace(append(term, prev, prev_term, commit=commit), entries=tuple(entries))


def established(**settings: int) -> RaftCore:
    """A leader whose first entry is committed."""
    core = leader(**settings)
    core.synced(LogIndex(1), core.term)
    for peer in core.configuration.voters[1:]:
        core.step(peer, synced_reply(core, 1))
    core.ready()
    assert core.commit_index == 1
    return core


def joining(replica_id: int = 0) -> RaftCore:
    hard_state = HardState(term=Term(0), voted_for=NOBODY)
    return RaftCore(ME, (), LogView(), hard_state, RaftConfig(), lambda low, high: low, replica_id=replica_id)


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def test_a_configuration_is_in_effect_when_it_is_appended_on_the_leader() -> None:
    """6: "Once a given server adds the new configuration entry to its log, it uses that configuration for all future
    decisions". Here: the removed voter's disk counts no more, for the removal itself."""
    core = established()
    index = core.remove(OTHER)
    assert core.configuration == Configuration((ME, PEER)) and core.change_under_way
    core.synced(index, core.term)
    core.step(OTHER, synced_reply(core, index))
    assert core.commit_index == 1
    core.step(PEER, synced_reply(core, index))
    assert core.commit_index == index and not core.change_under_way


def test_a_configuration_is_in_effect_when_it_is_appended_on_a_follower() -> None:
    """6, "regardless of whether the entry is committed": it asks for votes only whom the new one counts."""
    core = follower()
    core.step(PEER, config_append(1, 0, 0, [config_entry(1, 1, Configuration((ME, OTHER)))]))
    core.ready()
    core.campaign()
    token = sent(core.ready(), PreVoteRequest)[0].token
    core.step(PEER, PreVoteReply(term=core.term, token=token, granted=True))
    assert core.role is Role.PRE_CANDIDATE, "PEER is asked, for it may trust this member, but does not count"
    core.step(OTHER, PreVoteReply(term=core.term, token=token, granted=True))
    assert [send.to for send in core.ready().messages if isinstance(send, Send)] == [OTHER]


def test_an_overwritten_configuration_never_was() -> None:
    """Thesis 4.1: "a server may have to fall back to the previous configuration in its log" if the newest goes."""
    core = follower()
    core.step(PEER, config_append(1, 0, 0, [config_entry(1, 1, Configuration((ME, PEER)))]))
    assert core.configuration == Configuration((ME, PEER))
    core.ready()
    core.synced(LogIndex(1), Term(1))
    core.step(PEER, append(2, 0, 0, [2]))
    assert core.configuration == THREE and core.configuration_at(LogIndex(1)) == THREE


def test_a_configuration_is_found_again_after_a_restart() -> None:
    """6: the log is where members are kept; above the snapshot by entries, below it by the snapshot itself."""
    core = member((1, 1, 1))
    core.restored(Configuration((ME, PEER)))
    core.recovered(config_entry(3, 1, Configuration((ME, PEER), (OTHER,))))
    assert core.configuration == Configuration((ME, PEER), (OTHER,))
    assert core.configuration_at(LogIndex(2)) == Configuration((ME, PEER))


def test_one_change_at_a_time() -> None:
    """Thesis 4.1: two changes under way could have majorities that share no member."""
    core = established()
    index = core.remove(OTHER)
    with pytest.raises(ChangeUnderWayError):
        core.add(NodeId(4))
    core.synced(index, core.term)
    core.step(PEER, synced_reply(core, index))
    core.add(NodeId(4))


def test_no_change_before_an_entry_of_the_own_term_is_committed() -> None:
    """Thesis 4.1, as corrected (raft-dev, July 2015): two leaders could each change from another configuration."""
    core = leader()
    with pytest.raises(ChangeUnderWayError):
        core.remove(OTHER)
    core.synced(LogIndex(1), core.term)
    core.step(PEER, synced_reply(core, 1))
    core.remove(OTHER)


def test_impossible_changes_are_refused() -> None:
    """A group without voters could never come back; and only the leader changes anything."""
    core = established()
    for change in (lambda: core.add(PEER), lambda: core.remove(NodeId(9))):
        with pytest.raises(ValueError, match="member"):
            change()
    alone = member(size=1)
    alone.tick()
    alone.synced(LogIndex(1), Term(1))
    with pytest.raises(ValueError, match="last voter"):
        alone.remove(ME)
    with pytest.raises(NotLeaderError):
        follower().add(NodeId(4))


def test_an_earlier_replica_of_a_node_does_not_answer_for_the_later_one() -> None:
    """Beyond the paper: the node has not heard yet that it was removed and added again, and will delete what it has. If
    the leader counted that, entries would be committed that a blank voter knows nothing of."""
    core = follower()
    payload = Configuration((PEER, OTHER), (ME,), ((ME, 5),)).encode()
    change = Entry(LogIndex(1), Term(1), EntryKind.CONFIG, crc32(payload), payload)
    core.step(PEER, replace(append(1, 0, 0), entries=(change,)))
    core.synced(LogIndex(1), Term(1))
    assert not sent(core.ready(), AppendReply)


def test_a_learner_may_have_less_than_an_earlier_replica_said() -> None:
    """The same, seen by the leader: that replica answered before it read of its successor, who must get the log too."""
    core = established()
    index = core.add(NodeId(4), 1)
    core.synced(index, core.term)
    core.step(PEER, synced_reply(core, index))
    core.step(NodeId(4), synced_reply(core, LogIndex(index - 1)))
    core.ready()
    core.node_down(NodeId(4))
    core.node_up(NodeId(4))
    core.step(NodeId(4), synced_reply(core, LogIndex(index - 1)))
    core.ready()
    blank = synced_reply(core, LogIndex(0))
    core.step(NodeId(4), replace(blank, success=False, next_index=LogIndex(1)))
    (probe,) = [each for each in sent(core.ready(), SendEntries) if each.to == 4]
    assert probe.prev_index == 0


def test_a_new_server_learns_before_it_votes() -> None:
    """Thesis 4.2.1: "a new server joins the cluster as a non-voting member", and its disk does not count."""
    core = established()
    index = core.add(NodeId(4))
    assert core.configuration == Configuration((ME, PEER, OTHER), nodes(4))
    assert NodeId(4) in [send.to for send in core.ready().messages if isinstance(send, SendEntries)]
    core.synced(index, core.term)
    core.step(NodeId(4), synced_reply(core, index))
    assert core.commit_index == 1
    core.step(PEER, synced_reply(core, index))
    assert core.commit_index == index
    assert core.configuration == Configuration(nodes(1, 2, 3, 4)), "and then it had caught up"


def test_a_server_that_lags_is_not_promoted() -> None:
    """Thesis 4.2.1: only "once the new server has caught up"; here, when what it lacks fits into one message."""
    core = established()
    last = core.add(NodeId(4))
    for _ in range(40):
        last = core.propose(EntryKind.COMMAND, b"x", crc32(b"x"))
    core.synced(last, core.term)
    core.step(PEER, synced_reply(core, last))
    lag = core.config.max_entries_per_append
    core.step(NodeId(4), synced_reply(core, last - lag - 1))
    assert core.configuration.learners == (4,)
    core.step(NodeId(4), synced_reply(core, last - lag))
    assert core.configuration.voters == (1, 2, 3, 4)


def test_a_learner_is_promoted_when_its_log_names_it() -> None:
    """Beyond the thesis: who is counted must be able to vote, and votes only when its log names it."""
    core = established()
    index = core.add(NodeId(4))
    core.synced(index, core.term)
    core.step(PEER, synced_reply(core, index))
    core.step(NodeId(4), synced_reply(core, index - 1))
    assert core.configuration.learners == (4,)
    core.step(NodeId(4), synced_reply(core, index))
    assert core.configuration.voters == (1, 2, 3, 4)


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    """Thesis 4.2.2: it "steps down once the Cnew entry is committed", and "does not count itself in majorities"."""
    core = established()
    index = core.remove(ME)
    core.synced(index, core.term)
    core.step(PEER, synced_reply(core, index))
    assert core.role is Role.LEADER and core.commit_index == 1
    core.step(OTHER, synced_reply(core, index))
    ready = core.ready()
    assert (core.role, core.leader, ready.commit) == (Role.FOLLOWER, NOBODY, index)
    assert {send.commit for send in sent(ready, SendEntries)} == {index} and sent(ready, TimeoutNow)
    core.campaign()
    assert core.role is Role.FOLLOWER and not core.needs_tick


def test_a_server_outside_its_configuration_campaigns_until_its_removal_is_committed() -> None:
    """Thesis 4.2.2: "it should still start new elections, as it might still be needed", but its vote counts nothing."""
    core = follower()
    core.step(PEER, config_append(1, 0, 0, [config_entry(1, 1, Configuration((PEER, OTHER)))]))
    core.node_down(PEER)
    core.ready()
    core.campaign()
    token = sent(core.ready(), PreVoteRequest)[0].token
    core.step(OTHER, PreVoteReply(term=Term(1), token=token, granted=True))
    assert core.role is Role.PRE_CANDIDATE, "one of two, and itself not counted"
    core.step(PEER, append(1, 1, 1, commit=1))
    core.campaign()
    assert core.role is Role.FOLLOWER and core.commit_index == 1 and not core.needs_tick


def test_a_server_that_joined_late_campaigns_after_a_restart_in_the_middle_of_its_removal() -> None:
    """Thesis 4.2.2: it alone has the entry that removes it, so the only member left cannot win without its vote, nor
    against its log. What is committed is not known any more, and the oldest configuration does not name it."""
    hard_state = HardState(term=Term(1), voted_for=ME)
    core = RaftCore(ME, (), view([1, 1]), hard_state, RaftConfig(), lambda low, high: low, replica_id=7)
    core.recovered(config_entry(1, 1, Configuration((ME, PEER), replica_ids=((ME, 7),))))
    core.recovered(config_entry(2, 1, Configuration((PEER,))))
    core.campaign()
    assert [send.to for send in core.ready().messages if isinstance(send, Send)] == [PEER]


def test_a_server_that_was_removed_before_the_last_change_does_not_campaign() -> None:
    """The configuration between must be committed, even where the news of it are late."""
    core = follower()
    changes = [config_entry(1, 1, Configuration((PEER, OTHER))), config_entry(2, 1, Configuration((OTHER,)))]
    core.step(PEER, config_append(1, 0, 0, changes))
    core.node_down(PEER)
    core.ready()
    core.campaign()
    assert core.role is Role.FOLLOWER and not core.needs_tick


def test_members_doubt_a_leader_that_they_removed() -> None:
    """Thesis 4.2.2 with our detector: nobody says that it left, so nobody may rely on it."""
    core = follower()
    core.step(PEER, config_append(1, 0, 0, [config_entry(1, 1, Configuration((ME, OTHER)))]))
    core.ready()
    assert core.needs_tick
    core.step(OTHER, pre_vote_request(1, last=1, last_term=1))
    assert [reply.granted for reply in sent(core.ready(), PreVoteReply)] == [True]


@pytest.mark.parametrize("request_of", [vote_request, pre_vote_request])
def test_a_removed_server_does_not_unseat_the_leader(request_of: Callable[..., Message]) -> None:
    """Thesis 4.2.3: "disruptive servers" - neither by the leader nor by a follower that trusts it."""
    for core in (established(), follower()):
        term = core.term
        core.step(NodeId(9), request_of(9, 9, 9))
        replies = [send.message for send in core.ready().messages if isinstance(send, Send)]
        assert [getattr(reply, "granted", None) for reply in replies] == [False]
        assert core.term == term and core.leader != NOBODY


def test_a_joining_member_has_no_say() -> None:
    """Thesis 4.2.1, and our rule: it neither campaigns nor votes before its log names it."""
    core = joining()
    core.campaign()
    core.tick()
    core.step(PEER, vote_request(3))
    core.step(PEER, pre_vote_request(3))
    assert core.role is Role.FOLLOWER and not core.needs_tick
    replies = [send.message for send in core.ready().messages if isinstance(send, Send)]
    assert [getattr(reply, "granted", None) for reply in replies] == [False, False]


def test_a_learner_votes_if_asked_and_never_asks() -> None:
    """Thesis 4.2.1: who asks holds the entry that promotes it, and may need this vote to send it. As in etcd."""
    core = joining()
    core.step(PEER, config_append(1, 0, 0, [config_entry(1, 1, Configuration((PEER, OTHER), (ME,)))]))
    core.node_down(PEER)
    core.ready()
    core.campaign()
    assert core.role is Role.FOLLOWER and not core.needs_tick
    core.step(OTHER, vote_request(2, 1, 1, candidate=OTHER))
    assert [reply.granted for reply in sent(core.ready(), VoteReply)] == [True]


def test_a_joining_member_cannot_vote_again_in_a_term_that_it_forgot() -> None:
    """5.2 "at most one candidate in a given term", when the vote was given before the replica was deleted: accepting
    the term's leader is written down as the vote."""
    core = joining(replica_id=2)
    core.step(PEER, append(5, 0, 0))
    assert core.ready().hard_state == HardState(term=Term(5), voted_for=PEER)


def test_a_member_is_not_the_one_that_its_node_once_had() -> None:
    """Beyond the thesis: the old log names the node as voter, alone even. The new replica forgot what that promised."""
    core = joining(replica_id=2)
    core.step(PEER, config_append(5, 0, 0, [config_entry(1, 1, Configuration((ME,)))], commit=1))
    core.node_down(PEER)
    core.campaign()
    core.tick()
    core.step(OTHER, vote_request(6, 1, 5, candidate=OTHER))
    assert core.role is Role.FOLLOWER and not any(reply.granted for reply in sent(core.ready(), VoteReply))
    mine = Configuration((ME, PEER), replica_ids=((ME, 2),))
    core.step(PEER, config_append(6, 1, 1, [config_entry(2, 6, mine)]))
    core.node_down(PEER)
    core.campaign()
    assert core.role is Role.PRE_CANDIDATE


def test_a_snapshot_brings_the_configuration_of_its_last_entry() -> None:
    """6 and 7: "Raft ... includes the latest configuration in the snapshot as of last included index"."""
    core = joining()
    core.step(PEER, append(4, 9, 4))
    core.step(PEER, install(4, 9, 3))
    configuration = Configuration((PEER, OTHER), (ME,))
    core.installed(LogIndex(9), Term(3), configuration, 2)
    assert core.configuration == core.configuration_at(LogIndex(9)) == configuration
    assert core.machine_version_in_effect == core.machine_version_at(LogIndex(9)) == 2


# Thesis 3.10: leadership transfer


def test_a_transfer_waits_until_the_heir_has_everything_and_takes_no_proposals() -> None:
    """Thesis 3.10, steps 1 to 3."""
    core = established()
    index = core.propose(EntryKind.COMMAND, b"x", crc32(b"x"))
    core.transfer(PEER)
    assert not core.accepting and not sent(core.ready(), TimeoutNow)
    with pytest.raises(TransferUnderWayError):
        core.propose(EntryKind.COMMAND, b"x", crc32(b"x"))
    with pytest.raises(TransferUnderWayError):
        core.remove(OTHER)
    core.step(OTHER, synced_reply(core, index))
    assert not sent(core.ready(), TimeoutNow)
    core.step(PEER, synced_reply(core, index))
    assert len(sent(core.ready(), TimeoutNow)) == 1


def test_a_transfer_that_comes_to_nothing_ends_after_an_election_time() -> None:
    """Thesis 3.10: "the prior leader aborts the transfer and resumes accepting client requests"."""
    core = established()
    core.transfer(PEER)
    for _ in range(core.config.election_ticks_max):
        assert not core.accepting and core.needs_tick
        core.tick()
    assert core.accepting


def test_only_another_voter_can_be_given_the_leadership() -> None:
    """Thesis 3.10: the target is a server of the cluster."""
    core = established()
    for to in (ME, NodeId(9)):
        with pytest.raises(ValueError, match="another voter"):
            core.transfer(to)
    assert core.accepting


def test_timeout_now_starts_an_election_that_nobody_who_trusts_the_leader_refuses() -> None:
    """Thesis 3.10 and 4.2.3: no pre-vote, and a flag that the leader wished for it."""
    core = follower()
    core.step(PEER, TimeoutNow(term=Term(1), leader=PEER))
    assert (core.role, core.term) == (Role.CANDIDATE, 2)
    assert {request.transfer for request in sent(core.ready(), VoteRequest)} == {True}
    for transfer in (False, True):
        core = follower()
        core.step(OTHER, replace(vote_request(2, candidate=OTHER), transfer=transfer))
        assert [reply.granted for reply in sent(core.ready(), VoteReply)] == [transfer]
        assert core.term == (2 if transfer else 1)


@pytest.mark.parametrize("sender", [PEER, OTHER])
def test_timeout_now_of_another_term_or_sender_is_ignored(sender: NodeId) -> None:
    """Thesis 3.10: it is the present leader's to give."""
    core = follower(term=3)
    core.step(sender, TimeoutNow(term=Term(2 if sender == PEER else 3), leader=sender))
    assert core.role is Role.FOLLOWER and core.term == 3


def test_an_older_machine_does_not_take_over() -> None:
    """Beyond the thesis: nobody was asked for a pre-vote, so the heir itself has to see it."""
    core = follower()
    core.step(PEER, config_append(1, 0, 0, [noop_entry(1, 1, version=2)]))
    core.step(PEER, TimeoutNow(term=Term(1), leader=PEER))
    assert core.role is Role.FOLLOWER and core.term == 1


def test_an_overwritten_machine_version_never_was() -> None:
    """As with a configuration (section 6): else members of the old version could not be elected any more."""
    core = follower()
    core.step(PEER, config_append(1, 0, 0, [noop_entry(1, 1, version=2)]))
    assert core.machine_version_in_effect == 2
    core.ready()
    core.synced(LogIndex(1), Term(1))
    core.step(PEER, config_append(2, 0, 0, [noop_entry(1, 2, version=1)]))
    assert core.machine_version_in_effect == 1


# Section 8 and thesis 6.4: reads; thesis 6.2: a leader that is alone


def heartbeats(core: RaftCore) -> list[int]:
    return sorted({beat.round for beat in sent(core.ready(), Heartbeat)})


def test_a_read_is_answered_after_a_round_that_began_after_it() -> None:
    """8: "exchange heartbeat messages with a majority of the cluster before responding to read-only requests"."""
    core = established()
    core.read(1)
    assert heartbeats(core) == [1]
    core.read(2)
    assert heartbeats(core) == [2]
    core.step(PEER, HeartbeatReply(term=core.term, round=1))
    assert core.ready().reads == ((1, 1),)
    core.step(NodeId(9), HeartbeatReply(term=core.term, round=2))
    core.step(OTHER, HeartbeatReply(term=Term(core.term - 1), round=2))
    assert core.ready().reads == ()
    core.step(OTHER, HeartbeatReply(term=core.term, round=2))
    assert core.ready().reads == ((2, 1),)


def test_a_majority_of_five_answers_a_read() -> None:
    """8, as above: two others, not one."""
    core = established(size=5)
    core.read(1)
    core.ready()
    core.step(PEER, HeartbeatReply(term=core.term, round=1))
    assert core.ready().reads == ()
    core.step(OTHER, HeartbeatReply(term=core.term, round=1))
    assert core.ready().reads == ((1, 1),)


def test_a_read_waits_for_the_leaders_first_entry() -> None:
    """8: "the leader must have the latest information on which entries are committed ... a blank no-op"."""
    core = leader((1, 1), term=1)
    core.read(1)
    assert heartbeats(core) == []
    core.synced(LogIndex(3), core.term)
    core.step(PEER, synced_reply(core, 3))
    assert heartbeats(core) == [1]
    core.step(PEER, HeartbeatReply(term=core.term, round=1))
    assert core.ready().reads == ((1, 3),)


def test_reads_end_with_the_leadership() -> None:
    """8: who "has been replaced by another leader" must not answer."""
    core = established()
    core.read(1)
    core.ready()
    core.read(2)
    core.step(PEER, HeartbeatReply(term=Term(core.term + 1), round=1))
    assert core.ready().reads_refused == (1, 2) and core.role is Role.FOLLOWER
    with pytest.raises(NotLeaderError):
        core.read(3)


def test_a_lost_round_is_asked_for_again() -> None:
    """8 on a network that loses messages: else one lost message would leave the client without an answer."""
    core = established()
    core.read(1)
    core.ready()
    for _ in range(core.config.resend_ticks):
        assert core.needs_tick and not sent(core.ready(), Heartbeat)
        core.tick()
    assert heartbeats(core) == [1]
    core.node_down(PEER)
    core.node_up(PEER)
    assert heartbeats(core) == [1]


def test_a_heartbeat_is_answered_with_the_term() -> None:
    """5.1 and 8: the leader of an old term learns the newer one, and its question goes unanswered."""
    core = follower(term=3)
    core.step(PEER, Heartbeat(term=Term(3), leader=PEER, round=5))
    core.step(OTHER, Heartbeat(term=Term(2), leader=OTHER, round=6))
    assert [(reply.term, reply.round) for reply in sent(core.ready(), HeartbeatReply)] == [(3, 5), (3, 6)]


def test_a_leader_without_a_majority_steps_down_after_an_election_time() -> None:
    """Thesis 6.2: "a leader steps down if an election timeout elapses without a successful round ... to a majority"."""
    core = established()
    core.node_down(PEER)
    core.node_down(OTHER)
    for _ in range(core.config.election_ticks_max - 1):
        core.tick()
    core.node_up(OTHER)
    for _ in range(core.config.election_ticks_max):
        core.tick()
    assert core.role is Role.LEADER
    core.node_down(OTHER)
    for _ in range(core.config.election_ticks_max):
        assert core.role is Role.LEADER
        core.tick()
    assert core.role is Role.FOLLOWER and core.leader == NOBODY


def test_learners_do_not_make_a_majority_reachable() -> None:
    """Thesis 6.2 with 4.2.1."""
    core = established()
    core.add(NodeId(4))
    core.node_down(PEER)
    core.node_down(OTHER)
    for _ in range(core.config.election_ticks_max):
        core.tick()
    assert core.role is Role.FOLLOWER
