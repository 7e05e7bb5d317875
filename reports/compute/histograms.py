"""The histograms of a run, merged over workers, slots and hosts, and the figures of the merged histograms.

Merging is bucket-wise addition: exact, associative and commutative. So histograms may be merged in any order and in
several places, and the result is the same bit for bit. Percentiles come from merged histograms only; no percentile is
averaged.

:func:`merge_run` goes through the histograms slot by slot, decodes each payload once, and keeps no more than the merged
histograms of steps (and of hosts, in a run on several hosts): the memory that it takes does not grow with the length of
the run. :func:`merge_part` makes fewer histograms of many, for a run that several workers read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from hdr_buckets import BUCKET_HIGHEST_NS, Counts, PayloadError
from perftest.metrics.histogram import Histogram, check_maximum, decode_span, rank
from perftest.results import schema as files
from perftest.results.trust import supports
from reports.compute.run_plan import RunPlan
from reports.store.columns import Row, table_of_rows
from reports.store.schema import HOST_SERIES, LATENCY, PERCENTILES, TIMELINE_PERCENTILES, TIMELINE_SERIES, WHOLE_RUN

PLACE: Final = ("step", "group", "phase", "slot", "series", "host")
"""Facts that identify a histogram, in the order in which histograms are merged."""
SLOTTED: Final = pa.schema(
    [
        *(("step", pa.int64()), ("group", pa.string()), ("phase", pa.string()), ("slot", pa.int64())),
        *(("series", pa.string()), ("host", pa.string())),
        *(("max_ns", pa.int64()), ("payload", pa.string()), ("offset", pa.int64()), ("raw", pa.string())),
    ]
)
"""Histograms with their places; ``offset`` and ``raw`` are about the line, should the payload be damaged."""
COUNT_MAX: Final = 2.0**50
"""Largest count of a histogram of an interval: sums of thousands of histograms stay within 64 bits."""


class HistogramDamage(NamedTuple):
    """A payload that cannot be used, and the reason."""

    offset: int
    reason: str
    raw: str


class _Slotted(NamedTuple):
    """One row of SLOTTED."""

    step: int
    group: str
    phase: str
    slot: int
    series: str
    host: str
    max_ns: int
    payload: str
    offset: int
    raw: str


@dataclass(kw_only=True)
class Merged:
    """The histograms of one run, merged. Steps, hosts and stages are about steady time only."""

    steps: dict[tuple[int, str, str], Histogram] = field(default_factory=dict)
    """By step, group of load and series."""
    hosts: dict[tuple[int, str, str, str], Histogram] = field(default_factory=dict)
    """By step, group of load, host and series; empty for a run on one host."""
    stages: dict[tuple[int, str], Histogram] = field(default_factory=dict)
    """Of stages within the broker, by step and series."""
    slots: dict[tuple[int, str, str, int], Row] = field(default_factory=dict)
    """The columns of ``timeline`` about latencies, by step, group of load, phase and slot."""
    damaged: list[HistogramDamage] = field(default_factory=list)

    @cached_property
    def step_figures(self) -> dict[tuple[int, str, str], Row]:
        """The figures of ``steps``, once nothing is added any more."""
        return {key: figures(histogram) for key, histogram in self.steps.items()}


def decoded(payload: str, max_ns: int) -> tuple[int, Counts]:
    """The counts of a payload that a file holds, and the bucket of the first count. Raises PayloadError."""
    first, counts = decode_span(payload)
    if len(counts):
        check_maximum(first + len(counts) - 1, max_ns)
    if counts.sum(dtype=np.float64) > COUNT_MAX:
        raise PayloadError("it counts more values than an interval can have")
    return first, counts


# --- merging ---------------------------------------------------------------------------------------------------------


def merge_run(slotted: pa.Table, spread: bool) -> Merged:
    """All merged histograms of a run.

    :param slotted: rows of SLOTTED, in any order
    :param spread: whether the run took place on several hosts
    """
    merged = Merged()
    for place, parts in groupby(_in_order(slotted), lambda row: row[:5]):
        whole: Histogram | None = None
        for host, of_host in groupby(parts, lambda row: row.host):
            found = _sum(of_host, merged.damaged)
            if found is not None:
                if spread:
                    _add_host(merged, place, host, found)
                whole = _plus(whole, found)
        if whole is not None:
            _add_slot(merged, place, whole)
    return merged


def merge_part(slotted: pa.Table) -> tuple[pa.Table, list[HistogramDamage]]:
    """A part of the histograms of a run, with histograms of equal places merged, and the damaged payloads of these. A
    histogram alone at its place is neither changed nor decoded."""
    damaged: list[HistogramDamage] = []
    rows: list[Row] = []
    for place, of_place in groupby(_in_order(slotted), lambda row: row[:6]):
        parts = list(of_place)
        if len(parts) == 1:
            rows.append(parts[0]._asdict())
            continue
        found = _sum(parts, damaged)
        if found is not None:
            content = {"max_ns": found.max_ns, "payload": found.encode(), "offset": 0, "raw": ""}
            rows.append(dict(zip(PLACE, place, strict=True)) | content)
    return table_of_rows(rows, SLOTTED), damaged


def _in_order(slotted: pa.Table) -> list[_Slotted]:
    """The rows, with rows of equal places beside each other. Histograms of stages are of the steady time of a step as a
    whole, and have no slot and no group."""
    columns = [slotted.column(name).to_pylist() for name in SLOTTED.names]
    return sorted(map(_Slotted._make, zip(*columns, strict=True)))


def _sum(parts: Iterable[_Slotted], damaged: list[HistogramDamage]) -> Histogram | None:
    """The sum of the histograms that can be used; None if there is none."""
    whole: Histogram | None = None
    for part in parts:
        try:
            first, counts = decoded(part.payload, part.max_ns)
        except PayloadError as error:
            damaged.append(HistogramDamage(part.offset, f"payload: {error}", part.raw))
            continue
        whole = whole or Histogram()
        whole.add_counts(first, counts, part.max_ns)
    return whole


def _plus(whole: Histogram | None, part: Histogram) -> Histogram:
    """The sum; a histogram that stays alone is not added to anything. Both may be changed."""
    if whole is None:
        return part
    whole.add(part)
    return whole


def _add_host(merged: Merged, place: Sequence[Any], host: str, found: Histogram) -> None:
    step, group, phase, _, series = place
    if phase == "steady" and series in HOST_SERIES:
        merged.hosts.setdefault((step, group, host, series), Histogram()).add(found)


def _add_slot(merged: Merged, place: Sequence[Any], found: Histogram) -> None:
    step, group, phase, slot, series = place
    if is_stage(series):
        if phase == "steady":
            merged.stages.setdefault((step, series), Histogram()).add(found)
        return
    if series in TIMELINE_SERIES:
        merged.slots.setdefault((step, group, phase, slot), {}).update(_slot_columns(series, found))
    if phase == "steady":
        merged.steps.setdefault((step, group, series), Histogram()).add(found)


def _slot_columns(series: str, histogram: Histogram) -> Row:
    values_ns = histogram.capped_percentiles_ns([PERCENTILES[name] for name in TIMELINE_PERCENTILES])
    row: Row = {f"{series}_{name}_ns": ns for name, ns in zip(TIMELINE_PERCENTILES, values_ns, strict=True)}
    return row | {f"{series}_count": histogram.total, f"{series}_max_ns": histogram.max_ns}


def is_stage(series: str) -> bool:
    """Whether a node kept the histogram, of a stage within the broker; else the load generator measured it."""
    return series.startswith(files.STAGE_PREFIX)


# --- figures ---------------------------------------------------------------------------------------------------------

FIGURES: Final = (*LATENCY.part("count", "mean_ns", *(f"{name}_ns" for name in PERCENTILES)).names, "max_ns")
"""The figures of a histogram, each in a column of its own."""


def figures(histogram: Histogram) -> Row:
    """Count, mean, percentiles and maximum. A percentile is the top of its bucket, but never above the maximum."""
    return histogram.figures({f"{name}_ns": percentile for name, percentile in PERCENTILES.items()})


def by_series(rows: Iterable[tuple[Any, str, Row]]) -> dict[Any, Row]:
    """One row per key of figures in columns ``{series}_{figure}``, of (key, series, figures)."""
    wide: dict[Any, Row] = {}
    for key, series, row in rows:
        wide.setdefault(key, {}).update({f"{series}_{figure}": row[figure] for figure in FIGURES})
    return wide


def latency_rows(merged: Merged) -> list[Row]:
    """The rows of ``latency``: steps, and whole runs as step 0."""
    of_runs: dict[tuple[str, str], list[int]] = {}
    for step, group, series in merged.steps:
        of_runs.setdefault((group, series), []).append(step)
    rows = {key: merged.step_figures[key] | {"payload": each.encode()} for key, each in merged.steps.items()}
    for (group, series), numbers in of_runs.items():
        # A run of one step is that step.
        rows[WHOLE_RUN, group, series] = rows[numbers[0], group, series]
        if len(numbers) > 1:
            whole = Histogram()
            for step in numbers:
                whole.add(merged.steps[step, group, series])
            rows[WHOLE_RUN, group, series] = figures(whole) | {"payload": whole.encode()}
    return [{"step": key[0], "group": key[1], "series": key[2], **row} for key, row in sorted(rows.items(), key=_key)]


def stage_rows(merged: Merged, plan: RunPlan) -> list[Row]:
    """The rows of ``stages``; a series is ``stage.<chain>.<stage>``."""
    rows = []
    for (step, series), histogram in sorted(merged.stages.items(), key=_key):
        _, chain, stage = series.split(".", 2)
        row: Row = {"step": step, "label": plan.label_of_any_group(step), "chain": chain, "stage": stage}
        rows.append(row | figures(histogram) | {"payload": histogram.encode()})
    return rows


def spectrum_rows(merged: Merged, plan: RunPlan) -> list[Row]:
    """The rows of ``spectrum``."""
    rows = []
    for (step, group, series), histogram in sorted(merged.steps.items(), key=_key):
        label = plan.label(step, group)
        rows += [
            {
                "step": step,
                "group": group,
                "series": series,
                "label": label,
                "percentile": percentile,
                "nines": nines,
                "value_ns": min(value_ns, histogram.max_ns),
                "count_above": above,
                "supported": supports(histogram.total, percentile),
            }
            for percentile, nines, value_ns, above in curve(histogram, tuple(PERCENTILES.values()))
        ]
    return rows


def _key(item: tuple[Any, object]) -> Any:
    return item[0]


class CurvePoint(NamedTuple):
    """One point of a percentile curve; ``count_above`` samples are higher than ``value_ns``."""

    percentile: float
    nines: float
    value_ns: int
    count_above: int


POINTS_PER_NINE: Final = 10


def curve(histogram: Histogram, always: tuple[float, ...] = ()) -> list[CurvePoint]:
    """A percentile curve, evenly spaced in nines, as far as one sample lies beyond the percentile.

    :param always: percentiles (below 100) to include besides the even ones, so that tables and curve meet
    """
    samples = histogram.total
    if not samples:
        return []
    cumulative = np.cumsum(histogram.counts)
    nines_max = float(np.log10(samples))
    told = tuple(percentile for percentile in always if nines_of(percentile) <= nines_max)
    wanted = _wanted(int(nines_max * POINTS_PER_NINE + 1e-9) + 1, told)
    at = np.searchsorted(cumulative, [rank(percentile, samples) for percentile, _ in wanted])
    values, above = BUCKET_HIGHEST_NS[at].tolist(), (samples - cumulative[at]).tolist()
    return [CurvePoint(*point, *found) for point, *found in zip(wanted, values, above, strict=True)]


@lru_cache(maxsize=1024)
def _wanted(even: int, more: tuple[float, ...]) -> list[tuple[float, float]]:
    """``even`` percentiles, evenly spaced in nines, and ``more``, each with its nines."""
    nines = np.arange(even) / POINTS_PER_NINE
    wanted = {round(100.0 - 100.0 / 10.0**each, 10) for each in nines.tolist()} | set(more)
    return [(percentile, nines_of(percentile)) for percentile in sorted(wanted)]


@lru_cache(maxsize=1024)
def nines_of(percentile: float) -> float:
    """``-log10(1 - percentile / 100)``: 1 is p90, 2 is p99."""
    return float(-np.log10(1.0 - percentile / 100.0)) + 0.0
