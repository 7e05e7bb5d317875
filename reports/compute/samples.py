"""Samples taken one after the other of the same thing: how far counters went between two of them, and means over time.

Counters are cumulative since the start of a process or a host. So the first sample has no rate, nor has a sample whose
counter went back. Sums of real numbers are rounded once (``math.fsum``), so the order of samples changes no figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reports.compute.run_plan import NS
from reports.store.columns import Row

Number = int | float


def in_pairs(rows: Sequence[Row], key: Callable[[Row], Any]) -> list[tuple[Row, Row | None]]:
    """Each sample with the previous sample of the same key, by ``t_ns``; in the order of time."""
    last: dict[Any, Row] = {}
    pairs = []
    for row in sorted(rows, key=lambda row: row["t_ns"]):
        pairs.append((row, last.get(key(row))))
        last[key(row)] = row
    return pairs


def length_s(row: Row, before: Row | None) -> float | None:
    """Seconds since the previous sample."""
    return None if before is None else (row["t_ns"] - before["t_ns"]) / NS


def grown(row: Row, before: Row | None, name: str) -> Number | None:
    """Growth of a counter since the previous sample; None if one of the samples has no counter."""
    if before is None or row[name] is None or before[name] is None:
        return None
    change: Number = row[name] - before[name]
    return change


def per_s(change: Number | None, length: float | None) -> float | None:
    """The rate of a counter; None if it went back, or no time passed."""
    if change is None or length is None or length <= 0 or change < 0:
        return None
    return change / length


def mean(values: Iterable[Number | None]) -> float | None:
    """The mean of the values that are known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def weighted_mean(values: Iterable[tuple[Number | None, float]]) -> float | None:
    """The mean of the values that are known, each with its weight; the weights of unknown values count, too."""
    pairs = list(values)
    known = [value * weight for value, weight in pairs if value is not None]
    return math.fsum(known) / math.fsum(weight for _, weight in pairs) if known else None


def total(values: Iterable[Number | None]) -> float | None:
    """The sum of the values that are known; None if there is none."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def overlap_s(row: Row, start_ns: int, end_ns: int) -> float:
    """The part, in seconds, of the time since the previous sample (``length_s``) that lies within a step's steady time;
    not above 0 if there is none."""
    # Whole nanoseconds: Unix time in nanoseconds is beyond what a double tells apart.
    begins_ns = row["t_ns"] - round(row["length_s"] * NS)
    return float((min(row["t_ns"], end_ns) - max(begins_ns, start_ns)) / NS)
