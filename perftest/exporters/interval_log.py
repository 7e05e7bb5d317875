"""An interval log of HdrHistogram with one line for each series of an interval, over all workers.

The run's own ``latency.hlog`` has a line for each worker, with tags that tell its step. Tools that know no such tags
read this log: a tag is the name of a series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perftest.exporters.slots import ExportedSlot
from perftest.metrics.interval import Series
from perftest.results.hlog import header


def log(slots: Iterable[ExportedSlot], series: Iterable[Series]) -> str:
    """The content of the log: values in nanoseconds, times in seconds since the first interval, maxima in
    milliseconds."""
    found, wanted = list(slots), set(series)
    base_ns = min((slot.start_ns for slot in found), default=0) // 10**6 * 10**6
    return header(base_ns) + "".join(line for slot in found for line in _lines(slot, wanted, base_ns))


def _lines(slot: ExportedSlot, wanted: set[Series], base_ns: int) -> Iterator[str]:
    start_s, length_s = (slot.start_ns - base_ns) / 1e9, slot.length_ns / 1e9
    for series, histogram in sorted(slot.latencies.items()):
        if series in wanted and histogram.total:
            maximum_ms = f"{histogram.max_ns // 10**6}.{histogram.max_ns % 10**6:06d}"
            yield f"Tag={series},{start_s:.3f},{length_s:.3f},{maximum_ms},{histogram.encode()}\n"
