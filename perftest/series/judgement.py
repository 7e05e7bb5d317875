"""Verdicts on the findings of a plan over several runs: repetitions, layouts of drives, simulations.

The runs are read from their directories, so that what is judged is what was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perftest.exits import CliError, Exit, explained, name_damage
from perftest.results.reader import Run, judged_run, read_manifest, read_run
from perftest.results.writer import write_atomically
from perftest.spec.cluster import Product
from perftest.spec.codec import plan_to_json
from perftest.spec.plan import Plan
from reports.stats.reproduction import Reproduction, judge_runs

FINDINGS: Final = "findings.json"


@dataclass(frozen=True, slots=True)
class JudgedBrokers:
    """The verdicts on the findings of a plan for each broker by itself, by the name of the product. A finding compares
    steps and layouts, and never two brokers."""

    by_broker: Mapping[str, Reproduction]

    @property
    def reproduced(self) -> bool:
        """Whether every finding is reproduced on every broker."""
        return all(each.reproduced for each in self.by_broker.values())

    def lines(self) -> list[str]:
        """The verdicts for a terminal, with the name of the broker if there are several."""
        return [
            f"{broker}. {line}" if not at and len(self.by_broker) > 1 else line
            for broker, found in self.by_broker.items()
            for at, line in enumerate(found.lines())
        ]

    def findings(self) -> list[dict[str, Any]]:
        """The findings as in ``findings.json``; of several brokers, each says of which."""
        prefixes = {broker: f"{broker}: " if len(self.by_broker) > 1 else "" for broker in self.by_broker}
        found = [(prefixes[broker], each) for broker, judged in self.by_broker.items() for each in judged.findings]
        return [{**each.to_json(), "says": f"{prefix}{each.finding.says}"} for prefix, each in found]

    def to_json(self) -> dict[str, Any]:
        """The verdicts as in ``findings.json``: of one broker, or by broker if there are several."""
        plain = {broker: found.to_json() for broker, found in self.by_broker.items()}
        return {"brokers": plain} if len(plain) > 1 else next(iter(plain.values()))


def judged_brokers(plan: Plan, runs: Iterable[Path]) -> JudgedBrokers | None:
    """The verdicts over all of these runs of the plan, for each broker by itself; None for a plan without findings."""
    sides: dict[str, list[Path]] = {}
    for each in runs:
        sides.setdefault(_broker_of(each), []).append(each)
    found = {broker: judged(plan, several) for broker, several in (sides or {"": []}).items()}
    known = {broker: each for broker, each in found.items() if each is not None}
    return JudgedBrokers(known) if known else None


def _broker_of(run: Path) -> str:
    """The broker that the plan of a run asks for."""
    plan = read_manifest(run)["plan"]
    return str((plan.get("cluster") or {}).get("broker", Product.REFERENCE))


def judged(plan: Plan, runs: Iterable[Path]) -> Reproduction | None:
    """The verdicts over all of these runs of the plan; None for a plan without findings."""
    found = [read_named(each) for each in runs]
    return judge_runs(plan_to_json(plan), ((run.manifest, (run.result or {}).get("steps", ())) for run in found))


def read_named(path: Path) -> Run:
    """A run with its result. What is damaged of it is said on stderr. Raises as
    :func:`~perftest.results.reader.read_run`."""
    run = judged_run(read_run(path))
    name_damage({str(path): run.damages.lines()})
    return run


def keep(found: JudgedBrokers | None, place: Path) -> None:
    """Write the verdicts beside the runs. Raises CliError."""
    if found is None:
        return
    with explained("the verdicts cannot be written", place / FINDINGS, "make room, and run perftest report"):
        write_atomically(place / FINDINGS, json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n")


def is_missed(found: JudgedBrokers | Reproduction | None) -> bool:
    """Whether findings that had to be reproduced were not."""
    return found is None or not found.reproduced


def refuse_unjudgeable(plan: Plan, titles: Sequence[str], option: str) -> None:
    """Refuse ``--assert`` for a plan without findings, or with findings about layouts that will not be measured.

    :param titles: of the layouts that will be
    :param option: with which layouts are named
    """
    if not plan.findings:
        fix = "add findings: to the workload file, or leave --assert out"
        raise CliError(f"the workload {plan.name} states no findings", "--assert", fix, Exit.USAGE)
    named = dict.fromkeys(layout for finding in plan.findings for layout in finding.layouts)
    if missing := [layout for layout in named if layout not in titles]:
        what = f"findings of {plan.name} compare layouts that would not be measured: {', '.join(missing)}"
        raise CliError(what, "--assert", f"name these layouts with {option}, or leave --assert out", Exit.USAGE)


def refuse_one_title(titles: Sequence[str], option: str) -> None:
    """Refuse layouts that findings and pages could not tell apart."""
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        rule = f"several layouts have the title {', '.join(twice)}"
        raise CliError(rule, option, "give each layout file a title: of its own", Exit.USAGE)
