"""Everything that tells the memory of a node tells what the node holds now, as its alarm does."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from reference_broker.node.alarms import Alarms, Room
from reference_broker.node.config import Limits, Member
from reference_broker.node.operations.figures import NodeFigures
from reference_broker.node.start_problems import StartFindings
from reference_broker.types import NodeId


def test_the_row_of_a_node_has_the_memory_that_the_alarm_sees() -> None:
    """Memory goes down, too: a peak since the start would stay."""
    held = {"memory": 3 << 30}
    alarms = Alarms(Limits(), [], Room(lambda: held["memory"]))
    clients = SimpleNamespace(connections={}, delivered=0, redelivered=0)
    hosting = SimpleNamespace(by_group={}, census=SimpleNamespace(leading=Counter()))
    me = Member(node=NodeId(1), name="node1", host="h", amqp_port=1, peer_port=2, control_port=3)
    config = SimpleNamespace(name="node1", me=me, client_tls=None)
    figures = NodeFigures(cast(Any, config), cast(Any, clients), cast(Any, hosting), alarms, StartFindings({}))
    for memory in (3 << 30, 1 << 20):
        held["memory"] = memory
        answers: list[dict[str, Any]] = []
        figures.answer({"of": "node"}, answers.append)
        assert answers[0]["rows"][0]["mem_used"] == memory
