"""Simulated and real figures side by side: the same plans, on the local cluster of this machine and in a world.

The real runs are measured several times, and the median of each figure counts: on a machine with two cores one run in
three is off by more than a model may be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

import click

from perftest.cli.calibrate import MEASURED, real_rows, tell_of_other_work
from perftest.cli.exits import Exit
from perftest.cli.layouts import layout_of
from perftest.cli.simulated_cells import Cell, run_cell
from perftest.cli.simulated_run import shortened

RATE_PART: Final = 0.15
P99_PART: Final = 0.25
"""A simulated rate, and a simulated p99, should be so near the real one."""


def compare_with_real(cells: Sequence[Cell], *, as_json: bool) -> Exit:
    """Measure and simulate each cell, print both, and return MISSED if a figure is farther off than it should be."""
    lines = [line for cell in cells for line in _lines(cell)]
    if as_json:
        click.echo(json.dumps({"record": "verification", "steps": lines}, ensure_ascii=False))
    else:
        click.echo(_text(lines))
    return Exit.OK if all(line["near"] for line in lines) else Exit.MISSED


def _lines(cell: Cell) -> list[dict[str, Any]]:
    plan = shortened(cell.plan, cell.limits)
    layout = layout_of(cell.layout) if cell.layout is not None else None
    real = []
    for _ in range(MEASURED):
        tell_of_other_work(lambda text: click.echo(text, err=True))
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


def _text(lines: Sequence[dict[str, Any]]) -> str:
    head = f"{'':40}{'confirmed/s':^32}{'confirm p99 ms':^32}\n"
    head += f"{'workload and step':40}" + f"{'real':>11}{'simulated':>11}{'off':>8}  " * 2
    rows = [
        f"{(line['workload'] + ' ' + line['step'])[:39]:40}"
        f"{line['real_rate']:>11,.0f}{line['simulated_rate']:>11,.0f}{line['rate_off']:>+8.0%}  "
        f"{line['real_p99']:>11.2f}{line['simulated_p99']:>11.2f}{line['p99_off']:>+8.0%}  "
        f"{'' if line['near'] else 'too far off'}".rstrip()
        for line in lines
    ]
    return "\n".join([head.rstrip(), *rows])
