"""Settings that take turns for ever (PerfTest's ``-vr``, ``-vs``, ``-vl``): which value holds when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Protocol

from perftest.engine.schedule.intended_times import SECOND_NS
from perftest.spec.behaviour import Cycle


class CycleTimes:
    """A cycle laid over time, beginning at ``start_ns``.

    Changes are counted from 0, which is the start itself. The time of a change is computed from the start, so it does
    not drift.
    """

    def __init__(self, cycle: Cycle, *, start_ns: int) -> None:
        if not cycle or any(not seconds > 0 for _, seconds in cycle):
            raise ValueError(f"{cycle} is no cycle: each value holds for a time above 0")
        self._values = [value for value, _ in cycle]
        self._ends = [round(end * SECOND_NS) for end in accumulate(seconds for _, seconds in cycle)]
        self._start_ns = start_ns

    def value(self, change: int) -> float:
        """The value that holds from change number ``change`` on."""
        return self._values[change % len(self._values)]

    def at_ns(self, change: int) -> int:
        """When change number ``change`` happens."""
        rounds, within = divmod(change, len(self._values))
        return self._start_ns + rounds * self._ends[-1] + (self._ends[within - 1] if within else 0)

    def number(self, now_ns: int) -> int:
        """The number of the last change up to ``now_ns``; 0 also before the start."""
        rounds, within = divmod(max(now_ns - self._start_ns, 0), self._ends[-1])
        return rounds * len(self._values) + sum(1 for end in self._ends if end <= within)


class Timers(Protocol):
    """The timers of a worker."""

    def at(self, when_ns: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, at ``when_ns`` of the run clock."""


class CycleTimer:
    """Calls ``on_change`` with the value that holds and the number of its change, until :meth:`stop`.

    The first call comes at once, each other at a change. A change that is missed because the worker was held up is left
    out.
    """

    def __init__(
        self, times: CycleTimes, on_change: Callable[[float, int], None], *, clock: Callable[[], int], timers: Timers
    ) -> None:
        self._times = times
        self._on_change = on_change
        self._clock = clock
        self._timers = timers
        self._stopped = False
        self._change()

    def stop(self) -> None:
        """No more calls."""
        self._stopped = True

    def _change(self) -> None:
        if self._stopped:
            return
        change = self._times.number(self._clock())
        self._on_change(self._times.value(change), change)
        self._timers.at(self._times.at_ns(change + 1), self._change)
