"""What the trials of a reproduction showed: verdicts by workload and broker, stated figures beside measured ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from perftest.reproduction.campaign import Campaign
from perftest.reproduction.experiments import Experiment
from perftest.reproduction.objectives import judged_objectives
from perftest.reproduction.schedule import Pair
from perftest.results.claims import layout_title
from perftest.results.reader import Run
from perftest.results.trust import Check
from perftest.results.trust_list import TRUST
from perftest.series.judgement import read_named
from perftest.spec.codec import plan_to_json
from perftest.spec.expected.slo import Objective, measured, parse_objective
from perftest.spec.plan import Plan
from reports.stats.published import LevelFigure, PublishedWorkload, Tried
from reports.stats.reproduction import Reproduction, ReproductionOutcome, judge_runs

_DECIDED = (ReproductionOutcome.REPRODUCED, ReproductionOutcome.NOT_REPRODUCED)


class CampaignOutcome:
    """The verdicts of a reproduction as it goes. Every run is read once."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._runs: dict[Path, Run] = {}
        self._judged: dict[Pair, tuple[tuple[Path, ...], Reproduction | None]] = {}
        """The verdicts by workload and broker, with the runs from which they were found."""

    def reproduction(self, pair: Pair) -> Reproduction | None:
        """The verdicts on the findings of a workload on a broker; None without a run. They are found anew only if there
        are new runs."""
        workload, broker = pair
        experiment = self._experiment(workload)
        compared = {name for finding in experiment.plan.findings for name in finding.workloads}
        others = [(name, broker) for name in self._named(compared - {experiment.plan.name})]
        runs = tuple(run for each in (pair, *others) for run in self._campaign.runs(each))
        if pair not in self._judged or self._judged[pair][0] != runs:
            self._judged[pair] = runs, self._judge(pair, experiment, others)
        return self._judged[pair][1]

    def _judge(self, pair: Pair, experiment: Experiment, others: Sequence[Pair]) -> Reproduction | None:
        told = [*self._told(pair)]
        if not told:
            return None
        results = [self._run(path).result or {} for path in self._campaign.runs(pair)]
        objectives = judged_objectives(experiment.objectives, results)
        found = judge_runs(plan_to_json(experiment.plan), told, [run for each in others for run in self._told(each)])
        if found is None:
            outcome = ReproductionOutcome.NOT_ENOUGH_DATA
            return Reproduction(findings=objectives, rounds=len(told), outcome=outcome)
        return replace(found, findings=(*found.findings, *objectives))

    def is_decided(self, pair: Pair) -> bool:
        """Whether more rounds would change no verdict."""
        found = self.reproduction(pair)
        return found is not None and all(each.outcome in _DECIDED for each in found.findings)

    def manifests(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The broker and the manifest of each run."""
        for experiment, broker in product(self._campaign.experiments, self._campaign.asked.brokers):
            for manifest, _steps in self._told((experiment.name, broker)):
                yield broker, manifest

    def workloads(self, page_of: Callable[[Path], str]) -> list[PublishedWorkload]:
        """All workloads. ``page_of`` gives the page of a run."""
        return [self._workload(each, page_of) for each in self._campaign.experiments]

    def _workload(self, experiment: Experiment, page_of: Callable[[Path], str]) -> PublishedWorkload:
        pairs = {broker: (experiment.name, broker) for broker in self._campaign.asked.brokers}
        return PublishedWorkload(
            name=experiment.plan.name,
            plan=plan_to_json(experiment.plan),
            brokers={
                broker: Tried(
                    reproduction=self.reproduction(pair),
                    why_not=self._campaign.why_not(pair),
                    pages=tuple(map(page_of, self._campaign.runs(pair))),
                    trust=tuple(self._trust(pair)),
                )
                for broker, pair in pairs.items()
            },
            levels=tuple(self._levels(experiment.plan, pairs)),
            objectives=experiment.objectives,
        )

    def _trust(self, pair: Pair) -> Iterator[list[Check]]:
        for path in self._campaign.runs(pair):
            yield [Check.from_json(each) for each in (self._run(path).result or {}).get(TRUST, ())]

    def _levels(self, plan: Plan, pairs: Mapping[str, Pair]) -> Iterator[LevelFigure]:
        for each in plan.published:
            objective = parse_objective(each.figure)
            for layout, label in product(each.layouts or ("",), each.labels or ("",)):
                values = {broker: self._value(pair, objective, layout, label) for broker, pair in pairs.items()}
                known = {broker: value for broker, value in values.items() if value is not None}
                place = ", ".join(filter(None, (layout, label)))
                yield LevelFigure(metric=objective.metric, place=place, stated=objective.limit, measured=known)

    def _value(self, pair: Pair, objective: Objective, layout: str, label: str) -> float | None:
        """The geometric mean of a metric over the rounds, in the step on the layout; empty names mean any."""
        rows = (
            row
            for manifest, steps in self._told(pair)
            for row in steps
            if layout in ("", layout_title(manifest)) and label in ("", row["label"])
        )
        values = [value for row in rows if (value := measured(objective, row))]
        return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None

    def _told(self, pair: Pair) -> Iterator[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]:
        for path in self._campaign.runs(pair):
            run = self._run(path)
            yield run.manifest, (run.result or {}).get("steps", ())

    def _run(self, path: Path) -> Run:
        if path not in self._runs:
            self._runs[path] = read_named(path)
        return self._runs[path]

    def _named(self, names: Iterable[str]) -> list[str]:
        """The experiments whose plans have these names."""
        wanted = set(names)
        return [each.name for each in self._campaign.experiments if each.plan.name in wanted]

    def _experiment(self, workload: str) -> Experiment:
        return next(each for each in self._campaign.experiments if each.name == workload)
