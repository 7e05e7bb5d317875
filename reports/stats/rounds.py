"""Rounds of one plan as one: the centre of each step over its rounds, with the interval that chance leaves.

A round counts as one value, however long it was (:mod:`reports.stats.confidence`). Centres are geometric means.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import exp, inf, log, sqrt
from statistics import fmean, stdev
from typing import Final

import pandas as pd

from reports.stats.confidence import student_quantile

CONFIDENCE: Final = 0.95
"""Confidence of each interval."""

Interval = tuple[float, float, float]
"""A centre and its bounds; the bounds of a single value are infinite."""


def interval(values: Sequence[float]) -> Interval:
    """The geometric mean of positive values, with Student's bounds at :data:`CONFIDENCE`."""
    logs = [log(value) for value in values]
    centre = fmean(logs)
    if len(logs) < 2:
        return exp(centre), -inf, inf
    half = student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    return exp(centre), exp(centre - half), exp(centre + half)


def overlapping(intervals: Sequence[Interval]) -> list[list[int]]:
    """For each interval, the places of the others that overlap with it: figures that the rounds do not tell apart. An
    interval without bounds overlaps with none, because a single value says nothing about chance."""
    known = [all(abs(bound) < inf for bound in each[1:]) for each in intervals]
    return [
        [
            other
            for other, (_, low, high) in enumerate(intervals)
            if other != at and known[at] and known[other] and low <= own_high and own_low <= high
        ]
        for at, (_, own_low, own_high) in enumerate(intervals)
    ]


def over_rounds(rounds: Sequence[pd.DataFrame], figures: Collection[str], counts: Collection[str]) -> pd.DataFrame:
    """One row for each setting that every round measured, in the order of the first round.

    ``rounds`` are steps with the column ``settings``; of a setting that a round measured several times, the last step
    counts. Each of ``figures`` becomes its centre, with the columns ``<figure>_low`` and ``<figure>_high``; each of
    ``counts`` becomes the sum. A figure that is missing or 0 in a round has no centre. Other columns are those of the
    first round.
    """
    keyed = [steps.drop_duplicates("settings", keep="last").set_index("settings", drop=False) for steps in rounds]
    shared = [key for key in keyed[0].index if all(key in other.index for other in keyed[1:])]
    found = keyed[0].loc[shared].reset_index(drop=True)
    for figure in figures:
        columns = [steps[figure].astype(float) for steps in keyed]
        values = [[float(column[key]) for column in columns] for key in shared]
        rows = [interval(row) if all(value > 0 for value in row) else (float("nan"), -inf, inf) for row in values]
        for name, column in zip((figure, f"{figure}_low", f"{figure}_high"), zip(*rows, strict=True), strict=False):
            found[name] = list(column)
    totals = {name: pd.concat([steps[name] for steps in keyed]).groupby(level=0).sum() for name in counts}
    return found.assign(**{name: total.reindex(shared).to_numpy() for name, total in totals.items()})


def spread(rounds: Sequence[pd.DataFrame], figure: str) -> float:
    """The largest ratio between two rounds of one setting; 1 if no two can be compared."""
    values = pd.concat([steps[["settings", figure]] for steps in rounds])
    values = values[values[figure] > 0]
    ratio = values.groupby("settings")[figure].agg(lambda each: each.max() / each.min())
    return float(ratio.max()) if len(ratio) else 1.0
