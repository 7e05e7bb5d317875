"""Closing in on the highest rate that passes.

Theory of operation. Passing is taken to be the rule below some rate and the exception above it, but no single probe is
believed: near the limit a broker passes and fails by chance. So the search has two parts. First it *brackets*: from a
guess (what came through without a schedule) it goes down in halves until something passes and up in steps until
something fails, then halves the bracket by its geometric middle until its ends are within the tolerance. Then it
*confirms*: both ends are probed again until each has its votes. An end that the majority contradicts moves, and the
search goes on. What comes out is a bracket whose lower end passed and whose upper end failed, each by majority.

A probe may also be *invalid*: the load generator was the limit, so the probe says nothing about the broker. Nothing
above such a rate can be found out, so the search goes on below, and an invalid probe is outvoted like a failed one. An
upper end that is invalid is no limit of the broker: what was found is then at least the highest rate.

Invariants, tested with brokers whose limit is known and with such as err by chance: every rate that is asked for lies
within ``floor .. ceiling``; the lower end is below the upper; no rate is probed more often than there are votes; the
number of probes never exceeds ``probes_max``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

START: Final = 0.8
"""The first probe's part of the guess: a schedule needs room below what a closed loop achieves."""
UP: Final = 1.25
DOWN: Final = 0.5


@dataclass(slots=True)
class Votes:
    """The probes of one rate."""

    passed: int = 0
    failed: int = 0
    invalid: int = 0

    @property
    def count(self) -> int:
        """How many probes there were."""
        return self.passed + self.failed + self.invalid

    @property
    def passes(self) -> bool:
        """What the majority says; a tie is a failure."""
        return self.passed > self.failed + self.invalid

    @property
    def limited(self) -> bool:
        """Whether the rate did not pass because of the generator, and not because of the broker; a tie is no proof
        against the broker."""
        return not self.passes and self.invalid >= max(self.failed, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``rate`` is the highest that passed, ``below`` the lowest above it that did not pass; None if none did.
    ``converged`` says whether both are confirmed and within the tolerance. ``limited`` says that the probes of
    ``below`` were invalid: then ``rate`` is a lower bound, and the limit is not known."""

    rate: float | None
    below: float | None
    converged: bool
    probes: int
    limited: bool = False


@dataclass(slots=True, kw_only=True)
class Search:
    """The state of a search. Rates are messages per second of the whole load.

    ``guess``: where to begin, above 0. ``tolerance``: how close the ends of the bracket have to come, 0.05 for 5 %.
    ``votes``: probes that each end needs, an odd number. ``floor``, ``ceiling``: rates beyond which nobody asks.
    """

    guess: float
    tolerance: float = 0.05
    votes: int = 3
    probes_max: int = 24
    floor: float = 1.0
    ceiling: float = math.inf
    tried: dict[float, Votes] = field(default_factory=dict)

    def next_rate(self) -> float | None:
        """The rate of the next probe; None when the answer stands, or the probes are used up."""
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
        """What a probe at ``rate`` found; of an ``invalid`` one nothing else counts."""
        votes = self.tried.setdefault(rate, Votes())
        votes.invalid += invalid
        votes.passed += passed and not invalid
        votes.failed += not passed and not invalid

    def answer(self) -> Answer:
        """What is known now."""
        low, high = self._ends()
        confirmed = all(end is None or self.tried[end].count >= self.votes for end in (low, high))
        at_ceiling = high is None and low is not None and low >= self.ceiling
        near = at_ceiling or (low is not None and high is not None and high <= self._reach(low))
        nothing = low is None and high is not None and high <= self.floor
        limited = high is not None and self.tried[high].limited
        converged = confirmed and (near or nothing) and not limited
        return Answer(rate=low, below=high, converged=converged, probes=self._count(), limited=limited)

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
        """The end with fewer votes; the lower one first, for it is what will be recommended."""
        return self._again(low if self.tried[low].count <= self.tried[high].count else high, low, high)

    def _again(self, *rates: float) -> float | None:
        return next((rate for rate in rates if self.tried[rate].count < self.votes), None)

    def _reach(self, low: float) -> float:
        """How far the upper end may be: the tolerance, or the next rate that can be told apart."""
        return max(low * (1 + self.tolerance), self._rounded(low) * 1.01)

    def _rounded(self, rate: float) -> float:
        """Three significant figures: a rate that a person would type."""
        bounded = min(max(rate, self.floor), self.ceiling)
        digits = 2 - math.floor(math.log10(bounded))
        return min(max(round(bounded, digits), self.floor), self.ceiling)

    def _count(self) -> int:
        return sum(votes.count for votes in self.tried.values())
