"""The settling time of the tail after a change of settings.

The level of a step is the median p99 of its steady slots. A step has settled once the p99 of all later slots stays
within 5 % of that level. One slot alone is not heard: of every three neighbouring slots the median counts, because the
p99 of a single slot rests on few messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

WITHIN: Final = 0.05
"""Part of the level that a settled p99 stays within."""
SLOTS_MIN: Final = 5
"""Smallest number of slots: with fewer, nothing can be told from a median of three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """One step. ``after_s`` is the time from the start of the step until the p99 is at its level and stays there; None
    if the p99 did not settle within ``length_s``, the recorded time of the step. ``level_ns`` is the level."""

    step: int
    after_s: float | None
    level_ns: float
    length_s: float


def settlings(timeline: pd.DataFrame, *, p99: str) -> list[Settling]:
    """The settling of each step that has enough slots, in the order in which the steps ran.

    :param timeline: rows of the table ``timeline`` of one run and group of load
    :param p99: the column of slot p99s (ns)
    """
    measured = timeline[(timeline["phase"] != "drain") & timeline[p99].notna()].sort_values("t_s")
    found = [
        _of_step(int(str(step)), slots, p99)
        for step, slots in measured.groupby("step", sort=False)
        if len(slots) >= SLOTS_MIN and (slots["phase"] == "steady").any()
    ]
    return found


def _of_step(step: int, slots: pd.DataFrame, p99: str) -> Settling:
    level = float(slots.loc[slots["phase"] == "steady", p99].median())
    smooth = slots[p99].rolling(3, center=True, min_periods=2).median()
    away = [place for place, is_away in enumerate((smooth / level - 1).abs() > WITHIN) if is_away]
    first = away[-1] + 1 if away else 0
    start_s = float(slots["t_s"].iloc[0])
    end_s = float((slots["t_s"] + slots["length_s"]).max())
    # The last slot alone shows no staying.
    settled = first < len(slots) - 1
    after_s = round(float(slots["t_s"].iloc[first]) - start_s, 6) if settled else None
    return Settling(step=step, after_s=after_s, level_ns=level, length_s=end_s - start_s)
