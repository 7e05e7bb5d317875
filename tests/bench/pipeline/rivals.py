"""The same histograms merged by other means, each in a process of its own: ``python -m tests.bench.pipeline.rivals``.

``loop``: hdrhistogram's C decoder in one Python loop. ``pandas``: the lines in a data frame, grouped, decoded and added
up group by group. Both print one JSON object: seconds of work without imports, and a digest of all percentiles, which
must be the same for both.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram

from perftest.results.hlog import HlogLine, base_ns_of, parse_line
from perftest.results.schema import LATENCY_HLOG, STAGE_PREFIX

Key = tuple[str, int, str]
"""Run, step, series."""
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)
LOWEST, HIGHEST, FIGURES = 1, 3_600_000_000_000, 3


def lines(folder: Path) -> Iterator[tuple[str, HlogLine]]:
    """The steady histograms of clients in all runs below a folder."""
    for log in sorted(folder.glob(f"*/{LATENCY_HLOG}")):
        base_ns = 0
        with log.open(encoding="utf-8") as file:
            for text in file:
                base_ns = base_ns_of(text) or base_ns
                line = parse_line(text.rstrip("\n"), base_ns)
                if line is not None and line.phase == "steady" and not line.series.startswith(STAGE_PREFIX):
                    yield log.parent.name, line


def loop(folder: Path) -> dict[Key, list[int]]:
    """One histogram per key, to which every payload is added."""
    merged: dict[Key, HdrHistogram] = {}
    for run, line in lines(folder):
        key = (run, line.step, line.series)
        if key not in merged:
            merged[key] = HdrHistogram(LOWEST, HIGHEST, FIGURES)
        merged[key].decode_and_add(line.payload)
    return {key: _percentiles(histogram) for key, histogram in merged.items()}


def pandas(folder: Path) -> dict[Key, list[int]]:
    """A data frame of payloads, grouped."""
    import pandas as pd

    rows = ((run, line.step, line.series, line.payload) for run, line in lines(folder))
    frame = pd.DataFrame(rows, columns=["run", "step", "series", "payload"])

    def merged(payloads: Iterable[str]) -> list[int]:
        histogram = HdrHistogram(LOWEST, HIGHEST, FIGURES)
        for payload in payloads:
            histogram.decode_and_add(payload)
        return _percentiles(histogram)

    found = frame.groupby(["run", "step", "series"])["payload"].agg(merged)
    return {(str(run), int(step), str(series)): value for (run, step, series), value in found.items()}


def _percentiles(histogram: HdrHistogram) -> list[int]:
    return [int(histogram.get_value_at_percentile(each)) for each in PERCENTILES]


def digest(found: Mapping[Key, list[int]]) -> str:
    """A digest of all percentiles."""
    text = json.dumps(sorted([*key, *values] for key, values in found.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main(name: str, folder: Path) -> dict[str, Any]:
    """Run one rival."""
    began = time.perf_counter()
    found = {"loop": loop, "pandas": pandas}[name](folder)
    return {"seconds": round(time.perf_counter() - began, 3), "keys": len(found), "digest": digest(found)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]))) + "\n")
