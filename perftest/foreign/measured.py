"""The facts and figures in another tool's result files of a run, in the units of this project.

A latency comes in one of two forms. Histograms are counted into our buckets. Percentiles without a histogram are
*stated* figures: they are kept as they are, shown as the tool's own, and never merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from perftest.errors import HelpfulError
from perftest.metrics.histogram import SparseCounts
from perftest.metrics.interval import Series

COUNT_MAX: Final = 2**40
"""Largest count of an interval: a greater number is damage."""
LENGTH_MAX_NS: Final = 100 * 24 * 3600 * 10**9
"""Longest run: 100 days."""
LATENCY_MAX_NS: Final = 10 * 24 * 3600 * 10**9
"""Longest latency, 10 days: a longer latency is damage, or of another unit."""

GENERATOR_FIGURES: Final = (
    *("worker_cpu_share", "worker_cpu_us_per_message", "worker_wait_share", "loop_lag_ns"),
    *("gc_collections", "gc_pause_ns", "steal_ns", "steal_share"),
)
"""Figures of the load generator itself: no other tool tells them."""
UNKNOWN_COUNTS: Final = ("redelivered", "acked", "negative_latencies")
"""Counts that no other tool tells."""


class ForeignFileError(HelpfulError):
    """A result file of another tool that cannot be used."""

    code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFigures:
    """Percentiles of one latency, in ns by name (``p99_ns``), as the tool states them of one interval or, with
    ``whole``, of the whole run. ``quantiles`` is the full list, where the tool has one: percentile (0..100) to ns."""

    series: Series
    offset_ns: int
    length_ns: int
    whole: bool = False
    figures: Mapping[str, int]
    quantiles: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One interval of the run; ``offset_ns`` counts from the start of the run. ``counts`` has only what is known."""

    offset_ns: int
    length_ns: int
    counts: Mapping[str, int]
    latencies: Mapping[Series, SparseCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One run of another tool.

    ``started_ns`` is Unix time, None if the file does not tell. ``unknown`` has sentences for people; ``missing`` names
    the figures of a row that the tool does not tell. ``settings`` are the settings in the file.
    """

    tool: str
    name: str
    slices: Sequence[Slice]
    stated: Sequence[StatedFigures] = ()
    started_ns: int | None = None
    settings: Mapping[str, int | float | bool] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def length_ns(self) -> int:
        """The time from the start to the end of the last interval."""
        return max((each.offset_ns + each.length_ns for each in self.slices), default=0)


def ns_of(value: float, unit_ns: int) -> int | None:
    """A latency in nanoseconds; None if the number is no latency."""
    return round(value * unit_ns) if 0 <= value * unit_ns <= LATENCY_MAX_NS else None
