"""Leaders are evened out with as few transfers as possible, and the same way whoever is asked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.node.operations.cluster_requests import moves
from reference_broker.types import NodeId

NODES = [NodeId(number) for number in range(1, 6)]
LED = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sampled_from(NODES), max_size=20)


@given(LED)
def test_where_every_node_has_every_queue_no_two_differ_by_more_than_one(leaders: dict[str, NodeId]) -> None:
    found = moves(leaders, dict.fromkeys(leaders, NODES))
    after = {**leaders, **{move.queue: move.target for move in found}}
    load = Counter(dict.fromkeys(NODES, 0) | dict(Counter(after.values())))
    assert max(load.values()) - min(load.values()) <= 1
    needed = sum(max(0, count - -(-len(leaders) // len(NODES))) for count in Counter(leaders.values()).values())
    assert len(found) >= needed
    assert len({move.queue for move in found}) == len(found), "a queue is moved twice"
    assert moves(after, dict.fromkeys(leaders, NODES)) == []


def test_a_queue_goes_only_where_it_has_a_member() -> None:
    leaders = {"a": NODES[0], "b": NODES[0], "c": NODES[0]}
    assert moves(leaders, dict.fromkeys(leaders, NODES[:1])) == []
    (move,) = moves(leaders, {"a": NODES[:1], "b": NODES[:2], "c": NODES[:1]})
    assert (move.queue, move.source, move.target) == ("b", NODES[0], NODES[1])
