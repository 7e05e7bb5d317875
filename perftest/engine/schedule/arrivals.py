"""Where messages stand on the line of a schedule: at equal distances, as a Poisson process, or as a trace has them.

Positions are counted in messages. On average there is one message a unit, whatever the rate; the line
(:mod:`perftest.engine.schedule.intended_times`) turns positions into times.

A trace (:mod:`perftest.spec.trace`) is repeated for ever. The mean distance of the trace lies between its last arrival
and the first arrival of the next round. Without a rate the trace is played as it was recorded; with a rate it is
stretched or squeezed so that its mean is the rate.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from perftest.spec.trace import Offsets

Floats = npt.NDArray[np.float64]

_CHUNK: Final = 256
_KEPT: Final = 16
"""Number of positions before the next message that are kept, because rounding may ask for them."""


class ArrivalTimes(Protocol):
    """The positions of the messages of one schedule. Positions never decrease."""

    def at(self, index: int) -> float:
        """The position of message ``index``."""

    def many(self, first: int, count: int) -> Floats:
        """The positions of ``count`` messages from message ``first`` on."""

    def first_from(self, position: float) -> int:
        """The first message at ``position`` or beyond."""

    def forget(self, index: int) -> None:
        """Messages before ``index`` will not be asked for again."""


class FixedArrivals:
    """Equal distances: message ``i`` stands at ``i``."""

    def at(self, index: int) -> float:
        """The index itself."""
        return index

    def many(self, first: int, count: int) -> Floats:
        """``first``, ``first + 1`` ..."""
        return np.arange(first, first + count, dtype=np.float64)

    def first_from(self, position: float) -> int:
        """The next whole number."""
        return max(math.ceil(position), 0)

    def forget(self, index: int) -> None:
        """Nothing is kept, so nothing is forgotten."""


class PoissonArrivals:
    """The events of a Poisson process of rate 1. The same ``seed`` gives the same events.

    Distances are exponential with mean 1. They are drawn when they are needed.
    """

    def __init__(self, *seed: int) -> None:
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._base = 0
        self._last = 0.0
        self._positions = np.empty(0, np.float64)

    def at(self, index: int) -> float:
        """The position of event ``index``."""
        self._draw(index + 1)
        return float(self._positions[index - self._base])

    def many(self, first: int, count: int) -> Floats:
        """The positions of ``count`` events."""
        self._draw(first + count)
        return self._positions[first - self._base : first - self._base + count]

    def first_from(self, position: float) -> int:
        """The first event at or after ``position``."""
        while self._last < position:
            self._draw(self._base + len(self._positions) + 1 + int(position - self._last))
        return self._base + int(np.searchsorted(self._positions, position))

    def forget(self, index: int) -> None:
        """Drop the events before ``index``, a chunk at a time."""
        done = index - _KEPT - self._base
        if done >= _CHUNK:
            self._positions = self._positions[done:].copy()
            self._base += done

    def _draw(self, stop: int) -> None:
        """Have every event up to event ``stop - 1``."""
        missing = stop - self._base - len(self._positions)
        if missing <= 0:
            return
        chunks = self._random.standard_exponential((-(-missing // _CHUNK), _CHUNK))
        # Summed up chunk by chunk, so that no rounding depends on how many events are asked for at once.
        sums = np.cumsum(chunks, axis=1)
        before = np.cumsum(np.concatenate([[self._last], sums[:, -1]]))
        self._last = float(before[-1])
        self._positions = np.concatenate([self._positions, (sums + before[:-1, None]).ravel()])


class TraceArrivals:
    """The arrivals of a trace, round after round, scaled so that there is one arrival a unit on average."""

    def __init__(self, offsets: Offsets) -> None:
        self._round = len(offsets.seconds)
        self._positions = np.array(offsets.seconds) * offsets.rate

    def at(self, index: int) -> float:
        """The position of arrival ``index``."""
        rounds, within = divmod(index, self._round)
        return rounds * self._round + float(self._positions[within])

    def many(self, first: int, count: int) -> Floats:
        """The positions of arrivals ``first``, ``first + 1`` ..."""
        rounds, within = np.divmod(np.arange(first, first + count), self._round)
        return rounds * float(self._round) + self._positions[within]

    def first_from(self, position: float) -> int:
        """The first arrival at or after ``position``."""
        rounds = max(math.floor((position - float(self._positions[0])) / self._round), 0)
        within = int(np.searchsorted(self._positions, position - rounds * self._round))
        return rounds * self._round + within

    def forget(self, index: int) -> None:
        """A trace begins again, so nothing is forgotten."""
