"""Finds the highest rate that passes.

Theory of operation. Below some rate, most probes pass; above it, most probes fail. Near that rate, a broker passes and
fails by chance, so a single probe proves nothing. The search has two parts. First it makes a *bracket*. It starts at a
guess, the delivered rate without a schedule. It goes down in halves until a rate passes, and up in steps until a rate
fails. Then it halves the bracket at its geometric middle until the two ends are within the tolerance. Second, it
*confirms*: it probes both ends again until each end has its votes. An end that the majority contradicts moves, and the
search continues. The result is a bracket whose lower end passed and whose upper end failed, each by a majority.

A probe may also be *invalid*: the load generator was the limit, so the probe says nothing about the broker. No rate
above can be judged then, so the search continues below. An invalid probe can be outvoted like a failed probe. An
invalid upper end is no limit of the broker: the highest rate is then at least the rate that was found.

Invariants, tested with brokers whose limit is known and with brokers that fail by chance: every rate lies within
``floor .. ceiling``; the lower end is below the upper end; no rate is probed more often than there are votes; the
number of probes never exceeds ``probes_max``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

START: Final = 0.8
"""The first probe's rate as a part of the guess: with a schedule, a broker achieves less than in a closed loop."""
UP: Final = 1.25
DOWN: Final = 0.5


@dataclass(slots=True)
class Votes:
    """The results of the probes at one rate."""

    passed: int = 0
    failed: int = 0
    invalid: int = 0

    @property
    def count(self) -> int:
        """The number of probes."""
        return self.passed + self.failed + self.invalid

    @property
    def passes(self) -> bool:
        """Whether the majority of the probes passed; a tie counts as failed."""
        return self.passed > self.failed + self.invalid

    @property
    def limited(self) -> bool:
        """Whether the generator, and not the broker, kept the rate from passing; a tie is no proof against the
        broker."""
        return not self.passes and self.invalid >= max(self.failed, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The answer of a search.

    ``rate`` is the highest rate that passed, and None if no rate passed. ``below`` is the lowest rate above it that did
    not pass, and None if there is no such rate. ``converged`` says whether both are confirmed and within the tolerance.
    ``limited`` says that the probes at ``below`` were invalid: ``rate`` is then a lower bound, and the limit of the
    broker is not known.
    """

    rate: float | None
    below: float | None
    converged: bool
    probes: int
    limited: bool = False


@dataclass(slots=True, kw_only=True)
class Search:
    """The state of a search. Rates are messages per second of the whole load.

    ``guess``: the rate where the search begins, above 0. ``tolerance``: how close the ends of the bracket must come,
    0.05 for 5 %. ``votes``: number of probes that each end needs, an odd number. ``floor``, ``ceiling``: the lowest and
    the highest rate to probe.
    """

    guess: float
    tolerance: float = 0.05
    votes: int = 3
    probes_max: int = 24
    floor: float = 1.0
    ceiling: float = math.inf
    tried: dict[float, Votes] = field(default_factory=dict)

    def next_rate(self) -> float | None:
        """The rate of the next probe; None if the answer is confirmed, or if the probes are used up."""
        if self._count() >= self.probes_max:
            return None
        low, high = self._ends()
        if low is None and high is None:
            return self._rounded(self.guess * START)
        if low is None:
            assert high is not None
            return self._further_down(high)
        if high is None:
            return self._further_up(low)
        if high > low * (1 + self.tolerance):
            middle = self._rounded(math.sqrt(low * high))
            if low < middle < high and middle not in self.tried:
                return middle
        return self._unconfirmed(low, high)

    def record(self, rate: float, *, passed: bool, invalid: bool = False) -> None:
        """Record the result of a probe at ``rate``. An ``invalid`` probe counts neither as passed nor as failed."""
        votes = self.tried.setdefault(rate, Votes())
        votes.invalid += invalid
        votes.passed += passed and not invalid
        votes.failed += not passed and not invalid

    def answer(self) -> SearchAnswer:
        """The answer as far as it is known."""
        low, high = self._ends()
        confirmed = all(end is None or self.tried[end].count >= self.votes for end in (low, high))
        at_ceiling = high is None and low is not None and low >= self.ceiling
        near = at_ceiling or (low is not None and high is not None and high <= self._reach(low))
        nothing = low is None and high is not None and high <= self.floor
        limited = high is not None and self.tried[high].limited
        converged = confirmed and (near or nothing) and not limited
        return SearchAnswer(rate=low, below=high, converged=converged, probes=self._count(), limited=limited)

    def _ends(self) -> tuple[float | None, float | None]:
        """The lowest rate that does not pass, and the highest below it that passes."""
        failing = [rate for rate, votes in self.tried.items() if not votes.passes]
        high = min(failing, default=None)
        passing = [rate for rate, votes in self.tried.items() if votes.passes and (high is None or rate < high)]
        return max(passing, default=None), high

    def _further_down(self, high: float) -> float | None:
        if high > self.floor:
            return self._rounded(max(high * DOWN, self.floor))
        return self._again(high)

    def _further_up(self, low: float) -> float | None:
        if low < self.ceiling:
            return self._rounded(min(low * UP, self.ceiling))
        return self._again(low)

    def _unconfirmed(self, low: float, high: float) -> float | None:
        """The end with fewer votes; at a tie the lower end, because the search recommends that rate."""
        return self._again(low if self.tried[low].count <= self.tried[high].count else high, low, high)

    def _again(self, *rates: float) -> float | None:
        return next((rate for rate in rates if self.tried[rate].count < self.votes), None)

    def _reach(self, low: float) -> float:
        """The highest upper end that is close enough: by the tolerance, or the next rate after rounding."""
        return max(low * (1 + self.tolerance), self._rounded(low) * 1.01)

    def _rounded(self, rate: float) -> float:
        """The rate with three significant figures, as a person would type it."""
        bounded = min(max(rate, self.floor), self.ceiling)
        digits = 2 - math.floor(math.log10(bounded))
        return min(max(round(bounded, digits), self.floor), self.ceiling)

    def _count(self) -> int:
        return sum(votes.count for votes in self.tried.values())
