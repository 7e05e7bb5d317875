"""Change points of a short series by E-divisive, with a test of significance; pure.

The series has one value per run, in the order of time. The intervals of one run are no such series: they depend on each
other, and the test would find changes that are none.

Theory of operation. A split divides a segment into two parts. Its *energy* compares the mean distance between values of
different parts with the mean distances within each part: for parts of m and n values, mn/(m+n) (2 E|X-Y| - E|X-X'| -
E|Y-Y'|). The best split of a segment is the one with the highest energy. Is this energy more than chance makes? The
values of the segment are shuffled many times. If the values have no order, each shuffle is as likely as the order that
was observed, so the rank of the observed energy among the shuffled ones is an exact p-value. A split below the level is
a change point, and both parts are searched in turn. Parts are only searched after a split was found, so a series
without a change has a false alarm with at most the probability of the level.

Cumulative sums over the matrix of distances give the energies of all splits of a segment in O(n^2).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

PERMUTATIONS: Final = 199
"""The least p-value is 1/200."""
LEVEL: Final = 0.05
PART_MIN: Final = 3
"""Fewest runs on each side of a change: two runs that agree by chance are no level."""
RUNS_MAX: Final = 2000
"""Most values of a series: the matrix of distances of 2,000 values takes 32 MB."""
_TIE: Final = 1e-9
"""Energies that differ by less, relatively, are the same: they differ by rounding only."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """``index`` is the place of the first value after the change. ``before`` and ``after`` are the medians between this
    change and its neighbours; ``p`` is the p-value of the split."""

    index: int
    before: float
    after: float
    p: float


def change_points(
    series: Sequence[float], *, level: float = LEVEL, permutations: int = PERMUTATIONS, seed: int = 1
) -> list[ChangePoint]:
    """The change points of a series, in order.

    :param level: probability of a false alarm in a series without any change
    :param permutations: number of shuffles of each segment; 1 / (permutations + 1) must be below the level
    """
    values = np.asarray(series, dtype=np.float64)
    assert len(values) <= RUNS_MAX and bool(np.isfinite(values).all())
    random = np.random.default_rng(seed)
    found = sorted(_splits(values, 0, level, permutations, random))
    bounds = [0, *(index for index, _ in found), len(values)]
    medians = [float(np.median(values[begin:end])) for begin, end in itertools.pairwise(bounds) if end > begin]
    return [
        ChangePoint(index=index, before=medians[place], after=medians[place + 1], p=p)
        for place, (index, p) in enumerate(found)
    ]


def _splits(
    values: Values, offset: int, level: float, permutations: int, random: np.random.Generator
) -> Iterator[tuple[int, float]]:
    if len(values) < 2 * PART_MIN:
        return
    distances = np.abs(values[:, None] - values[None, :])
    energies = split_energies(distances)
    best = int(energies.argmax())
    p = _p_value(distances, float(energies[best]), permutations, random)
    if p > level:
        return
    split = best + PART_MIN
    yield offset + split, p
    yield from _splits(values[:split], offset, level, permutations, random)
    yield from _splits(values[split:], offset + split, level, permutations, random)


def _p_value(distances: Values, observed: float, permutations: int, random: np.random.Generator) -> float:
    """The part of all shuffles, the observed order among them, whose best split is at least as good."""
    if observed <= 0:
        return 1.0
    as_good = 1
    for _ in range(permutations):
        order = random.permutation(len(distances))
        best = float(split_energies(distances[np.ix_(order, order)]).max())
        as_good += best >= observed * (1 - _TIE)
    return as_good / (permutations + 1)


def split_energies(distances: Values) -> Values:
    """The energy of each split, from the first that leaves PART_MIN values on its left to the last that leaves as many
    on its right.

    :param distances: between all pairs of values, in order
    """
    size = len(distances)
    left = np.arange(PART_MIN, size - PART_MIN + 1)
    right = size - left
    ahead = np.cumsum(distances.sum(axis=1))[left - 1]  # from the left part to all values
    within_left = np.cumsum(np.tril(distances).sum(axis=1))[left - 1]  # each pair once
    across = ahead - 2 * within_left
    within_right = distances.sum() / 2 - within_left - across
    mean_across = across / (left * right)
    mean_left = within_left / (left * (left - 1) / 2)
    mean_right = within_right / (right * (right - 1) / 2)
    energies: Values = left * right / size * (2 * mean_across - mean_left - mean_right)
    return energies
