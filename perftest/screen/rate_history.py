"""The last minute of a run, second by second, for averages over 5 s and for rows of bars."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from perftest.metrics.interval import Series
from perftest.results.summary import RATES
from perftest.screen.interval_merger import MergedInterval

HISTORY_S: Final = 60
BAR_NS: Final = 1_000_000_000
"""Shortest time that a bar stands for: intervals may be shorter."""
_SLOTS_MAX: Final = 2 * HISTORY_S * 10


@dataclass(frozen=True, slots=True)
class Slot:
    """An interval of the whole run without its histograms, so that a minute takes only a few kilobytes."""

    end_ns: int
    length_ns: int
    counts: tuple[int, ...]
    p99_ns: dict[Series, int]


class RateHistory:
    """Takes the intervals of all workers together, and keeps the last 60 s."""

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque(maxlen=_SLOTS_MAX)

    def add(self, merged: MergedInterval) -> None:
        """Keep an interval; intervals that ended a minute before it are dropped."""
        record = merged.record
        counts = tuple(int(getattr(record, name)) for name in RATES)
        p99_ns = {series: histogram.capped_percentiles_ns((99.0,))[0] for series, histogram in merged.latencies.items()}
        self._slots.append(Slot(record.start_ns + record.length_ns, record.length_ns, counts, p99_ns))
        while self._slots[0].end_ns <= self._slots[-1].end_ns - HISTORY_S * BAR_NS and len(self._slots) > 1:
            self._slots.popleft()

    def rate(self, counter: str, over_s: float) -> float:
        """Messages per second over the last ``over_s`` seconds, or over the shorter time that is known."""
        position = RATES.index(counter)
        since_ns = (self._slots[-1].end_ns if self._slots else 0) - round(over_s * 1e9)
        slots = [slot for slot in self._slots if slot.end_ns > since_ns]
        return _rate(slots, position)

    def rates(self, counter: str) -> list[float]:
        """A rate for each bar, the newest last."""
        position = RATES.index(counter)
        return [_rate(slots, position) for slots in self._bars()]

    def p99_ns(self, series: Series) -> list[float]:
        """The highest p99 of an interval for each bar, the newest last; 0 where nothing was measured."""
        return [max(slot.p99_ns.get(series, 0) for slot in slots) for slots in self._bars()]

    def _bars(self) -> list[list[Slot]]:
        """The slots by the second they ended in, counted back from the last one's end."""
        found: dict[int, list[Slot]] = {}
        for slot in reversed(self._slots):
            found.setdefault((self._slots[-1].end_ns - slot.end_ns) // BAR_NS, []).append(slot)
        return [found[bar] for bar in sorted(found, reverse=True)]


def _rate(slots: Iterable[Slot], position: int) -> float:
    length_ns = count = 0
    for slot in slots:
        length_ns += slot.length_ns
        count += slot.counts[position]
    return count * 1e9 / length_ns if length_ns else 0.0
