"""Compare two sides metric by metric: the change, its bounds, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perftest.results.reader import Run, read_run, run_directories, summarise
from reports.comparison.facets import REFUSED, Difference, Facet, differences, repeats_differ
from reports.comparison.figures import Metric, Side, metrics_of
from reports.stats import confidence as intervals
from reports.stats.confidence import NOISE_LATENCY, NOISE_RATE, Change, Verdict, judge

REPEATS_MIN: Final = 3
"""Repetitions of each side that a verdict takes: how much runs differ is not known from fewer."""
REPEATS_ADVISED: Final = 6
"""Repetitions of each side that find a change of 30 % in most steps of a sweep of six whose runs differ by 7 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMetric:
    """One metric of one step. ``base`` and ``candidate`` are the geometric means of the repetitions, in ``unit``;
    ``doubt`` says why a verdict is inconclusive whatever the figures."""

    step: str
    metric: str
    unit: str
    base: float
    candidate: float
    change: Change
    verdict: Verdict
    doubt: str = ""


@dataclass(slots=True, kw_only=True)
class Comparison:
    """``refused`` is not empty when the runs are too unlike; then there are no lines.

    All intervals together hold with ``confidence``, so each holds with ``confidence_each``. A side that is not
    ``repeated`` often enough leaves every verdict inconclusive.
    """

    base: tuple[Run, ...]
    candidate: tuple[Run, ...]
    differences: list[Difference]
    refused: list[Difference]
    repeated: bool
    confidence: float
    noise_rate: float
    noise_latency: float
    confidence_each: float = 0.0
    lines: list[ComparedMetric] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Steps that not every run has."""

    def count(self, verdict: Verdict) -> int:
        """How many metrics got this verdict."""
        return sum(line.verdict is verdict for line in self.lines)


def runs_of(place: Path) -> list[Run]:
    """The run in a directory, or all runs in the directories below it, sorted by name. Raises NotARunError, and what
    :func:`~perftest.results.reader.read_run` raises."""
    return [_complete(read_run(each)) for each in run_directories(place)]


def compare(
    base: Sequence[Run],
    candidate: Sequence[Run],
    *,
    allow: frozenset[Facet] = frozenset(),
    metrics: Sequence[str] = (),
    confidence: float = 0.95,
    noise_rate: float = NOISE_RATE,
    noise_latency: float = NOISE_LATENCY,
) -> Comparison:
    """Compare two sides. ``metrics`` are parts of names; without any, all metrics are compared."""
    found = differences(base[0], candidate[0])
    unlike = [each for side in (base, candidate) for other in side[1:] for each in repeats_differ(side[0], other)]
    faults = [each for other in (*base[1:], *candidate[1:]) for each in differences(other, other) if _is_fault(each)]
    refused = [each for each in (*found, *unlike, *faults) if each.facet in REFUSED and each.facet not in allow]
    result = Comparison(
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
        _fill(result, Side(base), Side(candidate), metrics)
    return result


def _is_fault(each: Difference) -> bool:
    return each.facet in (Facet.VALIDITY, Facet.SAFETY)


def _fill(result: Comparison, base: Side, candidate: Side, wanted: Sequence[str]) -> None:
    common = [label for label in base.labels if label in candidate.labels]
    result.missing = sorted((base.begun | candidate.begun) - set(common))
    chosen = [
        (label, metric)
        for label in common
        for metric in metrics_of(base.series(label) & candidate.series(label))
        if not wanted or any(part in metric.name for part in wanted)
    ]
    measured = [each for each in chosen if _is_measured(base.values(*each), candidate.values(*each))]
    result.confidence_each = intervals.each_of(result.confidence, len(measured))
    result.lines = [_line(result, label, metric, base, candidate) for label, metric in measured]


def _line(result: Comparison, label: str, metric: Metric, base: Side, candidate: Side) -> ComparedMetric:
    measured = base.values(label, metric), candidate.values(label, metric)
    doubt = _too_few(result) or base.doubt(label, metric) or candidate.doubt(label, metric)
    change = intervals.change(*measured, result.confidence_each)
    noise = result.noise_rate if metric.more_is_better else result.noise_latency
    verdict = Verdict.INCONCLUSIVE if doubt else judge(change, noise=noise, more_is_better=metric.more_is_better)
    scale = 1e-6 if metric.series is not None else 1.0
    before, after = (intervals.centre(values) * scale for values in measured)
    return ComparedMetric(
        step=label,
        metric=metric.name,
        unit=metric.unit,
        base=before,
        candidate=after,
        change=change,
        verdict=verdict,
        doubt=doubt,
    )


def _is_measured(base: Sequence[float], candidate: Sequence[float]) -> bool:
    return bool(base) and bool(candidate) and any((*base, *candidate))


def _too_few(result: Comparison) -> str:
    if result.repeated:
        return ""
    runs = f"{len(result.base)} against {len(result.candidate)}"
    return f"a verdict takes {REPEATS_MIN} repetitions of each side, these are {runs}"


def _complete(run: Run) -> Run:
    """The run; of a killed run, with the result derived from its intervals."""
    if run.result is None:
        run.result = summarise(run)
    return run
