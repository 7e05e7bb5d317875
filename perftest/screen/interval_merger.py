"""One interval of a group of load out of the intervals of its workers, which end together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Series

Latencies = Mapping[Series, Histogram]

_HIGHEST: Final = ("loop_lag_ns", "gc_pause_ns", "steal_ns", "clock_bound_ns")
"""Figures that are not added up over workers: the worst worker counts, or all workers say the same."""
_PLACE: Final = (
    "worker",
    "host",
    "group",
    "measured",
    "step",
    "phase",
    "start_ns",
    "length_ns",
    "latencies",
    "processed",
)
_ADDED: Final = tuple(each.name for each in fields(Interval) if each.name not in (*_PLACE, *_HIGHEST))


@dataclass(frozen=True, slots=True)
class MergedInterval:
    """Counts of all workers (``record`` has no latencies), and their histograms merged."""

    record: Interval
    latencies: Latencies


class IntervalMerger:
    """Calls ``emit`` with each interval of a group of load, once every worker has told its part.

    There is one worker unless an event says that there are more. Nobody waits longer than two calls of :meth:`tick` for
    a worker that has ended.
    """

    def __init__(self, emit: Callable[[MergedInterval], None]) -> None:
        self._emit = emit
        self._parts: dict[str, dict[tuple[str, str], Interval]] = {}
        """By group, then by worker."""
        self._workers = 1
        self._by_group: dict[str, int] = {}
        self._ticks = 0

    def event(self, record: Mapping[str, object]) -> None:
        """Take an event of the run, which may say how many workers there are."""
        workers, by_group = record.get("workers"), record.get("by_group")
        if record.get("kind") == "workers" and isinstance(workers, int):
            self._workers = workers
        if isinstance(by_group, Mapping):
            self._by_group.update(by_group)
        if record.get("kind") == "background_started" and isinstance(workers, int):
            self._by_group[str(record.get("group"))] = workers

    def add(self, record: Interval) -> None:
        """Take the part of one worker. A second part of a worker belongs to the next interval."""
        parts = self._parts.setdefault(record.group, {})
        first = next(iter(parts.values()), record)
        if record.source in parts or (record.step, record.phase) != (first.step, first.phase):
            self._emit_group(record.group)
        parts[record.source] = record
        self._ticks = 0
        if len(parts) >= self._by_group.get(record.group, self._workers):
            self._emit_group(record.group)

    def tick(self) -> None:
        """Half a second went by."""
        self._ticks += 1
        if self._ticks > 1:
            self.flush()

    def flush(self) -> None:
        """Emit the intervals so far."""
        for group in self._parts:
            self._emit_group(group)

    def _emit_group(self, group: str) -> None:
        parts = list(self._parts[group].values())
        self._parts[group].clear()
        if parts:
            self._emit(merge(parts))


def merge(parts: list[Interval]) -> MergedInterval:
    """The union of intervals of several workers: counts added, histograms merged."""
    first = parts[0]
    start_ns = min(part.start_ns for part in parts)
    end_ns = max(part.start_ns + part.length_ns for part in parts)
    counts: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in _ADDED}
    counts |= {name: max(getattr(part, name) for part in parts) for name in _HIGHEST}
    counts["processed"] = None if first.processed is None else sum(part.processed or 0 for part in parts)
    worker = first.worker if len(parts) == 1 else "all"
    host = first.host if len({part.host for part in parts}) == 1 else "all"
    record = replace(
        first, worker=worker, host=host, start_ns=start_ns, length_ns=end_ns - start_ns, latencies={}, **counts
    )
    return MergedInterval(record, _merged_latencies(parts))


def _merged_latencies(parts: list[Interval]) -> Latencies:
    found: dict[Series, Histogram] = {}
    for part in parts:
        for series, counts in part.latencies.items():
            found.setdefault(series, Histogram()).add_sparse(counts)
    return found
