"""The settings of a sweep as numbers that can be put in order, and the lines along which one setting alone changes.

Steps run in any order: descending, drawn by a seed, or every combination of several settings. So their numbers say
nothing about which setting is larger. A step is compared with its neighbour on a *line*: the steps that agree in every
swept setting but one, in the order of that one. A sweep of one setting is one line; a grid has lines in each direction;
settings that change together have no line at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import pandas as pd

NO_LIMIT: Final[Mapping[str, int]] = {"in_flight": 0, "prefetch": 0, "ack_interval": 0, "ack_after_ms": 0}
"""The value that switches a limit off: it is beyond every limit, not below."""


@dataclass(frozen=True, slots=True)
class AxisLine:
    """Rows that differ in ``setting`` alone, two at least, from its lowest value to its highest."""

    setting: str
    rows: tuple[int, ...]


def axes(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pd.DataFrame:
    """The value of each setting in ``names`` (a column) in each step (a row). No limit is infinite; texts get numbers
    in their own order."""
    return pd.DataFrame({name: _numbers(name, [step.get(name) for step in settings]) for name in names}, dtype=float)


def order(values: pd.DataFrame) -> list[int]:
    """The rows from the lowest setting to the highest, the first setting foremost; equal ones stay as they are."""
    rows = values.to_numpy().tolist()
    return sorted(range(len(rows)), key=rows.__getitem__)


def lines(values: pd.DataFrame) -> list[AxisLine]:
    """Every line of these steps. Rows are places in ``values``, whose settings all differ from each other."""
    found = []
    for name in values.columns:
        others = [other for other in values.columns if other != name]
        groups = values.groupby(others, sort=True).indices.values() if others else [range(len(values))]
        for rows in groups:
            ordered = sorted((int(row) for row in rows), key=lambda row: float(values[name].iloc[row]))
            found += [AxisLine(str(name), tuple(ordered))] if len(ordered) > 1 else []
    return found


def _numbers(name: str, values: Sequence[object]) -> list[float]:
    texts = sorted({str(value) for value in values if not isinstance(value, int | float | None)})
    return [_number(name, value, texts) for value in values]


def _number(name: str, value: object, texts: Sequence[str]) -> float:
    if value is None or (value == NO_LIMIT.get(name) and not isinstance(value, bool)):
        return inf
    return float(value) if isinstance(value, int | float) else float(texts.index(str(value)))
