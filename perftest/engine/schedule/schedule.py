"""The schedule of one publisher through a run: its begin, changes and end, and the number of messages that it asked
for.

Without a rate there is no schedule: the publisher sends as much as its window allows, and every message that was sent
counts as intended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perftest.engine.schedule.arrivals import ArrivalTimes
from perftest.engine.schedule.cycle import CycleTimes
from perftest.engine.schedule.intended_times import NEVER_NS, SECOND_NS, Line, Nanoseconds

LATE_NS: Final = 2_000_000
"""Lateness above which a publisher that does not catch up drops a message, unless the mean distance between two
messages is longer. With a smaller limit it would drop messages that only the timers of the operating system make
late."""


class Schedule:
    """The schedule of one publisher.

    ``arrivals`` makes the arrivals of a fresh line. ``rates`` is a cycle of rates; with a cycle no other rate counts.
    Without ``catch_up`` overdue messages are dropped.
    """

    def __init__(
        self, arrivals: Callable[[], ArrivalTimes], *, rates: CycleTimes | None = None, catch_up: bool = True
    ) -> None:
        self._new_arrivals = arrivals
        self._rates = rates
        self._change = 0
        self._catch_up = catch_up
        self._line: Line | None = None
        self._counted = 0
        self._intended = 0
        self._dropped = 0

    @property
    def running(self) -> bool:
        """Whether there is a schedule."""
        return self._line is not None

    @property
    def rate(self) -> float:
        """Messages per second now; 0 when idle or without a schedule."""
        return self._line.rate if self._line is not None else 0.0

    def start(self, *, rate: float | None, now_ns: int, phase_ns: int = 0) -> None:
        """Begin ``phase_ns`` after ``now_ns``. Without a rate and without a cycle there is no schedule."""
        if self._rates is not None:
            self._change = self._rates.number(now_ns)
            rate = self._rates.value(self._change)
        if rate is None:
            return
        self._line = Line(rate=rate, start_ns=now_ns + phase_ns, arrivals=self._new_arrivals())
        self._counted = 0
        if self._rates is not None:
            self._bend(self._change + 1)

    def change(self, *, rate: float | None, now_ns: int, phase_ns: int = 0) -> None:
        """Go on at ``rate`` from now on; None ends the schedule. A schedule that only begins now begins after
        ``phase_ns``. A cycle is not disturbed."""
        if self._rates is not None:
            return
        if rate is None:
            self.stop(now_ns)
        elif self._line is None:
            self.start(rate=rate, now_ns=now_ns, phase_ns=phase_ns)
        else:
            self._line.change(rate=rate, now_ns=now_ns)

    def stop(self, now_ns: int) -> None:
        """End the schedule: nothing is intended after ``now_ns``."""
        self._count(now_ns)
        self._line = None

    def finish(self) -> None:
        """End the schedule after the last message that was taken."""
        if self._line is not None:
            self._intended += self._line.taken - self._counted
            self._line = None

    def due(self, now_ns: int) -> int:
        """Number of messages that may leave now. Without ``catch_up`` late messages are dropped first."""
        assert self._line is not None
        if self._rates is not None:
            self._announce(now_ns)
        due = self._line.due(now_ns)
        if due and not self._catch_up:
            due -= self._drop_overdue(self._line, now_ns)
        return due

    def take(self, count: int) -> Nanoseconds | None:
        """The intended times of the next ``count`` messages, which leave now; None without a schedule."""
        if self._line is None:
            self._intended += count
            return None
        return self._line.take(count)

    def next_ns(self) -> int:
        """When to look again: in the past when a message is overdue, far in the future without a schedule."""
        if self._line is None:
            return NEVER_NS
        next_ns = self._line.next_ns()
        return next_ns if self._rates is None else min(next_ns, self._rates.at_ns(self._change + 1))

    def intended_since_cut(self, now_ns: int) -> int:
        """Messages that the schedule asked for from the last call up to ``now_ns``; without a schedule the messages
        that were sent."""
        self._count(now_ns)
        intended, self._intended = self._intended, 0
        return intended

    def dropped_since_cut(self) -> int:
        """Messages that were dropped since the last call because they were too late."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _count(self, now_ns: int) -> None:
        if self._line is not None:
            if self._rates is not None:
                self._announce(now_ns)
            planned = self._line.planned(now_ns)
            self._intended += planned - self._counted
            self._counted = planned

    def _announce(self, now_ns: int) -> None:
        """Bend the line for the next change of the cycle, before it comes."""
        assert self._rates is not None
        while self._rates.at_ns(self._change + 1) <= now_ns:
            self._change += 1
            self._bend(self._change + 1)

    def _bend(self, change: int) -> None:
        assert self._rates is not None and self._line is not None
        self._line.change(rate=self._rates.value(change), now_ns=self._rates.at_ns(change))

    def _drop_overdue(self, line: Line, now_ns: int) -> int:
        patience_ns = max(LATE_NS, round(SECOND_NS / line.rate) if line.rate else 0)
        overdue = line.due(now_ns - patience_ns)
        line.skip(overdue)
        self._dropped += overdue
        return overdue
