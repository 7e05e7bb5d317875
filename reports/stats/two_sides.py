"""Two sides of repetitions, compared without a model of how figures are distributed.

A run gives one value of a figure, however long the run was (:mod:`reports.stats.confidence` says why). The question is
whether the values of two sides could as well have been dealt to the sides by chance.

- :func:`permutation_p` deals the values again in every way, or in many random ways. The p value is the part of the
  deals whose difference is at least as large as the measured difference. The test holds for any distribution, as long
  as runs are independent of each other.
- :func:`holm` corrects the p values of many figures. With corrected values, the chance that *any* unchanged figure
  looks changed is at most the level, however the figures hang together (S. Holm, 1979).
- :func:`shift` is the effect: the median of all ratios between a run of one side and a run of the other (Hodges and
  Lehmann, 1963). Its bounds come from the distribution of Mann and Whitney's count. One odd run moves neither far.
- :func:`repetitions_needed` says how many repetitions would decide.

All figures are positive; their logarithms are compared, because a change is a ratio.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import comb, log1p, nan, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from reports.stats.confidence import RelativeChange, student_quantile

Floats = npt.NDArray[np.float64]

REPEATS_MIN: Final = 5
"""Repetitions of each side for a verdict. Of three a side, the two most extreme of 20 deals already make p = 0.1."""
REPEATS_ADVISED: Final = 10
"""Repetitions of each side that find a p99 worse by 10 % in four of five comparisons, if runs differ by 3 %."""
EXACT_MAX: Final = 20_000
"""The most deals that are all tried: eight repetitions of each side have 12,870."""
DRAWS_MIN: Final = 20_000
DRAWS_MAX: Final = 200_000
SEED: Final = 20_261_125
"""The same runs get the same verdict, always."""
POWER: Final = 0.8
NEEDED_MAX: Final = 1000
_EFFICIENCY: Final = 3 / np.pi
"""Of the Hodges-Lehmann estimate, beside the mean, where logarithms are normal."""


def shift(base: Sequence[float], candidate: Sequence[float], confidence: float) -> RelativeChange:
    """The Hodges-Lehmann change of a candidate, and its bounds at ``confidence`` (0..1).

    A side with a zero, or without values, has no change. Too few values for ``confidence`` have no bounds.
    """
    if not base or not candidate or min(*base, *candidate) <= 0:
        return RelativeChange(nan)
    apart = np.sort(np.subtract.outer(np.log(candidate), np.log(base)).ravel())
    value = float(np.expm1(np.median(apart)))
    rank = _rank(len(base), len(candidate), round((1 - confidence) / 2, 12))
    if rank == 0:
        return RelativeChange(value)
    low, high = np.expm1(apart[[rank - 1, -rank]]).tolist()
    return RelativeChange(value, low, high)


@cache
def _rank(first: int, second: int, tail: float) -> int:
    """The rank of the bound among the sorted differences, counted from both ends; 0 if there are too few."""
    deals, below, rank = comb(first + second, first), 0, 0
    for count in _mann_whitney(first, second):
        below += count
        if below > tail * deals:
            break
        rank += 1
    return rank


def _mann_whitney(first: int, second: int) -> list[int]:
    """The number of deals for each count of pairs in which the second is larger: the Gaussian binomial coefficients,
    as the product of (1 - q^(first + n)) / (1 - q^n) for n up to ``second``."""
    counts = [1] + [0] * (first * second)
    for number in range(1, second + 1):
        for at in range(len(counts) - 1, first + number - 1, -1):
            counts[at] -= counts[at - first - number]
        for at in range(number, len(counts)):
            counts[at] += counts[at - number]
    return counts


def permutation_p(base: Floats, candidate: Floats, draws: int = DRAWS_MIN) -> Floats:
    """Two-sided p values of the difference of mean logarithms: for each column (a figure) of two arrays whose rows are
    runs. All values are positive. Exact for up to :data:`EXACT_MAX` deals, else from ``draws`` seeded random deals.
    """
    values = np.log(np.vstack([base, candidate]))
    values = values - values.mean(axis=0)
    deals, complete = _deals(len(base), len(candidate), draws)
    measured = np.abs(values[: len(base)].sum(axis=0))
    slack = 1e-9 * np.abs(values).sum(axis=0) + 1e-15
    as_large = np.zeros(values.shape[1])
    least, of_figures, count = (measured - slack)[:, np.newaxis], np.ascontiguousarray(values.T), deals.shape[1]
    chunk = max(_PRODUCT_MAX // max(values.size, 1), 1)
    for start in range(0, count, chunk):
        dealt = np.abs(of_figures @ deals[:, start : start + chunk])
        as_large += np.count_nonzero(dealt >= least, axis=1)
    found: Floats = as_large / count if complete else (as_large + 1) / (count + 1)
    return found


_PRODUCT_MAX: Final = 120_000
"""Multiplications of one product of matrices. OpenBLAS gives larger products to several threads, which take twenty
times the CPU time of one where others use the cores, too."""


@cache
def _deals(first: int, second: int, draws: int) -> tuple[Floats, bool]:
    """The runs that a deal gives to the first side, as a column of zeros and ones; and whether these are all deals."""
    total = first + second
    complete = comb(total, first) <= EXACT_MAX
    if complete:
        chosen = np.array(list(combinations(range(total), first)))
    else:
        chosen = np.random.default_rng(SEED).random((draws, total)).argpartition(first - 1, axis=1)[:, :first]
    deals = np.zeros((total, len(chosen)))
    np.put_along_axis(deals, chosen.T, 1.0, axis=0)
    return deals, complete


def draws_for(figures: int, level: float) -> int:
    """Random deals that let a p value of one of ``figures`` pass Holm's correction by a wide margin."""
    return int(min(max(20 * figures / max(level, 1e-9), DRAWS_MIN), DRAWS_MAX))


