"""A finding in figures: claims about the ratio of one metric between two steps, or between two layouts.

Pure: the rows of ``result.json`` go in, of each repetition of a run on each layout, and pairs of measured values with
the bounds of their ratio come out. :mod:`reports.stats.reproduction` judges the claims. A finding over steps makes its
claims for each layout, a finding over layouts for each of its steps, and a finding over workloads for each of both; all
of these claims must hold. Below, *step* stands for any of them.

==============  ====================================================================================
trend           claims (ratio of the second figure over the first)
==============  ====================================================================================
rises           last over first: at least ``factor``; guards: each step over the one before: at least 1/slack
falls           last over first: at most 1/``factor``; guards: each step over the one before: at most slack
flat            each pair of steps: between 1/slack and slack
ratio           second over first: between ``at_least`` and ``at_most``
level           each step over 1: between ``at_least`` and ``at_most``
knee            second over first: at least slack; each later step over the second: at most slack
biggest_gain    each other gain between neighbours over the gain between the two: at most 1
best            the best of the steps over each other step: at least 1/slack (of latencies at most slack)
==============  ====================================================================================

A *guard* only contradicts: a rise by orders of magnitude is known from its ends, and a step between them that cannot be
told from its neighbour is no doubt about the rise. Slack is 1 + ``tolerance``. A gain is a difference of two
neighbours, in units of the metric. A gain that is smaller than a hundredth of the figure counts as a hundredth, because
a ratio of gains near 0 means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from statistics import geometric_mean
from types import MappingProxyType
from typing import Any, Final

from perftest.metrics.names import LATENCIES, RATE, STATISTICS
from perftest.results.noise import StepNoise
from perftest.results.summary import PERCENTILES
from perftest.results.trust import Status, samples_for, step_checks, supports
from perftest.spec.expected.slo import COMPARISONS, Objective, any_of, measured, parse_objective, shown
from perftest.spec.expected.trends import Finding, Trend

__all__ = ["Claim", "Finding", "Row", "Runs", "Trend", "claims_of", "findings_of", "labels_of", "layout_title"]

Row = Mapping[str, Any]
Runs = Mapping[str, Sequence[Sequence[Row]]]
"""Rows of each repetition, by the title of the layout; empty for runs without a layout."""
_LEAST_GAIN: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """``candidate`` over ``base`` (a value of each repetition) lies within ``least`` and ``most``. ``doubt`` says why
    these values cannot tell; it is empty if they can."""

    text: str
    base: tuple[float, ...] = ()
    candidate: tuple[float, ...] = ()
    least: float = 0.0
    most: float = math.inf
    doubt: str = ""
    untried: str = ""
    """What did not happen that the finding needs; empty if everything did."""
    is_counted: bool = False
    """Whether the values are counted and not timed: a single repetition then tells nearly all."""
    is_linear: bool = False
    """Whether the ratio varies by chance, up and down alike, and not its logarithm."""
    is_guard: bool = False
    """Whether the claim can only contradict its finding."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The (logarithm of the) ratio as a contrast of logarithms: the weight of each step."""
    steps: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The values of all steps that every repetition measured, and which are sound."""
    noise: Mapping[str, StepNoise] = field(default_factory=dict)
    """Of the only repetition: the noise within its steps."""


def findings_of(plan: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings of a plan as a manifest has it. A finding that this version cannot read is left out."""
    found = []
    for plain in plan.get("findings") or ():
        try:
            named = {name: tuple(plain.get(name, ())) for name in ("steps", "layouts", "workloads", "needs")}
            finding = Finding(**{**plain, "trend": Trend(plain["trend"]), **named})
            any_of(finding.metric)
            for need in finding.needs:
                parse_objective(need)
            found.append(finding)
        except (TypeError, ValueError, KeyError):
            continue
    return tuple(found)


