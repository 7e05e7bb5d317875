"""Intervals of confidence by resampling: how much a figure could have been another one.

Repetitions of a run are independent: each draw takes as many of them, with replacement. The intervals within one run
are not, because a slow second is followed by a slow second; they are drawn in blocks of neighbours (circular block
bootstrap, Politis and Romano 1992), whose length grows with the cube root of their number.

A draw is written as *weights*: how often each item was taken. So a rate is a product of matrices, and a percentile is
read from histograms that are added as often as their interval was drawn: never an average of percentiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

DRAWS: Final = 1000
_PORTION: Final = 100
"""Draws whose histograms are in memory at the same time."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Change:
    """Candidate over baseline, less 1, and between which bounds it lies with the given confidence."""

    value: float
    low: float
    high: float


def weights(items: int, block: int, rng: np.random.Generator, draws: int = DRAWS) -> Counts:
    """How often each of ``items`` is in each draw: shape (draws, items), each row sums to ``items``."""
    blocks = -(-items // block)
    starts = rng.integers(items, size=(draws, blocks))
    taken = ((starts[:, :, None] + np.arange(block)) % items).reshape(draws, -1)[:, :items]
    rows = np.repeat(np.arange(draws), items)
    found: Counts = np.bincount(rows * items + taken.ravel(), minlength=draws * items).reshape(draws, items)
    return found


def block_length(items: int) -> int:
    """Neighbours drawn together: the cube root of their number, at least 1."""
    return max(round(float(np.cbrt(items))), 1)


def ratios(numerators: Floats, denominators: Floats, weight: Counts) -> Floats:
    """The ratio of two sums in each draw, for example messages and seconds."""
    return np.asarray((weight @ numerators) / (weight @ denominators), np.float64)


def percentiles(histograms: Counts, values: Floats, percents: Sequence[float], weight: Counts) -> Floats:
    """Percentiles in each draw: shape (percents, draws). ``histograms``: (items, buckets) counters; ``values``: the
    value of each bucket. NaN where a draw holds no value at all.

    Integers are multiplied without BLAS, whose threads would take turns with a load that is running.
    """
    used = np.flatnonzero(histograms.any(axis=0))
    found = np.full((len(percents), len(weight)), np.nan)
    narrow, of_bucket = histograms[:, used], values[used]
    for start in range(0, len(weight) if len(used) else 0, _PORTION):
        total = np.cumsum(weight[start : start + _PORTION] @ narrow, axis=1)
        for row, percent in zip(found, percents, strict=True):
            target = np.maximum(percent / 100 * total[:, -1] + 0.5, 1.0).astype(np.int64)
            at = np.minimum((total < target[:, None]).sum(axis=1), len(used) - 1)
            row[start : start + _PORTION] = np.where(total[:, -1] > 0, of_bucket[at], np.nan)
    return found


def medians(values: Floats, weight: Counts) -> Floats:
    """The median of repetitions in each draw."""
    drawn = np.repeat(np.tile(values, len(weight)), weight.ravel()).reshape(len(weight), -1)
    return np.asarray(np.median(drawn, axis=1), np.float64)


def change(base: float, candidate: float, base_draws: Floats, candidate_draws: Floats, confidence: float) -> Change:
    """The relative change, and the middle ``confidence`` (0..1) of what the draws say. Draws without a value, or with a
    base of 0, say nothing; if none says anything the bounds are infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = candidate_draws / base_draws - 1
    drawn = drawn[np.isfinite(drawn)]
    value = candidate / base - 1 if base else np.nan
    if not len(drawn):
        return Change(float(value), -np.inf, np.inf)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Change(float(value), float(low), float(high))
