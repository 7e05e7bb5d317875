"""What was measured, held against the budgets. Pure: values in, values out.

A *sample* is what one bench found on one broker once: a few named figures. Figures are compared by their medians over
the rounds; a budget is either a bound for the bundled broker's own median, or for its ratio to RabbitMQ's of the same
rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

REFERENCE = "reference"
RABBITMQ = "RabbitMQ"


class BenchError(Exception):
    """A bench that could not be finished: what went wrong."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one bench found on one broker once."""

    bench: str
    broker: str
    figures: Mapping[str, float]


class Bound(Enum):
    """How a figure is held against its goal."""

    AT_MOST = "≤"
    AT_LEAST = "≥"
    TIMES_RABBITMQ = "≥ times RabbitMQ"
    SHARE_OF_RABBITMQ = "≤ times RabbitMQ"


class Verdict(Enum):
    """What became of a budget."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Budget:
    """A goal for one figure of one bench; ``unit`` is shown behind numbers."""

    bench: str
    figure: str
    what: str
    bound: Bound
    goal: float
    unit: str = ""

    @property
    def is_ratio(self) -> bool:
        """Whether the goal is for the ratio to each RabbitMQ."""
        return self.bound in (Bound.TIMES_RABBITMQ, Bound.SHARE_OF_RABBITMQ)

    def goal_text(self) -> str:
        """The goal as a person reads it."""
        if self.is_ratio:
            return f"{self.bound.value[0]} {self.goal:g} x"
        return f"{self.bound.value} {number(self.goal)} {self.unit}".rstrip()


_MANY = "thousands of queues"
_TIMES, _SHARE = Bound.TIMES_RABBITMQ, Bound.SHARE_OF_RABBITMQ
BUDGETS = (
    Budget("in-flight 1000", "delivered_per_s", "in-flight 1000: delivered/s", _TIMES, 12),
    Budget("in-flight 1000", "broker_us", "in-flight 1000: CPU per message, three nodes", _SHARE, 0.06, "µs"),
    Budget("in-flight 1000", "load_us", "in-flight 1000: generator's CPU per message", Bound.AT_MOST, 3, "µs"),
    Budget("in-flight 1000", "disk_octets", "in-flight 1000: octets on disk per message", Bound.AT_MOST, 3500, "B"),
    Budget("in-flight 20", "delivered_per_s", "in-flight 20: delivered/s", _TIMES, 4),
    Budget("in-flight 1", "delivered_per_s", "in-flight 1: delivered/s", _TIMES, 1.8),
    Budget("in-flight 1", "confirm_p50_ms", "in-flight 1: confirm p50", Bound.AT_MOST, 1.0, "ms"),
    Budget("prefetch 1", "delivered_per_s", "prefetch 1 beside in-flight 1000: consumed/s", _TIMES, 10),
    *(
        budget
        for rate, p50 in ((200, 0.7), (1000, 0.4), (2000, 0.3))
        for budget in (
            Budget(f"rate {rate}", "e2e_p50_ms", f"rate {rate}: end-to-end p50", _SHARE, p50, "ms"),
            Budget(f"rate {rate}", "broker_us", f"rate {rate}: CPU per message", _SHARE, 0.5, "µs"),
        )
    ),
    Budget("classic in-flight 1000", "delivered_per_s", "classic in-flight 1000: delivered/s", _TIMES, 5),
    Budget("lazy in-flight 1000", "delivered_per_s", "lazy in-flight 1000: delivered/s", _TIMES, 5),
    Budget("classic transient", "delivered_per_s", "classic transient: delivered/s", Bound.AT_LEAST, 100_000, "/s"),
    Budget("fan-out to 10 queues", "delivered_per_s", "fan-out to 10 queues: delivered/s", _TIMES, 8),
    Budget("slow consumer", "times", "p99 beside a consumer that reads nothing", Bound.AT_MOST, 2, "times"),
    Budget("connections", "all_served_s", "5,000 connections at once: until all are served", Bound.AT_MOST, 30, "s"),
    Budget("connections", "kib_each", "5,000 connections: memory for each", Bound.AT_MOST, 40, "KiB"),
    Budget("connections", "busiest_node_percent", "5,000 idle connections: node", Bound.AT_MOST, 5, "% of a core"),
    Budget("40 queues x 10", "cores", "40 queues x 10 msg/s: CPU of the nodes", _SHARE, 0.35, "cores"),
    Budget("40 queues x 10", "e2e_p50_ms", "40 queues x 10 msg/s: end-to-end p50", _SHARE, 0.7, "ms"),
    Budget("40 queues x 50", "cores", "40 queues x 50 msg/s: CPU of the nodes", _SHARE, 0.5, "cores"),
    Budget("40 queues x 50", "e2e_p50_ms", "40 queues x 50 msg/s: end-to-end p50", _SHARE, 0.1, "ms"),
    Budget("40 queues x 50", "e2e_p99_ms", "40 queues x 50 msg/s: end-to-end p99", _SHARE, 0.15, "ms"),
    Budget("deep", "fall_percent", "deep queue: fall of the publish rate", Bound.AT_MOST, 15, "%"),
    Budget("idle", "busiest_node_percent", "100 idle queues: busiest node", Bound.AT_MOST, 2, "% of a core"),
    Budget("kills", "gap_s", "longest gap without a confirm after kill -9", Bound.AT_MOST, 3, "s"),
    Budget("start", "first_confirm_s", "three nodes from start to the first confirm", Bound.AT_MOST, 2, "s"),
    Budget(_MANY, "declare_ms", "10,000 queues, declared one by one: each", Bound.AT_MOST, 5, "ms"),
    Budget(_MANY, "idle_percent", "10,000 idle queues: all nodes", Bound.AT_MOST, 3, "% of a core"),
    Budget(_MANY, "kib_each", "10,000 idle queues: memory of a node for each", Bound.AT_MOST, 8, "KiB"),
    Budget(_MANY, "led_again_s", "10,000 queues: kill -9 of a third of the leaders", Bound.AT_MOST, 5, "s"),
    Budget(_MANY, "start_again_s", "10,000 queues: start until all have leaders", Bound.AT_MOST, 10, "s"),
    *(
        Budget(f"neighbours: {attack}", "p99_ms", f"beside {attack}: p99 of a quiet publisher", bound, goal, "ms")
        for attack, bound, goal in (
            ("flood of five queues", _SHARE, 1),
            ("flood of five queues with confirms", _SHARE, 1),
            ("flood of one queue each", _SHARE, 1),
            ("many channels", _SHARE, 1),
            ("messages never acknowledged", _SHARE, 1),
            ("log-ins that stop", _SHARE, 1),
            ("requests that stop", Bound.AT_MOST, 50),
            ("patterns that backtrack", Bound.AT_MOST, 50),
        )
    ),
    Budget("recovery", "seconds", "a node with 1 GiB of log opens it", Bound.AT_MOST, 20, "s"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A budget beside what was measured: None, or no entry, where it was not. ``theirs`` is by RabbitMQ."""

    budget: Budget
    ours: float | None
    theirs: Mapping[str, float]

    @property
    def ratios(self) -> dict[str, float]:
        """Ours over theirs, by RabbitMQ."""
        both = {name: ratio(self.ours, value) for name, value in self.theirs.items()}
        return {name: value for name, value in both.items() if value is not None}

    @property
    def verdict(self) -> Verdict:
        """Whether the goal was met; a ratio, beside each RabbitMQ that was measured."""
        goal, own = self.budget.goal, [] if self.ours is None else [self.ours]
        measured = list(self.ratios.values()) if self.budget.is_ratio else own
        if not measured:
            return Verdict.UNKNOWN
        if self.budget.bound in (Bound.AT_LEAST, Bound.TIMES_RABBITMQ):
            return Verdict.MET if min(measured) >= goal else Verdict.MISSED
        return Verdict.MET if max(measured) <= goal else Verdict.MISSED


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Ours over theirs; None where either was not measured, or is no quantity (a fall may be a rise)."""
    return ours / theirs if ours is not None and theirs is not None and ours >= 0 < theirs else None


def median(samples: Iterable[Sample], bench: str, broker: str, figure: str) -> float | None:
    """The median of one figure over the rounds; None when no round measured it."""
    values = [
        each.figures[figure]
        for each in samples
        if (each.bench, each.broker) == (bench, broker) and figure in each.figures
    ]
    return statistics.median(values) if values else None


def findings(samples: Sequence[Sample], benches: Iterable[str]) -> list[Finding]:
    """A row for each budget of these benches, in the order of :data:`BUDGETS`."""
    wanted, theirs = set(benches), rivals(samples)
    return [
        Finding(
            budget,
            median(samples, budget.bench, REFERENCE, budget.figure),
            {name: value for name in theirs if (value := median(samples, budget.bench, name, budget.figure))},
        )
        for budget in BUDGETS
        if budget.bench in wanted
    ]


def rivals(samples: Iterable[Sample]) -> list[str]:
    """The brokers beside which the bundled broker was measured, in the order of their first samples."""
    return [name for name in dict.fromkeys(each.broker for each in samples) if name != REFERENCE]


def number(value: float | None) -> str:
    """Three significant digits, thousands with commas; a dash for what was not measured."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rate_between(progress: Sequence[tuple[int, float]], first: int, last: int) -> float:
    """Messages per second from the ``first`` to the ``last``, of a progress of (messages so far, seconds)."""
    counts, times = zip(*progress, strict=True)
    start, stop = np.interp([first, last], counts, times)
    return float((last - first) / (stop - start))


def used_between(samples: Sequence[tuple[float, float]], start: float, stop: float) -> float:
    """CPU seconds between two times, of samples of (time, CPU seconds so far)."""
    times, used = zip(*samples, strict=True)
    before, after = np.interp([start, stop], times, used)
    return float(after - before)
