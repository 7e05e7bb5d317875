"""The same histograms merged by other means, each in a process of its own: ``python -m tests.bench.pipeline.rivals``.

``loop``: hdrhistogram's C decoder in one Python loop. ``pandas``: the lines in a data frame, grouped by pandas. Both do
what the pipeline does with the steady histograms of clients, run by run: they merge each payload once, into the slot of
its interval, slots into steps, and steps into the run; they take the figures of all three from the counters with numpy,
and write all three, with the merged payloads of steps and runs, to a Parquet file. Neither looks at intervals, hosts or
brokers, and neither survives a damaged line. Both print one JSON object: seconds of work without imports, and a digest
of all figures, which must be the same for both.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from hdrh.histogram import HdrHistogram

from hdr_buckets import BUCKET_HIGHEST_NS
from perftest.metrics.histogram import rank
from perftest.results.hlog import HlogLine, base_ns_of, parse_line
from perftest.results.schema import LATENCY_HLOG, STAGE_PREFIX

Key = tuple[str | int, ...]
"""Series, step and second."""
Merged = Mapping[Key, HdrHistogram]
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)
LOWEST, HIGHEST, FIGURES = 1, 3_600_000_000_000, 3


def lines(log: Path) -> Iterator[HlogLine]:
    """The steady histograms of clients in the log of a run."""
    base_ns = 0
    with log.open(encoding="utf-8") as file:
        for text in file:
            base_ns = base_ns_of(text) or base_ns
            line = parse_line(text.rstrip("\n"), base_ns)
            if line is not None and line.phase == "steady" and not line.series.startswith(STAGE_PREFIX):
                yield line


def union(payloads: Iterable[str]) -> HdrHistogram:
    """One histogram, to which every payload is added."""
    histogram = HdrHistogram(LOWEST, HIGHEST, FIGURES)
    for payload in payloads:
        histogram.decode_and_add(payload)
    return histogram


def loop(log: Path) -> dict[Key, HdrHistogram]:
    """The slots of a run, by a dictionary."""
    found: dict[Key, list[str]] = {}
    for line in lines(log):
        found.setdefault((str(line.series), line.step, line.start_ns // 10**9), []).append(line.payload)
    return {key: union(payloads) for key, payloads in found.items()}


def pandas(log: Path) -> dict[Key, HdrHistogram]:
    """The slots of a run, by a data frame."""
    import pandas as pd

    rows = ((str(line.series), line.step, line.start_ns // 10**9, line.payload) for line in lines(log))
    frame = pd.DataFrame(rows, columns=["series", "step", "second", "payload"])
    found = frame.groupby(["series", "step", "second"])["payload"].agg(union)
    return {(str(series), int(step), int(second)): each for (series, step, second), each in found.items()}


def coarser(merged: Merged) -> dict[Key, HdrHistogram]:
    """The same histograms, merged over the last part of their keys."""
    found: dict[Key, HdrHistogram] = {}
    for key, histogram in merged.items():
        if key[:-1] not in found:
            found[key[:-1]] = HdrHistogram(LOWEST, HIGHEST, FIGURES)
        found[key[:-1]].add(histogram)
    return found


def percentiles(histogram: HdrHistogram) -> list[int]:
    """From the counters: ``get_value_at_percentile`` takes a thousand times longer."""
    below = np.cumsum(np.ctypeslib.as_array(histogram.counts))
    ranks = [rank(percentile, int(below[-1])) for percentile in PERCENTILES]
    found: list[int] = BUCKET_HIGHEST_NS[np.searchsorted(below, ranks)].tolist()
    return found


def rows(run: str, merged: Merged, with_payload: bool) -> Iterator[dict[str, Any]]:
    """A row per histogram."""
    for key, histogram in sorted(merged.items()):
        row: dict[str, Any] = {"run": run} | dict(zip(("series", "step", "second"), key, strict=False))
        row |= {"count": histogram.get_total_count(), "max_ns": histogram.get_max_value()}
        row |= {f"p{percentile}": ns for percentile, ns in zip(PERCENTILES, percentiles(histogram), strict=True)}
        yield row | {"payload": histogram.encode().decode() if with_payload else None}


SCHEMA = pa.schema(
    [
        *(("run", pa.string()), ("series", pa.string()), ("step", pa.int64()), ("second", pa.int64())),
        *(("count", pa.int64()), ("max_ns", pa.int64()), *((f"p{each}", pa.int64()) for each in PERCENTILES)),
        ("payload", pa.string()),
    ]
)


def main(name: str, folder: Path, target: Path) -> dict[str, Any]:
    """Run one rival, which writes the file ``target``."""
    began = time.perf_counter()
    table = []
    for log in sorted(folder.glob(f"*/{LATENCY_HLOG}")):
        slots = {"loop": loop, "pandas": pandas}[name](log)
        steps = coarser(slots)
        for merged, with_payload in ((slots, False), (steps, True), (coarser(steps), True)):
            table += rows(log.parent.name, merged, with_payload)
    parquet.write_table(pa.Table.from_pylist(table, SCHEMA), target, compression="zstd")
    seconds = round(time.perf_counter() - began, 3)
    text = json.dumps([[*row.values()][:-1] for row in table])
    return {"seconds": seconds, "rows": len(table), "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))) + "\n")
