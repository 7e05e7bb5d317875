"""Thousands of quorum queues: what declaring one costs, what the nodes do while all are idle, how long a start takes,
and how long a third of the queues is without a leader after their node was killed.

Clients on all nodes declare the queues one after the other. The queues stay: the same nodes are stopped and started on
their data.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from infra import local_cluster
from infra.cluster import Cluster, Node
from tests.bench.client import Client
from tests.bench.context import Context, free_base_port
from tests.bench.figures import REFERENCE, BenchError

BENCH = "thousands of queues"
_SETTLE_S = 5.0
_TIMEOUT_S = 60.0
_POLL_S = 0.05


def measure(context: Context, _names: list[str]) -> None:
    """Once: it is the same for each queue."""
    with tempfile.TemporaryDirectory(dir=context.directory) as temporary:
        directory = Path(temporary) / "cluster"
        port = free_base_port()
        cluster = local_cluster.start(directory, base_port=port)
        try:
            figures = declare(cluster, context.lengths.queues)
            figures |= idle(cluster, context.lengths.idle_s)
            local_cluster.stop(cluster)
            figures |= start_again(directory, port)
            context.note(BENCH, REFERENCE, figures | lose_a_node(local_cluster.load(directory)))
        finally:
            local_cluster.stop(local_cluster.load(directory))


def declare(cluster: Cluster, count: int) -> dict[str, float]:
    """Time and CPU of the three nodes for each."""
    began, before, memory = time.monotonic(), _cpu_s(cluster), _memory(cluster)
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(uri)) for uri in cluster.uris]
        for number in range(count):  # in turn, so that each node leads a third
            clients[number % len(clients)].declare(f"bench-thousands-{number}")
    passed, used = time.monotonic() - began, _cpu_s(cluster) - before
    grown = max(after - before for before, after in zip(memory, _memory(cluster), strict=True))
    return {
        "declare_ms": 1000 * passed / count,
        "declare_cpu_ms": 1000 * used / count,
        "kib_each": grown / count / 1024,
    }


def idle(cluster: Cluster, seconds: float) -> dict[str, float]:
    """CPU of the three nodes while nothing happens."""
    time.sleep(_SETTLE_S)
    began, before = time.monotonic(), _cpu_s(cluster)
    time.sleep(seconds)
    return {"idle_percent": 100 * (_cpu_s(cluster) - before) / (time.monotonic() - began)}


def start_again(directory: Path, port: int) -> dict[str, float]:
    """Until every queue has a leader; CPU of the three nodes until then."""
    began = time.monotonic()
    cluster = local_cluster.start(directory, base_port=port)
    return {"start_again_s": time.monotonic() - began, "start_again_cpu_s": _cpu_s(cluster)}


def lose_a_node(cluster: Cluster) -> dict[str, float]:
    """``kill -9`` of the node that leads the most queues: until the others lead all of them."""
    groups = sum(_leading(cluster).values())
    victim = max(_leading(cluster).items(), key=lambda item: item[1])[0]
    others = [node for node in cluster.nodes if node.name != victim]
    before = sum(_node_cpu_s(node) for node in others)
    local_cluster.kill(cluster, victim)
    began = time.monotonic()
    while sum(_leading(cluster).values()) < groups:
        if time.monotonic() - began > _TIMEOUT_S:
            raise BenchError(f"the queues of {victim} had no leader after {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)
    used = sum(_node_cpu_s(node) for node in others) - before
    return {"led_again_s": time.monotonic() - began, "led_again_cpu_s": used}


def _leading(cluster: Cluster) -> dict[str, int]:
    """The groups that each node leads."""
    return {said["name"]: int(said.get("leading", 0)) for said in local_cluster.summary(cluster)}


def _memory(cluster: Cluster) -> list[int]:
    return [psutil.Process(node.pid).memory_info().rss for node in cluster.nodes]


def _node_cpu_s(node: Node) -> float:
    return sum(psutil.Process(node.pid).cpu_times()[:2])


def _cpu_s(cluster: Cluster) -> float:
    return sum(map(_node_cpu_s, cluster.nodes))
