"""Copies that no majority needs wait, and never longer than they may (docs/decisions/0010)."""

from __future__ import annotations

from zlib import crc32

import pytest

from reference_broker.raft.messages import VoteReply
from reference_broker.types import EntryKind, NodeId, Term

from .leader import ONE, THREE, TWO, Leader

SLOW_NS = 8_000_000


def test_who_never_answered_is_not_relied_on() -> None:
    assert Leader().propose() == ["2 gets 2-2, commit 1", "3 gets 2-2, commit 1"]


def test_one_follower_makes_the_majority_and_the_other_gets_many_at_once() -> None:
    leader = Leader()
    leader.warm_up()
    for index in (3, 4, 5):
        assert leader.propose() == [f"3 gets {index}-{index}, commit {index - 1}"]
        assert leader.answer(ONE, THREE) == []
        assert leader.core.commit_index == index
    assert "2 gets 3-5, commit 5" in leader.later_on()


def test_without_clients_is_who_waits() -> None:
    leader = Leader(clients={TWO})
    leader.warm_up()
    assert leader.propose() == ["2 gets 3-3, commit 2"]
    assert leader.answer(ONE, TWO) == ["2 gets nothing, commit 3"]
    assert leader.later_on() == ["3 gets 3-3, commit 3"]


def test_where_clients_wait_no_copy_does() -> None:
    leader = Leader(clients={TWO, THREE})
    leader.warm_up()
    assert leader.propose() == ["2 gets 3-3, commit 2", "3 gets 3-3, commit 2"]


def test_who_has_not_answered_what_came_before_is_not_relied_on() -> None:
    leader = Leader()
    leader.warm_up()
    assert leader.propose() == ["3 gets 3-3, commit 2"]
    leader.answer(ONE)
    assert leader.propose() == ["2 gets 3-4, commit 2", "3 gets 4-4, commit 2"]


@pytest.mark.parametrize("slow", [1, 3])
def test_nobody_waits_for_the_sake_of_who_is_slower(slow: int) -> None:
    leader = Leader()
    leader.warm_up()
    for _ in range(20):
        leader.answers.took(NodeId(slow), SLOW_NS)
    if slow == 3:
        assert leader.propose() == ["2 gets 3-3, commit 2"]  # it is the slow one that waits
    else:
        assert len(leader.propose()) == 2  # the leader's own drive is, and the two others are the majority


def test_a_broken_link_sets_free_what_waits() -> None:
    leader = Leader()
    leader.warm_up()
    assert leader.propose() == ["3 gets 3-3, commit 2"]
    leader.sender.peer_down(THREE)
    leader.core.node_down(THREE)
    assert leader.said() == ["2 gets 3-3, commit 2"]
    assert leader.propose() == ["2 gets 4-4, commit 2"]
    assert leader.later_on() == []


@pytest.mark.parametrize("sizes", [(70_000,), (40_000, 40_000)])
def test_many_octets_wait_for_nothing(sizes: tuple[int, ...]) -> None:
    leader = Leader()
    leader.warm_up()
    assert len(leader.propose(*sizes)) == 2


def test_a_change_of_members_waits_for_nothing_and_takes_along_what_waits() -> None:
    leader = Leader()
    leader.warm_up()
    leader.propose()
    leader.answer(ONE, THREE)
    leader.core.remove(THREE)
    leader.turn()
    assert leader.said() == ["2 gets 3-4, commit 3"]


def test_nothing_overtakes_what_waits() -> None:
    leader = Leader()
    leader.warm_up()
    assert leader.propose() == ["3 gets 3-3, commit 2"]
    leader.core.read(1)
    leader.turn()
    assert leader.said() == ["2 gets 3-3, commit 2", "2 gets Heartbeat", "3 gets Heartbeat"]


def test_what_was_held_back_until_the_lead_was_lost_waits_for_nothing() -> None:
    """Messages wait for a term and a vote to be on disk; by then there may be another leader, and nobody to count."""
    leader = Leader()
    leader.warm_up()
    leader.core.propose(EntryKind.COMMAND, b"", crc32(b""))
    held = leader.core.ready()
    leader._entries |= {entry.index: entry for entry in held.append}
    leader.core.step(TWO, VoteReply(term=Term(9), granted=False))
    leader.sender.send_all(held)
    assert leader.said() == ["2 gets 3-3, commit 2", "3 gets 3-3, commit 2"]


def test_no_notice_goes_while_entries_tell_of_the_commit_of_those_before() -> None:
    """A queue with ten messages a second would send ten notices a second to each follower, for nothing."""
    leader = Leader()
    leader.warm_up()
    for index in (3, 4):
        leader.now += 100_000_000
        assert leader.propose_steadily() == [f"3 gets {index}-{index}, commit {index - 1}"]
        leader.answer(ONE, THREE)
    assert leader.later_on() == ["2 gets 3-4, commit 4"], "the spare copies, and no notice for the other"
    leader.answer(TWO)
    assert leader.later_on() == []
    leader.now += 200_000_000
    assert leader.later_on() == ["3 gets nothing, commit 4"]
