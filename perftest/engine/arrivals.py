"""Where messages stand on a schedule's line when not at equal distances: a Poisson process, or a trace.

A trace is a text file, one arrival a line: when it comes, counted from the start, in seconds or with a unit::

    # one burst of three, then one at half a second
    0
    100us
    0.000250
    500ms

Units are ``s`` (also without a unit), ``ms``, ``us`` and ``ns``; what follows a ``#`` is a remark, and empty lines do
not count. Offsets must not go back. The trace is repeated for ever: the next round begins so that its first arrival
comes after the last one by the mean distance of the trace. Without a rate it is played as it was recorded, with one it
is stretched or squeezed so that its mean is the rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from perftest.engine.pacing import SECOND_NS, Floats

_CHUNK: Final = 256
_KEPT: Final = 16
"""Places before the next message that stay: rounding may ask for them."""

_UNITS: Final = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_LINE: Final = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-zµ]*)")
_LONGEST_S: Final = 1e6
"""An offset of more than eleven days is one that lost its unit."""


class Poisson:
    """The events of a Poisson process of rate 1, the same for the same ``seed``: distances are exponential with mean
    1. They are drawn when they are needed."""

    def __init__(self, *seed: int) -> None:
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._base = 0
        self._last = 0.0
        self._places = np.empty(0, np.float64)

    def at(self, index: int) -> float:
        """See :class:`~perftest.engine.pacing.Places`, also for the others."""
        self._draw(index + 1)
        return float(self._places[index - self._base])

    def many(self, first: int, count: int) -> Floats:
        """The next ``count``."""
        self._draw(first + count)
        return self._places[first - self._base : first - self._base + count]

    def first_from(self, place: float) -> int:
        """The first event at or after ``place``."""
        while self._last < place:
            self._draw(self._base + len(self._places) + 1 + int(place - self._last))
        return self._base + int(np.searchsorted(self._places, place))

    def forget(self, index: int) -> None:
        """Drop what is behind, a chunk at a time."""
        done = index - _KEPT - self._base
        if done >= _CHUNK:
            self._places = self._places[done:].copy()
            self._base += done

    def _draw(self, stop: int) -> None:
        """Have everything up to event ``stop - 1``."""
        missing = stop - self._base - len(self._places)
        if missing <= 0:
            return
        chunks = self._random.standard_exponential((-(-missing // _CHUNK), _CHUNK))
        # summed up chunk by chunk: how many are asked for at once changes no event by a rounding
        sums = np.cumsum(chunks, axis=1)
        before = np.cumsum(np.concatenate([[self._last], sums[:, -1]]))
        self._last = float(before[-1])
        self._places = np.concatenate([self._places, (sums + before[:-1, None]).ravel()])


@dataclass(frozen=True)
class Offsets:
    """A trace: offsets in seconds, never decreasing, and after how long it begins again."""

    seconds: Floats
    period_s: float

    @property
    def rate(self) -> float:
        """Messages per second when it is played as recorded."""
        return len(self.seconds) / self.period_s


class Trace:
    """The arrivals of a trace, round after round, scaled so that there is one a unit on average."""

    def __init__(self, offsets: Offsets) -> None:
        self._round = len(offsets.seconds)
        self._places = offsets.seconds * offsets.rate

    def at(self, index: int) -> float:
        """See :class:`~perftest.engine.pacing.Places`, also for the others."""
        rounds, within = divmod(index, self._round)
        return rounds * self._round + float(self._places[within])

    def many(self, first: int, count: int) -> Floats:
        """Arrivals ``first``, ``first + 1`` ..."""
        rounds, within = np.divmod(np.arange(first, first + count), self._round)
        return rounds * float(self._round) + self._places[within]

    def first_from(self, place: float) -> int:
        """The first arrival at or after ``place``."""
        rounds = max(math.floor((place - float(self._places[0])) / self._round), 0)
        within = int(np.searchsorted(self._places, place - rounds * self._round))
        return rounds * self._round + within

    def forget(self, index: int) -> None:
        """A trace begins again: nothing is forgotten."""


class TraceError(ValueError):
    """A trace that cannot be played; ``line`` counts from 1, 0 is the whole file."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line


def parse_trace(lines: Iterable[str]) -> Offsets:
    """Read a trace. Raises :class:`TraceError`."""
    seconds: list[float] = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        offset = _offset(number, text)
        if seconds and offset < seconds[-1]:
            raise TraceError(number, f"{text} is before the arrival above it; offsets count from the start of the file")
        seconds.append(offset)
    if not seconds:
        raise TraceError(0, "no arrival in it")
    mean = (seconds[-1] - seconds[0]) / (len(seconds) - 1) if len(seconds) > 1 else 0.0
    mean = mean or seconds[0]
    period_s = seconds[-1] - seconds[0] + mean
    if period_s * SECOND_NS < 1:
        raise TraceError(0, "all its arrivals are at 0: repeated, that is no schedule")
    return Offsets(np.array(seconds), period_s)


def _offset(number: int, text: str) -> float:
    """One line's time in seconds."""
    match = _LINE.fullmatch(text)
    unit = _UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        raise TraceError(number, f"{text!r} is not a time such as 0.5, 20ms or 1500ns")
    try:
        offset = float(match[1]) * unit
    except ValueError as error:
        raise TraceError(number, f"{match[1]!r} is not a number") from error
    if offset < 0 or not math.isfinite(offset):
        raise TraceError(number, f"{text} is before the start")
    if offset > _LONGEST_S:
        raise TraceError(number, f"{text} is more than eleven days; a number without a unit is seconds")
    return offset
