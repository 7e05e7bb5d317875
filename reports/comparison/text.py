"""A comparison in words: a table for the terminal, Markdown for a review, JSON for a program. The same rows in each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from reports.comparison.compare import REPEATS_ADVISED, REPEATS_MIN, ComparedMetric, Comparison
from reports.comparison.facets import Difference
from reports.stats.confidence import Verdict

HEAD: Final = ("step", "metric", "baseline", "candidate", "change", "interval", "verdict")
_ARROWS: Final = {Verdict.REGRESSED: "▼", Verdict.IMPROVED: "▲", Verdict.INCONCLUSIVE: "?"}


def rows(result: Comparison) -> list[tuple[str, ...]]:
    """A row per metric under :data:`HEAD`, regressions first; nothing is left out."""
    order = list(Verdict)
    lines = sorted(result.lines, key=lambda line: order.index(line.verdict))
    return [_row(line) for line in lines]


def sentences(result: Comparison) -> list[str]:
    """The sentences beside the table, the summary first."""
    counts = [(result.count(verdict), verdict) for verdict in Verdict]
    found = [", ".join(f"{count} {verdict}" for count, verdict in counts if count) or "nothing could be compared"]
    found += _basis(result) if result.repeated else _not_repeated(result)
    if result.missing:
        found.append(f"not every run has: {', '.join(result.missing)}")
    return [*found, *(_doubts(result) if result.repeated else ())]


def _doubts(result: Comparison) -> list[str]:
    """Why verdicts are inconclusive whatever the figures, each reason once for all metrics of a step."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for line in result.lines:
        if line.doubt:
            metrics.setdefault((line.step, line.doubt), []).append(line.metric)
    compared = Counter(line.step for line in result.lines)
    return [
        f"{step or 'run'}, {'all metrics' if len(names) == compared[step] else ', '.join(names)}: {doubt}"
        for (step, doubt), names in metrics.items()
    ]


def refusal(result: Comparison) -> str:
    """Why the runs are not compared: a line for each difference."""
    return "\n".join(_difference(each) for each in result.refused)


def shown_differences(result: Comparison) -> list[str]:
    """The differences that are shown and not refused."""
    return [_difference(each) for each in result.differences if each not in result.refused]


def markdown(result: Comparison) -> str:
    """The comparison for a review: the verdict, the table, the differences, the basis of the verdict."""
    summary, *rest = sentences(result)
    parts = [f"**{summary}**", _table(rows(result))]
    if different := shown_differences(result):
        parts.append("\n".join(["What else differs:", "", *(f"- {each}" for each in different)]))
    parts.append("\n".join(f"- {sentence}" for sentence in rest))
    base, candidate = (", ".join(f"`{run.path.name}`" for run in runs) for runs in (result.base, result.candidate))
    parts.append(f"Baseline {base}; candidate {candidate}.")
    return "\n\n".join(parts)


def to_json(result: Comparison) -> dict[str, Any]:
    """The comparison for a program. Unknown bounds are null."""
    return {
        "base": [str(run.path) for run in result.base],
        "candidate": [str(run.path) for run in result.candidate],
        "comparable": not result.refused,
        "repeated": result.repeated,
        "confidence": result.confidence,
        "confidence_each": result.confidence_each,
        "noise": {"rate": result.noise_rate, "latency": result.noise_latency},
        "differences": [asdict(each) for each in result.differences],
        "refused": [asdict(each) for each in result.refused],
        "missing_steps": result.missing,
        "metrics": [_line_json(line) for line in result.lines],
        "verdicts": {str(verdict): result.count(verdict) for verdict in Verdict},
    }


def _basis(result: Comparison) -> list[str]:
    runs = f"{len(result.base)} and {len(result.candidate)} repetitions"
    found = [
        f"{100 * result.confidence:g} % confidence for all intervals together (Student's, over {runs}); changes up to "
        f"{100 * result.noise_rate:g} % of a rate and {100 * result.noise_latency:g} % of a latency are noise"
    ]
    if any(line.verdict is Verdict.INCONCLUSIVE and not line.doubt for line in result.lines):
        found.append(
            "inconclusive: the runs differ too much among themselves for so few of them. Repeat each side more often, "
            "or compare fewer metrics (--metric)"
        )
    return found


def _not_repeated(result: Comparison) -> list[str]:
    """Why there is no verdict, and what to do about it."""
    runs = f"{len(result.base)} run{'s' if len(result.base) > 1 else ''} against {len(result.candidate)}"
    return [
        f"no verdict: {runs} cannot tell a change from chance, because how much runs differ is not known",
        f"measure each side {REPEATS_ADVISED} times (at least {REPEATS_MIN}), in turn, into a directory of its own: "
        f"`perftest run --out DIR` again and again, or `perftest sweep --repeats {REPEATS_ADVISED}`; then compare the "
        "directories",
        "to gate a build on one run, give it objectives: `perftest run --slo 'confirm.p99<20ms'` ends with 4 if one is "
        "missed",
    ]


def _row(line: ComparedMetric) -> tuple[str, ...]:
    change = line.change
    bounds = f"{_percent(change.low)} … {_percent(change.high)}" if math.isfinite(change.low) else "–"
    verdict = f"{_ARROWS.get(line.verdict, '·')} {line.verdict}"
    values = (f"{_number(line.base)} {line.unit}", f"{_number(line.candidate)} {line.unit}")
    return (line.step or "–", line.metric, *values, _percent(change.value), bounds, verdict)


def _percent(part: float) -> str:
    return f"{100 * part:+.1f} %" if math.isfinite(part) else "–"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(found: Iterable[tuple[str, ...]]) -> str:
    lines = [" | ".join(row) for row in (HEAD, ("---",) * len(HEAD), *found)]
    return "\n".join(f"| {line} |" for line in lines)


def _difference(each: Difference) -> str:
    return f"{each.where}: {each.base} against {each.candidate}"


def _line_json(line: ComparedMetric) -> dict[str, Any]:
    change = asdict(line.change)
    bounds = {"change": change.pop("value"), **change}
    return asdict(line) | {name: value if math.isfinite(value) else None for name, value in bounds.items()}
