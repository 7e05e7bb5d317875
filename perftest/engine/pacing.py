"""The open-loop schedule: when each message should leave, fixed in advance, whatever the broker does.

Theory of operation. The number of messages that should have left by time ``t`` is a straight line of slope ``rate``;
message
``i`` is intended for the moment the line reaches ``i``. Nothing that happens moves the line: a publisher that is held
up finds its overdue messages with their old intended times and sends them as fast as its window allows, and latency
that is counted from the intended time shows the whole wait (no coordinated omission). It never runs ahead: there is no
credit for idle time, so apart from overdue messages no burst can exceed the schedule.

A new rate bends the line at that moment. What was due before stays due at its old time; the fraction of a message that
had accrued is kept.

Invariants: intended times never decrease; ``due(now)`` never counts a message intended after ``now``; a message's
intended time is the same whenever and in whatever portion it is taken. Times are computed from the last bend, not
summed up, so there is no drift: the error stays below the double's resolution of the count.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SECOND_NS = 1_000_000_000

Nanoseconds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """The line from ``start_ns`` on, where it stands at ``count`` messages (with fraction) and rises by ``rate`` a
    second."""

    start_ns: int
    count: float
    rate: float

    def at(self, now_ns: int) -> float:
        """Messages that should have left by ``now_ns``."""
        return self.count + (now_ns - self.start_ns) * self.rate / SECOND_NS

    def intended_ns(self, index: int) -> int:
        """When message ``index`` should leave."""
        return self.start_ns + math.ceil((index - self.count) * SECOND_NS / self.rate)

    def first_at(self, now_ns: int) -> int:
        """The first message whose intended time is ``now_ns`` or later."""
        index = max(math.ceil(self.at(now_ns)), math.ceil(self.count))
        while index > self.count and self.intended_ns(index - 1) >= now_ns and index - 1 >= self.count:
            index -= 1
        while self.intended_ns(index) < now_ns:
            index += 1
        return index


class Schedule:
    """The intended times of one publisher. ``rate`` is messages per second, above 0; message 0 is due at
    ``start_ns``."""

    def __init__(self, *, rate: float, start_ns: int) -> None:
        _check(rate)
        self.taken = 0
        self._pieces = deque([_Piece(start_ns=start_ns, count=0.0, rate=rate)])
        self._ends: deque[int] = deque()

    def due(self, now_ns: int) -> int:
        """How many messages are due at ``now_ns`` and not taken yet."""
        return max(self.planned(now_ns) - self.taken, 0)

    def planned(self, now_ns: int) -> int:
        """How many messages the schedule has asked for up to and including ``now_ns``, taken or not."""
        last = self._pieces[-1]
        return max(last.first_at(now_ns + 1), self._ends[-1] if self._ends else 0)

    def next_ns(self) -> int:
        """The intended time of the next message to take; in the past when it is overdue."""
        self._drop_finished()
        return self._pieces[0].intended_ns(self.taken)

    def take(self, count: int) -> Nanoseconds:
        """The intended times of the next ``count`` messages, which count as sent from now on."""
        parts = []
        while count > 0:
            self._drop_finished()
            piece = self._pieces[0]
            here = min(count, self._ends[0] - self.taken) if self._ends else count
            parts.append(self._times(piece, here))
            self.taken += here
            count -= here
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def change(self, *, rate: float, now_ns: int) -> None:
        """From ``now_ns`` on the line rises by ``rate``; what was due before is due as it was."""
        _check(rate)
        last = self._pieces[-1]
        now_ns = max(now_ns, last.start_ns)
        end = max(last.first_at(now_ns), self._ends[-1] if self._ends else 0, math.ceil(last.count))
        count = min(max(last.at(now_ns), last.count), float(end))
        self._pieces.append(_Piece(start_ns=now_ns, count=count, rate=rate))
        self._ends.append(end)
        self._drop_finished()

    def _times(self, piece: _Piece, count: int) -> Nanoseconds:
        if count == 1:
            return np.array([piece.intended_ns(self.taken)], np.int64)
        offsets = np.arange(self.taken, self.taken + count, dtype=np.float64) - piece.count
        return np.ceil(offsets * SECOND_NS / piece.rate).astype(np.int64) + piece.start_ns

    def _drop_finished(self) -> None:
        while self._ends and self.taken >= self._ends[0]:
            self._pieces.popleft()
            self._ends.popleft()


def _check(rate: float) -> None:
    if not (rate > 0 and math.isfinite(rate)):
        raise ValueError(f"a rate of {rate} messages per second makes no schedule; without a rate there is none")
