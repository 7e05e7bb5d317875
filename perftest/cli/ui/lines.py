"""One line per interval, for logs and pipelines: fixed labels, so that it can be searched and cut."""

from __future__ import annotations

from perftest.cli.ui.board import Board, clock, milliseconds
from perftest.metrics.interval import Interval, Latency, Series

_SHOWN = ((Series.CONFIRM, "confirm_ms"), (Series.E2E, "e2e_ms"), (Series.LAG, "lag_ms"))


def interval_line(board: Board, record: Interval) -> str:
    """A line about one interval of one worker; rates are messages per second, latencies of this interval."""
    end_s = board.elapsed_s(record.start_ns + record.length_ns)
    parts = [clock(end_s), f"step={record.step}/{len(board.plan.steps)}"]
    parts += [board.step.label] if board.step.label else []
    parts += [f"phase={record.phase}"]
    for name in ("intended", "published", "confirmed", "delivered"):
        rate = getattr(record, name) * 1e9 / record.length_ns if record.length_ns else 0.0
        parts.append(f"{name}={rate:.0f}")
    for name in ("nacked", "returned", "redelivered"):
        count = getattr(record, name)
        parts += [f"{name}={count}"] if count else []
    for series, label in _SHOWN:
        latency = record.latencies.get(series)
        if latency is not None and latency.count:
            parts.append(f"{label} {_latency(latency)}")
    return " ".join(parts)


def _latency(latency: Latency) -> str:
    values = {"p50": latency.p50_ns, "p95": latency.p95_ns, "p99": latency.p99_ns, "max": latency.max_ns}
    return " ".join(f"{name}={milliseconds(value)}" for name, value in values.items())
