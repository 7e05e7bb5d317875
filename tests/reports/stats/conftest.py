"""Tables of a healthy run, made by hand, so that each test spoils one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pandas as pd
import pytest

from reports.store import schema
from reports.store.columns import TableSpec, Type
from reports.store.tables import Tables

FILLERS: dict[Type, object] = {Type.TEXT: "", Type.INT: 0, Type.FLOAT: 0.0, Type.BOOL: False}


def frame_of(table: TableSpec, rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rows with a filler in every column they do not name."""
    empty = {column.name: FILLERS[column.type] for column in table.columns}
    unknown = {name for row in rows for name in row} - set(empty)
    assert not unknown, f"no such columns: {unknown}"
    return pd.DataFrame([empty | row for row in rows], columns=list(table.names))


def _steps() -> list[dict[str, object]]:
    """A knee at in_flight=16: the rate saturates, the latency grows on."""
    shape = [(1, 600.0, 3e6), (4, 2000.0, 4e6), (16, 5400.0, 6e6), (64, 9200.0, 14e6), (256, 9400.0, 50e6)]
    return [
        {
            "run_id": "r",
            "step": number,
            "label": f"in_flight={in_flight}",
            "duration_s": 12.0,
            "warmup_s": 2.0,
            "length_s": 10.0,
            "intended": int(rate * 10),
            "published": int(rate * 10),
            "confirmed": int(rate * 10),
            "delivered": int(rate * 10),
            "published_per_s": rate,
            "delivered_per_s": rate,
            "e2e_series": "e2e",
            "worker_cpu_share": 0.2,
            "loop_lag_ns": 500_000,
            "host_cpu_percent": 40.0,
            **_latencies(int(rate * 10), p99),
        }
        for number, (in_flight, rate, p99) in enumerate(shape, 1)
    ]


def _latencies(count: int, p99: float) -> dict[str, object]:
    row: dict[str, object] = {"lag_p99_ns": 50_000.0, "lag_count": count}
    for series in ("e2e", "e2e_sched", "confirm"):
        row |= {f"{series}_count": count, f"{series}_p50_ns": p99 / 2, f"{series}_p99_ns": p99}
    return row


def _timeline(steps: list[dict[str, object]]) -> list[dict[str, object]]:
    return [
        {
            "run_id": "r",
            "step": step["step"],
            "label": step["label"],
            "phase": phase,
            "slot": slot,
            "length_s": 1.0,
            "delivered_per_s": step["delivered_per_s"],
            "e2e_p50_ns": step["e2e_p50_ns"],
            "e2e_sched_p50_ns": step["e2e_sched_p50_ns"],
        }
        for step in steps
        for phase, count in (("warmup", 2), ("steady", 6))
        for slot in range(count)
    ]


def healthy() -> Tables:
    """A finished run of five steps with nothing against it."""
    steps = _steps()
    run = {"run_id": "r", "state": "finished", "loop": "closed", "steps_planned": 5, "durability": "in words"}
    ledger = {"run_id": "r", "verdict": "ok", "complete": True, "drained": True, "confirmed": 1000}
    rows: dict[str, list[dict[str, object]]] = {
        "runs": [run],
        "steps": steps,
        "timeline": _timeline(steps),
        "ledger": [ledger],
        "events": [{"run_id": "r", "kind": "run_started", "event": '{"kind": "run_started"}'}],
    }
    names = {table.name: table for table in schema.TABLES}
    return Tables(**{field.name: frame_of(names[field.name], rows.get(field.name, [])) for field in fields(Tables)})


@pytest.fixture
def tables() -> Tables:
    """A fresh copy for every test."""
    return healthy()


@pytest.fixture
def row_of() -> Callable[..., pd.DataFrame]:
    """``row_of("quarantine", file="…")``: a frame of one row of a table."""
    names = {table.name: table for table in schema.TABLES}

    def make(table: str, **values: Any) -> pd.DataFrame:
        return frame_of(names[table], [values])

    return make
