"""Intervals of confidence from repetitions: how much a figure may vary by chance; and the verdict on a change.

Repetitions of a measurement are independent of each other, and few. The seconds within one run are many, and not
independent: one slow second follows another, and all of them share what was special about that run. So a run counts as
one value, however long it was, and one run has no interval of confidence.

Bounds are Student's: means of the logarithms, Welch's allowance for sides that vary differently (B. L. Welch, 1947).
Logarithms, because a change is a ratio. Student's, because a bootstrap of three values can only say the three values
again: its interval of 95 % leaves out the truth in one of ten comparisons.

The verdict on a change is one of five words. Both bounds of the interval decide, never the change alone, because one
figure says nothing about chance. The noise is a change too small to act on.

=========================  ==================================
both bounds                verdict
=========================  ==================================
beyond the noise           improved, or regressed
within the noise           within noise; no change detected if the interval holds 0
anything else              inconclusive
=========================  ==================================

:mod:`reports.stats.two_sides` has the bounds and the p values of comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import atan, cos, exp, inf, lgamma, nan, pi, sin, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """Candidate over baseline, less 1, and the bounds of its interval. Unknown bounds are infinite."""

    value: float
    low: float = -inf
    high: float = inf


def centre(values: Sequence[float]) -> float:
    """The geometric mean of repetitions; 0 if one of them is 0."""
    with np.errstate(divide="ignore"):
        return float(np.exp(np.log(np.asarray(values, np.float64)).mean()))


def change(base: Sequence[float], candidate: Sequence[float], confidence: float) -> RelativeChange:
    """The change between the centres of two sides, and its bounds at ``confidence`` (0..1).

    A side of one value, or one with a zero, has no bounds.
    """
    before, after = centre(base), centre(candidate)
    value = after / before - 1 if before else nan
    if min(len(base), len(candidate)) < 2 or not before or not after:
        return RelativeChange(value)
    parts = [np.log(np.asarray(side, np.float64)).var(ddof=1) / len(side) for side in (base, candidate)]
    freedom = _freedom(parts, [len(base), len(candidate)])
    half = student_quantile((1 + confidence) / 2, freedom) * sqrt(sum(parts))
    with np.errstate(over="ignore"):
        low, high = ((1 + value) * np.exp([-half, half]) - 1).tolist()
    return RelativeChange(value, low, high)


def half_width(values: Sequence[float], confidence: float) -> float | None:
    """Half the interval of the mean of repetitions, as a part of that mean; None for fewer than two, or a mean of 0."""
    found = np.asarray(values, np.float64)
    if len(found) < 2:
        return None
    half = student_quantile((1 + confidence) / 2, len(found) - 1) * float(found.std(ddof=1)) / sqrt(len(found))
    mean = float(found.mean())
    return half / abs(mean) if mean else None


def each_of(confidence: float, count: int) -> float:
    """The confidence that each of ``count`` intervals needs so that all of them hold together with ``confidence``
    (Bonferroni): of many figures some look changed by chance."""
    return 1 - (1 - confidence) / max(count, 1)


def _freedom(parts: Sequence[float], sizes: Sequence[int]) -> int:
    """Welch's degrees of freedom, rounded down (but not from a rounding error), which widens the interval a little."""
    spread = sum(part * part / (size - 1) for part, size in zip(parts, sizes, strict=True))
    least = min(sizes) - 1
    return max(int(sum(parts) ** 2 / spread + 1e-9), least) if spread else least


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """The value below which Student's t lies with ``probability`` (0.5..1), by Newton's method, to the last digits of a
    float. Certainty counts as the next smaller probability.

    The distribution is concave above 0, and its quantiles are above the normal ones. So every step from there leads
    upward, and none leads too far.
    """
    probability = min(probability, _BELOW_ONE)
    scale = exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(freedom * pi)
    value = max(NormalDist().inv_cdf(probability), 0.0)
    for _ in range(_STEPS_MAX):
        density = scale * (1 + value * value / freedom) ** (-(freedom + 1) / 2)
        step = (probability - _student(value, freedom)) / density
        value += step
        if step <= 1e-15 * value:
            break
    return value


_STEPS_MAX: Final = 200
_BELOW_ONE: Final = 1 - 2.0**-53


def _student(t: float, freedom: int) -> float:
    """The probability that Student's t is below ``t`` (not negative), for whole degrees of freedom (Abramowitz and
    Stegun, 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = (cos(angle), 0.0) if odd else (1.0, 0.0)
    for number in range(1 + odd, freedom, 2):
        total += term
        term *= cos(angle) ** 2 * number / (number + 1)
    within = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return (1 + within) / 2


NOISE_LATENCY: Final = 0.05
NOISE_RATE: Final = 0.02


class ChangeVerdict(StrEnum):
    """In the order in which a reader wants them."""

    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    IMPROVED = "improved"
    WITHIN_NOISE = "within noise"
    NO_CHANGE = "no change detected"


def judge(change: RelativeChange, *, noise: float, more_is_better: bool) -> ChangeVerdict:
    """The verdict on a change; ``noise`` is a part too small to act on (0.05 for 5 %)."""
    if change.low > noise or change.high < -noise:
        return ChangeVerdict.IMPROVED if (change.value > 0) is more_is_better else ChangeVerdict.REGRESSED
    if -noise <= change.low and change.high <= noise:
        return ChangeVerdict.NO_CHANGE if change.low <= 0 <= change.high else ChangeVerdict.WITHIN_NOISE
    return ChangeVerdict.INCONCLUSIVE
