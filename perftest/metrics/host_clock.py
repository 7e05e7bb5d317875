"""The offset of another host's clock, from messages that go there and back, with a bound on the error.

Theory of operation. An exchange has four times: the clock of reference when the request left, the host's clock when the
request came and when the answer left, and the clock of reference when the answer came. A message takes some unknown
time. So an exchange says only that the offset (reference minus host) was at least ``sent - host_received`` when the
request came, and at most ``received - host_sent`` when the answer left. That is true however long each way takes, and
however much the two ways differ.

The offset of two clocks that run at steady rates is a straight line. All lines that every exchange allows are a convex
polygon (their offset, their rate). At each time the middle between the highest and the lowest of these lines is the
estimate, and half their distance is the bound. Exchanges with the least delay decide; the others change nothing, so
none need be picked. (A. Duda, G. Harrus, Y. Haddad, G. Bernard: Estimating global time in distributed systems, 1987.)

Rates are not quite steady. A rate may differ from its line by :data:`WANDER`, so an exchange counts for less, the older
it is. The bound is never less than half of the least round trip: a polygon that is nearly empty would look like
certainty, and may be the first sign of a change.

Where no line fits, the clock has changed its rate (NTP slews it) or stepped (a virtual machine was stopped). The clock
says so (:class:`ClockBreak`). From there on the line goes through the exchanges since the change. Before that, each
time goes only by the exchanges around it and a rate of at most :data:`RATE_MAX`. Across a step only the two sides are
known: the bound there holds both.

A change of rate is seen only when exchanges contradict the line. Until then the estimate may be off by up to the round
trip of the best exchange nearby, and its allowance: that holds without any assumption, and is about twice the bound.

A model of 240 exchanges takes 0.23 ms on a 2-core machine (``python -m tests.bench.host_clock``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from perftest.metrics.clock_model import ClockModel

RATE_MAX: Final = 500e-6
"""Largest difference in rate between two clocks: the kernel slews no clock faster."""
WANDER: Final = 5e-6
"""Largest difference between the rate of a clock and its line. A crystal that warms up by some degrees changes by less
within :data:`WINDOW_NS`."""
WINDOW_NS: Final = 60_000_000_000
"""Age beyond which an exchange adds nothing to the newer ones."""
EXCHANGES_MAX: Final = 600
"""Largest number of exchanges that are kept."""
RESOLUTION_NS: Final = 2
"""Resolution of a clock: it is read in whole nanoseconds, rounded down."""

ROOM: Final = 0.5
"""Smallest room of the lines through the newest exchanges after a break, as a part of the best exchange's uncertainty.
With less room, exchanges from before the break would be among them."""

SAME_CHANGE_NS: Final = 10_000_000_000
"""Changes of rate that are seen within this time of each other are one change."""

_ENOUGH_NS: Final = 1e-3
"""Lines are compared with this tolerance; the bound is greater by more than that."""

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]
"""Rows of :class:`ClockExchange`."""
_SENT, _HOST_RECEIVED, _HOST_SENT, _RECEIVED = range(4)


class ClockExchange(NamedTuple):
    """A message to a host and back, in nanoseconds of two clocks: of reference (outer two) and of the host."""

    sent_ns: int
    host_received_ns: int
    host_sent_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """The time that both ways took together."""
        return (self.received_ns - self.sent_ns) - (self.host_sent_ns - self.host_received_ns)

    @property
    def offsets_ns(self) -> tuple[int, int]:
        """The least and the greatest offset that the exchange allows, at its host times."""
        least, greatest = self.sent_ns - self.host_received_ns, self.received_ns - self.host_sent_ns
        return least - RESOLUTION_NS, greatest + RESOLUTION_NS

    @property
    def is_possible(self) -> bool:
        """Whether each clock went forward."""
        return self.sent_ns <= self.received_ns and self.host_received_ns <= self.host_sent_ns


class BreakKind(StrEnum):
    """An event of a clock that no straight line fits: another RATE from now on, or a STEP."""

    RATE = "rate"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class ClockBreak:
    """A clock did something between two of its own times; ``change_ns`` is the size of a step, 0 for a rate.

    A change of rate is seen once it exceeds the uncertainty of the exchanges, so it may have begun earlier.
    """

    kind: BreakKind
    after_ns: int
    before_ns: int
    change_ns: int = 0


class HostClock:
    """The clock of one host. Takes exchanges in the order of the host's clock, gives models."""

    def __init__(self) -> None:
        self.breaks: list[ClockBreak] = []
        self._rows = np.empty((2 * EXCHANGES_MAX, len(ClockExchange._fields)), np.int64)
        self._first = self._end = 0
        self._steady_since_ns = 0
        self._decisive = _Decisive()

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def last_ns(self) -> int:
        """The host's time of the last exchange."""
        return int(self._rows[self._end - 1, _HOST_SENT])

    @property
    def round_trip_ns(self) -> int:
        """The least round trip of the exchanges that count."""
        rows = self._rows[self._first : self._end]
        ways = rows[:, _RECEIVED] - rows[:, _SENT] - rows[:, _HOST_SENT] + rows[:, _HOST_RECEIVED]
        return int(ways.min())

    def add(self, exchange: ClockExchange) -> None:
        """Take an exchange. An exchange in which a clock went backwards is left out."""
        if not exchange.is_possible:
            return
        if len(self) and exchange.host_received_ns < self._rows[self._end - 1, _HOST_SENT]:
            self._forget(exchange)
        if self._end == len(self._rows):
            kept = self._rows[self._first : self._end].copy()
            self._first, self._end = 0, len(kept)
            self._rows[: len(kept)] = kept
        self._rows[self._end] = exchange
        self._end += 1
        while len(self) > EXCHANGES_MAX or self._rows[self._first, _HOST_SENT] < exchange.host_sent_ns - WINDOW_NS:
            self._first += 1

    def model(self, first_ns: int, last_ns: int) -> ClockModel:
        """The model that the exchanges give for the time from ``first_ns`` to ``last_ns`` of the host's clock.

        The model is good for other times as well, only its bound is greater there. Raises ``ValueError`` without any
        exchange.
        """
        if not len(self):
            raise ValueError("nothing is known of a clock without an exchange")
        rows = self._rows[self._first : self._end]
        steady = self._steady(rows)
        line = _line(rows[steady:], first_ns, last_ns, decisive=self._decisive)
        if line is None:
            self._note_break(rows[steady:], first_ns, last_ns)
            steady = self._steady(rows)
            line = _line(rows[steady:], first_ns, last_ns)
            assert line is not None, "a line fits the exchanges since the break"
        return _joined(nearest(rows[: steady + 1]), line) if self.breaks else line

    def _steady(self, rows: Times) -> int:
        """The first of these exchanges since the last break."""
        return int(np.argmax(rows[:, _HOST_RECEIVED] >= self._steady_since_ns)) if self.breaks else 0

    def _note_break(self, rows: Times, first_ns: int, last_ns: int) -> None:
        """Find the oldest exchange after the break: a line fits this and all later exchanges, and leaves room."""
        broken, whole = 0, len(rows) - 1
        while whole - broken > 1:
            middle = (broken + whole) // 2
            line = _line(rows[middle:], first_ns, last_ns, roomy=True)
            broken, whole = (middle, whole) if line is None else (broken, middle)
        before, after = ClockExchange(*rows[whole - 1].tolist()), ClockExchange(*rows[whole].tolist())
        steps = [change for at, change in _steps(rows) if at == whole]
        kind = BreakKind.STEP if steps else BreakKind.RATE
        after_ns = before.host_sent_ns
        same = self.breaks[-1:]
        if same and kind is same[0].kind is BreakKind.RATE and after_ns - same[0].before_ns < SAME_CHANGE_NS:
            after_ns = self.breaks.pop().after_ns
        self.breaks.append(ClockBreak(kind, after_ns, after.host_received_ns, sum(steps)))
        self._steady_since_ns = after.host_received_ns

    def _forget(self, exchange: ClockExchange) -> None:
        """The clock was set back, so its times are no longer unique: only the new ones count."""
        last = ClockExchange(*self._rows[self._end - 1].tolist())
        change_ns = (sum(exchange.offsets_ns) - sum(last.offsets_ns)) // 2
        self.breaks.append(ClockBreak(BreakKind.STEP, last.host_sent_ns, exchange.host_received_ns, change_ns))
        self._first = self._end = 0
        self._steady_since_ns = exchange.host_received_ns


