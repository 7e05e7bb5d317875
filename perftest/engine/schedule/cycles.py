"""Settings that take turns for ever (PerfTest's ``-vr``, ``-vs``, ``-vl``): which value holds when."""

from __future__ import annotations

from itertools import accumulate

from perftest.engine.schedule.pacing import SECOND_NS
from perftest.spec.behaviour import Cycle


class Turns:
    """A cycle laid over time, beginning at ``start_ns``. Changes are counted from 0, the start itself; their times are
    multiples of the cycle's length and what stands in it, so they do not drift."""

    def __init__(self, cycle: Cycle, *, start_ns: int) -> None:
        if not cycle or any(not seconds > 0 for _, seconds in cycle):
            raise ValueError(f"{cycle} is no cycle: each value holds for a time above 0")
        self._values = [value for value, _ in cycle]
        self._ends = [round(end * SECOND_NS) for end in accumulate(seconds for _, seconds in cycle)]
        self._start_ns = start_ns

    def value(self, change: int) -> float:
        """What holds from change number ``change`` on."""
        return self._values[change % len(self._values)]

    def at_ns(self, change: int) -> int:
        """When change number ``change`` happens."""
        rounds, within = divmod(change, len(self._values))
        return self._start_ns + rounds * self._ends[-1] + (self._ends[within - 1] if within else 0)

    def number(self, now_ns: int) -> int:
        """The number of the last change up to ``now_ns``; 0 also before the start."""
        rounds, within = divmod(max(now_ns - self._start_ns, 0), self._ends[-1])
        return rounds * len(self._values) + sum(1 for end in self._ends if end <= within)
