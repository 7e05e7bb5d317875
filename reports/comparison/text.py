"""A comparison in words: a table for the terminal, Markdown for a review, JSON for a program. The same rows in each."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from perftest.metrics.figures import three_figures
from reports.comparison.compare import ComparedMetric, CompareResult
from reports.comparison.facets import Difference
from reports.stats.confidence import ChangeVerdict
from reports.stats.two_sides import NEEDED_MAX, REPEATS_ADVISED, REPEATS_MIN

HEAD: Final = ("step", "metric", "baseline", "candidate", "change", "interval", "p", "verdict")
_ARROWS: Final = {ChangeVerdict.REGRESSED: "▼", ChangeVerdict.IMPROVED: "▲", ChangeVerdict.INCONCLUSIVE: "?"}


def rows(result: CompareResult) -> list[tuple[str, ...]]:
    """A row per metric under :data:`HEAD`, regressions first; nothing is left out."""
    return [_row(line) for line in result.sorted_lines()]


def sentence(line: ComparedMetric) -> str:
    """The verdict on a metric in one sentence, with its reason if the verdict is inconclusive."""
    base, candidate, change, bounds = _row(line)[2:6]
    reason = f" ({line.reason})" if line.reason else ""
    return f"{line.verdict}: {base} before, {candidate} now, {change} ({bounds}){reason}"


def sentences(result: CompareResult) -> list[str]:
    """The sentences beside the table, the summary first."""
    counts = [(result.count(verdict), verdict) for verdict in ChangeVerdict]
    found = [", ".join(f"{count} {verdict}" for count, verdict in counts if count) or "nothing could be compared"]
    found += _basis(result) if result.repeated else _not_repeated(result)
    found += [*_needed(result), *_disagreement(result)]
    if result.missing:
        found.append(f"not every run has: {', '.join(result.missing)}")
    return [*found, *(_doubts(result) if result.repeated else ())]


def _doubts(result: CompareResult) -> list[str]:
    """Why verdicts are inconclusive, each reason once for all metrics of a step."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for line in result.lines:
        if line.reason:
            metrics.setdefault((line.step, line.reason), []).append(line.metric)
    compared = Counter(line.step for line in result.lines)
    return [
        f"{step or 'run'}, {'all metrics' if len(names) == compared[step] else ', '.join(names)}: {reason}"
        for (step, reason), names in metrics.items()
    ]


def refusal(result: CompareResult) -> str:
    """Why the runs are not compared: a line for each difference."""
    return "\n".join(difference(each) for each in result.refused)


def shown_differences(result: CompareResult) -> list[str]:
    """The differences that are shown and not refused."""
    return [difference(each) for each in result.differences if each not in result.refused]


def markdown(result: CompareResult) -> str:
    """The comparison for a review: the verdict, the table, the differences, the basis of the verdict."""
    summary, *rest = sentences(result)
    parts = [f"**{summary}**", _table(rows(result))]
    if different := shown_differences(result):
        parts.append("\n".join(["What else differs:", "", *(f"- {_escaped(each)}" for each in different)]))
    parts.append("\n".join(f"- {sentence}" for sentence in rest))
    base, candidate = (", ".join(f"`{run.path.name}`" for run in runs) for runs in (result.base, result.candidate))
    parts.append(f"Baseline {base}; candidate {candidate}.")
    return "\n\n".join(parts)


def to_json(result: CompareResult) -> dict[str, Any]:
    """The comparison for a program. Unknown bounds, and p values of what was not tested, are null."""
    return {
        "base": [str(run.path) for run in result.base],
        "candidate": [str(run.path) for run in result.candidate],
        "comparable": not result.refused,
        "repeated": result.repeated,
        "confidence": result.confidence,
        "noise": {"rate": result.noise_rate, "latency": result.noise_latency},
        "differences": [asdict(each) for each in result.differences],
        "refused": [asdict(each) for each in result.refused],
        "missing_steps": result.missing,
        "metrics": [_line_json(line) for line in result.lines],
        "verdicts": {str(verdict): result.count(verdict) for verdict in ChangeVerdict},
    }


def _basis(result: CompareResult) -> list[str]:
    runs = f"{len(result.base)} and {len(result.candidate)} repetitions"
    level = 100 * result.confidence
    return [
        f"each interval holds with {level:g} % (Hodges-Lehmann, over {runs}); a change takes a whole interval beyond "
        f"the noise ({100 * result.noise_rate:g} % of a rate, {100 * result.noise_latency:g} % of a latency), and p of "
        f"a permutation test of at most {100 - level:.3g} % for all {len(result.lines)} figures together (Holm)"
    ]


