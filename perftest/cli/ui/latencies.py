"""Latencies at the end of a run, for those who ask for more than the table of the steps has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perftest.cli.ui.board import milliseconds
from perftest.cli.ui.perftest_lines import HEADER, latency_text
from perftest.cli.ui.table import render
from perftest.metrics.interval import Series
from perftest.results.histograms import Merged
from perftest.results.summary import Tally


def percentiles_table(tally: Tally, rows: Sequence[Mapping[str, Any]], percentiles: Sequence[float]) -> str:
    """A line per step and latency: the percentiles (ms) that the number of samples supports, and the maximum.

    A percentile needs ten samples above it; one that has less is left out, for it would be the maximum in disguise.
    """
    lines = []
    for row in rows:
        for series, histogram in sorted(_of(tally, row).items()):
            values = {f"p{percent:g}": _percentile(histogram, percent) for percent in percentiles}
            name = {"step": row["label"] or str(row["step"]), "latency ms": series.value}
            lines.append({**name, **values, "max": milliseconds(histogram.max_ns), "samples": f"{histogram.count:,}"})
    return render(lines)


def legacy_table(tally: Tally, rows: Sequence[Mapping[str, Any]], *, in_millis: bool) -> str:
    """What PerfTest would show: latencies from the actual send, in which a stall of the broker hides."""
    lines = []
    for row in rows:
        for name, series in (("consumer", Series.E2E), ("confirm", Series.CONFIRM)):
            histogram = _of(tally, row).get(series)
            if histogram is not None and histogram.count:
                place = f" ({row['label']})" if row["label"] else ""
                text = latency_text(histogram, in_millis=in_millis)
                lines.append(f"from the send, as PerfTest measures: {name} latency {HEADER} {text}{place}")
    return "\n".join(lines)


def _of(tally: Tally, row: Mapping[str, Any]) -> Mapping[Series, Merged]:
    totals = tally.steady.get(row["step"])
    return totals.latencies if totals is not None else {}


def _percentile(histogram: Merged, percent: float) -> str | None:
    if histogram.count * (100 - percent) < 1000:  # fewer than ten samples above it
        return None
    return milliseconds(min(histogram.percentile_ns(percent), histogram.max_ns))
