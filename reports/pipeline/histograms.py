"""Histograms as payloads, merged and summed up in Spark's Python workers.

Merging is bucket-wise addition: exact, associative and commutative, so it may happen per partition first and per key
afterwards. Counts of one key are held at a time in :func:`merge_group`; the partial merge holds at most ``KEYS_MAX``
keys and then lets go of what it has, which costs shuffle, never memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from reports.pipeline import hdr
from reports.pipeline.batches import Batches, Row
from reports.pipeline.schema import PERCENTILES, SAMPLES_ABOVE

KEYS_MAX: Final = 256
"""Keys a partial merge holds; one key's counts are 270 KB, so 70 MB."""


def merge_partial(batches: Batches) -> Batches:
    """Merge payloads of equal keys within a partition. All columns but ``payload`` are the key."""
    held: dict[tuple[Any, ...], str | hdr.Counts] = {}
    schema: pa.Schema | None = None
    for batch in batches:
        schema = batch.schema
        keys = [batch.column(name).to_pylist() for name in batch.schema.names if name != "payload"]
        payloads = batch.column("payload").to_pylist()
        for key, payload in zip(zip(*keys, strict=True), payloads, strict=True):
            held[key] = _added(held.get(key), payload)
            if len(held) > KEYS_MAX:
                yield _let_go(held, schema)
                held = {}
    if schema is not None:
        yield _let_go(held, schema)


def _added(held: str | hdr.Counts | None, payload: str) -> str | hdr.Counts:
    """A key's first payload is kept as it is: a key that stays alone is never decoded."""
    if held is None:
        return payload
    counts = hdr.decode(held) if isinstance(held, str) else held
    counts += hdr.decode(payload)
    return counts


def _let_go(held: dict[tuple[Any, ...], str | hdr.Counts], schema: pa.Schema) -> pa.RecordBatch:
    names = [name for name in schema.names if name != "payload"]
    rows = [
        dict(zip(names, key, strict=True)) | {"payload": merged if isinstance(merged, str) else hdr.encode(merged)}
        for key, merged in held.items()
    ]
    return pa.RecordBatch.from_pylist(rows, schema)


def merge_group(group: pa.Table) -> pa.Table:
    """Merge all payloads of one key into one row."""
    payloads = group.column("payload").to_pylist()
    merged: str | hdr.Counts | None = None
    for payload in payloads:
        merged = _added(merged, payload)
    first = group.slice(0, 1)
    text = merged if isinstance(merged, str) or merged is None else hdr.encode(merged)
    at = group.schema.get_field_index("payload")
    return first.set_column(at, group.schema.field(at), pa.array([text], pa.string()))


def percentiles(batches: Batches) -> Batches:
    """Add count, mean, percentiles and maximum of the payload to each row."""
    for batch in batches:
        columns: dict[str, list[int | float]] = {name: [] for name in SUMMARY.names}
        for payload in batch.column("payload").to_pylist():
            for name, value in _summary(hdr.decode(payload)).items():
                columns[name].append(value)
        arrays = [pa.array(columns[field.name], field.type) for field in SUMMARY]
        yield pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=with_summary(batch.schema))


SUMMARY: Final = pa.schema(
    [
        pa.field("count", pa.int64()),
        pa.field("mean_ns", pa.float64()),
        *(pa.field(f"{name}_ns", pa.int64()) for name in PERCENTILES),
        pa.field("max_ns", pa.int64()),
    ]
)


def with_summary(schema: pa.Schema) -> pa.Schema:
    """The schema of a batch of payloads once :func:`percentiles` was through it."""
    return pa.schema([*schema, *SUMMARY])


def _summary(counts: hdr.Counts) -> dict[str, int | float]:
    values = hdr.values_at(counts, tuple(PERCENTILES.values()))
    row: dict[str, int | float] = {"count": hdr.total(counts), "mean_ns": hdr.mean(counts)}
    row |= {f"{name}_ns": value for name, value in zip(PERCENTILES, values, strict=True)}
    return row | {"max_ns": hdr.maximum(counts)}


SPECTRUM: Final = pa.schema(
    [
        pa.field("run_id", pa.string()),
        pa.field("step", pa.int64()),
        pa.field("series", pa.string()),
        pa.field("percentile", pa.float64()),
        pa.field("nines", pa.float64()),
        pa.field("value_ns", pa.int64()),
        pa.field("count_above", pa.int64()),
        pa.field("supported", pa.bool_()),
    ]
)


def spectrum(batches: Batches) -> Batches:
    """The points of the percentile curve of each (run_id, step, series, payload)."""
    for batch in batches:
        rows: list[Row] = []
        for row in batch.to_pylist():
            counts = hdr.decode(row.pop("payload"))
            samples = hdr.total(counts)
            for point in hdr.curve(counts, tuple(PERCENTILES.values())):
                supported = supports(samples, point.percentile)
                rows.append(row | point._asdict() | {"supported": supported})
        yield pa.RecordBatch.from_pylist(rows, SPECTRUM)


def supports(samples: int, percentile: float) -> bool:
    """Whether enough samples lie beyond a percentile to call it measured."""
    return bool(np.round(samples * (100.0 - percentile) / 100.0, 6) >= SAMPLES_ABOVE)
