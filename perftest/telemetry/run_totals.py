"""Counts and latencies of a run since its start, by step and group of load, as OpenTelemetry sends them; pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Series

OUTCOMES: Final = ("confirmed", "nacked", "returned", "redelivered", "acked")
"""Counts of what became of messages."""
_COUNTED: Final = ("published", "handled", *OUTCOMES)
_E2E: Final = (Series.E2E_SCHED, Series.E2E)
_CONFIRM: Final = (Series.CONFIRM_SCHED, Series.CONFIRM)


@dataclass(slots=True)
class LoadTotals:
    """Everything counted of one group of load in one step. ``confirm`` and ``e2e`` are latencies from the intended time
    where there is a schedule; their sums are in nanoseconds."""

    counts: Counter[str] = field(default_factory=Counter)
    confirm: Histogram = field(default_factory=Histogram)
    e2e: Histogram = field(default_factory=Histogram)

    def add(self, record: Interval) -> None:
        """Add an interval of one worker."""
        self.counts.update({name: getattr(record, name) for name in _COUNTED})
        for series, histogram in ((_CONFIRM, self.confirm), (_E2E, self.e2e)):
            found = next((record.latencies[each] for each in series if each in record.latencies), None)
            if found is not None:
                histogram.add_sparse(found)


class RunTotals:
    """The totals of each step and group."""

    def __init__(self) -> None:
        self.loads: dict[tuple[int, str], LoadTotals] = {}

    def add(self, record: Interval) -> None:
        """Add an interval of one worker."""
        self.loads.setdefault((record.step, record.group), LoadTotals()).add(record)
