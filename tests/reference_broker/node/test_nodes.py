"""The nodes of a cluster as one of them sees them."""

from __future__ import annotations

from reference_broker.node.config import Member
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.types import NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
MEMBERS = tuple(
    Member(node=node, name=f"node{node}", host="h", amqp_port=1, peer_port=2, control_port=3)
    for node in (THREE, ONE, TWO)
)


def test_a_node_that_is_up_is_known_by_its_boot_id() -> None:
    """An operator adds members only where a node runs; effects reach only channels of the present start."""
    nodes = Nodes(MEMBERS, ONE, 7)
    nodes.up[THREE] = 4
    assert [nodes.boot_id_of(node) for node in (ONE, TWO, THREE)] == [7, None, 4]
    assert nodes.running == [THREE, ONE], "in the order of the configuration"


def test_nodes_are_named_as_the_configuration_names_them() -> None:
    """What an operator types, and what the answer says."""
    nodes = Nodes(MEMBERS, ONE, 7)
    assert nodes.named("node2") == TWO and nodes.named("node9") is None and nodes.named(None) is None
    assert nodes.name(THREE) == "node3" and nodes.name(NodeId(9)) == "9"
    assert nodes.names == ["node3", "node1", "node2"]


def test_a_peer_is_better_placed_if_it_reaches_all_that_this_node_reaches_and_more() -> None:
    """Leaders go there: so a peer that reaches others instead must not count, or leaders would move to and fro."""
    nodes = Nodes(MEMBERS, ONE, 7)
    nodes.came(TWO, 4)
    for reached, better in (((ONE, THREE), [TWO]), ((ONE,), []), ((THREE,), []), ((), [])):
        nodes.says_it_reaches(TWO, frozenset(reached))
        assert nodes.better_placed() == better
    nodes.says_it_reaches(TWO, frozenset((ONE, THREE)))
    nodes.came(THREE, 1)
    assert nodes.better_placed() == []


def test_a_peer_is_named_that_reaches_what_this_node_does_not() -> None:
    """A client of this node is better off there."""
    nodes = Nodes(MEMBERS, ONE, 7)
    nodes.came(TWO, 4)
    assert nodes.who_reaches([THREE]) is None, "it has said nothing"
    nodes.says_it_reaches(TWO, frozenset((ONE, THREE)))
    assert nodes.who_reaches([THREE]) == "node2"
    assert nodes.who_reaches([TWO, THREE]) is None and nodes.who_reaches([ONE]) is None, "this node reaches one of them"
    nodes.says_it_reaches(TWO, frozenset((ONE,)))
    assert nodes.who_reaches([THREE]) is None
