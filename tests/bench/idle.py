"""A hundred quorum queues that nobody uses: what a node costs for being there."""

from __future__ import annotations

import time

from tests.bench.client import Client
from tests.bench.context import Broker, Context

QUEUES = 100
_SETTLE_S = 5.0


def measure(context: Context, _names: list[str]) -> None:
    """Once on each broker."""
    with context.brokers() as brokers:
        for broker in brokers:
            context.note("idle", broker.name, one(broker, context.lengths.idle_s))


def one(broker: Broker, seconds: float) -> dict[str, float]:
    """CPU of the nodes while nothing happens; the client's connection is closed, too."""
    names = [f"bench-idle-{number}" for number in range(QUEUES)]
    with Client(broker.uris[0]) as client:
        for name in names:
            client.declare(name)
    time.sleep(min(_SETTLE_S, seconds))
    began, before = time.monotonic(), broker.cpu_s()
    time.sleep(seconds)
    passed = time.monotonic() - began
    nodes = [100 * (after - used) / passed for after, used in zip(broker.cpu_s(), before, strict=True)]
    with Client(broker.uris[0]) as client:
        for name in names:
            client.delete(name)
    return {"busiest_node_percent": max(nodes), "all_nodes_percent": sum(nodes)}
