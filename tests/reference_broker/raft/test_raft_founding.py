"""A group whose creation elected its first leader: term 1 is its leader's, whatever is lost on the way."""

from __future__ import annotations

import pytest

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.core import FIRST_TERM, RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import PreVoteRequest, VoteReply, VoteRequest
from reference_broker.raft.ready import HardState, Send, SendEntries
from reference_broker.raft.roles import Role
from reference_broker.types import NOBODY, LogIndex, NodeId, Term

LEADER, OTHER, THIRD = NODES = (NodeId(1), NodeId(2), NodeId(3))


def founder(node: NodeId, *, term: int = 0, vote: NodeId = NOBODY, blank: bool = True) -> RaftCore:
    """A founder of a group of three that node 1 is to lead first. ``term`` and ``vote`` are what is on its disk."""
    hard_state = HardState(term=Term(term), voted_for=vote)
    core = RaftCore(node, NODES, LogView(), hard_state, RaftConfig(), lambda low, high: low)
    core.founded(LEADER, blank=blank)
    return core


def test_the_leader_leads_from_the_first_moment_and_asks_nobody() -> None:
    """A pre-vote and a vote, each with a sync, were half of what a new queue cost."""
    core = founder(LEADER)
    ready = core.ready()
    assert (core.role, core.term, core.leader) == (Role.LEADER, FIRST_TERM, LEADER)
    assert ready.hard_state == HardState(term=FIRST_TERM, voted_for=LEADER), "on disk before anybody hears of it"
    assert [type(each) for each in ready.messages] == [SendEntries, SendEntries]


@pytest.mark.parametrize("blank", [True, False])
def test_the_others_have_voted_and_vote_for_nobody_else_in_that_term(blank: bool) -> None:
    """Also after a restart that found their creation on disk and no term: they were counted all the same."""
    core = founder(OTHER, blank=blank)
    assert (core.role, core.term, core.voted_for) == (Role.FOLLOWER, FIRST_TERM, LEADER)
    core.ready()
    core.step(THIRD, VoteRequest(term=FIRST_TERM, candidate=THIRD, last_index=LogIndex(0), last_term=Term(0)))
    (answer,) = core.ready().messages
    assert isinstance(answer, Send) and answer.message == VoteReply(term=FIRST_TERM, granted=False)


def test_nobody_stands_for_the_first_term() -> None:
    """Then its leader needs no votes to be the only one."""
    core = founder(OTHER)
    core.campaign()
    (asked, _) = core.ready().messages
    assert isinstance(asked, Send) and isinstance(asked.message, PreVoteRequest)
    assert asked.message.term == FIRST_TERM, "so the election is for the term after"


@pytest.mark.parametrize(("term", "vote"), [(0, NOBODY), (1, LEADER), (1, NOBODY)])
def test_a_leader_that_was_here_before_waits_for_an_election(term: int, vote: NodeId) -> None:
    """It may have led the first term and lost entries of it with the power: it must not write others in their place."""
    core = founder(LEADER, term=term, vote=vote, blank=False)
    assert (core.role, core.term, core.voted_for) == (Role.FOLLOWER, FIRST_TERM, LEADER)
    assert core.needs_tick, "its timer runs"


def test_later_terms_are_nobodys_by_birth() -> None:
    """What is on disk is newer than the creation."""
    core = founder(OTHER, term=2, vote=THIRD, blank=False)
    assert (core.term, core.voted_for) == (2, THIRD)
    assert founder(LEADER, term=2, blank=False).voted_for == NOBODY


def test_a_sole_founder_leads_at_once() -> None:
    """Without waiting for a tick."""
    core = RaftCore(
        LEADER, (LEADER,), LogView(), HardState(term=Term(0), voted_for=NOBODY), RaftConfig(), lambda low, high: low
    )
    core.founded(LEADER, blank=True)
    assert core.role is Role.LEADER and not core.needs_tick
