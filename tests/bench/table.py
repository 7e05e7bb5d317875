"""The tables a person reads, and the JSON a program reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import HEAVY_HEAD, Box
from rich.table import Table

from tests.bench.figures import REFERENCE, Finding, Sample, Verdict, median, number, ratio, rivals

_FIGURES = "medians over the rounds; CPU and octets are those of all three nodes"
_STYLES = {Verdict.MET: "green", Verdict.MISSED: "bold red", Verdict.UNKNOWN: "dim"}


def figures_table(samples: Sequence[Sample], *, box: Box = HEAVY_HEAD) -> Table:
    """Every figure of every bench: the median of each broker, and ours over each of theirs."""
    table = Table(title=_FIGURES, title_justify="left", box=box)
    names = rivals(samples)
    for column in ("bench", "figure"):
        table.add_column(column)
    for column in ("rounds", REFERENCE, *(word for name in names for word in (name, "ratio"))):
        table.add_column(column, justify="right")
    for bench in dict.fromkeys(sample.bench for sample in samples):
        mine = [sample for sample in samples if sample.bench == bench]
        for first, figure in enumerate(dict.fromkeys(name for sample in mine for name in sample.figures)):
            ours = median(mine, bench, REFERENCE, figure)
            theirs = [median(mine, bench, name, figure) for name in names]
            rounds = max(sum(sample.broker == broker for sample in mine) for broker in (REFERENCE, *names))
            head = ("", figure, "") if first else (bench, figure, str(rounds))
            beside = [number(each) for value in theirs for each in (value, ratio(ours, value))]
            table.add_row(*head, number(ours), *beside)
        if box is HEAVY_HEAD:  # lines between rows are no Markdown
            table.add_section()
    return table


def budgets_table(found: Sequence[Finding], *, usual: bool, box: Box = HEAVY_HEAD) -> Table:
    """Each budget: goal, measured, each RabbitMQ and the ratio to it, met or missed; ``usual``: the lengths were the
    usual ones."""
    title = "budgets" if usual else "budgets (shorter or longer than usual: the verdicts mean little)"
    table = Table(title=title, title_justify="left", box=box)
    names = list(dict.fromkeys(name for each in found for name in each.theirs))
    for column in ("budget", "goal", "measured", *(word for name in names for word in (name, "ratio")), ""):
        table.add_column(column, justify="left" if column in ("budget", "") else "right")
    for each in found:
        verdict = f"[{_STYLES[each.verdict]}]{each.verdict.value}[/]"
        measured = f"{number(each.ours)} {each.budget.unit}".rstrip() if each.ours is not None else "–"
        beside = [
            text
            for name in names
            for text in (
                number(each.theirs.get(name)),
                f"{number(each.ratios[name])} x" if name in each.ratios else "–",
            )
        ]
        table.add_row(each.budget.what, each.budget.goal_text(), measured, *beside, verdict)
    return table


def _times(value: float | None) -> str:
    return "–" if value is None else f"{number(value)} x"


def document(
    provenance: Mapping[str, Any], samples: Sequence[Sample], found: Sequence[Finding], failures: Mapping[str, str]
) -> dict[str, Any]:
    """What ``--json`` writes."""
    budgets = [
        {
            "bench": each.budget.bench,
            "figure": each.budget.figure,
            "what": each.budget.what,
            "goal": each.budget.goal_text(),
            "measured": each.ours,
            "rabbitmq": dict(each.theirs),
            "ratio": each.ratios,
            "verdict": each.verdict.value,
        }
        for each in found
    ]
    kept = [{**asdict(sample), "figures": dict(sample.figures)} for sample in samples]
    return {**provenance, "budgets": budgets, "samples": kept, "failures": dict(failures)}
