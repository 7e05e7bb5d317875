"""Histograms as payloads, merged and summed up in Spark's Python workers.

Merging is bucket-wise addition: exact, associative and commutative, so histograms may be merged per partition first and
per key afterwards. :func:`merge_group` holds the counts of one key at a time. The partial merge holds at most
``KEYS_MAX`` keys, and then hands the merged histograms on: more keys cost more shuffle, and no memory.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from perftest.metrics.histogram import BUCKET_HIGHEST_NS, Histogram, rank
from perftest.results.trust import supports
from reports.store.columns import Batches, Row
from reports.store.schema import LATENCY, PERCENTILES, SPECTRUM

KEYS_MAX: Final = 256
"""The number of keys that a partial merge holds: 270 KB of counts for each key, so 70 MB at most."""


class Recorded(NamedTuple):
    """A histogram and its exact maximum in nanoseconds, which buckets only bound."""

    histogram: str | Histogram
    """A payload until something is added: a histogram that stays alone is never decoded."""
    max_ns: int

    def plus(self, payload: str, max_ns: int) -> Recorded:
        """This histogram with another one added to it. The counters are changed in place."""
        merged = _decoded(self.histogram, self.max_ns) if isinstance(self.histogram, str) else self.histogram
        merged.add_payload(payload, max_ns)
        return Recorded(merged, merged.max_ns)

    def columns(self) -> Row:
        """As it stands in a row."""
        payload = self.histogram if isinstance(self.histogram, str) else self.histogram.encode()
        return {"payload": payload, "max_ns": self.max_ns}


RECORDED: Final = ("payload", "max_ns")
"""The columns of a histogram; all others are its key."""


def merge_partial(batches: Batches) -> Batches:
    """Merge histograms of equal keys within a partition. All columns but those of RECORDED are the key."""
    held: dict[tuple[Any, ...], Recorded] = {}
    schema: pa.Schema | None = None
    for batch in batches:
        schema = batch.schema
        keys = [batch.column(name).to_pylist() for name in batch.schema.names if name not in RECORDED]
        recorded = [batch.column(name).to_pylist() for name in RECORDED]
        for key, payload, max_ns in zip(zip(*keys, strict=True), *recorded, strict=True):
            before = held.get(key)
            held[key] = Recorded(payload, max_ns) if before is None else before.plus(payload, max_ns)
            if len(held) > KEYS_MAX:
                yield _let_go(held, schema)
                held = {}
    if schema is not None:
        yield _let_go(held, schema)


def _let_go(held: dict[tuple[Any, ...], Recorded], schema: pa.Schema) -> pa.RecordBatch:
    names = [name for name in schema.names if name not in RECORDED]
    rows = [dict(zip(names, key, strict=True)) | merged.columns() for key, merged in held.items()]
    return pa.RecordBatch.from_pylist(rows, schema)


def merge_group(group: pa.Table) -> pa.Table:
    """Merge all histograms of one key into one row."""
    first, *others = zip(*(group.column(name).to_pylist() for name in RECORDED), strict=True)
    merged = Recorded(*first)
    for payload, max_ns in others:
        merged = merged.plus(payload, max_ns)
    row = group.slice(0, 1).to_pylist()[0] | merged.columns()
    return pa.Table.from_pylist([row], group.schema)


def percentiles(batches: Batches) -> Batches:
    """Add count, mean and percentiles of the histogram to each row. A percentile is the top of its bucket, but never
    above the maximum."""
    for batch in batches:
        columns: dict[str, list[int | float]] = {name: [] for name in SUMMARY.names}
        recorded = [batch.column(name).to_pylist() for name in RECORDED]
        for payload, max_ns in zip(*recorded, strict=True):
            for name, value in _summary(_decoded(payload, max_ns)).items():
                columns[name].append(value)
        arrays = [pa.array(columns[field.name], field.type) for field in SUMMARY]
        yield pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=with_summary(batch.schema))


SUMMARY: Final = LATENCY.part("count", "mean_ns", *(f"{name}_ns" for name in PERCENTILES))
FIGURES: Final = (*SUMMARY.names, "max_ns")
"""The figures of a histogram, each in a column of its own."""


def with_summary(schema: pa.Schema) -> pa.Schema:
    """The schema of the batches that :func:`percentiles` makes of batches with this schema."""
    return pa.schema([*schema, *SUMMARY])


def _decoded(payload: str, max_ns: int) -> Histogram:
    histogram = Histogram()
    histogram.add_payload(payload, max_ns)
    return histogram


def _summary(histogram: Histogram) -> dict[str, int | float]:
    values_ns = histogram.capped_percentiles_ns(tuple(PERCENTILES.values()))
    row: dict[str, int | float] = {"count": histogram.total, "mean_ns": histogram.mean_ns}
    return row | {f"{name}_ns": value_ns for name, value_ns in zip(PERCENTILES, values_ns, strict=True)}


POINTS: Final = SPECTRUM.without("label")


def spectrum(batches: Batches) -> Batches:
    """The points of the percentile curve of each (run_id, step, group, series, payload, max_ns)."""
    for batch in batches:
        rows: list[Row] = []
        for row in batch.to_pylist():
            histogram = _decoded(row.pop("payload"), row.pop("max_ns"))
            for point in curve(histogram, tuple(PERCENTILES.values())):
                supported = supports(histogram.total, point.percentile)
                figures = {"value_ns": min(point.value_ns, histogram.max_ns), "supported": supported}
                rows.append(row | point._asdict() | figures)
        yield pa.RecordBatch.from_pylist(rows, POINTS)


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
    even = np.arange(int(nines_max * POINTS_PER_NINE + 1e-9) + 1) / POINTS_PER_NINE
    wanted = {round(100.0 - 100.0 / 10.0**nines, 10) for nines in even.tolist()}
    wanted |= {percentile for percentile in always if nines_of(percentile) <= nines_max}
    points = []
    for percentile in sorted(wanted):
        at = int(np.searchsorted(cumulative, rank(percentile, samples)))
        above = samples - int(cumulative[at])
        points.append(CurvePoint(percentile, nines_of(percentile), int(BUCKET_HIGHEST_NS[at]), above))
    return points


def nines_of(percentile: float) -> float:
    """``-log10(1 - percentile / 100)``: 1 is p90, 2 is p99."""
    return float(-np.log10(1.0 - percentile / 100.0)) + 0.0
