"""The line of intended times: when each message should leave, fixed in advance, whatever the broker does.

Theory of operation. The number of messages that should have left by time ``t`` is a line of slope ``rate``, straight
between changes of rate. Each message has a position on that line (:mod:`perftest.engine.schedule.arrivals`). A message
is intended for the moment at which the line reaches its position. No event moves the line. A delayed publisher finds
its overdue messages with their old intended times and sends them as fast as its window allows. Latency that is counted
from the intended time shows the whole wait (no coordinated omission). The line never runs ahead: idle time gives no
credit, so only a burst of overdue messages can exceed the schedule.

A new rate bends the line at that moment, which may lie in the future. A change that is known in advance takes effect
exactly when it should, however late a timer is. A message that was due before the bend stays due at its old time, and
the fraction of a message that had accrued is kept. With a rate of 0 the line is flat: nothing is due until the line
rises again.

Invariants: intended times never decrease. ``due(now)`` never counts a message that is intended after ``now``. The
intended time of a message depends neither on when the message is taken nor on the number of others taken with it. Times
are computed from the last bend and not summed up, so there is no drift: the error stays below the double's resolution
of the count.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from perftest.engine.schedule.arrivals import ArrivalTimes, FixedArrivals

SECOND_NS: Final = 1_000_000_000
NEVER_NS: Final = 1 << 62
"""Intended time of a message that a flat line never reaches: later than any time."""

Nanoseconds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A straight part of the line, from ``start_ns`` on.

    It begins at ``count`` messages (with fraction) and rises by ``rate`` a second. ``first`` is the first message whose
    time it tells.
    """

    start_ns: int
    count: float
    rate: float
    first: int
    arrivals: ArrivalTimes

    def at(self, now_ns: int) -> float:
        """Messages that should have left by ``now_ns``."""
        return self.count + (now_ns - self.start_ns) * self.rate / SECOND_NS

    def intended_ns(self, index: int) -> int:
        """When message ``index`` should leave."""
        if not self.rate:
            return NEVER_NS
        return self.start_ns + max(math.ceil((self.arrivals.at(index) - self.count) * SECOND_NS / self.rate), 0)

    def intended(self, first: int, count: int) -> Nanoseconds:
        """:meth:`intended_ns` of ``count`` messages from ``first`` on."""
        if not self.rate:
            return np.full(count, NEVER_NS, np.int64)
        offsets = self.arrivals.many(first, count) - self.count
        return np.maximum(np.ceil(offsets * SECOND_NS / self.rate), 0).astype(np.int64) + self.start_ns

    def first_at(self, now_ns: int) -> int:
        """The first message whose intended time is ``now_ns`` or later."""
        if now_ns <= self.start_ns or not self.rate:
            return self.first
        index = max(self.arrivals.first_from(self.at(now_ns)), self.first)
        while index > self.first and self.intended_ns(index - 1) >= now_ns:
            index -= 1
        while self.intended_ns(index) < now_ns:
            index += 1
        return index


class Line:
    """The intended times of one publisher's messages.

    ``rate`` is messages per second. The line begins at ``start_ns``: a message at position 0 is due then.
    """

    def __init__(self, *, rate: float, start_ns: int, arrivals: ArrivalTimes | None = None) -> None:
        _check(rate)
        self.taken = 0
        self._next_ns: int | None = None
        self._arrivals = arrivals or FixedArrivals()
        self._segments = deque([_Segment(start_ns=start_ns, count=0.0, rate=rate, first=0, arrivals=self._arrivals)])

    @property
    def rate(self) -> float:
        """Messages per second of the line where the next message stands."""
        return self._segments[0].rate

    def due(self, now_ns: int) -> int:
        """Number of messages that are due at ``now_ns`` and not taken yet."""
        return max(self.planned(now_ns) - self.taken, 0) if self.next_ns() <= now_ns else 0

    def planned(self, now_ns: int) -> int:
        """Number of messages intended up to and including ``now_ns``, taken or not."""
        segments = self._segments
        if len(segments) == 1:
            return segments[0].first_at(now_ns + 1)
        planned = segments[0].first_at(now_ns + 1)
        for before, segment in zip(segments, list(segments)[1:], strict=False):
            if segment.start_ns > now_ns:
                return min(before.first_at(now_ns + 1), segment.first)
            planned = segment.first_at(now_ns + 1)
        return planned

    def next_ns(self) -> int:
        """The intended time of the next message to take: in the past when the message is overdue, :data:`NEVER_NS`
        while the line is flat."""
        if self._next_ns is None:
            self._drop_finished()
            self._next_ns = self._segments[0].intended_ns(self.taken)
        return self._next_ns

    def take(self, count: int) -> Nanoseconds:
        """The intended times of the next ``count`` messages, which count as sent from now on."""
        if count == 1:
            times = np.array([self.next_ns()], np.int64)
            self.skip(1)
            return times
        parts = []
        while count > 0:
            self._drop_finished()
            here = min(count, self._segments[1].first - self.taken) if len(self._segments) > 1 else count
            parts.append(self._segments[0].intended(self.taken, here))
            self.taken += here
            count -= here
        self.skip(0)
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def skip(self, count: int) -> None:
        """Count the next ``count`` messages as taken, without sending them."""
        self.taken += count
        self._next_ns = None
        self._arrivals.forget(self.taken)

    def change(self, *, rate: float, now_ns: int) -> None:
        """Let the line rise by ``rate`` from ``now_ns`` on. Messages that were due before keep their times.

        ``now_ns`` may lie in the future. A time before an earlier change counts as the time of that change.
        """
        _check(rate)
        last = self._segments[-1]
        now_ns = max(now_ns, last.start_ns)
        first = max(last.first_at(now_ns), self.taken)
        count = min(max(last.at(now_ns), last.count), max(self._arrivals.at(first), last.count))
        self._next_ns = None
        self._segments.append(_Segment(start_ns=now_ns, count=count, rate=rate, first=first, arrivals=self._arrivals))
        self._drop_finished()

    def _drop_finished(self) -> None:
        segments = self._segments
        while len(segments) > 1 and self.taken >= segments[1].first:
            segments.popleft()


def _check(rate: float) -> None:
    if not (rate >= 0 and math.isfinite(rate)):
        raise ValueError(f"a rate of {rate} messages per second makes no schedule; without a rate there is none")
