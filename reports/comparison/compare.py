"""Compare two sides metric by metric: the change, its bounds, and the verdict.

A row is *regressed* or *improved* only if both bounds of its change lie beyond the noise, and if its p value says so
after Holm's correction over all rows of the comparison. So a comparison of equal sides calls any row changed in at most
one of twenty cases (at 95 % confidence), however many rows it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path

import numpy as np

from perftest.metrics.names import COMPARED, metrics_like
from perftest.results.reader import Run, judged_run, read_run, run_directories
from reports.comparison.facets import REFUSED, Difference, Facet, across_brokers, differences, repeats_differ
from reports.comparison.figures import Metric, Side, metrics_of
from reports.stats import two_sides
from reports.stats.confidence import NOISE_LATENCY, NOISE_RATE, ChangeVerdict, RelativeChange, judge
from reports.stats.two_sides import REPEATS_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMetric:
    """One metric of one step. ``base_values`` and ``candidate_values`` have the value of each run, in ``unit`` and in
    the order of the runs; ``base`` and ``candidate`` are their medians.

    ``change`` is the Hodges-Lehmann effect with bounds at the confidence of the comparison. ``p`` and ``p_adjusted``
    are NaN where nothing could be tested. ``reason`` says why a verdict is inconclusive, and is empty otherwise.
    ``needed`` is the number of repetitions of each side that would decide, if more than there are, and if known.
    """

    step: str
    metric: str
    unit: str
    more_is_better: bool
    noise: float
    base_values: tuple[float, ...]
    candidate_values: tuple[float, ...]
    base: float
    candidate: float
    change: RelativeChange
    p: float
    p_adjusted: float
    verdict: ChangeVerdict
    reason: str = ""
    needed: int | None = None


@dataclass(slots=True, kw_only=True)
class CompareResult:
    """``refused`` is not empty when the runs are too unlike, or a run cannot be trusted; then there are no lines.

    A side that is not ``repeated`` often enough leaves every verdict inconclusive.
    """

    base: tuple[Run, ...]
    candidate: tuple[Run, ...]
    differences: list[Difference]
    refused: list[Difference]
    repeated: bool
    confidence: float
    noise_rate: float
    noise_latency: float
    lines: list[ComparedMetric] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Steps that not every run has."""
    measured: list[str] = field(default_factory=list)
    """The metrics that all runs measured, chosen or not."""
    unmatched: list[str] = field(default_factory=list)
    """Filters whose metrics the runs did not measure."""

    @property
    def comparable(self) -> bool:
        """Whether the sides were compared."""
        return not self.refused

    def count(self, verdict: ChangeVerdict) -> int:
        """Number of metrics with this verdict."""
        return sum(line.verdict is verdict for line in self.lines)

    def sorted_lines(self) -> list[ComparedMetric]:
        """All lines: regressed first, and nothing left out."""
        order = list(ChangeVerdict)
        return sorted(self.lines, key=lambda line: order.index(line.verdict))


def runs_of(place: Path) -> list[Run]:
    """The run in a directory, or all runs in the directories below it, sorted by name. Raises NotARunError, and what
    :func:`~perftest.results.reader.read_run` raises."""
    return [judged_run(read_run(each)) for each in run_directories(place)]


def compare(
    base: Sequence[Run],
    candidate: Sequence[Run],
    *,
    allow: frozenset[Facet] = frozenset(),
    across: bool = False,
    metrics: Sequence[str] = (),
    confidence: float = 0.95,
    noise_rate: float = NOISE_RATE,
    noise_latency: float = NOISE_LATENCY,
) -> CompareResult:
    """Compare two sides. ``metrics`` are filters (:func:`~perftest.metrics.names.metrics_like`); without any, all
    metrics are compared. ``across`` two brokers, what belongs to each broker may differ. ``confidence`` and the noise
    are parts of 1. Raises MetricNameError for an unknown filter."""
    filters = {text: metrics_like(text, COMPARED) for text in metrics}
    found = differences(base[0], candidate[0])
    found = across_brokers(found) if across else found
    unlike = [each for side in (base, candidate) for other in side[1:] for each in repeats_differ(side[0], other)]
    faults = [each for other in (*base[1:], *candidate[1:]) for each in differences(other, other) if _is_fault(each)]
    refused = [each for each in (*found, *unlike, *faults) if each.facet in REFUSED and each.facet not in allow]
    result = CompareResult(
        base=tuple(base),
        candidate=tuple(candidate),
        differences=found,
        refused=refused,
        repeated=min(len(base), len(candidate)) >= REPEATS_MIN,
        confidence=confidence,
        noise_rate=noise_rate,
        noise_latency=noise_latency,
    )
    if not refused:
        _fill(result, Side(base), Side(candidate), filters)
    return result


