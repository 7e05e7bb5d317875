"""The names of metrics, in one spelling: ``e2e.p99``, ``delivered``, ``loss``.

Objectives, findings, rounds, comparisons and histories read and print metrics by this grammar::

    metric     = latency "." statistic | rate | count | "broker_cpu" | "link_bodies" | evidence | "recovery" | "gap"
    latency    = "confirm" | "e2e" | "confirm_service" | "e2e_service" | "lag" | "ack"
    statistic  = "p50" | "p75" | "p95" | "p99" | "p99.9" | "p99.99" | "mean" | "max"
    rate       = "rate" | "intended" | "published" | "confirmed" | "delivered"
    count      = "loss" | "duplicates" | "reordered" | "damaged" | "unexpected" | "nacked" | "returned" | "redelivered"
    evidence   = "backlog" | "segments_written" | "drive_busy"

With a schedule ``confirm`` and ``e2e`` start at the intended time, so that no stall can hide. ``confirm_service`` and
``e2e_service`` start at the actual send, as other tools measure. ``rate`` is the delivered rate, or the published rate
without consumers. ``broker_cpu`` is the broker's CPU time per message. ``link_bodies`` is the traffic between the
broker's nodes, in multiples of the published bodies. Both stay unmeasured if the broker does not report them. Evidence
shows that a step tried what it is about: ``backlog`` is the messages by which publishers outran consumers in the step,
``segments_written`` the segment files that the nodes wrote, ``drive_busy`` the part of the step (0 to 1) in which the
busiest modelled drive had something to do. ``recovery`` is the longest time after an action of the timeline until
confirms are back at 90 % of their rate, and ``gap`` the longest time without a confirm after an action.

Other spellings (``e2e p99``, ``e2e_sched p99``, ``delivered/s``, ``p999``) are read, and never printed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

LATENCIES: Final[Mapping[str, tuple[str, ...]]] = {
    "confirm": ("confirm_sched", "confirm"),
    "e2e": ("e2e_sched", "e2e"),
    "confirm_service": ("confirm",),
    "e2e_service": ("e2e",),
    "lag": ("lag",),
    "ack": ("ack",),
}
"""Latencies, and the series of a row for each; the first recorded series counts."""
STATISTICS: Final[Mapping[str, str]] = {
    "p50": "p50_ns",
    "p75": "p75_ns",
    "p95": "p95_ns",
    "p99": "p99_ns",
    "p99.9": "p999_ns",
    "p99.99": "p9999_ns",
    "mean": "mean_ns",
    "max": "max_ns",
}
"""Statistics of a latency, and their keys in a row."""
RATE: Final = "rate"
RATES: Final = (RATE, "intended", "published", "confirmed", "delivered")
LEDGER_COUNTS: Final[Mapping[str, str]] = {
    "loss": "lost",
    "duplicates": "duplicated",
    "reordered": "reordered",
    "damaged": "damaged",
    "unexpected": "unexpected",
}
"""Counts of the whole run, with their names in the ledger."""
STEP_COUNTS: Final = ("nacked", "returned", "redelivered")
EVIDENCE: Final = ("backlog", "segments_written", "drive_busy")
DRIVE_BUSY: Final = EVIDENCE[-1]
LINK_BODIES: Final = "link_bodies"
BROKER_CPU: Final = "broker_cpu"
RECOVERY: Final = "recovery"
GAP: Final = "gap"
AFTER_ACTIONS: Final = (RECOVERY, GAP)
"""Times that only a step with an action of the timeline has."""

METRICS: Final = (
    *(f"{latency}.{statistic}" for latency in LATENCIES for statistic in STATISTICS),
    *RATES,
    *LEDGER_COUNTS,
    *STEP_COUNTS,
    BROKER_CPU,
    LINK_BODIES,
    *EVIDENCE,
    *AFTER_ACTIONS,
)
"""All metrics."""
COMPARED: Final = (
    "delivered",
    "published",
    *(f"{latency}.{statistic}" for latency in ("e2e", "confirm") for statistic in ("p50", "p99", "p99.9")),
    BROKER_CPU,
)
"""The metrics of comparisons and histories."""
SHORT_NAMES: Final[Mapping[str, str]] = {
    "rate": "delivered",
    "p50": "e2e.p50",
    "p99": "e2e.p99",
    "p99.9": "e2e.p99.9",
    "cpu": BROKER_CPU,
}
"""Short names of the metric of a history."""

_OLD: Final[Mapping[str, str]] = {
    "delivered/s": "delivered",
    "published/s": "published",
    "broker cpu": BROKER_CPU,
    "p999": "p99.9",
    "p9999": "p99.99",
}
"""Spellings of earlier output."""


class MetricNameError(ValueError):
    """A text that names no metric. ``rule`` says what is wrong, ``fix`` proposes the nearest names."""

    def __init__(self, rule: str, fix: str) -> None:
        super().__init__(f"{rule}: {fix}")
        self.rule = rule
        self.fix = fix


def spelled(text: str) -> str:
    """The one spelling of a metric, a latency or a statistic. An unknown name stays unknown."""
    words = " ".join(text.lower().split())
    words = _OLD.get(words, words)
    if words in STATISTICS:
        return words
    latency, dot, statistic = words.replace(" ", ".", 1).partition(".")
    return f"{latency.removesuffix('_sched')}{dot}{_OLD.get(statistic, statistic)}"


def metric_named(text: str, known: Sequence[str] = METRICS) -> str:
    """The metric of this name among the ``known`` metrics. Raises :class:`MetricNameError`."""
    name = spelled(text)
    if name in known:
        return name
    raise _incomplete(text, name, known) or _unknown(text, known, known)


def metrics_like(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The ``known`` metrics that a filter means: one metric, all of a latency (``e2e``), of a statistic (``p99``), or
    all rates (``rate``). Names count as a whole: ``p99`` is not ``p99.9``. Raises :class:`MetricNameError`."""
    name = spelled(text)
    found = tuple(each for each in known if name in _filters(each))
    if not found:
        raise _unknown(text, filters_of(known), known)
    return found


