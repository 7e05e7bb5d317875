"""The intervals of a run over all its workers: counts added, histograms merged."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hdr_buckets import PayloadError
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.hlog import HlogLine

COUNTED: Final = ("intended", "published", "confirmed", "nacked", "returned", "delivered", "redelivered", "acked")
"""Counters of an interval that are exported."""


@dataclass(slots=True, kw_only=True)
class ExportedSlot:
    """One interval of a load. Times are Unix nanoseconds; ``counts`` has a number for each of :data:`COUNTED` and
    ``handled``; ``latencies`` are by series."""

    step: int
    group: str
    phase: Phase
    start_ns: int
    end_ns: int
    counts: Counter[str] = field(default_factory=Counter)
    published_bytes: int = 0
    latencies: dict[Series, Histogram] = field(default_factory=dict)

    @property
    def length_ns(self) -> int:
        """Length of the interval: from the first worker's start to the last worker's end."""
        return self.end_ns - self.start_ns

    def per_s(self, counter: str) -> float:
        """The rate of a counter in messages per second."""
        return self.counts[counter] * 1e9 / self.length_ns if self.length_ns else 0.0

    def add(self, record: Interval) -> None:
        """Add the counts of one worker."""
        self.start_ns = min(self.start_ns, record.start_ns)
        self.end_ns = max(self.end_ns, record.start_ns + record.length_ns)
        self.counts.update({name: getattr(record, name) for name in (*COUNTED, "handled")})
        self.published_bytes += record.published_bytes


_Place = tuple[int, str, Phase]


def slots_of(intervals: Iterable[Interval], histograms: Iterable[HlogLine]) -> list[ExportedSlot]:
    """The intervals of the measured loads, in the order of their starts. The nth interval of a worker belongs to the
    nth intervals of all other workers, because all of them end together. A histogram that cannot be read is left
    out."""
    by_place = _counted(intervals)
    starts = {place: [slot.start_ns for slot in slots] for place, slots in by_place.items()}
    for line in histograms:
        place = (line.step, line.group, line.phase)
        if place in by_place and line.series in set(Series):
            middle_ns = line.start_ns + line.length_ns // 2
            _add(by_place[place][max(bisect_right(starts[place], middle_ns) - 1, 0)], line)
    return sorted((slot for slots in by_place.values() for slot in slots), key=lambda slot: slot.start_ns)


def merged(slots: Iterable[ExportedSlot], series: Series) -> Histogram:
    """The histogram of a series over some intervals."""
    found = Histogram()
    for slot in slots:
        if series in slot.latencies:
            found.add(slot.latencies[series])
    return found


def _counted(intervals: Iterable[Interval]) -> dict[_Place, list[ExportedSlot]]:
    found: dict[_Place, list[ExportedSlot]] = {}
    seen: Counter[tuple[object, ...]] = Counter()
    for record in sorted((each for each in intervals if each.measured), key=lambda each: each.start_ns):
        place = (record.step, record.group, record.phase)
        slots = found.setdefault(place, [])
        number = seen[record.source, place]
        seen[record.source, place] += 1
        if number == len(slots):
            slots.append(_slot(record))
        slots[number].add(record)
    return found


def _slot(record: Interval) -> ExportedSlot:
    end_ns = record.start_ns + record.length_ns
    return ExportedSlot(
        step=record.step, group=record.group, phase=record.phase, start_ns=record.start_ns, end_ns=end_ns
    )


def _add(slot: ExportedSlot, line: HlogLine) -> None:
    found = Histogram()
    try:
        found.add_payload(line.payload, line.max_ns)
    except PayloadError:
        return
    slot.latencies.setdefault(Series(line.series), Histogram()).add(found)
