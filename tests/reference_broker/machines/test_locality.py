"""Who executes an effect."""

from __future__ import annotations

from itertools import product

import pytest

from reference_broker.machines.effects import Confirm, Deliver, Effect, MonitorNode, Reply, Span, local_effects
from reference_broker.types import LogIndex, NodeId

from .logs import channel, consumer

MEMBERS = (NodeId(1), NodeId(2), NodeId(3))


def of_node(node: int) -> list[Effect]:
    spans = (Span(LogIndex(1), 0, 0, 1),)
    return [Confirm(channel(node), 1, 1), Deliver(consumer(node), 0, spans, 0), Reply(channel(node), 1, 0)]


@pytest.mark.parametrize(("leader", "host"), list(product((1, 2, 3), (1, 2, 3, 4))))
def test_exactly_one_member_executes_what_is_meant_for_a_channel(leader: int, host: int) -> None:
    """I25. Two would deliver a message twice, none would lose it; wherever the channel is, whoever leads."""
    executors = [
        node for node in MEMBERS if local_effects(of_node(host), node, node == leader, MEMBERS) == of_node(host)
    ]
    idle = [node for node in MEMBERS if local_effects(of_node(host), node, node == leader, MEMBERS) == []]
    assert executors == [host if host in MEMBERS else leader]
    assert len(idle) == 2


def test_only_the_leader_watches_nodes() -> None:
    """Each member would otherwise append a NodeDown of its own."""
    effects: list[Effect] = [MonitorNode(NodeId(2))]
    assert local_effects(effects, NodeId(2), False, MEMBERS) == []
    assert local_effects(effects, NodeId(1), True, MEMBERS) == effects


def test_the_order_of_effects_is_kept() -> None:
    """Confirms go before deliveries, and a cancel's reply after them, on each node alone too."""
    mixed = [effect for pair in zip(of_node(1), of_node(2), strict=True) for effect in pair]
    assert local_effects(mixed, NodeId(2), True, MEMBERS) == of_node(2)