class _Decisive:
    """The exchanges that the lines of the last model touched, by host time: the next model mostly touches the same. To
    begin with them halves the time for a model, and changes nothing else."""

    def __init__(self) -> None:
        self._low_ns: Times = np.empty(0, np.int64)
        self._high_ns: Times = np.empty(0, np.int64)

    def conditions(self, rows: Times) -> list[int]:
        """Their conditions, as :func:`_allowed` counts them. An exchange that is not there any more stands for the one
        after it, which does no harm."""
        last = len(rows) - 1
        low = np.minimum(np.searchsorted(rows[:, _HOST_RECEIVED], self._low_ns), last)
        high = np.minimum(np.searchsorted(rows[:, _HOST_SENT], self._high_ns), last)
        return [*low.tolist(), *(high + len(rows)).tolist()]

    def note(self, rows: Times, conditions: npt.NDArray[np.intp]) -> None:
        """Remember these for the next time."""
        self._low_ns = rows[conditions[conditions < len(rows)], _HOST_RECEIVED]
        self._high_ns = rows[conditions[conditions >= len(rows)] - len(rows), _HOST_SENT]


def _line(
    rows: Times, first_ns: int, last_ns: int, *, roomy: bool = False, decisive: _Decisive | None = None
) -> ClockModel | None:
    """The model of the lines that all exchanges allow, for a time of the host's clock.

    None if there is no line; with ``roomy`` also if the lines lie closer together than :data:`ROOM` of the best
    exchange's uncertainty.
    """
    first_ns, last_ns = min(first_ns, last_ns), max(first_ns, last_ns)
    origin, base = int(rows[-1, _HOST_RECEIVED]), int(rows[-1, _SENT] - rows[-1, _HOST_RECEIVED])
    at_received, at_sent = rows[:, _HOST_RECEIVED] - origin, rows[:, _HOST_SENT] - origin
    begin, end = first_ns - origin, last_ns - origin
    least = rows[:, _SENT] - rows[:, _HOST_RECEIVED] - base - RESOLUTION_NS
    greatest = rows[:, _RECEIVED] - rows[:, _HOST_SENT] - base + RESOLUTION_NS
    found = _allowed(
        at_received / 1e9,
        least - WANDER * _farthest(at_received, begin, end),
        at_sent / 1e9,
        greatest + WANDER * _farthest(at_sent, begin, end),
        decisive.conditions(rows) if decisive is not None else [],
    )
    if found is None:
        return None
    lines, touched = found
    if decisive is not None:
        decisive.note(rows, touched)
    knots = sorted({min(int(at_received[0]), begin), begin, end})
    values = lines[:, :1] + lines[:, 1:] * (np.array(knots) / 1e9)
    low, high = values.min(axis=0), values.max(axis=0)
    halves, open_ns = (high - low) / 2, float((greatest - least).min()) / 2
    if roomy and float(halves[-1]) < ROOM * open_ns:
        return None
    halves = np.maximum(halves, open_ns) + WANDER * np.maximum(begin - np.array(knots, np.float64), 0)
    slowest, fastest = float(lines[:, 1].min()) / 1e9, float(lines[:, 1].max()) / 1e9
    return ClockModel(
        knots_ns=tuple(knot + origin for knot in knots),
        offsets_ns=tuple(round(middle) + base for middle in ((low + high) / 2).tolist()),
        bounds_ns=tuple(int(half) + 3 for half in halves.tolist()),  # rounded up, and 1 ns for each rounded offset
        rate=(slowest + fastest) / 2,
        rate_bound=(fastest - slowest) / 2 + WANDER,
    )