def _needed(result: CompareResult) -> list[str]:
    """The number of repetitions that would decide inconclusive changes, and the assumption behind it."""
    undecided = [line for line in result.lines if line.verdict is ChangeVerdict.INCONCLUSIVE]
    known = [line for line in undecided if line.needed is not None]
    if not known:
        return _spread_unknown(result) if undecided and not result.repeated else []
    most = max(known, key=lambda line: line.needed or 0)
    least = min(line.needed or 0 for line in known)
    name = f"{most.step}, {most.metric}" if most.step else most.metric
    number = f"{least} to {most.needed}" if least != most.needed else f"{most.needed}"
    if most.needed == NEEDED_MAX + 1:
        number = f"{least} to more than {NEEDED_MAX}" if least != most.needed else f"more than {NEEDED_MAX}"
    return [
        f"{number} repetitions of each side would decide {len(known)} of {len(undecided)} inconclusive metrics (most "
        f"for {name}). The assumption: runs go on to vary as these did, normally in logarithms; then no change, and a "
        "change of twice the noise, are told from the noise in four of five comparisons"
    ]


def _disagreement(result: CompareResult) -> list[str]:
    """Why a change may have another sign than the two medians beside it."""
    against = [line for line in result.lines if (line.candidate - line.base) * line.change.value < 0]
    if not against:
        return []
    return [
        f"{against[0].metric}: baseline and candidate are the medians of each side, and the change is the median of "
        "all ratios between a run of one side and a run of the other; runs that differ widely make the two disagree"
    ]


def _spread_unknown(result: CompareResult) -> list[str]:
    if max(len(result.base), len(result.candidate)) > 1:
        return []
    return [f"with {REPEATS_MIN} repetitions of each side, compare tells how many would decide"]


def _not_repeated(result: CompareResult) -> list[str]:
    """Why there is no verdict, and what to do about it."""
    runs = f"{len(result.base)} run{'s' if len(result.base) > 1 else ''} against {len(result.candidate)}"
    return [
        f"no verdict: {runs} cannot tell a change from chance, because how much runs differ is not known",
        f"measure each side {REPEATS_ADVISED} times (at least {REPEATS_MIN}), in turn: `perftest compare --collect "
        f"{REPEATS_ADVISED} --base '-h URI1' --candidate '-h URI2' -- perftest run ...` does so, and compares",
        "to gate a build on one run, give it objectives: `perftest run --slo 'confirm.p99<20ms'` ends with 4 if one is "
        "missed",
    ]


def _row(line: ComparedMetric) -> tuple[str, ...]:
    change = line.change
    bounds = f"{_percent(change.low)} … {_percent(change.high)}" if math.isfinite(change.low) else "–"
    verdict = f"{_ARROWS.get(line.verdict, '·')} {line.verdict}"
    values = (f"{three_figures(line.base)} {line.unit}", f"{three_figures(line.candidate)} {line.unit}")
    chance = f"{line.p_adjusted:.2g}" if math.isfinite(line.p_adjusted) else "–"
    return (line.step or "–", line.metric, *values, _percent(change.value), bounds, chance, verdict)


def _percent(part: float) -> str:
    return f"{100 * part:+.1f} %" if math.isfinite(part) else "–"


def _table(found: Iterable[tuple[str, ...]]) -> str:
    cells = [[_escaped(cell) for cell in row] for row in found]
    lines = [" | ".join(row) for row in (HEAD, ("---",) * len(HEAD), *cells)]
    return "\n".join(f"| {line} |" for line in lines)


def _escaped(text: str) -> str:
    """A user's name in Markdown, escaped: it ends no cell, and is no markup."""
    return re.sub(r"([\\`|]|(?<=\])\()", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def difference(each: Difference) -> str:
    """A difference between the sides in words."""
    if each.base == each.candidate:
        return f"{each.where}: {each.base}, on both sides"
    return f"{each.where}: {each.base} against {each.candidate}"


def _line_json(line: ComparedMetric) -> dict[str, Any]:
    plain = {name: value for name, value in asdict(line).items() if name != "change"}
    numbers = {"p": line.p, "p_adjusted": line.p_adjusted}
    numbers |= {"change": line.change.value, "low": line.change.low, "high": line.change.high}
    return plain | {name: value if math.isfinite(value) else None for name, value in numbers.items()}
