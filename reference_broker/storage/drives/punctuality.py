"""The due lengths of a modelled drive's operations, and their lateness. Pure.

An operation is *late* if it ended later than it should by more than a fifth of the usual length. The host of the model
chooses the usual length: the median, if the broker waits for each operation (:func:`median_ns`); or the length that
counts by time, if a sync is a chain of mostly short requests (:func:`weighty_ns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

LATE_SHARE: Final = 0.2
"""Share of the usual length by which an operation may end later than it should before it counts as late."""
_SUB_BITS: Final = 3
_LOOK_EVERY: Final = 64


class Times:
    """Durations counted by buckets of 12 %: 8 to each power of two."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ns = 0
        self._counts: Counter[int] = Counter()

    def add(self, duration_ns: int) -> None:
        """Count one duration, at least zero."""
        self.count += 1
        self.max_ns = max(self.max_ns, duration_ns)
        shift = max(0, duration_ns.bit_length() - 1 - _SUB_BITS)
        self._counts[(shift << _SUB_BITS) + (duration_ns >> shift)] += 1

    def quantile(self, part: float) -> int:
        """The upper end of the bucket with this quantile; 0 if nothing was counted."""
        return self._reached(part, lambda _end_ns: 1)

    def weighty(self, part: float) -> int:
        """The same, with each duration counted for as much as it lasted: of 99 of 1 us and one of 1 ms, 0.5 is 1 ms."""
        return self._reached(part, lambda end_ns: end_ns)

    def _reached(self, part: float, weight: Callable[[int], int]) -> int:
        ends = {key: self._end_ns(key) for key in sorted(self._counts)}
        wanted, seen = part * sum(self._counts[key] * weight(end) for key, end in ends.items()), 0
        for key, end_ns in ends.items():
            seen += self._counts[key] * weight(end_ns)
            if seen >= wanted:
                return end_ns
        return 0

    def _end_ns(self, key: int) -> int:
        shift = max(0, (key >> _SUB_BITS) - 1)
        return min(self.max_ns, (((key - (shift << _SUB_BITS)) + 1) << shift) - 1)


def median_ns(lengths: Times) -> int:
    """Half of the operations are longer."""
    return lengths.quantile(0.5)


def weighty_ns(lengths: Times) -> int:
    """Length with half of the total time in operations at least as long."""
    return lengths.weighty(0.5)


class BusyTime:
    """The time in which a drive has something to do, however much at once."""

    def __init__(self) -> None:
        self.ns = 0
        self._until_ns = 0

    def add(self, began_ns: int, over_ns: int) -> None:
        """An operation. Operations come in the order in which they begin."""
        self.ns += max(over_ns - max(began_ns, self._until_ns), 0)
        self._until_ns = max(over_ns, self._until_ns)


class Punctuality:
    """The operations of one drive since its profile was set: other lengths would judge them wrongly."""

    def __init__(self, usual_ns: Callable[[Times], int]) -> None:
        self._lengths, self._late = Times(), Times()
        self._usual_ns = usual_ns
        self._late_count = 0
        self._tolerated_ns = 0

    def add(self, length_ns: int, late_ns: int) -> None:
        """One operation that should have lasted ``length_ns``, and ended ``late_ns`` later."""
        self._lengths.add(length_ns)
        self._late.add(late_ns)
        if self._lengths.count % _LOOK_EVERY == 1:
            self._tolerated_ns = int(self._usual_ns(self._lengths) * LATE_SHARE)
        self._late_count += late_ns > self._tolerated_ns

    def figures(self) -> dict[str, int]:
        """As JSON: counts, the usual length, and percentiles."""
        return {
            "operations": self._lengths.count,
            "late": self._late_count,
            "usual_ns": self._usual_ns(self._lengths),
            "service_ns_p50": self._lengths.quantile(0.5),
            "service_ns_p99": self._lengths.quantile(0.99),
            "late_ns_p50": self._late.quantile(0.5),
            "late_ns_p99": self._late.quantile(0.99),
            "late_ns_max": self._late.max_ns,
        }
