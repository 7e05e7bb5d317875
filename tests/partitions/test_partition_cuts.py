"""The list of cuts, and what a judge of them must be able to see."""

from __future__ import annotations

from tests.integration.storm_clients import Account
from tests.partitions.campaign import OfQueue, Outcome, judge_meanwhile
from tests.partitions.cuts import SHAPES, Cut, cut, joined
from tests.partitions.network import SIDES


def test_the_list_is_the_same_each_time_and_has_everything() -> None:
    cuts = [cut(3, number, 40.0) for number in range(300)]
    assert cuts == [cut(3, number, 40.0) for number in range(300)] != [cut(4, number, 40.0) for number in range(300)]
    assert {each.shape for each in cuts} == set(SHAPES) and {each.how for each in cuts} == {"silent", "refusing"}
    assert {each.is_flapping for each in cuts} == {each.has_backlog for each in cuts} == {True, False}
    assert max(each.seconds for each in cuts) > 20


def made(shape: str, other: int = 0) -> Cut:
    return Cut(0, shape, "node1", "silent", (20.0,), other, has_backlog=False)


def test_a_majority_is_who_reaches_each_other_in_both_directions() -> None:
    assert joined(made("isolated").links("node1")) == {"node2", "node3"}
    assert joined(made("mute").links("node3")) == joined(made("deaf").links("node3")) == {"node1", "node2"}
    assert joined(made("link").links("node1")) == joined(made("one way").links("node1")) == set(SIDES)


def account(confirmed: dict[str, float], ended: str = "") -> Account:
    """Confirms at these times, by node, and a connection that ended at 105."""
    found = Account()
    for side, at in confirmed.items():
        found.confirms_of[SIDES.index(side)].append(at)
    if ended:
        found.ends_of[SIDES.index(ended)].append(105.0)
    return found


def meanwhile(kind: str, told: Account, shape: str = "link") -> OfQueue:
    """What is judged of a cut from 100 to 120 on node1."""
    of = OfQueue()
    judge_meanwhile(of, told, made(shape), "node1", (106.0, 120.0), kind)
    return of


def test_clients_that_reach_a_majority_are_served_during_a_cut_or_lose_their_connection() -> None:
    everywhere = dict.fromkeys(SIDES, 110.0)
    assert meanwhile("quorum", account(everywhere)) == OfQueue()
    assert meanwhile("mirrored", account(dict.fromkeys(SIDES, 101.0))).stalled
    assert meanwhile("quorum", account(everywhere | {"node2": 101.0})).hung == ["node2"]
    assert meanwhile("quorum", account(everywhere | {"node2": 101.0}, ended="node2")) == OfQueue()
    assert meanwhile("quorum", account(everywhere | {"node1": 101.0}), "isolated") == OfQueue()


def test_each_kind_of_failure_has_words() -> None:
    of = OfQueue(lost=1, unflagged=["again"], wrong=["x"], serves_s={"node1": 3.0}, stalled=True, hung=["node2"])
    assert len(Outcome(made("link"), "node1", {"quorum": of}).failures(2.0)) == 6
    assert not Outcome(made("link"), "node1", {"quorum": OfQueue(serves_s={"node1": 1.0})}).failures(2.0)