def labels_of(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels of the steps of a plan as a manifest has it, in the order in which the steps were written."""
    return tuple(str(step["label"]) for step in sorted(plan.get("steps") or (), key=lambda step: step["number"]))


def layout_title(manifest: Mapping[str, Any]) -> str:
    """The title of the layout of drives below the nodes; empty for a run without a layout.

    A layout stands under ``cluster`` as an object, or under ``broker`` in a line: ``fast: disk (/mnt/disk) wal; ...``.
    """
    for part in ("cluster", "broker"):
        facts = manifest.get(part)
        layout = facts.get("layout") if isinstance(facts, dict) else None
        if isinstance(layout, dict) and layout.get("drives"):
            return str(layout.get("name") or layout.get("title") or "layout")
        if isinstance(layout, str) and "; " in layout:
            return layout.partition("; ")[0].rpartition(": ")[0]
    return ""


def claims_of(
    finding: Finding, labels: Sequence[str], runs: Runs, workloads: Mapping[str, Runs] = MappingProxyType({})
) -> list[Claim]:
    """All claims of a finding. ``labels`` are the steps of the sweep in order, ``workloads`` the runs of each workload
    by name. The first repetition on each layout is one round, and so is the second, and likewise of workloads."""
    if finding.workloads:
        found = _over_workloads(finding, runs, workloads)
    else:
        found = _by_step(finding, runs) if finding.layouts else _by_layout(finding, labels, runs)
    claims = []
    for order, figures in found:
        untried = figures.untried(finding.needs, finding.compared)
        claims += [replace(claim, untried=untried) for claim in _TRENDS[finding.trend](finding, order, figures)]
    return claims


def _by_layout(finding: Finding, labels: Sequence[str], runs: Runs) -> Iterator[tuple[Sequence[str], _Figures]]:
    """The figures of all steps, on each layout."""
    for layout, repetitions in runs.items():
        rounds = [{str(row["label"]): row for row in _measured_rows(rows)} for rows in repetitions]
        yield labels, _Figures(finding.metric, rounds, layout if len(runs) > 1 else "")


def _over_workloads(
    finding: Finding, layouts: Iterable[str], workloads: Mapping[str, Runs]
) -> Iterator[tuple[Sequence[str], _Figures]]:
    """The figures of all workloads, in each step of the finding on each layout."""
    several = list(layouts)
    for layout in several:
        of_each = {name: workloads.get(name, {}).get(layout, ()) for name in finding.workloads}
        shared = min(filter(None, map(len, of_each.values())), default=0)  # some may have had a round more by now
        of_each = {name: rounds[:shared] for name, rounds in of_each.items()}
        yield from _by_step(finding, of_each, layout if len(several) > 1 else "")


def _by_step(finding: Finding, runs: Runs, where: str = "") -> Iterator[tuple[Sequence[str], _Figures]]:
    """The figures of all layouts (or workloads), in each step of the finding. The other steps lend their variance."""
    count = max(map(len, runs.values()), default=0)
    cells: dict[str, list[dict[str, Row]]] = {label: [{} for _ in range(count)] for label in finding.labels}
    for layout, repetitions in runs.items():
        for number, rows in enumerate(repetitions):
            for row in _measured_rows(rows):
                cells.setdefault(str(row["label"]), [{} for _ in range(count)])[number][layout] = row
    lent = {label: _Figures(finding.metric, rounds, "").sound for label, rounds in cells.items()}
    for label in finding.labels:
        step = label if len(finding.labels) > 1 else ""
        others = {
            f"{other}, {name}": values for other in lent if other != label for name, values in lent[other].items()
        }
        yield tuple(runs), _Figures(finding.metric, cells[label], ", ".join(filter(None, (where, step))), others)


def _measured_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows of the measured load of the file, without those of further groups."""
    return (row for row in rows if not row.get("group"))


class _Figures:
    """The values of one metric by step or by layout, one of each round. ``where`` is what else the claims must say."""

    def __init__(
        self,
        metric: str,
        rounds: Sequence[Mapping[str, Row]],
        where: str,
        others: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
    ) -> None:
        """``others`` are the values of cells that lend their variance to these."""
        self.objective = any_of(metric)
        self._others = others
        self._rounds = rounds
        self._where = f"{where}: " if where else ""

    @property
    def more_is_better(self) -> bool:
        return "." not in self.objective.metric

    @cached_property
    def sound(self) -> dict[str, tuple[float, ...]]:
        """The values of each step that all rounds measured soundly, none of them 0."""
        found = {step: self.of(step) for step in dict.fromkeys(step for rows in self._rounds for step in rows)}
        return {
            step: tuple(values.values())
            for step, (values, doubt) in found.items()
            if not doubt and all(value > 0 for value in values.values())
        }

    @cached_property
    def _noise(self) -> dict[str, StepNoise]:
        """The noise within the steps, if there is one round."""
        if len(self._rounds) != 1:
            return {}
        found = {step: _noise_of(self.objective, self._rounds[0][step]) for step in self.sound}
        return {step: noise for step, noise in found.items() if noise is not None}

    def of(self, step: str) -> tuple[dict[int, float], str]:
        """The values of a step by round, and why they cannot be used: a doubt, or nothing."""
        values = {at: measured(self.objective, rows[step]) for at, rows in enumerate(self._rounds) if step in rows}
        known = {at: value for at, value in values.items() if value is not None}
        missing = len(self._rounds) - len(known)
        if missing or not known:
            why = f"has no {self.objective.metric}" if None in values.values() else "was not measured"
            rounds = f" in {missing} of {len(self._rounds)} rounds" if known else ""
            return known, f"{step or 'the run'} {why}{rounds}"
        return known, next((doubt for rows in self._rounds if (doubt := self._doubt(step, rows[step]))), "")

    def untried(self, needs: Sequence[str], steps: Sequence[str]) -> str:
        """The first need that a measured step did not meet, with what happened there instead; empty if there is
        none."""
        for need in map(parse_objective, needs):
            for step in steps:
                found = [measured(need, rows[step]) for rows in self._rounds if step in rows]
                missed = [each for each in found if each is None or not COMPARISONS[need.comparison](each, need.limit)]
                if missed:
                    known = "unknown" if missed[0] is None else shown(need, missed[0])
                    return f"{step or 'the run'} needs {need.text}, and has {known}"
        return ""

    def claim(self, base: str, candidate: str, least: float = 0.0, most: float = math.inf) -> Claim:
        """A claim about the metric in two steps, from the rounds that measured both."""
        (before, no_base), (after, no_candidate) = self.of(base), self.of(candidate)
        doubt = no_base or no_candidate
        both = sorted(before.keys() & after.keys())
        bases, candidates = tuple(before[at] for at in both), tuple(after[at] for at in both)
        text = f"{base} → {candidate}" + ("" if doubt else f": {self.shown(bases)} → {self.shown(candidates)}")
        bounds = {"least": least, "most": most, "weights": {base: -1.0, candidate: 1.0}}
        return self.compared(text, doubt, base=bases, candidate=candidates, **bounds)

    def compared(self, text: str, doubt: str, **figures: Any) -> Claim:
        """A claim about a contrast of steps, beside all others of these rounds."""
        return self.worded(text, doubt, steps={**self._others, **self.sound}, noise=self._noise, **figures)

    def worded(self, text: str, doubt: str = "", **figures: Any) -> Claim:
        """A claim that says where it holds."""
        return Claim(text=f"{self._where}{text}", doubt=doubt, **figures)

    def shown(self, values: Sequence[float]) -> str:
        """The geometric mean in words, so that the ratio of two means is the mean of the ratios."""
        return shown(self.objective, geometric_mean(values) if all(values) else 0.0)

    def _doubt(self, step: str, row: Row) -> str:
        trust = row["trust"] if "trust" in row else [check.to_json() for check in step_checks(row)]
        if broken := [check for check in trust if check["status"] == Status.FAIL]:
            return f"{step} is INVALID: {broken[0]['text'] or broken[0]['check']}"
        series, dot, statistic = self.objective.metric.partition(".")
        if not dot or not statistic.startswith("p"):
            return ""
        count = next((found["count"] for name in LATENCIES[series] if (found := row["latency"].get(name))), 0)
        percent = PERCENTILES[STATISTICS[statistic]]
        return "" if supports(count, percent) else f"{step} has only {count:,} samples{_wanted(row, count, percent)}"


def _wanted(row: Row, count: int, percent: float) -> str:
    """The samples that a percentile needs, and the time for them in a step with this rate."""
    wanted = samples_for(percent)
    length_s = row.get("length_ns", 0) / 1e9
    after = f", {math.ceil(wanted * length_s / count):,} s at this rate" if count and length_s else ""
    return f", and needs {wanted:,}{after}"


def _noise_of(objective: Objective, row: Row) -> StepNoise | None:
    """The noise of a metric within a step, where it was recorded: of rates, and of the latency to lead with."""
    latency, dot, statistic = objective.metric.partition(".")
    name = f"{latency}_per_s" if latency != RATE else "delivered_per_s" if row.get("delivered") else "published_per_s"
    if dot:
        name = STATISTICS[statistic] if latency == "e2e" else ""
    scales = (row.get("noise") or {}).get(name)
    if not scales:
        return None
    length_s, count = row["length_ns"] / 1e9, scales[0][2] + 1
    start_s = row.get("start_ns", 0) / 1e9
    return StepNoise(scales=scales, interval_s=length_s / count, start_s=start_s, length_s=length_s)


def _rises(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    steps = finding.compared
    yield figures.claim(steps[0], steps[-1], least=finding.rise)
    yield from _guards(figures.claim(one, other, least=1 / finding.slack) for one, other in pairwise(steps))


def _falls(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    steps = finding.compared
    yield figures.claim(steps[0], steps[-1], most=1 / finding.rise)
    yield from _guards(figures.claim(one, other, most=finding.slack) for one, other in pairwise(steps))


def _guards(neighbours: Iterable[Claim]) -> Iterator[Claim]:
    """Guards between the neighbours of three steps and more."""
    found = [replace(claim, is_guard=True) for claim in neighbours]
    yield from found if len(found) > 1 else ()


def _flat(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    for one, other in combinations(finding.compared, 2):
        yield figures.claim(one, other, least=1 / finding.slack, most=finding.slack)


def _ratio(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    most = math.inf if finding.at_most is None else finding.at_most
    base, candidate = finding.compared
    yield figures.claim(base, candidate, least=finding.at_least or 0.0, most=most)


def _level(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    most = math.inf if finding.at_most is None else finding.at_most
    for step in finding.compared:
        values, doubt = figures.of(step)
        found = tuple(values.values())
        text = ": ".join(filter(None, (step, "" if doubt else figures.shown(found)))) or "the run"
        bounds = {"base": (1.0,) * len(found), "candidate": found, "least": finding.at_least or 0.0, "most": most}
        yield figures.worded(text, doubt, is_counted=True, **bounds)


def _knee(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    knee = finding.labels[-1]
    if knee not in labels:
        yield figures.worded(knee, f"{knee} was not measured")
        return
    at = labels.index(knee)
    before = finding.labels[0] if len(finding.labels) > 1 else labels[at - 1]
    yield figures.claim(before, knee, least=finding.slack)
    yield from (figures.claim(knee, later, most=finding.slack) for later in labels[at + 1 :])


def _biggest_gain(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    lower, higher = finding.labels
    for one, other in pairwise(labels):
        if (one, other) != (lower, higher):
            yield _smaller_gain(figures, (one, other), (lower, higher))


def _smaller_gain(figures: _Figures, small: tuple[str, str], big: tuple[str, str]) -> Claim:
    """The gain between two steps is at most the gain between two others. A gain may be negative, so the ratio counts,
    and not its logarithm; the weights are the derivatives of the ratio."""
    text = f"gain {small[0]} → {small[1]} over gain {big[0]} → {big[1]}"
    found = {step: figures.of(step) for step in (*small, *big)}
    if doubt := next((doubt for _, doubt in found.values() if doubt), ""):
        return figures.worded(text, doubt)
    typical = {step: math.fsum(values.values()) / len(values) for step, (values, _) in found.items()}
    biggest = typical[big[1]] - typical[big[0]]
    if biggest <= 0:
        return figures.worded(text, f"{big[0]} → {big[1]} gains nothing")
    ratio = (typical[small[1]] - typical[small[0]]) / biggest
    weights = dict.fromkeys(found, 0.0)
    parts = ((small[0], -1.0), (small[1], 1.0), (big[0], ratio), (big[1], -ratio))
    for step, part in parts:
        weights[step] += part * typical[step] / biggest
    gains = [_gains(found[one][0], found[other][0]) for one, other in (big, small)]
    sides = {"base": gains[0], "candidate": gains[1], "weights": weights}
    return figures.compared(text, "", most=1.0, is_linear=True, **sides)


def _gains(before: Mapping[int, float], after: Mapping[int, float]) -> tuple[float, ...]:
    """The gain in each repetition."""
    pairs = zip(before.values(), after.values(), strict=True)
    return tuple(max(b - a, _LEAST_GAIN * max(a, b)) for a, b in pairs)


def _best(finding: Finding, labels: Sequence[str], figures: _Figures) -> Iterator[Claim]:
    chosen = {step: figures.of(step) for step in finding.compared}
    if doubt := next((doubt for _, doubt in chosen.values() if doubt), ""):
        yield figures.worded(" or ".join(chosen), doubt)
        return
    pick = max if figures.more_is_better else min
    best = pick(chosen, key=lambda step: math.fsum(chosen[step][0].values()))
    bounds = {"least": 1 / finding.slack} if figures.more_is_better else {"most": finding.slack}
    yield from (figures.claim(other, best, **bounds) for other in labels if other not in chosen)


_TRENDS: Final[Mapping[Trend, Callable[[Finding, Sequence[str], _Figures], Iterator[Claim]]]] = {
    Trend.RISES: _rises,
    Trend.FALLS: _falls,
    Trend.FLAT: _flat,
    Trend.RATIO: _ratio,
    Trend.LEVEL: _level,
    Trend.KNEE: _knee,
    Trend.BIGGEST_GAIN: _biggest_gain,
    Trend.BEST: _best,
}
