"""Samples the host and the broker's nodes beside a run, once per interval."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from infra import local_cluster
from perftest.results.provenance import HostSampler
from perftest.results.writer import RunWriter

if TYPE_CHECKING:
    from infra.local_cluster import Cluster


class Sampler:
    """Records what the host says, and each node of ``cluster`` that answers; ``show`` hears of the nodes, too."""

    def __init__(
        self,
        writer: RunWriter,
        cluster: Cluster | None,
        *,
        show: Callable[[Mapping[str, Any]], None] = lambda record: None,
    ) -> None:
        self._writer = writer
        self._cluster = cluster
        self._show = show

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
            for record in await asyncio.to_thread(local_cluster.sample, self._cluster, time.time_ns()):
                self._writer.broker(record)
                self._show(record)
