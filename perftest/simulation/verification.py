"""Simulated and real figures side by side: the same plans, on the local cluster of this machine and in a world.

The real runs are measured several times, and the median of each figure counts: on a machine with two cores one run in
three is off by more than a model may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

from perftest.measuring.placement import layout_of
from perftest.simulation.cells import Cell, run_cell
from perftest.simulation.fitting import MEASURED, real_rows, tell_of_other_work
from perftest.simulation.simulated_run import shortened
from perftest.tell import tell

RATE_PART: Final = 0.15
P99_PART: Final = 0.25
"""Parts of the real rate, and of the real p99, by which the simulated figures may differ."""


def lines_of(cell: Cell) -> list[dict[str, Any]]:
    """Each step of a cell, measured and simulated."""
    plan = shortened(cell.plan, cell.limits)
    layout = layout_of(cell.layout) if cell.layout is not None else None
    real = []
    for _ in range(MEASURED):
        tell_of_other_work(tell)
        real.append(real_rows(plan, cell.out / "real", layout))
    simulated = run_cell(replace(cell, plan=plan)).rows
    name = " ".join([plan.name, *([layout.name] if layout is not None else [])])
    return [line_of(name, steps, step) for *steps, step in zip(*real, simulated, strict=True)]


def line_of(name: str, real: Sequence[dict[str, Any]], simulated: dict[str, Any]) -> dict[str, Any]:
    """One step of all real runs beside the simulated one."""
    line: dict[str, Any] = {"workload": name, "step": simulated["label"], "measured": len(real), "near": True}
    for figure, part in (("rate", RATE_PART), ("p99", P99_PART)):
        wanted, got = median(_figure(row, figure) for row in real), _figure(simulated, figure)
        off = got / wanted - 1 if wanted else 0.0
        line |= {f"real_{figure}": wanted, f"simulated_{figure}": got, f"{figure}_off": round(off, 3)}
        line["near"] = line["near"] and abs(off) <= part
    return line


def _figure(row: dict[str, Any], name: str) -> float:
    """Messages confirmed a second, or the p99 of the confirm latency in ms."""
    return float(row["confirmed_per_s"]) if name == "rate" else float(row["latency"]["confirm"]["p99_ns"]) / 1e6
