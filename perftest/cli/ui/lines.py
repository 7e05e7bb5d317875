"""One line per interval, for logs and pipelines: fixed labels, so that it can be searched and cut."""

from __future__ import annotations

from perftest.cli.ui.board import Board, clock, milliseconds
from perftest.cli.ui.gathering import Gathered
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Series

_SHOWN = ((Series.CONFIRM, "confirm_ms"), (Series.E2E, "e2e_ms"), (Series.LAG, "lag_ms"))


def interval_line(board: Board, gathered: Gathered) -> str:
    """A line about one interval; rates are messages per second, latencies of this interval."""
    record = gathered.record
    end_s = board.elapsed_s(record.start_ns + record.length_ns)
    parts = [clock(end_s), f"step={record.step}/{board.last_step}"]
    parts += [board.step.label] if board.step.label else []
    parts += [f"group={record.group}"] if record.group else []
    parts += [f"phase={record.phase}"]
    for name in ("intended", "published", "confirmed", "delivered"):
        rate = getattr(record, name) * 1e9 / record.length_ns if record.length_ns else 0.0
        parts.append(f"{name}={rate:.0f}")
    for name in ("nacked", "returned", "redelivered"):
        count = getattr(record, name)
        parts += [f"{name}={count}"] if count else []
    for series, label in _SHOWN:
        latency = gathered.latencies.get(series)
        if latency is not None and latency.total:
            parts.append(f"{label} {_latency(latency)}")
    return " ".join(parts)


def _latency(latency: Histogram) -> str:
    shown = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    values = dict(zip(shown, latency.capped_percentiles_ns(tuple(shown.values())), strict=True))
    values["max"] = latency.max_ns
    return " ".join(f"{name}={milliseconds(value)}" for name, value in values.items())
