"""The open-loop schedule: when each message should leave, fixed in advance, whatever the broker does.

Theory of operation. The number of messages that should have left by time ``t`` is a line of slope ``rate``, straight
between changes of rate. Each message has a place on that scale (:class:`Places`): message ``i`` stands at ``i`` when
they leave at equal distances, at the ``i``-th event of a Poisson process of rate 1, or where a trace has it
(:mod:`perftest.engine.schedule.arrivals`). A message is intended for the moment the line reaches its place. Nothing
that happens moves the line: a publisher that is held up finds its overdue messages with their old intended times and
sends them as fast as its window allows, and latency that is counted from the intended time shows the whole wait (no
coordinated omission). It never runs ahead: there is no credit for idle time, so apart from overdue messages no burst
can exceed the schedule.

A new rate bends the line at that moment, which may lie in the future: a change that is known in advance takes effect
exactly when it should, however late a timer is. What was due before stays due at its old time; the fraction of a
message that had accrued is kept. With a rate of 0 the line is flat: nothing is due until it rises again.

Invariants: intended times never decrease; ``due(now)`` never counts a message intended after ``now``; a message's
intended time is the same whenever and in whatever portion it is taken. Times are computed from the last bend, not
summed up, so there is no drift: the error stays below the double's resolution of the count.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

SECOND_NS: Final = 1_000_000_000
NEVER_NS: Final = 1 << 62
"""Later than any time; what a line that stays flat gives."""

Nanoseconds = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Places(Protocol):
    """Where the messages of a schedule stand, counted in messages: on average one a unit, and never decreasing."""

    def at(self, index: int) -> float:
        """The place of message ``index``."""

    def many(self, first: int, count: int) -> Floats:
        """The places of ``count`` messages from ``first`` on."""

    def first_from(self, place: float) -> int:
        """The first message at ``place`` or beyond."""

    def forget(self, index: int) -> None:
        """Messages before ``index`` will not be asked for again."""


class Even:
    """Message ``i`` stands at ``i``."""

    def at(self, index: int) -> float:
        """See :class:`Places`, also for the others."""
        return index

    def many(self, first: int, count: int) -> Floats:
        """``first``, ``first + 1`` ..."""
        return np.arange(first, first + count, dtype=np.float64)

    def first_from(self, place: float) -> int:
        """The next whole number."""
        return max(math.ceil(place), 0)

    def forget(self, index: int) -> None:
        """There is nothing to forget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """The line from ``start_ns`` on, where it stands at ``count`` messages (with fraction) and rises by ``rate`` a
    second. ``first`` is the first message whose time it tells."""

    start_ns: int
    count: float
    rate: float
    first: int
    places: Places

    def at(self, now_ns: int) -> float:
        """Messages that should have left by ``now_ns``."""
        return self.count + (now_ns - self.start_ns) * self.rate / SECOND_NS

    def intended_ns(self, index: int) -> int:
        """When message ``index`` should leave."""
        if not self.rate:
            return NEVER_NS
        return self.start_ns + max(math.ceil((self.places.at(index) - self.count) * SECOND_NS / self.rate), 0)

    def intended(self, first: int, count: int) -> Nanoseconds:
        """:meth:`intended_ns` of ``count`` messages from ``first`` on."""
        if not self.rate:
            return np.full(count, NEVER_NS, np.int64)
        offsets = self.places.many(first, count) - self.count
        return np.maximum(np.ceil(offsets * SECOND_NS / self.rate), 0).astype(np.int64) + self.start_ns

    def first_at(self, now_ns: int) -> int:
        """The first message whose intended time is ``now_ns`` or later."""
        if now_ns <= self.start_ns or not self.rate:
            return self.first
        index = max(self.places.first_from(self.at(now_ns)), self.first)
        while index > self.first and self.intended_ns(index - 1) >= now_ns:
            index -= 1
        while self.intended_ns(index) < now_ns:
            index += 1
        return index


class Schedule:
    """The intended times of one publisher. ``rate`` is messages per second; the line begins at ``start_ns``, which is
    when message 0 is due if it stands at 0."""

    def __init__(self, *, rate: float, start_ns: int, places: Places | None = None) -> None:
        _check(rate)
        self.taken = 0
        self._next_ns: int | None = None
        self._places = places or Even()
        self._pieces = deque([_Piece(start_ns=start_ns, count=0.0, rate=rate, first=0, places=self._places)])

    @property
    def rate(self) -> float:
        """Messages per second of the line where the next message stands."""
        return self._pieces[0].rate

    def due(self, now_ns: int) -> int:
        """How many messages are due at ``now_ns`` and not taken yet."""
        return max(self.planned(now_ns) - self.taken, 0) if self.next_ns() <= now_ns else 0

    def planned(self, now_ns: int) -> int:
        """How many messages the schedule has asked for up to and including ``now_ns``, taken or not."""
        pieces = self._pieces
        if len(pieces) == 1:
            return pieces[0].first_at(now_ns + 1)
        planned = pieces[0].first_at(now_ns + 1)
        for before, piece in zip(pieces, list(pieces)[1:], strict=False):
            if piece.start_ns > now_ns:
                return min(before.first_at(now_ns + 1), piece.first)
            planned = piece.first_at(now_ns + 1)
        return planned

    def next_ns(self) -> int:
        """The intended time of the next message to take; in the past when it is overdue, :data:`NEVER_NS` if there is
        none as things are."""
        if self._next_ns is None:
            self._drop_finished()
            self._next_ns = self._pieces[0].intended_ns(self.taken)
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
            here = min(count, self._pieces[1].first - self.taken) if len(self._pieces) > 1 else count
            parts.append(self._pieces[0].intended(self.taken, here))
            self.taken += here
            count -= here
        self.skip(0)
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def skip(self, count: int) -> None:
        """Count the next ``count`` messages as taken, without sending them."""
        self.taken += count
        self._next_ns = None
        self._places.forget(self.taken)

    def change(self, *, rate: float, now_ns: int) -> None:
        """From ``now_ns`` on the line rises by ``rate``; what was due before is due as it was. A time in the future is
        kept; one before an earlier change counts as that."""
        _check(rate)
        last = self._pieces[-1]
        now_ns = max(now_ns, last.start_ns)
        first = max(last.first_at(now_ns), self.taken)
        count = min(max(last.at(now_ns), last.count), max(self._places.at(first), last.count))
        self._next_ns = None
        self._pieces.append(_Piece(start_ns=now_ns, count=count, rate=rate, first=first, places=self._places))
        self._drop_finished()

    def _drop_finished(self) -> None:
        pieces = self._pieces
        while len(pieces) > 1 and self.taken >= pieces[1].first:
            pieces.popleft()


def _check(rate: float) -> None:
    if not (rate >= 0 and math.isfinite(rate)):
        raise ValueError(f"a rate of {rate} messages per second makes no schedule; without a rate there is none")
