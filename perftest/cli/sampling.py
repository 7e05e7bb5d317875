"""Samples the host and the broker's nodes beside a run, once per interval."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra import local_cluster
from perftest.results.provenance import HostSampler
from perftest.results.writer import RunWriter

if TYPE_CHECKING:
    from infra.local_cluster import Cluster


class Sampler:
    """Records what the host says, and each node of ``cluster`` that answers; ``show`` hears of the nodes, too.

    ``tell`` takes the events of a node that answers no more and of one that does again: clients on other nodes notice
    neither, and yet from then on something else is measured.
    """

    def __init__(
        self,
        writer: RunWriter,
        cluster: Cluster | None,
        *,
        show: Callable[[Mapping[str, Any]], None] = lambda record: None,
        tell: Callable[[dict[str, object]], None] | None = None,
    ) -> None:
        self._writer = writer
        self._cluster = cluster
        self._show = show
        self._tell = tell or writer.event
        self._answering = {node.name for node in cluster.nodes} if cluster is not None else set()

    async def run(self) -> None:
        """Sample until cancelled. Raises RunNotWritableError."""
        host = HostSampler()
        while True:
            self._writer.host(host.sample(time.time_ns()))
            await self.nodes()
            await asyncio.sleep(self._writer.plan.interval_s)

    async def nodes(self) -> None:
        """Sample the nodes now: the CPU time of the last step needs a sample after it. Raises RunNotWritableError."""
        if self._cluster is not None:
            t_ns = time.time_ns()
            records = await asyncio.to_thread(local_cluster.sample, self._cluster, t_ns)
            for record in records:
                self._writer.broker(record)
                self._show(record)
            self._compare({str(record["node"]) for record in records}, t_ns)
            if len(records) < len(self._cluster.nodes):
                self._look_for_new_processes(self._cluster)

    def _look_for_new_processes(self, cluster: Cluster) -> None:
        """A node that was killed may be started again by another command: then it has another pid."""
        with contextlib.suppress(local_cluster.ClusterError):  # a temporary cluster has no file, and no other command
            self._cluster = local_cluster.load(Path(cluster.directory))

    def _compare(self, answering: set[str], t_ns: int) -> None:
        for node in sorted(self._answering - answering):
            self._tell({"t_ns": t_ns, "kind": "node_lost", "node": node, "text": f"{node} does not answer"})
        for node in sorted(answering - self._answering):
            self._tell({"t_ns": t_ns, "kind": "node_back", "node": node, "text": f"{node} answers again"})
        self._answering = answering
