"""Where messages stand on a schedule's line when not at equal distances: a Poisson process, or a trace.

A trace (:mod:`perftest.spec.trace`) is repeated for ever: the next round begins so that its first arrival comes after
the last one by the mean distance of the trace. Without a rate it is played as it was recorded, with one it is stretched
or squeezed so that its mean is the rate.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from perftest.engine.schedule.pacing import Floats
from perftest.spec.trace import Offsets

_CHUNK: Final = 256
_KEPT: Final = 16
"""Places before the next message that stay: rounding may ask for them."""


class Poisson:
    """The events of a Poisson process of rate 1, the same for the same ``seed``: distances are exponential with mean
    1. They are drawn when they are needed."""

    def __init__(self, *seed: int) -> None:
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._base = 0
        self._last = 0.0
        self._places = np.empty(0, np.float64)

    def at(self, index: int) -> float:
        """See :class:`~perftest.engine.schedule.pacing.Places`, also for the others."""
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


class Trace:
    """The arrivals of a trace, round after round, scaled so that there is one a unit on average."""

    def __init__(self, offsets: Offsets) -> None:
        self._round = len(offsets.seconds)
        self._places = np.array(offsets.seconds) * offsets.rate

    def at(self, index: int) -> float:
        """See :class:`~perftest.engine.schedule.pacing.Places`, also for the others."""
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
