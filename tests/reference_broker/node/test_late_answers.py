"""What a client on a node without a member asked for is answered, whenever it was applied."""

from __future__ import annotations

from reference_broker.types import NodeId
from tests.reference_broker.node.test_group_storm import Consumer, Publisher, World

LEADER, NON_MEMBER = NodeId(1), NodeId(4)


def test_a_subscription_that_is_applied_while_its_node_attaches_anew_is_answered() -> None:
    """The leader says what is applied; then the subscription is, too, and only then the node is its non-member
    again."""
    world = World(1, nodes=4)
    world.run_on()
    world.nodes[LEADER].runner.lead_if_nobody_does()  # type: ignore[union-attr]
    Publisher(world.nodes[NON_MEMBER], world).publish()
    world.run_on()
    answers, to_non_member = {(NodeId(2), LEADER), (NodeId(3), LEADER)}, (LEADER, NON_MEMBER)

    consumer = Consumer(world.nodes[NON_MEMBER], world)
    subscribed: list[int] = []
    consumer.subscribed = subscribed.append  # type: ignore[method-assign]
    world.run_on(answers)  # it is in the leader's log
    world.cut(LEADER, NON_MEMBER)
    world.connect(LEADER, NON_MEMBER)
    world.run_on({*answers, to_non_member})  # the leader has said how far it is
    world.run_on({to_non_member})  # the subscription is applied
    assert not subscribed
    world.run_on()
    assert subscribed and subscribed == consumer.held[:1], "answered once, with where its messages begin"
