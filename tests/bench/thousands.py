"""Thousands of quorum queues: what declaring one costs, what the nodes do while all are idle, how long a start takes.

One connection declares them one after the other. The queues stay: the same nodes are stopped and started on their data.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import psutil

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.bench.client import Client
from tests.bench.context import Context, free_base_port
from tests.bench.figures import REFERENCE

BENCH = "thousands of queues"
_SETTLE_S = 5.0


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
            context.note(BENCH, REFERENCE, figures | start_again(directory, port))
        finally:
            local_cluster.stop(local_cluster.load(directory))


def declare(cluster: Cluster, count: int) -> dict[str, float]:
    """Time and CPU of the three nodes for each."""
    began, before = time.monotonic(), _cpu_s(cluster)
    with Client(cluster.uris[0]) as client:
        for number in range(count):
            client.declare(f"bench-thousands-{number}")
    passed, used = time.monotonic() - began, _cpu_s(cluster) - before
    return {"declare_ms": 1000 * passed / count, "declare_cpu_ms": 1000 * used / count}


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


def _cpu_s(cluster: Cluster) -> float:
    return sum(sum(psutil.Process(node.pid).cpu_times()[:2]) for node in cluster.nodes)
