"""Samplers that work beside a run.

:class:`Sampler` records the host and the broker's nodes once per interval. :class:`StageSampler` asks the nodes of a
local cluster at the boundaries of each step where the time of its messages went.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra import local_cluster
from perftest.results.provenance import HostSampler
from perftest.results.stages import Boundary, StageCounts, StageSteps
from perftest.results.writer import RunWriter

if TYPE_CHECKING:
    from infra.fuse_drives import FuseDrives
    from infra.local_cluster import Cluster, Node
    from perftest.measuring.broker_metrics import BrokerMetrics
    from perftest.measuring.session_options import LoadFrom
    from perftest.spec.plan import Plan

METRICS_EVERY_S: Final = 1.0
"""Shortest time between two requests to a broker over HTTP: each answer costs the broker CPU time."""


class Sampler:
    """Records samples of the host and of each node of ``cluster`` that answers; ``show`` gets the nodes' samples, too.

    ``tell`` takes an event when a node stops answering and when it answers again. Clients on other nodes notice
    neither, and yet a different cluster is measured from then on.
    """

    def __init__(
        self,
        writer: RunWriter,
        cluster: Cluster | None,
        *,
        show: Callable[[Mapping[str, Any]], None] = lambda record: None,
        tell: Callable[[dict[str, object]], None] | None = None,
        metrics: BrokerMetrics | None = None,
        drives: FuseDrives | None = None,
        load_from: LoadFrom | None = None,
        show_host: Callable[[dict[str, Any]], None] = lambda record: None,
    ) -> None:
        """``drives`` are recorded beside a broker that is no ``cluster``. ``load_from`` are hosts that are recorded in
        place of this one. ``show_host`` takes the records of hosts, as ``show`` those of nodes."""
        self._load_from = load_from
        self._show_host = show_host
        self._writer = writer
        self._cluster = cluster
        self._show = show
        self._metrics = metrics
        self._drives = drives
        self._cpu_kind = ""
        self._answering = Answering(
            [node.name for node in cluster.nodes] if cluster is not None else [], tell or writer.event
        )

    async def run(self) -> None:
        """Sample until cancelled. Raises RunNotWritableError."""
        # In separate tasks, so that a broker that answers late does not delay the samples of this host.
        loops = [asyncio.ensure_future(each) for each in (self._sample_host(), self._sample_metrics())]
        try:
            await asyncio.gather(*loops)
        finally:
            for each in loops:
                each.cancel()

    async def _sample_host(self) -> None:
        host = HostSampler()
        while True:
            samples = [host.sample(time.time_ns())] if self._load_from is None else self._load_from.samples()
            for sample in samples:
                self._writer.host(sample)
                self._show_host(sample)
            await self.nodes()
            await asyncio.sleep(self._writer.plan.interval_s)

    async def _sample_metrics(self) -> None:
        while self._metrics is not None:
            await self.remote_nodes()
            await asyncio.sleep(max(self._writer.plan.interval_s, METRICS_EVERY_S))

    async def remote_nodes(self) -> None:
        """Sample the addresses of ``--broker-metrics``, if there are any. Raises RunNotWritableError."""
        if self._metrics is None:
            return
        for record in await self._metrics.sample(time.time_ns()):
            self._writer.broker(record)
            self._show(record)
            if record.get("cpu_kind") and not self._cpu_kind:
                self._cpu_kind = str(record["cpu_kind"])
                self._writer.describe_broker(cpu_kind=self._cpu_kind)

    async def nodes(self) -> None:
        """Sample the nodes now. The CPU time of the last step needs a sample after it. Raises RunNotWritableError."""
        if self._drives is not None:
            for record in await asyncio.to_thread(self._drives.sample, time.time_ns()):
                self._writer.broker(record)
        if self._cluster is not None:
            t_ns = time.time_ns()
            records = await asyncio.to_thread(local_cluster.sample, self._cluster, t_ns)
            for record in records:
                self._writer.broker(record)
                self._show(record)
            self._answering.compare({str(record["node"]) for record in records}, t_ns)
            if len(records) < len(self._cluster.nodes):
                self._look_for_new_processes(self._cluster)

    def _look_for_new_processes(self, cluster: Cluster) -> None:
        """Read the pids of the nodes again, because another command may have started a killed node again."""
        with contextlib.suppress(local_cluster.ClusterError):  # a temporary cluster has no cluster.json
            self._cluster = local_cluster.load(Path(cluster.directory))


class Answering:
    """Which nodes answer. ``tell`` takes an event when a node stops answering and when it answers again."""

    def __init__(self, nodes: Iterable[str], tell: Callable[[dict[str, object]], None]) -> None:
        self._answering = set(nodes)
        self._tell = tell

    def compare(self, answering: set[str], t_ns: int) -> None:
        """These nodes answer now."""
        for node in sorted(self._answering - answering):
            self._tell({"t_ns": t_ns, "kind": "node_lost", "node": node, "text": f"{node} does not answer"})
        for node in sorted(answering - self._answering):
            self._tell({"t_ns": t_ns, "kind": "node_back", "node": node, "text": f"{node} answers again"})
        self._answering = answering


class StageSampler:
    """Records the latency stages of each step: follows the run's events, and asks the nodes at each boundary of a step.

    All nodes are asked at once, milliseconds after the boundary. A node that does not answer, or that records no
    stages, is left out of the step.
    """

    def __init__(self, plan: Plan, cluster: Cluster, writer: RunWriter) -> None:
        self._steps = StageSteps({step.number for step in plan.steps if not step.warmup_s})
        self._cluster = cluster
        self._writer = writer
        self._boundaries: asyncio.Queue[Boundary] = asyncio.Queue()

    def event(self, record: Mapping[str, object]) -> None:
        """Note an event of the run if it is the boundary of a step. This never waits."""
        if (boundary := self._steps.boundary(record)) is not None:
            self._boundaries.put_nowait(boundary)

    async def run(self) -> None:
        """Handle boundaries until cancelled. Raises RunNotWritableError."""
        while True:
            boundary = await self._boundaries.get()
            try:
                await self._take(boundary)
            finally:
                self._boundaries.task_done()

    async def finish(self) -> None:
        """Wait until the last boundary is handled."""
        await self._boundaries.join()

    async def _take(self, boundary: Boundary) -> None:
        counts = await self._ask_all()
        self._writer.stages(await asyncio.to_thread(self._steps.take, boundary, counts))

    async def _ask_all(self) -> dict[str, StageCounts]:
        answers = await asyncio.gather(*(asyncio.to_thread(_ask, self._cluster, node) for node in self._cluster.nodes))
        return {counts.node: counts for counts in answers if counts is not None}


def _ask(cluster: Cluster, node: Node) -> StageCounts | None:
    try:
        answer: dict[str, Any] = local_cluster.ask(cluster, node, {"op": "anatomy"})
    except (OSError, ValueError):
        return None
    return StageCounts.of(answer)
