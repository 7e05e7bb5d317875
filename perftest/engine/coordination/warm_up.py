"""The rule that ends a warm-up: the rates of its last intervals do not change any more. Pure.

The last intervals are compared with those before, so a rate may swing and may not climb or fall. Chance alone makes one
interval of few messages differ from the next: three standard deviations of a count are no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

from perftest.metrics.interval import Interval

COMPARED: Final = 2
"""Number of intervals on each side of the comparison."""
CHANGE_MAX: Final = 0.05
"""Part of the greater rate by which the two sides may differ."""
_DEVIATIONS: Final = 3.0


class WarmUpSlot(NamedTuple):
    """The messages of all workers in one interval of a warm-up, which lasted ``length_ns``."""

    length_ns: int
    published: int
    confirmed: int
    delivered: int

    @classmethod
    def of(cls, records: Iterable[Interval]) -> WarmUpSlot:
        """The sum of the intervals that all workers ended at the same time."""
        found = list(records)
        return cls(
            max((each.length_ns for each in found), default=0),
            sum(each.published for each in found),
            sum(each.confirmed for each in found),
            sum(each.delivered for each in found),
        )


@dataclass(frozen=True, slots=True)
class WarmUpRule:
    """Lengthen each warm-up until its rates are steady, by ``more_s`` seconds at most."""

    more_s: float

    def is_met(self, slots: Sequence[WarmUpSlot]) -> bool:
        """Whether the rates of these intervals are steady at their end."""
        timed = [slot for slot in slots if slot.length_ns]
        before, after = timed[-2 * COMPARED : -COMPARED], timed[-COMPARED:]
        if len(before) < COMPARED:
            return False
        totals = [[sum(values) for values in zip(*side, strict=True)] for side in (before, after)]
        (before_ns, *old), (after_ns, *new) = totals
        return all(_are_alike(a, before_ns, b, after_ns) for a, b in zip(old, new, strict=True))


def _are_alike(before: int, before_ns: int, after: int, after_ns: int) -> bool:
    """Whether two counts in two times are of one rate."""
    scaled = after * before_ns / after_ns
    by_chance = _DEVIATIONS * sqrt(before + scaled * before_ns / after_ns)
    return abs(before - scaled) <= max(CHANGE_MAX * max(before, scaled), by_chance)