def smallest_p(first: int, second: int, draws: int = DRAWS_MIN) -> float:
    """The smallest p value that a comparison of ``first`` with ``second`` repetitions can have."""
    deals = comb(first + second, first)
    if deals > EXACT_MAX:
        return 1 / (draws + 1)
    return (2 if first == second else 1) / deals


def holm(found: Sequence[float]) -> list[float]:
    """Holm's corrected p values, in the same order."""
    order = np.argsort(found, kind="stable")
    factors = np.arange(len(found), 0, -1)
    corrected = np.minimum(np.maximum.accumulate(factors * np.asarray(found, np.float64)[order]), 1.0)
    result = np.empty(len(found))
    result[order] = corrected
    return [float(value) for value in result]


def spread(base: Sequence[float], candidate: Sequence[float]) -> float:
    """The spread within one side: the pooled standard deviation of logarithms; NaN if no side has two runs."""
    sides = [np.log(side) for side in (base, candidate) if len(side) > 1 and min(side) > 0]
    if not sides:
        return nan
    freedom = sum(len(side) - 1 for side in sides)
    return sqrt(sum(float(side.var(ddof=1)) * (len(side) - 1) for side in sides) / freedom)


def repetitions_needed(spread: float, *, noise: float, confidence: float, figures: int) -> int | None:
    """Repetitions of each side that would decide; None if the spread is not known, and one more than :data:`NEEDED_MAX`
    if that is not enough.

    The assumption: logarithms of runs vary normally with the standard deviation ``spread``. Then this number of
    repetitions tells no change, and a change of twice the noise, from the noise itself in four of five comparisons. The
    p value can also pass Holm's correction over ``figures``.
    """
    if not spread >= 0 or noise <= 0:
        return None
    draws = draws_for(figures, 1 - confidence)

    def decides(number: int) -> bool:
        freedom = 2 * number - 2
        quantiles = student_quantile((1 + confidence) / 2, freedom) + student_quantile(POWER, freedom)
        error = spread * sqrt(2 / (number * _EFFICIENCY))
        return quantiles * error <= log1p(noise) and smallest_p(number, number, draws) * figures <= 1 - confidence

    return bisect_left(range(NEEDED_MAX + 1), True, lo=REPEATS_MIN, key=decides)