def filters_of(known: Sequence[str]) -> tuple[str, ...]:
    """All filters that mean any of the ``known`` metrics, the metrics themselves first."""
    return tuple(dict.fromkeys((*known, *(each for name in known for each in _filters(name)))))


def _filters(metric: str) -> Iterator[str]:
    """The filters that mean a metric."""
    latency, dot, statistic = metric.partition(".")
    yield metric
    if dot:
        yield from (latency, statistic)
    elif metric in RATES:
        yield RATE


def _incomplete(text: str, name: str, known: Sequence[str]) -> MetricNameError | None:
    """The error about half of a name: a latency or a statistic alone."""
    halves = [each.partition(".")[::2] for each in known if "." in each]
    if statistics := [statistic for latency, statistic in halves if latency == name]:
        others = ", ".join(f".{each}" for each in statistics if each != "p99")
        return MetricNameError(f"{text!r} needs a statistic", f"write {name}.p99, or {others}")
    if name in (statistic for _, statistic in halves):
        return MetricNameError(f"there is no metric {text!r}", f"say of what: e2e.{name} or confirm.{name}")
    return None


def _unknown(text: str, names: Sequence[str], known: Sequence[str]) -> MetricNameError:
    near = difflib.get_close_matches(spelled(text), names, n=1, cutoff=0.5)
    shown = ", ".join(known) if len(known) < _FEW else "e2e.p99, confirm.p99, rate, loss …"
    fix = f"did you mean {near[0]}?" if near else f"use {shown}"
    return MetricNameError(f"there is no metric {text!r}", fix)


_FEW: Final = 12
"""Number of names from which an error does not list them all."""
