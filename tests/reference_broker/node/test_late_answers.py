"""What a client on a node without a member asked for is answered, whenever it was applied."""

from __future__ import annotations

from collections.abc import Collection

from reference_broker.types import NodeId
from tests.reference_broker.node.test_group_storm import Consumer, Publisher, World

LEADER, GUEST = NodeId(1), NodeId(4)


def run_on(world: World, held: Collection[tuple[NodeId, NodeId]] = ()) -> None:
    """Until nothing moves any more but for timers, and for frames on the links that are ``held``."""
    moved = True
    while moved:
        moved = False
        for node in world.nodes.values():
            node.hear()
            moved |= bool(node.dirty or node.notices)
            node.turn()
            moved |= node.log.run_pending()
            while node.notices:
                node.take_notice()
            for other in world.all:
                link = world.links.get((other, node.node))
                while link and (other, node.node) not in held:
                    moved = True
                    node.frame(other, *link.popleft())


def test_a_subscription_that_is_applied_while_its_node_attaches_anew_is_answered() -> None:
    """The leader says what is applied; then the subscription is, too, and only then the node is its guest again."""
    world = World(1, nodes=4)
    run_on(world)
    world.nodes[LEADER].runner.lead_if_nobody_does()  # type: ignore[union-attr]
    Publisher(world.nodes[GUEST], world).publish()
    run_on(world)
    answers, to_guest = {(NodeId(2), LEADER), (NodeId(3), LEADER)}, (LEADER, GUEST)

    consumer = Consumer(world.nodes[GUEST], world)
    subscribed: list[int] = []
    consumer.subscribed = subscribed.append  # type: ignore[method-assign]
    run_on(world, answers)  # it is in the leader's log
    world.cut(LEADER, GUEST)
    world.connect(LEADER, GUEST)
    run_on(world, {*answers, to_guest})  # the leader has said how far it is
    run_on(world, {to_guest})  # the subscription is applied
    assert not subscribed
    run_on(world)
    assert subscribed and subscribed == consumer.held[:1], "answered once, with where its messages begin"