def _farthest(times: npt.NDArray[np.int64], begin: int, end: int) -> npt.NDArray[np.int64]:
    return np.maximum(np.abs(times - begin), np.abs(times - end))


def _allowed(
    at_low: Floats, lowest: Floats, at_high: Floats, highest: Floats, first: Sequence[int]
) -> tuple[Floats, npt.NDArray[np.intp]] | None:
    """The corners of the polygon of all lines ``a + b * t`` that are nowhere below ``lowest`` or above ``highest``:
    rows of a (ns) and b (ns per second), with times in seconds; and the conditions that touch the polygon, those of
    ``lowest`` counted before those of ``highest``. None if there is no such line.

    Only a few conditions touch the polygon. So the polygon begins as a rectangle, which the conditions ``first`` cut.
    Then the condition that a corner violates most cuts it, until no condition is violated.
    """
    rate = RATE_MAX * 1e9
    reach = float(max(np.abs(at_low).max(), np.abs(at_high).max())) * rate
    floor, ceiling = float(lowest.min()) - reach - 1, float(highest.max()) + reach + 1
    corners = [(floor, -rate), (ceiling, -rate), (ceiling, rate), (floor, rate)]
    # Each condition is a row: the row times (a, b) is at least its number in ``least``.
    above = np.stack([np.ones(len(at_low)), at_low], axis=1)
    below = np.stack([np.ones(len(at_high)), at_high], axis=1)
    conditions, least = np.concatenate([above, -below]), np.concatenate([lowest, -highest])
    for one, at, so_much in zip(*conditions[first].T.tolist(), least[first].tolist(), strict=True):
        corners = _cut(corners, [so_much - one * a - at * b for a, b in corners])
    while corners:
        polygon = np.array(corners)
        missing = least[:, None] - conditions @ polygon.T
        worst, corner = divmod(int(missing.argmax()), len(corners))
        if missing[worst, corner] <= _ENOUGH_NS:
            return polygon, np.flatnonzero(missing.max(axis=1) >= -_ENOUGH_NS)
        corners = _cut(corners, missing[worst].tolist())
    return None


