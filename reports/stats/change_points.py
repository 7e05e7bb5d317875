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

The energies of all splits follow from two sums for each value: of its distances to all values, and of its distances to
the values before it. Sorted values and their cumulative sums give the former. The latter come from halves of blocks of
2, 4, 8, … values: each value in the right half of a block has its distances to the left half added up, by the order of
the block's values. That is O(n log^2 n) for a segment of n values, and many shuffles are computed at once.
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
"""Most values of a series."""
BATCH_VALUES: Final = 64 * 1024
"""Values of all shuffles that are computed at once: their arrays stay in the processor's cache."""
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
    values = values - np.median(values)  # sums of small numbers keep more digits, and distances stay as they are
    energies = split_energies(values[None, :])[0]
    best = int(energies.argmax())
    p = _p_value(values, float(energies[best]), permutations, random)
    if p > level:
        return
    split = best + PART_MIN
    yield offset + split, p
    yield from _splits(values[:split], offset, level, permutations, random)
    yield from _splits(values[split:], offset + split, level, permutations, random)


def _p_value(values: Values, observed: float, permutations: int, random: np.random.Generator) -> float:
    """The part of all shuffles, the observed order among them, whose best split is at least as good."""
    if observed <= 0:
        return 1.0
    as_good = 1
    together = max(BATCH_VALUES // len(values), 1)
    for begun in range(0, permutations, together):
        count = min(together, permutations - begun)
        shuffled = values[np.stack([random.permutation(len(values)) for _ in range(count)])]
        as_good += int((split_energies(shuffled).max(axis=1) >= observed * (1 - _TIE)).sum())
    return as_good / (permutations + 1)


def split_energies(rows: Values) -> Values:
    """The energy of each split of each row, from the first split that leaves PART_MIN values on its left to the last
    that leaves as many on its right."""
    size = rows.shape[1]
    left = np.arange(PART_MIN, size - PART_MIN + 1)
    right = size - left
    to_all = _to_all(rows)
    ahead = np.cumsum(to_all, axis=1)[:, left - 1]  # from the left part to all values
    within_left = np.cumsum(_to_earlier(rows), axis=1)[:, left - 1]  # each pair once
    across = ahead - 2 * within_left
    within_right = to_all.sum(axis=1, keepdims=True) / 2 - within_left - across
    mean_across = across / (left * right)
    mean_left = within_left / (left * (left - 1) / 2)
    mean_right = within_right / (right * (right - 1) / 2)
    energies: Values = left * right / size * (2 * mean_across - mean_left - mean_right)
    return energies


def _to_all(rows: Values) -> Values:
    """The sum of the distances of each value to all values of its row."""
    size = rows.shape[1]
    places = np.argsort(rows, axis=1)
    ordered = np.take_along_axis(rows, places, axis=1)
    sums = np.cumsum(ordered, axis=1)
    told = ordered * (2 * np.arange(1, size + 1) - size) + sums[:, -1:] - 2 * sums
    found = np.empty_like(rows)
    np.put_along_axis(found, places, told, axis=1)
    return found


def _to_earlier(rows: Values) -> Values:
    """The sum of the distances of each value to all values before it in its row."""
    size = rows.shape[1]
    by_value = np.argsort(rows, axis=1).astype(np.int16)  # the stable sort of such short integers takes linear time
    found, of_blocks = np.zeros_like(rows), np.empty_like(rows)
    sums = np.zeros((len(rows), size + 1))
    half = 1
    while half < size:
        begin = np.arange(size) // (2 * half) * (2 * half)
        end = np.minimum(begin + 2 * half, size)
        by_block = np.argsort(by_value // (2 * half), axis=1, kind="stable")
        places = np.take_along_axis(by_value, by_block, axis=1)  # each block in its place, its values in their order
        values = np.take_along_axis(rows, places, axis=1)
        is_left = places % (2 * half) < half
        lower = np.cumsum(is_left, axis=1) - begin // 2  # values of the block's left half that are not higher
        np.cumsum(np.where(is_left, values, 0.0), axis=1, out=sums[:, 1:])
        told = values * (2 * lower - half) + sums[:, begin] + sums[:, end] - 2 * sums[:, 1:]
        np.put_along_axis(of_blocks, places, np.where(is_left, 0.0, told), axis=1)
        found += of_blocks
        half *= 2
    return found
