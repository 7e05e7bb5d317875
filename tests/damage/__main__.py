"""``make damage``: files of stopped clusters are damaged, clusters are started, every message is accounted for."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, NoReturn

import click
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from tests.conftest import free_base_port
from tests.damage.cases import Case, case
from tests.damage.templates import Kind, Template, make
from tests.damage.trial import Result, Verdict, play

_GENERATION: Final = 200
"""Cases that begin with the same templates. Then new ones are made: how nodes divide the work differs each time."""


_TELL_EVERY: Final = 50
"""Cases after which the campaign says how far it is."""


class Campaign:
    """Templates by demand, and the results so far."""

    def __init__(self, place: Path, port: int, kept: Path | None) -> None:
        self.results: list[Result] = []
        self._place, self._port, self._kept = place, port, kept
        self._generation = -1
        self._templates: dict[Kind, Template] = {}

    def play(self, it: Case) -> Result:
        """Play a case."""
        template = self._template(it)
        scratch = self._place / "said"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        kept = self._kept / f"seed-{it.seed}-case-{it.number}" if self._kept else None
        result = play(it, template, scratch, kept)
        self.results.append(result)
        return result

    def _template(self, it: Case) -> Template:
        if it.number // _GENERATION != self._generation:
            self._generation = it.number // _GENERATION
            self._templates.clear()
        if it.kind not in self._templates:
            place = self._place / str(it.kind).replace(" ", "-").replace(",", "")
            shutil.rmtree(place, ignore_errors=True)
            self._templates[it.kind] = make(it.kind, place, self._port)
        return self._templates[it.kind]


def table(results: list[Result]) -> Table:
    """How often each verdict was found, by class of file and damage."""
    verdicts = [verdict for verdict in Verdict if any(each.verdict is verdict for each in results)]
    found = Table(box=MARKDOWN)
    for column in ("file", "damage", "nodes", "cases", *verdicts):
        found.add_column(column, justify="left" if column in ("file", "damage") else "right")
    rows = Counter((_row(each), each.verdict) for each in results)
    for row in sorted({row for row, _ in rows}):
        counts = [rows[row, verdict] for verdict in verdicts]
        found.add_row(*map(str, row), str(sum(counts)), *(str(count or "") for count in counts))
    totals = Counter(each.verdict for each in results)
    found.add_row("all", "", "", str(len(results)), *(str(totals[verdict]) for verdict in verdicts))
    return found


def _row(result: Result) -> tuple[str, str, int]:
    return result.damage.target, result.damage.change, len(result.case.nodes)


def _progress(results: list[Result], began: float) -> str:
    failures = sum(each.verdict.is_failure for each in results)
    seconds = (time.monotonic() - began) / max(1, len(results))
    return f"{len(results)} cases, {failures} failures, {seconds:.1f} s a case"


@click.command()
@click.option("--cases", default=200, help="Cases to play.", show_default=True)
@click.option("--first", default=0, help="Number of the first case.", show_default=True)
@click.option("--seed", default=1, help="The same seed makes the same list of cases.", show_default=True)
@click.option("--case", "only", type=int, multiple=True, help="Play only this case, and say everything about it.")
@click.option("--nodes", type=click.IntRange(0, 3), default=0, help="Damaged nodes of each case; 0: as chance says.")
@click.option("--files", default="", help="Damage only classes of files with these words, such as 'wal newest'.")
@click.option("--verbose", is_flag=True, help="Say everything about every case.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for the cases' directories, before and after.")
def main(
    cases: int, first: int, seed: int, only: tuple[int, ...], nodes: int, files: str, verbose: bool, keep: Path | None
) -> None:
    """Play a seeded list of damages. Exit code 1: confirmed messages were lost silently, or service was."""
    signal.signal(signal.SIGTERM, _end)  # no process and no directory is left
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="damage-") as place:
        campaign = Campaign(Path(place), free_base_port(), keep)
        try:
            for number in only or range(first, first + cases):
                result = campaign.play(case(seed, number, nodes, files))
                if result.verdict.is_failure or only or verbose:
                    click.echo("\n".join(result.lines()))
                if result.verdict.is_failure:
                    pinned = (f" NODES={nodes}" if nodes else "") + (f" FILES='{files}'" if files else "")
                    click.echo(f"  again: make damage SEED={seed} CASE={number}{pinned}")
                if len(campaign.results) % _TELL_EVERY == 0:
                    click.echo(_progress(campaign.results, began))
        finally:  # also of what was played before a signal
            Console(width=200).print(table(campaign.results))
            click.echo(f"{_progress(campaign.results, began)}, seed {seed}")
    sys.exit(any(each.verdict.is_failure for each in campaign.results))


def _end(_signal: int, _frame: object) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    main()
