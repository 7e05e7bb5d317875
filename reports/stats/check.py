"""What the makers of checks have in common: rows of steps, limits, words.

A check (:class:`perftest.results.trust.Check`) is pass, warn or fail with one sentence; a note says what a reader must
know and carries no weight. FAIL means that the figures do not show what they claim to show: messages were lost, or the
generator was the limit. WARN means that the figures need care. Every limit is a constant with its reason: in
:mod:`perftest.results.trust` where the terminal has the same limit, else beside the check.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from perftest.results.trust import Status
from reports.pipeline.tables import Tables


def run_of(tables: Tables) -> pd.Series[Any]:
    """The row of the one run."""
    return tables.runs.iloc[0]


def divided(above: pd.Series[Any], below: pd.Series[Any]) -> pd.Series[Any]:
    """The quotient of two columns, in the rows that have one."""
    usable = above.notna() & below.notna() & (below > 0)
    return above[usable] / below[usable]


def beyond(steps: pd.DataFrame, values: pd.Series[Any], limit: float) -> tuple[int, ...]:
    """The steps whose value is beyond a limit."""
    return numbers(steps.loc[values[values > limit].index])


def at(steps: pd.DataFrame, position: Any, values: pd.Series[Any]) -> pd.Series[Any]:
    """The step of the value at a position of ``values``, which has some of the steps' rows."""
    return steps.loc[values.index].iloc[int(position)]


def numbers(steps: pd.DataFrame) -> tuple[int, ...]:
    """The numbers of these steps."""
    return tuple(int(step) for step in steps["step"])


def status_of(value: float, warn: float, fail: float, *, inclusive: bool = True) -> Status:
    """Higher is worse; a value at a limit has reached it, unless the limit is what is still allowed."""
    if value > fail or (inclusive and value == fail):
        return Status.FAIL
    return Status.WARN if value > warn or (inclusive and value == warn) else Status.PASS


def sentence(text: str) -> str:
    """A clause as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def in_time(value_ns: float) -> str:
    """Nanoseconds in the unit a reader would use, with three figures."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value_ns >= size:
            return f"{value_ns / size:.3g} {unit}"
    return f"{value_ns:.0f} ns"


def in_percent(part: float) -> str:
    """A part of one, with three figures."""
    return f"{100 * part:.3g} %"


def in_change(factor: float) -> str:
    """How much more or less than before, in percent."""
    return f"{100 * (factor - 1):+.1f} %"
