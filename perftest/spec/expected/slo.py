"""Objectives that a run has to reach: ``confirm.p99<20ms``, ``e2e.max<=1s``, ``rate>=10k``, ``loss==0``.

One grammar for ``run --slo``, for the search of a highest rate and for the findings of a source::

    objective  = metric comparison value
    comparison = "<" | "<=" | ">" | ">=" | "==" | "!="

:mod:`perftest.metrics.names` has the names of the metrics. A latency and ``broker_cpu`` need a unit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perftest.metrics.figures import three_figures
from perftest.metrics.names import (
    AFTER_ACTIONS,
    BROKER_CPU,
    DRIVE_BUSY,
    LATENCIES,
    LEDGER_COUNTS,
    LINK_BODIES,
    RATE,
    RATES,
    STATISTICS,
    MetricNameError,
    metric_named,
    spelled,
)
from perftest.spec.units import UnitError, parse_count, parse_latency_ns, parse_rate

Row = Mapping[str, Any]
"""A row of ``result.json``: a step."""

COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_OBJECTIVE: Final = re.compile(r"^(?P<metric>[\w./ ]+?)\s*(?P<comparison><=|>=|==|!=|<|>)\s*(?P<value>\S.*)$")


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric, a comparison, and the limit in nanoseconds, messages per second or messages."""

    text: str
    metric: str
    comparison: str
    limit: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an objective was met in one step. If nothing was measured, ``value`` is None and the objective missed."""

    objective: Objective
    label: str
    value: float | None
    met: bool

    def sentence(self) -> str:
        """``missed  e2e.p99<20ms: 31.4 ms``."""
        place = f" at {self.label}" if self.label else ""
        return f"{'met' if self.met else 'missed':6}  {self.objective.text}{place}: {shown(self.objective, self.value)}"

    def to_json(self) -> dict[str, object]:
        """The verdict as in ``result.json``, in nanoseconds, messages per second or messages."""
        limit = self.objective.limit
        return {"slo": self.objective.text, "step": self.label, "value": self.value, "limit": limit, "met": self.met}


def parse_objective(text: str) -> Objective:
    """Read an objective. Raises :class:`~perftest.spec.units.UnitError`, which names the nearest metric."""
    match = _OBJECTIVE.match(text.strip())
    if match is None:
        raise UnitError(f"{text!r} is not an objective", "write a metric, a comparison and a limit: e2e.p99<20ms")
    try:
        metric = metric_named(match["metric"])
    except MetricNameError as error:
        raise UnitError(error.rule, error.fix) from error
    limit = _limit(metric, match["value"])
    typed = f"{metric}{match['comparison']}{''.join(match['value'].split())}"
    return Objective(text=typed, metric=metric, comparison=match["comparison"], limit=limit)


def any_of(metric: str) -> Objective:
    """A metric as the objective that every positive value meets. Raises :class:`~perftest.spec.units.UnitError`."""
    unit = "ms" if is_time(spelled(metric)) else ""
    return parse_objective(f"{metric}>0{unit}")


def is_time(metric: str) -> bool:
    """Whether values of this metric are times: a latency, CPU time, or the time of a recovery."""
    return "." in metric or metric in (BROKER_CPU, *AFTER_ACTIONS)


def _limit(metric: str, value: str) -> float:
    if is_time(metric):
        return parse_latency_ns(value)
    if metric in RATES:
        return _rate(value)
    return _number(metric, value) if metric in (LINK_BODIES, DRIVE_BUSY) else float(parse_count(value))


def judge(objectives: Sequence[Objective], rows: Sequence[Row], ledger: Mapping[str, Any] | None) -> list[Verdict]:
    """A verdict for every objective in every step. Objectives about the ledger are judged once, for the whole run. A
    run without measured steps has missed all objectives."""
    verdicts: list[Verdict] = []
    for objective in objectives:
        if objective.metric in LEDGER_COUNTS:
            verdicts.append(_verdict(objective, "", (ledger or {}).get(LEDGER_COUNTS[objective.metric])))
            continue
        verdicts += [_verdict(objective, row["label"], measured(objective, row)) for row in rows or ()]
        if not rows:
            verdicts.append(_verdict(objective, "", None))
    return verdicts


def highest_held(verdicts: Sequence[Verdict], rows: Sequence[Row]) -> str:
    """The highest rate of all steps that met each objective, in a sentence; empty for a run of one step, and without
    objectives for steps. Objectives about the whole run do not count."""
    of_steps = [verdict for verdict in verdicts if verdict.label]
    if len(rows) < 2 or not of_steps:
        return ""
    missed = {verdict.label for verdict in of_steps if not verdict.met}
    held = [row for row in rows if row["label"] not in missed]
    if not held:
        return "no step met all objectives"
    rate = parse_objective(f"{RATE}>0")
    best = max(held, key=lambda row: measured(rate, row) or 0.0)
    return (
        f"the highest rate that met all objectives: {shown(rate, measured(rate, best))} at {best['label']}"
        f" ({len(held)} of {len(rows)} steps met them)"
    )


def measured(objective: Objective, row: Row) -> float | None:
    """The value of an objective's metric in a step; None if it was not measured."""
    latency, dot, statistic = objective.metric.partition(".")
    if dot:
        found = (row["latency"].get(series, {}) for series in LATENCIES[latency])
        summary = next((each for each in found if each.get("count")), None)
        if summary is None:
            return None
        # A percentile is the top of its bucket, the maximum is exact: it must not look smaller.
        return float(min(summary[STATISTICS[statistic]], summary["max_ns"]))
    if objective.metric == RATE:
        return float(row["delivered_per_s"] if row.get("delivered") else row["published_per_s"])
    if objective.metric == BROKER_CPU:
        cpu_us = row.get("broker_cpu_us_per_message")
        return None if cpu_us is None else float(cpu_us) * 1e3
    unit = "_per_s" if objective.metric in RATES else "_ns" if objective.metric in AFTER_ACTIONS else ""
    name = f"{objective.metric}{unit}"
    return None if row.get(name) is None else float(row[name])


def shown(objective: Objective, value: float | None) -> str:
    """A value of an objective's metric in words."""
    if value is None:
        return "nothing was measured"
    if is_time(objective.metric):
        unit, size = next(((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6)) if value >= size), ("µs", 1e3))
        return f"{three_figures(value / size)} {unit}"
    if objective.metric == LINK_BODIES:
        return f"{three_figures(value)} bodies"
    if objective.metric == DRIVE_BUSY:
        return f"{value:.0%}"
    return f"{value:,.0f} msg/s" if objective.metric in RATES else f"{value:,.0f}"


def _verdict(objective: Objective, label: str, value: float | None) -> Verdict:
    met = value is not None and COMPARISONS[objective.comparison](value, objective.limit)
    return Verdict(objective, label, value, met)


def _number(metric: str, value: str) -> float:
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", value) is None:
        if metric == DRIVE_BUSY:
            raise UnitError(f"{value!r} is no part of the time", "write 0.5: for half of the time")
        raise UnitError(f"{value!r} is no number of bodies", "write 2.2: so many times the body of a message")
    return float(value)


def _rate(value: str) -> float:
    rate = parse_rate(value)
    if rate is None:
        raise UnitError(f"{value!r} is no rate to compare with", "write 10k or 500/s")
    return rate
