"""Majorities against a table drawn in data/quorum.txt, and against counting every subset."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.raft.quorum import VoteResult, committed_index, describe, majority, vote_result
from reference_broker.types import LogIndex, NodeId
from tests.reference_broker.raft.testing import replay

TABLE = Path(__file__).parent / "data" / "quorum.txt"
NODES = tuple(NodeId(node) for node in range(1, 8))


def draw(command: str) -> str:
    """``committed 5 7 9``: what members 1, 2, 3 have on disk."""
    name, *synced = command.split()
    assert name == "committed"
    return describe(dict(zip(NODES, map(LogIndex, map(int, synced)), strict=False)))


def test_committed_index_is_drawn_as_recorded() -> None:
    """A wrong median would confirm messages that sit on a minority of disks. REWRITE=1 records anew."""
    recorded = TABLE.read_text()
    drawn = replay(recorded, draw)
    if os.environ.get("REWRITE"):
        TABLE.write_text(drawn)
    else:
        assert drawn == recorded


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7))
def test_committed_index_is_the_best_that_some_majority_shares(synced: list[int]) -> None:
    """The oracle tries every majority; the function only sorts."""
    needed = majority(len(synced))
    oracle = max(min(group) for group in itertools.combinations(synced, needed))
    assert committed_index([LogIndex(index) for index in synced]) == oracle


@given(st.integers(1, 7), st.data())
def test_vote_result_is_what_every_completion_agrees_on(members: int, data: st.DataObject) -> None:
    """PENDING must mean that the missing answers decide; else an election hangs or is won twice."""
    nodes = NODES[:members]
    votes = data.draw(st.dictionaries(st.sampled_from(nodes), st.booleans()))
    missing = [node for node in nodes if node not in votes]
    outcomes = set()
    for answers in itertools.product((True, False), repeat=len(missing)):
        complete = votes | dict(zip(missing, answers, strict=True))
        outcomes.add(sum(complete.values()) >= majority(members))
    expected = VoteResult.PENDING if len(outcomes) == 2 else VoteResult.WON if outcomes == {True} else VoteResult.LOST
    assert vote_result(nodes, votes) is expected


@pytest.mark.parametrize("members", range(1, 9))
def test_any_two_majorities_share_a_member(members: int) -> None:
    """Without it two leaders of one term were possible."""
    assert 2 * majority(members) > members
    assert 2 * (majority(members) - 1) <= members
