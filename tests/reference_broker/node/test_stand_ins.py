"""A node that does not reach a leader asks a node that does to lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reference_broker.node.groups import Groups
from reference_broker.node.peer_answers import PATIENCE_LOOKS, PeerAnswers, StandIns
from reference_broker.node.requests import Answer, RequestError
from reference_broker.types import NOBODY, GroupId, NodeId

HERE, LEADER, THIRD = NodeId(3), NodeId(1), NodeId(2)
GROUP, OTHER = GroupId(7), GroupId(8)


class Asked:
    """Keeps what a node asks of others."""

    def __init__(self) -> None:
        self.requests: list[tuple[NodeId, Answer]] = []

    def __call__(self, node: NodeId, request: Answer, _answered: Any) -> None:
        self.requests.append((node, request))


def member(voters: tuple[NodeId, ...] = (LEADER, THIRD, HERE), *, node: NodeId = HERE, leader: NodeId = NOBODY) -> Any:
    core = SimpleNamespace(
        configuration=SimpleNamespace(voters=voters), node=node, leader=leader, trusts_leader=leader not in (0, node)
    )
    return SimpleNamespace(core=core)


def groups(**runners: Any) -> Groups:
    return cast(Groups, SimpleNamespace(runners={GroupId(int(name[1:])): each for name, each in runners.items()}))


def test_a_group_that_stays_without_a_leader_is_handed_to_a_node_that_is_reached() -> None:
    """An election takes less than the patience; a cut lasts. Otherwise the clients of this node wait for its end."""
    ask, leaderless, up = Asked(), {GROUP: None}, {HERE: 1, THIRD: 1}
    stand_ins = StandIns(groups(g7=member(), g8=member()), leaderless, up, ask, HERE)
    for _ in range(PATIENCE_LOOKS - 1):
        stand_ins.look()
    assert not ask.requests
    leaderless[OTHER] = None
    stand_ins.look()
    assert ask.requests == [(THIRD, {"op": "stand-in", "groups": [GROUP]})], "the other group has waited once only"
    leaderless.clear()
    for _ in range(2 * PATIENCE_LOOKS):
        stand_ins.look()
    assert len(ask.requests) == 1


def test_voters_are_asked_in_turn_and_nobody_who_is_out_of_reach() -> None:
    """The first one may reach the leader no more than this node does."""
    ask, voters = Asked(), (NodeId(1), NodeId(2), HERE, NodeId(4), NodeId(5))
    up = {HERE: 1, NodeId(2): 1, NodeId(5): 1}
    stand_ins = StandIns(groups(g7=member(voters)), {GROUP: None}, up, ask, HERE)
    for _ in range(3 * PATIENCE_LOOKS):
        stand_ins.look()
    assert [node for node, _ in ask.requests] == [5, 2, 5]
    alone = StandIns(groups(g7=member(voters)), {GROUP: None}, {HERE: 1}, ask, HERE)
    for _ in range(PATIENCE_LOOKS):
        alone.look()
    assert len(ask.requests) == 3, "a node that reaches nobody asks nobody"


def test_who_is_asked_has_the_leaders_that_it_reaches_hand_over() -> None:
    """A node that leads already, or knows no leader, has nothing to ask for."""
    runners = {
        "g7": member(node=THIRD, leader=LEADER),
        "g8": member(node=THIRD, leader=THIRD),
        "g9": member(node=THIRD),
    }
    answers = PeerAnswers(groups(**runners), lambda _runner: None, cast(Any, SimpleNamespace()))
    answers.ask = ask = Asked()
    answered: list[Answer] = []
    answers.answer(HERE, {"op": "stand-in", "groups": [7, 8, 9, 10, "x"]}, answered.append)
    assert answered == [{"ok": True}]
    assert ask.requests == [(LEADER, {"op": "hand-over", "group": 7, "to": THIRD})]
    answers.answer(HERE, {"op": "stand-in"}, answered.append)
    assert "no list of groups" in answered[1]["error"]
    with pytest.raises(RequestError):
        answers._stand_in({"groups": 7})
