"""Where a new queue's members go, and which of them leads first. Pure.

``x-quorum-initial-group-size`` members, 3 by default, or all nodes if there are fewer. ``x-queue-leader-locator``
chooses the first leader: ``client-local`` (default) the node that the client is connected to, ``balanced`` the node
that leads the fewest queues. The leader's node gets a member; the others go to nodes that run, those with the fewest
members first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from reference_broker.machines.metadata import QueueRecord
from reference_broker.node.census import Census
from reference_broker.types import NodeId

GROUP_SIZE: Final = 3
"""RabbitMQ's ``quorum_cluster_size`` of 3.10."""


def placed(
    record: QueueRecord,
    here: NodeId,
    nodes: Collection[NodeId],
    up: Collection[NodeId],
    census: Census,
) -> QueueRecord:
    """The record with members, founders and a first leader, whom the declaration elects. What it costs does not depend
    on how many queues there are."""
    arguments, held, led = dict(record.arguments), census.members, census.led
    wanted = arguments.get("x-quorum-initial-group-size", GROUP_SIZE)
    size = min(int(wanted), len(nodes))
    order = sorted(nodes, key=lambda node: (node not in up, held[node], node))
    leader = here
    if arguments.get("x-queue-leader-locator") == "balanced":
        leader = min(order, key=lambda node: (node not in up, led[node], node != here, node))
    members = tuple(sorted([leader, *[node for node in order if node != leader][: size - 1]]))
    return replace(record, members=members, founders=members, leader=leader, elected=True)
