"""Several simulations, some at the same time: each in a process of its own, because a world uses one core.

The findings of a workload are judged over all simulations of it: layouts side by side, seeds as repetitions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from perftest.exits import Exit
from perftest.measuring.placement import Inline
from perftest.results.trust import Check
from perftest.simulation.calibration import Calibration
from perftest.simulation.simulated_run import StepLimits, shortened, simulate
from perftest.simulation.simulated_world import Setup
from perftest.spec.expected.slo import Verdict
from perftest.spec.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One simulation. ``layout`` is the layout from which the drives come."""

    plan: Plan
    setup: Setup
    calibration: Calibration
    out: Path
    limits: StepLimits
    layout: Path | Inline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """The outcome of a cell. ``took_s`` is real time; ``virtual_s`` the simulated time."""

    path: Path
    code: Exit
    rows: list[dict[str, Any]]
    trust: list[Check]
    took_s: float
    virtual_s: float
    recoveries: list[Mapping[str, Any]]
    """How the load recovered from each action of the timeline."""
    verdicts: list[Verdict]
    """On the objectives of the workload."""


SATURATED: Final = 3.0
"""CPU seconds of a second of virtual time with a saturated cluster, about: docs/internals/simulated-runs.md."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Virtual seconds of some simulations, those that warm-ups may take more, and the most seconds of real time."""

    virtual_s: float
    more_s: float
    real_s: float


def cost_of(cells: Sequence[Cell], jobs: int) -> Cost:
    """What simulations cost on idle cores, ``jobs`` at a time."""
    plans = [shortened(cell.plan, cell.limits) for cell in cells]
    ahead_s = sum(-min((group.start_s for group in plan.background), default=0.0) for plan in plans)
    virtual_s = sum(step.duration_s for plan in plans for step in plan.steps) + ahead_s
    more_s = sum(cell.limits.settle_s * len(plan.steps) for cell, plan in zip(cells, plans, strict=True))
    return Cost(virtual_s, more_s, (virtual_s + more_s) * SATURATED / min(jobs, len(cells)))


def run_cell(cell: Cell) -> CellResult:
    """Simulate one cell."""
    began = time.monotonic()
    with _silent_nodes():
        writer, code = simulate(cell.plan, cell.setup, cell.calibration, cell.out, cell.limits)
    return CellResult(
        path=writer.path,
        code=code,
        rows=writer.rows,
        trust=writer.trust,
        took_s=time.monotonic() - began,
        virtual_s=writer.manifest["simulated"]["virtual_s"],
        recoveries=list(writer.recoveries),
        verdicts=list(writer.verdicts),
    )


@contextmanager
def _silent_nodes() -> Iterator[None]:
    """Keep the nodes' log lines out of the command's output: they are all one process here."""
    nodes = logging.getLogger("reference_broker")
    level = nodes.level
    nodes.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        nodes.setLevel(level)


def results_of(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, CellResult]]:
    """Each cell with its result as soon as it and those before it are done."""
    if len(cells) == 1 or jobs == 1:
        yield from ((cell, run_cell(cell)) for cell in cells)
        return
    with ProcessPoolExecutor(min(jobs, len(cells)), mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(run_cell, cell) for cell in cells]
        try:
            yield from ((cell, future.result()) for cell, future in zip(cells, asked, strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
