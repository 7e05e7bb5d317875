"""Verdicts on the findings of a plan over several runs: repetitions, layouts of drives, simulations.

The runs are read from their directories, so that what is judged is what was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from perftest.exits import CliError, Exit, explained, name_damage
from perftest.results.reader import Run, judged_run, read_run
from perftest.results.writer import write_atomically
from perftest.spec.codec import plan_to_json
from perftest.spec.plan import Plan
from reports.stats.reproduction import Reproduction, judge_runs

FINDINGS: Final = "findings.json"


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


def keep(found: Reproduction | None, place: Path) -> None:
    """Write the verdicts beside the runs. Raises CliError."""
    if found is None:
        return
    with explained("the verdicts cannot be written", place / FINDINGS, "make room, and run perftest report"):
        write_atomically(place / FINDINGS, json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n")


def is_missed(found: Reproduction | None) -> bool:
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
