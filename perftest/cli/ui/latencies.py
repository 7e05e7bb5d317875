"""Latencies at the end of a run, for those who ask for more than the table of the steps has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perftest.cli.ui.board import milliseconds
from perftest.cli.ui.perftest_lines import HEADER
from perftest.cli.ui.table import render
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Series
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
            lines.append({**name, **values, "max": milliseconds(histogram.max_ns), "samples": f"{histogram.total:,}"})
    return render(lines)


def legacy_lines(legacy: Mapping[str, Mapping[str, int]], *, in_millis: bool) -> str:
    """What PerfTest would have shown, :mod:`perftest.results.legacy`: a line for each of its latencies."""
    size, unit = (10**6, "ms") if in_millis else (1000, "µs")
    lines = []
    for name, values in legacy.items():
        shown = (values[f"{part}_ns"] // size for part in ("min", "median", "p75", "p95", "p99", "max"))
        sample = f"{values['kept']:,} of {values['seen']:,} values"
        figures = "/".join(str(value) for value in shown)
        lines.append(f"as PerfTest measures ({sample}, from the send): {name} latency {HEADER} {figures} {unit}")
    return "\n".join(lines)


def _of(tally: Tally, row: Mapping[str, Any]) -> Mapping[Series, Histogram]:
    totals = tally.steady.get((row["step"], row["group"]))
    return totals.latencies if totals is not None else {}


def _percentile(histogram: Histogram, percent: float) -> str | None:
    if histogram.total * (100 - percent) < 1000:  # fewer than ten samples above it
        return None
    return milliseconds(*histogram.capped_percentiles_ns((percent,)))
