"""Objectives that a run has to reach: ``confirm.p99<20ms``, ``e2e.max<=1s``, ``rate>=10k``, ``loss==0``.

One grammar for ``run --slo``, for the search of a highest rate and for the comparison of runs::

    objective  = metric comparison value
    metric     = latency "." statistic | rate | count | "link_bodies"
    latency    = "confirm" | "e2e" | "confirm_service" | "e2e_service" | "lag" | "ack"
    statistic  = "p50" | "p75" | "p95" | "p99" | "p99.9" | "p99.99" | "mean" | "max"
    rate       = "rate" | "intended" | "published" | "confirmed" | "delivered"
    count      = "loss" | "duplicates" | "reordered" | "damaged" | "unexpected" | "nacked" | "returned" | "redelivered"
    comparison = "<" | "<=" | ">" | ">=" | "==" | "!="

With a schedule ``confirm`` and ``e2e`` start at the intended time, so that no stall can hide. ``confirm_service`` and
``e2e_service`` start at the actual send, as other tools measure. ``rate`` is the delivered rate, or the published rate
without consumers. A latency needs a unit. ``link_bodies`` is the traffic between the broker's nodes, in multiples of
the published bodies; it stays unmeasured if the broker does not tell it.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perftest.spec.units import UnitError, parse_count, parse_rate

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
LATENCIES: Final[Mapping[str, tuple[str, ...]]] = {
    "confirm": ("confirm_sched", "confirm"),
    "e2e": ("e2e_sched", "e2e"),
    "confirm_service": ("confirm",),
    "e2e_service": ("e2e",),
    "lag": ("lag",),
    "ack": ("ack",),
}
"""The series of a row; the first recorded series counts."""
STATISTICS: Final[Mapping[str, str]] = {
    "p50": "p50_ns",
    "p75": "p75_ns",
    "p95": "p95_ns",
    "p99": "p99_ns",
    "p99.9": "p999_ns",
    "p999": "p999_ns",
    "p99.99": "p9999_ns",
    "p9999": "p9999_ns",
    "mean": "mean_ns",
    "max": "max_ns",
}
RATES: Final = ("rate", "intended", "published", "confirmed", "delivered")
LEDGER_COUNTS: Final[Mapping[str, str]] = {
    "loss": "lost",
    "duplicates": "duplicated",
    "reordered": "reordered",
    "damaged": "damaged",
    "unexpected": "unexpected",
}
"""Counts of the whole run, with their names in the ledger."""
STEP_COUNTS: Final = ("nacked", "returned", "redelivered")
LINK_BODIES: Final = "link_bodies"
TIME_UNITS: Final[Mapping[str, float]] = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9}

_OBJECTIVE: Final = re.compile(r"^\s*(?P<metric>[a-z0-9_.]+)\s*(?P<comparison><=|>=|==|!=|<|>)\s*(?P<value>\S.*?)\s*$")
_TIME: Final = re.compile(r"^(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-zµ]+)$")


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
    match = _OBJECTIVE.match(text)
    if match is None:
        raise UnitError(f"{text!r} is not an objective", "write a metric, a comparison and a limit: e2e.p99<20ms")
    metric, value = match["metric"], match["value"]
    latency, dot, statistic = metric.partition(".")
    if dot and latency in LATENCIES and statistic in STATISTICS:
        limit = _time_ns(value)
    elif metric in RATES:
        limit = _rate(value)
    elif metric in LEDGER_COUNTS or metric in STEP_COUNTS:
        limit = float(parse_count(value))
    elif metric == LINK_BODIES:
        limit = _number(value)
    else:
        raise _unknown(metric)
    return Objective(text="".join(text.split()), metric=metric, comparison=match["comparison"], limit=limit)


def metrics() -> list[str]:
    """All metrics."""
    return [
        *(f"{latency}.{statistic}" for latency in LATENCIES for statistic in STATISTICS),
        *RATES,
        *LEDGER_COUNTS,
        *STEP_COUNTS,
        LINK_BODIES,
    ]


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
    if objective.metric == "rate":
        return float(row["delivered_per_s"] if row.get("delivered") else row["published_per_s"])
    name = f"{objective.metric}_per_s" if objective.metric in RATES else objective.metric
    return None if row.get(name) is None else float(row[name])


def shown(objective: Objective, value: float | None) -> str:
    """A value of an objective's metric in words."""
    if value is None:
        return "nothing was measured"
    if "." in objective.metric:
        unit, size = next(((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6)) if value >= size), ("µs", 1e3))
        return f"{value / size:.3g} {unit}"
    if objective.metric == LINK_BODIES:
        return f"{value:.3g} bodies"
    return f"{value:,.0f} msg/s" if objective.metric in RATES else f"{value:,.0f}"


def _verdict(objective: Objective, label: str, value: float | None) -> Verdict:
    met = value is not None and COMPARISONS[objective.comparison](value, objective.limit)
    return Verdict(objective, label, value, met)


def _time_ns(value: str) -> float:
    match = _TIME.match(value)
    if match is None or match["unit"] not in TIME_UNITS:
        raise UnitError(f"{value!r} is not a latency with its unit", "write 500us, 20ms or 1s")
    return float(match["number"]) * TIME_UNITS[match["unit"]]


def _number(value: str) -> float:
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", value) is None:
        raise UnitError(f"{value!r} is no number of bodies", "write 2.2: so many times the body of a message")
    return float(value)


def _rate(value: str) -> float:
    rate = parse_rate(value)
    if rate is None:
        raise UnitError(f"{value!r} is no rate to compare with", "write 10k or 500/s")
    return rate


def _unknown(metric: str) -> UnitError:
    near = difflib.get_close_matches(metric, metrics(), n=1, cutoff=0.5)
    if metric in LATENCIES:
        return UnitError(f"{metric!r} needs a statistic", f"write {metric}.p99, or .p50, .p95, .p99.9, .mean, .max")
    if metric in STATISTICS:
        return UnitError(f"there is no metric {metric!r}", f"say of what: e2e.{metric} or confirm.{metric}")
    return UnitError(
        f"there is no metric {metric!r}",
        f"did you mean {near[0]}?" if near else "use e2e.p99, confirm.p99, rate, loss …",
    )
