"""Several simulations, some at the same time: each in a process of its own, because a world uses one core.

The findings of a workload are judged over all simulations of it: layouts side by side, seeds as repetitions.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from perftest.cli.calibration import Calibration
from perftest.cli.exits import CliError, Exit, gravest
from perftest.cli.judgement import is_missed, judged
from perftest.cli.layouts import Inline
from perftest.cli.simulated_run import Limits, simulate
from perftest.cli.simulation import Setup
from perftest.cli.ui.summary import doubts, steps_table, terminal_width, where_and_next, wrapped_lines
from perftest.results.errors import RunNotWritableError
from perftest.results.trust import Check
from perftest.spec.codec import plan_digest
from perftest.spec.plan import Plan
from reports.stats.reproduction import Reproduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One simulation. ``layout`` is the layout from which the drives come."""

    plan: Plan
    setup: Setup
    calibration: Calibration
    out: Path
    limits: Limits
    layout: Path | Inline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What became of a cell. ``took_s`` is real time; ``virtual_s`` the time that was simulated."""

    path: Path
    code: Exit
    rows: list[dict[str, Any]]
    trust: list[Check]
    took_s: float
    virtual_s: float
    recoveries: list[Mapping[str, Any]]
    """How the load recovered from each action of the timeline."""


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
    )


@contextmanager
def _silent_nodes() -> Iterator[None]:
    """What nodes write to their logs is no output of the command: they are all one process here."""
    nodes = logging.getLogger("reference_broker")
    level = nodes.level
    nodes.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        nodes.setLevel(level)


def run_cells(cells: Sequence[Cell], *, jobs: int, as_json: bool, assert_findings: bool = False) -> Exit:
    """Simulate all cells, print their results in the order of the cells, then the verdicts on findings, and return the
    gravest exit code."""
    codes, runs = [], dict[str, list[Path]]()
    plans = {plan_digest(cell.plan): cell.plan for cell in cells}
    try:
        for cell, result in _results(cells, jobs):
            codes.append(result.code)
            runs.setdefault(plan_digest(cell.plan), []).append(result.path)
            _print_json(result) if as_json else _print(cell, result)
    except RunNotWritableError as error:
        if not isinstance(error.__cause__, FileExistsError):
            raise
        what = "this simulation was made before, and would give the same files"
        fix = "use the run that is there, or another directory with --out"
        raise CliError(what, str(error.__cause__.filename), fix, Exit.USAGE) from error
    found = {digest: judged(plan, runs[digest]) for digest, plan in plans.items() if plan.findings}
    for digest, each in found.items():
        _print_verdicts(plans[digest].name, each, as_json=as_json)
    if assert_findings and (not found or any(map(is_missed, found.values()))):
        codes.append(Exit.MISSED)
    return gravest(codes)


def _print_verdicts(name: str, found: Reproduction | None, *, as_json: bool) -> None:
    if found is None:
        return
    if as_json:
        record = {"record": "findings", "workload": name, **found.to_json()}
        click.echo(json.dumps(record, ensure_ascii=False))
    else:
        click.echo(wrapped_lines([f"{name}: {found.lines()[0]}", *found.lines()[1:]], terminal_width()) + "\n")


def _results(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, CellResult]]:
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


def _print(cell: Cell, result: CellResult) -> None:
    known = cell.calibration
    measured = known.measured_on
    origin = ", ".join(str(measured[key]) for key in ("cpu", "date") if key in measured)
    click.echo(f"SIMULATED: {cell.plan.title or cell.plan.name}")
    click.echo(f"calibration {known.id} ({origin or 'not said'}), seed {cell.setup.seed}; "
               f"{result.virtual_s:.1f} s of virtual time took {result.took_s:.1f} s")  # fmt: skip
    placed = cell.setup.placement.layout
    click.echo(f"layout {placed}\n" if placed else "")
    if result.rows:
        click.echo(steps_table(result.rows) + "\n")
    if result.recoveries:
        click.echo("\n".join(str(recovery["text"]) for recovery in result.recoveries) + "\n")
    for text in doubts(result.trust):
        click.echo(text)
    click.echo(where_and_next("data", result.path, None, [f"perftest report {result.path}"]) + "\n")


def _print_json(result: CellResult) -> None:
    record = {"record": "result", "simulated": True, "path": str(result.path), "exit_code": int(result.code)}
    record |= {"recoveries": result.recoveries} if result.recoveries else {}
    trust = [check.to_list_json() for check in result.trust]
    click.echo(json.dumps(record | {"steps": result.rows, "trust": trust}, ensure_ascii=False))
