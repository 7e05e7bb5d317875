"""Asks the nodes of a local cluster, at the boundaries of each step's steady time, where within them the time went."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infra import local_cluster
from perftest.results.stages import StageCounts, lines

if TYPE_CHECKING:
    from infra.local_cluster import Cluster, Node
    from perftest.results.writer import RunWriter
    from perftest.spec.plan import Plan

_Boundary = tuple[str, int, int]
"""Kind of event, step, Unix time in ns."""


class StageSampler:
    """Follows the events of a run; :meth:`run` asks the nodes and writes, beside it.

    All nodes are asked at once, milliseconds after the boundary. A node that does not answer, or keeps no anatomy, is
    left out of the step.
    """

    def __init__(self, plan: Plan, cluster: Cluster, writer: RunWriter) -> None:
        self._begin_at_once = {step.number for step in plan.steps if not step.warmup_s}
        self._cluster = cluster
        self._writer = writer
        self._boundaries: asyncio.Queue[_Boundary] = asyncio.Queue()
        self._began_ns = 0
        self._before: dict[str, StageCounts] = {}

    def event(self, record: Mapping[str, object]) -> None:
        """An event of the run; boundaries are noted and nothing waits."""
        step, at_ns = record.get("step"), record.get("t_ns")
        if not isinstance(step, int) or not isinstance(at_ns, int):
            return
        kind = str(record.get("kind"))
        if kind in ("steady", "step_ended") or (kind == "step_started" and step in self._begin_at_once):
            self._boundaries.put_nowait((kind, step, at_ns))

    async def run(self) -> None:
        """Handle boundaries until cancelled. Raises RunNotWritableError."""
        while True:
            boundary = await self._boundaries.get()
            try:
                await self._take(*boundary)
            finally:
                self._boundaries.task_done()

    async def finish(self) -> None:
        """Wait until the last boundary is handled."""
        await self._boundaries.join()

    async def _take(self, kind: str, step: int, at_ns: int) -> None:
        counts = await self._ask_all()
        if kind == "step_ended":
            if self._began_ns:
                for name, after in counts.items():
                    between = lines(self._before.get(name), after, step=step, start_ns=self._began_ns, end_ns=at_ns)
                    self._writer.stages(await asyncio.to_thread(list, between))
            self._began_ns = 0
        else:
            self._before, self._began_ns = counts, at_ns

    async def _ask_all(self) -> dict[str, StageCounts]:
        answers = await asyncio.gather(*(asyncio.to_thread(_ask, node) for node in self._cluster.nodes))
        return {counts.node: counts for counts in answers if counts is not None}


def _ask(node: Node) -> StageCounts | None:
    try:
        answer: dict[str, Any] = local_cluster.ask(node, {"op": "anatomy"})
    except (OSError, ValueError):
        return None
    return StageCounts.of(answer)
