"""The correction of a host's clock, at each time, to the clock of reference, and the error that it may have.

A model is what :mod:`perftest.metrics.host_clock` finds out about a host's clock, in a form that travels: a few knots,
with straight lines between them. Applying a model to an array takes 33 ns a value
(``python -m tests.bench.host_clock``).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockModel:
    """A line through knots. All times are nanoseconds; the knots' times are on the host's own clock, ascending.

    ``offsets_ns`` are reference minus host at the knots, and ``bounds_ns`` is how far the true offset may be away.
    Outside the knots the offset changes by ``rate`` (nanoseconds a nanosecond), and the bound grows by ``rate_bound``
    for every nanosecond of distance.
    """

    knots_ns: tuple[int, ...]
    offsets_ns: tuple[int, ...]
    bounds_ns: tuple[int, ...]
    rate: float
    rate_bound: float

    def __post_init__(self) -> None:
        if not len(self.knots_ns) == len(self.offsets_ns) == len(self.bounds_ns) > 0:
            raise ValueError("a model has an offset and a bound for each of its knots, and one knot at least")
        if any(later <= earlier for earlier, later in pairwise(self.knots_ns)):
            raise ValueError("the knots of a model ascend")

    def at(self, host_ns: Values) -> tuple[Values, Values]:
        """The offset and its bound at each of these times of the host's clock, both in nanoseconds."""
        # The differences are small enough for doubles; the times themselves are not.
        since = (host_ns - self.knots_ns[0]).astype(np.float64)
        knots = np.array([knot - self.knots_ns[0] for knot in self.knots_ns], np.float64)
        changes = np.array([offset - self.offsets_ns[0] for offset in self.offsets_ns], np.float64)
        # One search finds both: the offset is the real part, the bound the imaginary part.
        values = changes + 1j * np.array(self.bounds_ns, np.float64)
        both = np.asarray(np.interp(since, knots, values), np.complex128)
        if len(since) and (float(since.min()) < 0.0 or float(since.max()) > knots[-1]):
            outside = since - np.clip(since, 0.0, knots[-1])
            both = both + self.rate * outside + 1j * self.rate_bound * np.abs(outside)
        return np.rint(both.real).astype(np.int64) + self.offsets_ns[0], np.ceil(both.imag).astype(np.int64)

    def to_reference(self, host_ns: int) -> int:
        """A time of the host's clock, as the clock of reference tells it."""
        return host_ns + self._offset_ns(host_ns)

    def to_host(self, reference_ns: int) -> int:
        """A time of the clock of reference, as the host's clock tells it."""
        host_ns = reference_ns - self.offsets_ns[-1]
        for _ in range(3):  # each turn leaves less than a thousandth of the error
            host_ns += reference_ns - self.to_reference(host_ns)
        return host_ns

    def _offset_ns(self, host_ns: int) -> int:
        """:meth:`at` for a single time, which needs no arrays."""
        knots, offsets = self.knots_ns, self.offsets_ns
        after = bisect_right(knots, host_ns)
        if after == 0:
            return offsets[0] + round(self.rate * (host_ns - knots[0]))
        before = after - 1
        if after == len(knots):
            return offsets[before] + round(self.rate * (host_ns - knots[before]))
        part = (host_ns - knots[before]) / (knots[after] - knots[before])
        return offsets[before] + round(part * (offsets[after] - offsets[before]))

    def bound_at(self, host_ns: int) -> int:
        """The bound at a time of the host's clock."""
        return int(self.at(np.array([host_ns]))[1][0])

    def to_json(self) -> dict[str, Any]:
        """The model as plain values."""
        return {
            "knots_ns": list(self.knots_ns),
            "offsets_ns": list(self.offsets_ns),
            "bounds_ns": list(self.bounds_ns),
            "rate_ppm": self.rate * 1e6,
            "rate_bound_ppm": self.rate_bound * 1e6,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ClockModel:
        """The model that :meth:`to_json` wrote."""
        return cls(
            knots_ns=tuple(values["knots_ns"]),
            offsets_ns=tuple(values["offsets_ns"]),
            bounds_ns=tuple(values["bounds_ns"]),
            rate=values["rate_ppm"] / 1e6,
            rate_bound=values["rate_bound_ppm"] / 1e6,
        )
