"""The steps of a run: totals, rates, latencies and costs of the steady time of each step and group of load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from reports.compute.intervals import COUNTS, LEFT_OPEN, STEP, key_of, messages_of, rates
from reports.compute.run_plan import RunPlan
from reports.store.columns import Row

_ZEROS: Final = (
    *("length_s", "workers", "intervals", "unconfirmed_max"),
    *("loop_lag_ns", "gc_collections", "gc_pause_ns"),
)


def step_rows(
    intervals: pa.Table,
    step_totals: Sequence[Row],
    latencies: Mapping[Any, Row],
    use: Mapping[Any, Row],
    plan: RunPlan,
) -> list[Row]:
    """The rows of ``steps``: every step that began, also a step that ended in its warm-up.

    :param intervals: all intervals of the run
    :param step_totals: totals of the steady intervals per step and group of load
    :param latencies: the columns of the latencies, by the same
    :param use: the figures of nodes and hosts, by the same
    """
    began = intervals.group_by(list(STEP), use_threads=False).aggregate([("start_ns", "min")]).to_pylist()
    totals = {key_of(row, STEP): row for row in step_totals}
    groups = Counter(row["step"] for row in began)
    rows = []
    for first in sorted(began, key=lambda row: key_of(row, STEP)):
        key = key_of(first, STEP)
        planned = plan.steps.get(key, {})
        row = {"start_ns": first["start_ns_min"], "settings": "{}", **dict.fromkeys((*COUNTS, *_ZEROS), 0), **planned}
        row |= {"step": key[0], "group": key[1], "label": plan.label(*key), **totals.get(key, {})}
        row |= latencies.get(key, {}) | use.get(key, {})
        if not (row.get("clock_bound_ns") or 0) > 0:
            row |= dict.fromkeys(("clock_bound_ns", *LEFT_OPEN))
        alone = not plan.has_background and groups[key[0]] == 1
        rows.append(row | rates(row) | _costs(row, alone) | _leading_series(row) | _start(row, plan))
    return rows


def _start(row: Row, plan: RunPlan) -> Row:
    return {"t_s": plan.since_start(row["start_ns"])}


def _leading_series(row: Row) -> Row:
    """The series to lead with: in an open loop latencies start at the intended time."""
    end = "_sched" if row.get("open_loop") else ""
    return {f"{name}_series": f"{name}{end}" for name in ("e2e", "confirm")}


def _costs(row: Row, alone: bool) -> Row:
    """CPU and octets per message.

    :param alone: whether no other load ran beside this one; else the broker's work cannot be told apart by load
    """
    messages = messages_of(row)

    def per_message(amount: float | None) -> float | None:
        return amount / messages if amount is not None and messages > 0 else None

    def of_broker(name: str, factor: float) -> float | None:
        share = row.get(name)
        return per_message(share * row["length_s"] * factor) if alone and share is not None else None

    cpu_ns, sent_per_s, published = row.get("worker_cpu_ns"), row.get("link_bytes_per_s"), row["published_bytes"]
    sent = sent_per_s * row["length_s"] if alone and sent_per_s is not None else None
    return {
        "worker_cpu_us_per_message": per_message(None if cpu_ns is None else cpu_ns / 1000),
        "broker_cpu_us_per_message": of_broker("broker_cpu_share", 1e6),
        "wal_bytes_per_message": of_broker("wal_bytes_per_s", 1.0),
        "link_bodies": sent / published if sent is not None and published > 0 else None,
    }
