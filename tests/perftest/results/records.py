"""Synthetic intervals with real histograms, for the tests of the run directory and of the screen."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from perftest.metrics.histogram import SparseCounts
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.writer import RunWriter
from perftest.spec import Isolation, Plan, QueueSpec, Settings, Step

SECOND = 10**9
STARTED_NS = 1_795_255_954_903_549_984
"""Not a whole millisecond, so that rounding to the log's milliseconds shows."""


def latency(values: list[int]) -> SparseCounts:
    """The record of some latencies in ns, as the engine makes it."""
    histogram = HdrHistogram(1, 3600 * SECOND, 3)
    for value in values:
        histogram.record_value(value)
    counts = np.ctypeslib.as_array(histogram.counts).astype(np.int64)
    used = np.flatnonzero(counts)
    return SparseCounts(used.astype(np.int32), counts[used], max(values))


def plan(*, rate: float | None = None, steps: int = 3) -> Plan:
    """An in-flight sweep of three steps of four seconds, one of them warm-up."""
    limits = [10**number for number in range(steps)]
    return Plan.of(
        name="flow_control/in_flight",
        title="One queue",
        uris=("amqp://guest:s3cret@127.0.0.1:5691/%2f",),
        queues=(QueueSpec(name="q"),),
        steps=tuple(
            Step(
                number=number,
                label=f"in_flight={limit}",
                settings=Settings(in_flight=limit, rate=rate),
                duration_s=4.0,
                warmup_s=1.0,
            )
            for number, limit in enumerate(limits, start=1)
        ),
        isolation=Isolation.LIVE,
        swept=("in_flight",),
    )


def intervals(of: Plan, *, seed: int = 1, messages: int = 200, worker: str = "0") -> list[Interval]:
    """Four intervals a step; the first is warm-up. The rate grows with the step."""
    source = random.Random(seed)
    records = []
    for index in range(4 * len(of.steps)):
        step, second = divmod(index, 4)
        count = messages * (step + 1)
        values = [int(source.expovariate(1 / 2e6)) + 1 for _ in range(count)]
        blank = Interval(
            worker=worker,
            step=of.steps[step].number,
            phase=Phase.STEADY if second else Phase.WARMUP,
            start_ns=STARTED_NS + index * SECOND,
            length_ns=SECOND,
            worker_cpu_ns=SECOND // 10,
            latencies={Series.E2E: latency(values), Series.CONFIRM: latency([value // 2 + 1 for value in values])},
        )
        counted: dict[str, Any] = dict.fromkeys(("intended", "published", "confirmed", "delivered", "acked"), count)
        records.append(replace(blank, **counted))
    return records


def ledger(verdict: str = "ok", **counts: int) -> dict[str, object]:
    """A ledger as the engine writes it."""
    blank = dict.fromkeys(("lost", "duplicated", "reordered", "unexpected", "damaged"), 0)
    return {
        "schema": 1,
        "complete": True,
        "drained": verdict != "unknown",
        "unique": 1200,
        **blank,
        **counts,
        "verdict": verdict,
    }


def write_run(root: Path, *, finish: bool = True, close: bool = True, rate: float | None = None) -> RunWriter:
    """A run directory as `perftest sweep` leaves it; without ``finish`` as a kill does."""
    asked = plan(rate=rate)
    writer = RunWriter(
        root, asked, ["perftest", "sweep", "-h", "amqp://guest:s3cret@127.0.0.1:5691"], now_ns=STARTED_NS
    )
    writer.event({"t_ns": STARTED_NS, "kind": "run_started"})
    for index, record in enumerate(intervals(asked)):
        writer.interval(record)
        cpu_ns = index * SECOND // 5
        writer.broker(
            {"t_ns": record.start_ns, "node": "node1", "pid": 7, "cpu_ns": cpu_ns, "metrics": {"syncs": index}}
        )
        writer.host({"t_ns": record.start_ns, "host": "local", "cpu_percent": 50.0})
    if finish:
        writer.event({"t_ns": STARTED_NS, "kind": "run_ended"})
        writer.ledger(ledger())
        writer.finish("finished", "finished")
    elif close:
        writer.close()
    return writer
