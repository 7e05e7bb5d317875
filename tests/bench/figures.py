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

    def goal_text(self) -> str:
        """The goal as a person reads it."""
        if self.bound is Bound.TIMES_RABBITMQ:
            return f"≥ {self.goal:g} x"
        return f"{self.bound.value} {number(self.goal)} {self.unit}".rstrip()


BUDGETS = (
    Budget("in-flight 1000", "delivered_per_s", "in-flight 1000: delivered/s", Bound.TIMES_RABBITMQ, 10),
    Budget("in-flight 1000", "broker_us", "in-flight 1000: CPU per message, three nodes", Bound.AT_MOST, 10, "µs"),
    Budget("in-flight 1000", "load_us", "in-flight 1000: generator's CPU per message", Bound.AT_MOST, 3, "µs"),
    Budget("in-flight 1000", "disk_octets", "in-flight 1000: octets on disk per message", Bound.AT_MOST, 3500, "B"),
    Budget("in-flight 20", "delivered_per_s", "in-flight 20: delivered/s", Bound.TIMES_RABBITMQ, 3),
    Budget("in-flight 1", "delivered_per_s", "in-flight 1: delivered/s", Bound.TIMES_RABBITMQ, 1.7),
    Budget("in-flight 1", "confirm_p50_ms", "in-flight 1: confirm p50", Bound.AT_MOST, 1.0, "ms"),
    Budget("prefetch 1", "delivered_per_s", "prefetch 1 beside in-flight 1000: consumed/s", Bound.TIMES_RABBITMQ, 10),
    Budget("classic in-flight 1000", "delivered_per_s", "classic in-flight 1000: delivered/s", Bound.TIMES_RABBITMQ, 5),
    Budget("lazy in-flight 1000", "delivered_per_s", "lazy in-flight 1000: delivered/s", Bound.TIMES_RABBITMQ, 5),
    Budget("classic transient", "delivered_per_s", "classic transient: delivered/s", Bound.AT_LEAST, 100_000, "/s"),
    Budget("fan-out to 10 queues", "delivered_per_s", "fan-out to 10 queues: delivered/s", Bound.TIMES_RABBITMQ, 8),
    Budget("slow consumer", "times", "p99 beside a consumer that reads nothing", Bound.AT_MOST, 2, "times"),
    Budget("connections", "all_served_s", "5,000 connections at once: until all are served", Bound.AT_MOST, 30, "s"),
    Budget("connections", "kib_each", "5,000 connections: memory for each", Bound.AT_MOST, 40, "KiB"),
    Budget("connections", "busiest_node_percent", "5,000 idle connections: node", Bound.AT_MOST, 5, "% of a core"),
    Budget("40 queues x 10", "cores", "40 queues x 10 msg/s: CPU of the nodes", Bound.AT_MOST, 0.3, "cores"),
    Budget("40 queues x 50", "cores", "40 queues x 50 msg/s: CPU of the nodes", Bound.AT_MOST, 0.8, "cores"),
    Budget("40 queues x 50", "e2e_p50_ms", "40 queues x 50 msg/s: end-to-end p50", Bound.AT_MOST, 3, "ms"),
    Budget("40 queues x 50", "e2e_p99_ms", "40 queues x 50 msg/s: end-to-end p99", Bound.AT_MOST, 20, "ms"),
    Budget("deep", "fall_percent", "deep queue: fall of the publish rate", Bound.AT_MOST, 20, "%"),
    Budget("idle", "busiest_node_percent", "100 idle queues: busiest node", Bound.AT_MOST, 2, "% of a core"),
    Budget("kills", "gap_s", "longest gap without a confirm after kill -9", Bound.AT_MOST, 3, "s"),
    Budget("start", "first_confirm_s", "three nodes from start to the first confirm", Bound.AT_MOST, 2, "s"),
    Budget("thousands of queues", "declare_ms", "2,000 queues, declared one by one: each", Bound.AT_MOST, 5, "ms"),
    Budget("thousands of queues", "idle_percent", "2,000 idle queues: all nodes", Bound.AT_MOST, 2, "% of a core"),
    Budget("thousands of queues", "start_again_s", "2,000 queues: start until all have leaders", Bound.AT_MOST, 5, "s"),
    Budget("recovery", "seconds", "a node with 1 GiB of log opens it", Bound.AT_MOST, 20, "s"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A budget beside what was measured; None where it was not."""

    budget: Budget
    ours: float | None
    theirs: float | None

    @property
    def ratio(self) -> float | None:
        """Ours over theirs."""
        return ratio(self.ours, self.theirs)

    @property
    def verdict(self) -> Verdict:
        """Whether the goal was met."""
        if self.budget.bound is Bound.TIMES_RABBITMQ:
            return _verdict(self.ratio is not None and self.ratio >= self.budget.goal, self.ratio)
        if self.budget.bound is Bound.AT_LEAST:
            return _verdict(self.ours is not None and self.ours >= self.budget.goal, self.ours)
        return _verdict(self.ours is not None and self.ours <= self.budget.goal, self.ours)


def _verdict(met: bool, measured: float | None) -> Verdict:
    if measured is None:
        return Verdict.UNKNOWN
    return Verdict.MET if met else Verdict.MISSED


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
    wanted = set(benches)
    return [
        Finding(
            budget,
            median(samples, budget.bench, REFERENCE, budget.figure),
            median(samples, budget.bench, RABBITMQ, budget.figure),
        )
        for budget in BUDGETS
        if budget.bench in wanted
    ]


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
