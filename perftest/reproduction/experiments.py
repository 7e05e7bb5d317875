"""The experiments of a reproduction: workloads with findings, and the layouts that these compare."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import workloads
from perftest.exits import CliError, Exit
from perftest.measuring.workload_file import find
from perftest.metrics.names import LEDGER_COUNTS
from perftest.spec import plan_for
from perftest.spec.expected.slo import parse_objective
from perftest.spec.plan import Isolation, Plan

ALL: Final = "all"
DRAINED_S: Final = 2.0
"""Time that a step, or a live sweep at its end, takes to drain its queues if consumers keep up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A workload with its findings. ``layouts`` are the names of the layouts on which it runs; without any, it runs on
    the drives of the machine."""

    name: str
    plan: Plan
    layouts: tuple[str, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether actions happen at times of the file. Such a workload runs in its short form."""
        return bool(self.plan.timeline)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives that count as findings: all of a single step, and those about the whole run of a sweep, whose
        steps may well be more than the broker holds."""
        known = map(parse_objective, self.plan.objectives)
        is_single = len(self.plan.steps) == 1
        return tuple(each.text for each in known if is_single or each.metric in LEDGER_COUNTS)

    def trial_s(self, step_s: float) -> float:
        """Length of one run in seconds, with steps of ``step_s``."""
        steps = [step.duration_s if self.is_timed else step_s for step in self.plan.steps]
        drains = len(steps) if self.plan.isolation == Isolation.ISOLATED else 1
        ahead_s = -min((each.start_s for each in self.plan.background), default=0.0)
        return sum(steps) + DRAINED_S * drains + max(ahead_s, 0.0)


def chosen(names: Sequence[str], layouts: Sequence[str]) -> list[Experiment]:
    """The experiments of these sources (folders of bundled workloads), workloads or files; of all bundled workloads
    with findings or objectives, if there are none. Raises CliError and SpecError.

    :param layouts: names of layouts for findings that compare layouts; ``all`` for the layouts that they name
    """
    experiments = [_experiment(name, layouts) for name in dict.fromkeys(_named(names))]
    found = [each for each in experiments if each.plan.findings or each.objectives]
    if not found:
        what = f"no finding and no objective is stated by {', '.join(names)}"
        fix = "name a workload with findings: or slo: (see `perftest workload list`)"
        raise CliError(what, "WORKLOAD", fix, Exit.USAGE)
    return found


def _named(names: Sequence[str]) -> list[str]:
    known = workloads.names()
    sources = sorted({name.partition("/")[0] for name in known})
    found: list[str] = []
    for name in names or sources:
        folder = name.rstrip("/")
        if folder in sources:
            found += [each for each in known if each.startswith(f"{folder}/")]
            continue
        near = difflib.get_close_matches(folder, sources, n=1)
        if near and "/" not in name and not Path(name).is_file():
            raise CliError(f"there is no source {name!r}", "WORKLOAD", f"did you mean {near[0]!r}?", Exit.USAGE)
        found.append(name)
    return found


def _experiment(name: str, layouts: Sequence[str]) -> Experiment:
    path = find(name)
    plan = plan_for(path, ())
    plan = plan_for(path, (), quick=True) if plan.timeline else plan
    compared = dict.fromkeys(title for finding in plan.findings for title in finding.layouts)
    return Experiment(name=name, plan=plan, layouts=_of_titles(list(compared), layouts) if compared else ())


def _of_titles(titles: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The names of the layouts with these titles, in their order: all of them, or those that are wanted."""
    by_title = {name.rpartition("/")[2]: name for name in workloads.layout_names()}
    found = [by_title[title] for title in titles if title in by_title]
    if ALL in wanted:
        return tuple(found)
    unknown = [each for each in wanted if each not in (*by_title, *by_title.values())]
    if unknown:
        near = difflib.get_close_matches(unknown[0], by_title, n=1)
        fix = f"did you mean {near[0]}?" if near else f"use all, or some of {', '.join(by_title)}"
        raise CliError(f"there is no layout {unknown[0]!r}", "--layout", fix, Exit.USAGE)
    return tuple(each for each in found if each in wanted or each.rpartition("/")[2] in wanted)
