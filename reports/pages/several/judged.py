"""A judged comparison as its page needs it. Only this module reads what :mod:`reports.comparison` gives."""

from __future__ import annotations

from dataclasses import dataclass

from reports.comparison import text
from reports.comparison.compare import ComparedMetric, CompareResult
from reports.stats.confidence import ChangeVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """One metric of one step. ``base`` and ``candidate`` are in ``unit``. ``value``, ``low`` and ``high`` are the
    change and the bounds of its interval, as parts (unknown bounds are infinite); ``noise`` is the largest change that
    counts as noise."""

    step: str
    metric: str
    unit: str
    base: float
    candidate: float
    value: float
    low: float
    high: float
    noise: float
    verdict: ChangeVerdict
    doubt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedDifference:
    """A difference between the runs themselves; ``refused`` if it makes a comparison of the brokers impossible."""

    facet: str
    where: str
    base: str
    candidate: str
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The comparison: ids of the runs of each side, and rows in the order in which a reader wants them, regressed
    first. ``sentences`` are the terminal's, the summary first."""

    base: tuple[str, ...]
    candidate: tuple[str, ...]
    rows: tuple[JudgedRow, ...]
    differences: tuple[JudgedDifference, ...]
    sentences: tuple[str, ...]
    noise_latency: float

    @property
    def comparable(self) -> bool:
        """Whether the sides are alike enough, or their differences were allowed."""
        return not any(each.refused for each in self.differences)


def judged(result: CompareResult) -> Judged:
    """The comparison for its page."""
    order = list(ChangeVerdict)
    lines = sorted(result.lines, key=lambda line: order.index(line.verdict))
    listed = [*result.differences, *(each for each in result.refused if each not in result.differences)]
    return Judged(
        base=tuple(str(run.manifest["id"]) for run in result.base),
        candidate=tuple(str(run.manifest["id"]) for run in result.candidate),
        rows=tuple(map(_row, lines)),
        differences=tuple(
            JudgedDifference(
                facet=str(each.facet),
                where=each.where,
                base=each.base,
                candidate=each.candidate,
                refused=each in result.refused,
            )
            for each in listed
        ),
        sentences=() if result.refused else tuple(text.sentences(result)),
        noise_latency=result.noise_latency,
    )


def _row(line: ComparedMetric) -> JudgedRow:
    return JudgedRow(
        step=line.step,
        metric=line.metric,
        unit=line.unit,
        base=line.base,
        candidate=line.candidate,
        value=line.change.value,
        low=line.change.low,
        high=line.change.high,
        noise=line.noise,
        verdict=line.verdict,
        doubt=line.reason,
    )
