"""The output for simulations: their figures, the verdicts on findings, and real figures beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from perftest.cli.ui.summary import doubts, steps_table, terminal_width, where_and_next, wrapped_lines
from perftest.exits import CliError, Exit, gravest
from perftest.results.errors import RunNotWritableError
from perftest.series.judgement import is_missed, judged
from perftest.simulation.cells import Cell, CellResult, cost_of, results_of
from perftest.simulation.verification import lines_of
from perftest.spec.codec import plan_digest
from perftest.tell import tell
from reports.stats.reproduction import Reproduction

_LONG_S: Final = 60.0


def run_cells(cells: Sequence[Cell], *, jobs: int, as_json: bool, assert_findings: bool = False) -> Exit:
    """Simulate all cells, print their results in the order of the cells, then the verdicts on findings, and return the
    gravest exit code."""
    _tell_cost(cells, jobs)
    codes, runs = [], dict[str, list[Path]]()
    plans = {plan_digest(cell.plan): cell.plan for cell in cells}
    try:
        for cell, result in results_of(cells, jobs):
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


def _tell_cost(cells: Sequence[Cell], jobs: int) -> None:
    """Say what simulations cost that may take longer than a minute."""
    cost = cost_of(cells, jobs)
    if cost.real_s > _LONG_S:
        number = "one simulation" if len(cells) == 1 else f"{len(cells)} simulations, {min(jobs, len(cells))} at a time"
        tell(f"{number}: {cost.virtual_s:,.0f} s of virtual time, and up to {cost.more_s:,.0f} s more until rates are "
             f"steady; on idle cores, at most about {cost.real_s / 60:,.0f} min")  # fmt: skip


def _print_verdicts(name: str, found: Reproduction | None, *, as_json: bool) -> None:
    if found is None:
        return
    if as_json:
        record = {"record": "findings", "workload": name, **found.to_json()}
        click.echo(json.dumps(record, ensure_ascii=False))
    else:
        click.echo(wrapped_lines([f"{name}: {found.lines()[0]}", *found.lines()[1:]], terminal_width()) + "\n")


def _print(cell: Cell, result: CellResult) -> None:
    known = cell.setup.rabbit or cell.calibration
    measured = known.measured_on
    origin = ", ".join(str(measured[key]) for key in ("cpu", "date") if key in measured)
    broker = "" if cell.setup.rabbit is None else ", with a model of RabbitMQ"
    click.echo(f"SIMULATED: {cell.plan.title or cell.plan.name}{broker}")
    click.echo(f"calibration {known.id} ({origin or 'not said'}), seed {cell.setup.seed}; "
               f"{result.virtual_s:.1f} s of virtual time took {result.took_s:.1f} s")  # fmt: skip
    placed = cell.setup.placement.layout
    click.echo(f"layout {placed}\n" if placed else "")
    if result.rows:
        click.echo(steps_table(result.rows) + "\n")
    if result.recoveries:
        click.echo("\n".join(str(recovery["text"]) for recovery in result.recoveries) + "\n")
    if result.verdicts:
        click.echo("\n".join(verdict.sentence() for verdict in result.verdicts) + "\n")
    for text in doubts(result.trust):
        click.echo(text)
    click.echo(where_and_next("data", result.path, None, [f"perftest report {result.path}"]) + "\n")


def _print_json(result: CellResult) -> None:
    record = {"record": "result", "simulated": True, "path": str(result.path), "exit_code": int(result.code)}
    record |= {"recoveries": result.recoveries} if result.recoveries else {}
    record |= {"objectives": [verdict.to_json() for verdict in result.verdicts]} if result.verdicts else {}
    trust = [check.to_list_json() for check in result.trust]
    click.echo(json.dumps(record | {"steps": result.rows, "trust": trust}, ensure_ascii=False))


def compare_with_real(cells: Sequence[Cell], *, as_json: bool) -> Exit:
    """Measure and simulate each cell, print both, and return MISSED if a figure is farther off than it should be."""
    lines = [line for cell in cells for line in lines_of(cell)]
    if as_json:
        click.echo(json.dumps({"record": "verification", "steps": lines}, ensure_ascii=False))
    else:
        click.echo(_text(lines))
    return Exit.OK if all(line["near"] for line in lines) else Exit.MISSED


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