def _cut(corners: list[tuple[float, float]], missing: list[float]) -> list[tuple[float, float]]:
    """The part of a polygon where a condition holds; ``missing`` is how far each corner is from that."""
    kept = []
    for index, (corner, lack) in enumerate(zip(corners, missing, strict=True)):
        before, lack_before = corners[index - 1], missing[index - 1]
        if (lack <= 0) != (lack_before <= 0):
            part = lack_before / (lack_before - lack)
            kept.append((before[0] + (corner[0] - before[0]) * part, before[1] + (corner[1] - before[1]) * part))
        if lack <= 0:
            kept.append(corner)
    return kept


# Where no line fits


def nearest(rows: Times) -> ClockModel:
    """A model that trusts no line: each time goes by the exchanges around it and by :data:`RATE_MAX`.

    There is a knot at each exchange; at least one exchange is needed.
    """
    knots: list[int] = []
    offsets: list[int] = []
    bounds: list[int] = []
    starts = [0, *(at for at, _ in _steps(rows))]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        part = _between_steps(rows[start:end])
        if knots and part.knots_ns[0] > knots[-1] + 2:  # somewhere between, the clock stepped
            low = min(offsets[-1] - bounds[-1], part.offsets_ns[0] - part.bounds_ns[0])
            high = max(offsets[-1] + bounds[-1], part.offsets_ns[0] + part.bounds_ns[0])
            slack = round(RATE_MAX * (part.knots_ns[0] - knots[-1]))
            knots += [knots[-1] + 1, part.knots_ns[0] - 1]
            offsets += [(low + high) // 2] * 2
            bounds += [(high - low) // 2 + 1 + slack] * 2
        knots += part.knots_ns
        offsets += part.offsets_ns
        bounds += part.bounds_ns
    return ClockModel(
        knots_ns=tuple(knots), offsets_ns=tuple(offsets), bounds_ns=tuple(bounds), rate=0.0, rate_bound=RATE_MAX
    )


def _between_steps(rows: Times) -> ClockModel:
    """The model of :func:`nearest` for exchanges without a step between them."""
    base = int(rows[0, _SENT] - rows[0, _HOST_RECEIVED])
    times = (rows[:, _HOST_RECEIVED] + rows[:, _HOST_SENT]) // 2
    low, high = _reached(rows, times, base)
    _, first = np.unique(times, return_index=True)
    times, low, high = times[first], low[first], high[first]
    # Between two knots the offset leaves their line by no more than the rate allows on half the way.
    gaps = np.diff(times, prepend=times[0], append=times[-1])
    halves = (high - low) / 2 + RATE_MAX * np.maximum(gaps[:-1], gaps[1:]) / 2
    return ClockModel(
        knots_ns=tuple(times.tolist()),
        offsets_ns=tuple(round(middle) + base for middle in ((low + high) / 2).tolist()),
        bounds_ns=tuple(int(half) + 3 for half in halves.tolist()),
        rate=0.0,
        rate_bound=RATE_MAX,
    )


def _reached(rows: Times, times: npt.NDArray[np.int64], base: int) -> tuple[Floats, Floats]:
    """The least and the greatest offset that all exchanges allow at each of ``times`` (one in each exchange), relative
    to ``base``."""
    apart = RATE_MAX * (rows[:, _HOST_SENT] - rows[:, _HOST_RECEIVED])
    drift = RATE_MAX * (times - times[0])
    low = rows[:, _SENT] - rows[:, _HOST_RECEIVED] - base - RESOLUTION_NS - apart
    high = rows[:, _RECEIVED] - rows[:, _HOST_SENT] - base + RESOLUTION_NS + apart
    from_before, from_after = np.maximum.accumulate(low + drift), np.maximum.accumulate((low - drift)[::-1])[::-1]
    until_before, until_after = np.minimum.accumulate(high - drift), np.minimum.accumulate((high + drift)[::-1])[::-1]
    return (
        np.maximum(from_before - drift, from_after + drift),
        np.minimum(until_before + drift, until_after - drift),
    )


def _steps(rows: Times) -> list[tuple[int, int]]:
    """Which exchanges come right after a step that no rate up to :data:`RATE_MAX` explains, and the change of the
    offset with it."""
    found: list[tuple[int, int]] = []
    low, high, last_ns, base = (
        -math.inf,
        math.inf,
        int(rows[0, _HOST_SENT]),
        int(rows[0, _SENT] - rows[0, _HOST_RECEIVED]),
    )
    for index, each in enumerate(ClockExchange(*row) for row in rows.tolist()):
        here_low, here_high = (float(offset - base) for offset in each.offsets_ns)
        slack = RATE_MAX * (each.host_sent_ns - last_ns)
        low, high, last_ns = low - slack, high + slack, each.host_sent_ns
        if here_low > high or here_high < low:
            found.append((index, round((here_low + here_high - low - high) / 2)))
            low, high = here_low, here_high
        else:
            low, high = max(low, here_low), min(high, here_high)
    return found


def _joined(before: ClockModel, line: ClockModel) -> ClockModel:
    """The first model until its last knot, then the second; nothing is known of the time before both."""
    start_ns = before.knots_ns[-1] + 1
    offset, bound = line.at(np.array([start_ns]))
    later = [index for index, knot in enumerate(line.knots_ns) if knot > start_ns]
    return ClockModel(
        knots_ns=(*before.knots_ns, start_ns, *(line.knots_ns[index] for index in later)),
        offsets_ns=(*before.offsets_ns, int(offset[0]), *(line.offsets_ns[index] for index in later)),
        bounds_ns=(*before.bounds_ns, int(bound[0]), *(line.bounds_ns[index] for index in later)),
        rate=line.rate,
        rate_bound=RATE_MAX,
    )