def _is_fault(each: Difference) -> bool:
    return each.facet in (Facet.VALIDITY, Facet.SAFETY)


def _fill(result: CompareResult, base: Side, candidate: Side, filters: Mapping[str, Sequence[str]]) -> None:
    common = [label for label in base.labels if label in candidate.labels]
    result.missing = sorted((base.begun | candidate.begun) - set(common))
    found = [
        _Measured(label, metric, base, candidate)
        for label in common
        for metric in metrics_of(base.series(label) & candidate.series(label))
    ]
    found = [each for each in found if each.is_measured]
    result.measured = list(dict.fromkeys(each.metric.name for each in found))
    result.unmatched = [text for text, names in filters.items() if not set(names) & set(result.measured)]
    wanted = {name for names in filters.values() for name in names} or set(result.measured)
    asked = [each for each in found if each.metric.name in wanted]
    chances = _chances(asked, result)
    adjusted = two_sides.holm([1.0 if np.isnan(p) else p for p in chances])
    result.lines = [
        _line(result, each, p, nan if np.isnan(p) else corrected, len(asked))
        for each, p, corrected in zip(asked, chances, adjusted, strict=True)
    ]


class _Measured:
    """A metric of a step on both sides, in the unit of the metric."""

    def __init__(self, label: str, metric: Metric, base: Side, candidate: Side) -> None:
        scale = 1e-6 if metric.series is not None else 1.0
        self.label, self.metric = label, metric
        self.base, self.candidate = (
            tuple(scale * value for value in side.values(label, metric)) for side in (base, candidate)
        )
        self.doubt = base.doubt(label, metric) or candidate.doubt(label, metric)

    @property
    def is_measured(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.base) and bool(self.candidate) and any((*self.base, *self.candidate))

    @property
    def has_ratio(self) -> bool:
        """Whether the values can be compared as ratios."""
        return min(*self.base, *self.candidate) > 0


def _chances(asked: Sequence[_Measured], result: CompareResult) -> list[float]:
    """The p value of each metric; NaN where too few repetitions, or a zero, leave nothing to test."""
    found = [nan] * len(asked)
    tested = [at for at, each in enumerate(asked) if each.has_ratio] if result.repeated else []
    if tested:
        base = np.array([asked[at].base for at in tested]).T
        candidate = np.array([asked[at].candidate for at in tested]).T
        draws = two_sides.draws_for(len(asked), 1 - result.confidence)
        for at, p in zip(tested, two_sides.permutation_p(base, candidate, draws).tolist(), strict=True):
            found[at] = p
    return found


def _line(result: CompareResult, each: _Measured, p: float, p_adjusted: float, figures: int) -> ComparedMetric:
    metric = each.metric
    noise = result.noise_rate if metric.more_is_better else result.noise_latency
    change = two_sides.shift(each.base, each.candidate, result.confidence)
    spread = two_sides.spread(each.base, each.candidate)
    needed = two_sides.repetitions_needed(spread, noise=noise, confidence=result.confidence, figures=figures)
    verdict, reason = judge(change, noise=noise, more_is_better=metric.more_is_better), _too_few(result) or each.doubt
    if verdict in (ChangeVerdict.IMPROVED, ChangeVerdict.REGRESSED) and not p_adjusted <= 1 - result.confidence:
        reason = reason or _by_chance(p, p_adjusted, figures)
    elif verdict is ChangeVerdict.INCONCLUSIVE:
        reason = reason or f"the interval is wider than the noise of {100 * noise:g} % on either side"
    verdict = ChangeVerdict.INCONCLUSIVE if reason else verdict
    enough = needed is not None and needed <= min(len(each.base), len(each.candidate))
    return ComparedMetric(
        step=each.label,
        metric=metric.name,
        unit=metric.unit,
        more_is_better=metric.more_is_better,
        noise=noise,
        base_values=each.base,
        candidate_values=each.candidate,
        base=float(np.median(each.base)),
        candidate=float(np.median(each.candidate)),
        change=change,
        p=p,
        p_adjusted=p_adjusted,
        verdict=verdict,
        reason=reason,
        needed=None if verdict is not ChangeVerdict.INCONCLUSIVE or enough or each.doubt else needed,
    )


def _by_chance(p: float, p_adjusted: float, figures: int) -> str:
    return f"p = {p:.2g}, which is {p_adjusted:.2g} over all {figures} figures: chance explains the change"


def _too_few(result: CompareResult) -> str:
    if result.repeated:
        return ""
    runs = f"{len(result.base)} against {len(result.candidate)}"
    return f"a verdict takes {REPEATS_MIN} repetitions of each side, these are {runs}"
