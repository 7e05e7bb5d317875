"""Whether a step was steady: its first half against its second.

The intervals of one step are not independent of each other, so a test of significance would be wrong. A drift is a
size, and its limit is chosen. The p50 of a half is the median of the p50 of its slots; that serves to compare the
halves, and is never a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

SLOTS_MIN: Final = 4
"""With fewer slots a half is one slot, and the slots' own scatter looks like drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How one step changed: factors of second half over first; ``p50`` is None without latencies in a half."""

    step: int
    label: str
    rate: float
    p50: float | None


def drifts(timeline: pd.DataFrame, *, p50: str) -> tuple[list[Drift], list[str]]:
    """The drift of each step of one run, and the labels of steps too short to tell.

    :param timeline: rows of the table ``timeline`` of one run
    :param p50: the column of slot p50s
    """
    found: list[Drift] = []
    short: list[str] = []
    names = ["step", "slot", "label", "length_s", "delivered_per_s", p50]
    steady = timeline.loc[timeline["phase"] == "steady", names].sort_values(["step", "slot"])
    for number, slots in steady.groupby("step"):
        label = str(slots["label"].iloc[0])
        if len(slots) < SLOTS_MIN:
            short.append(label)
            continue
        half = len(slots) // 2
        first, second = slots.iloc[:half], slots.iloc[-half:]
        before, after = _rate(first), _rate(second)
        if before > 0:
            found.append(Drift(step=int(str(number)), label=label, rate=after / before, p50=_ratio(first, second, p50)))
    return found, short


def _rate(slots: pd.DataFrame) -> float:
    """Delivered messages per second of measured time: slots need not be of equal length."""
    time_s = float(slots["length_s"].sum())
    return float((slots["delivered_per_s"] * slots["length_s"]).sum()) / time_s if time_s > 0 else 0.0


def _ratio(first: pd.DataFrame, second: pd.DataFrame, column: str) -> float | None:
    before, after = first[column].dropna().median(), second[column].dropna().median()
    if pd.isna(before) or pd.isna(after) or before <= 0:
        return None
    return float(after / before)
