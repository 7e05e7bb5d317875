"""Runs whose truth is known: so many messages a second, latencies of so many ms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results.writer import RunWriter
from perftest.spec import Isolation, Plan, QueueSpec, Settings, Step
from tests.perftest.results.records import SECOND, STARTED_NS, ledger

Make = Callable[..., Path]
REPEATS = 8


def plan(**settings: Any) -> Plan:
    step = Step(number=1, label="", settings=Settings(**settings), duration_s=61.0, warmup_s=1.0)
    return Plan.of(
        name="run",
        title="t",
        uris=("amqp://h",),
        queues=(QueueSpec(name="q"),),
        steps=(step,),
        isolation=Isolation.LIVE,
    )


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a run and return its directory."""

    def write(
        name: str,
        *,
        seed: int,
        ms: float = 2.0,
        per_s: float = 400,
        seconds: int = 4,
        verdict: str = "ok",
        harm: dict[str, int] | None = None,
        facts: dict[str, Any] | None = None,
        end: bool = True,
        **settings: Any,
    ) -> Path:
        writer = RunWriter(tmp_path / name, plan(**settings), ["perftest", "run"], now_ns=STARTED_NS)
        writer.describe_broker(**{"product": "RabbitMQ", "version": "3.10.8", "durability": "fsync"} | (facts or {}))
        for record in _intervals(seed, ms, per_s, seconds):
            writer.interval(record)
        if end:
            writer.ledger(ledger(verdict, **(harm or {})))
            writer.finish("finished", "finished")
        else:
            writer.close()
        return Path(writer.path)

    return write


@pytest.fixture
def make_side(make: Make, tmp_path: Path) -> Make:
    """Write repetitions of a run below one directory and return that; ``vary`` is how much their rates and latencies
    differ, in logarithms."""

    def write(
        name: str,
        *,
        seed: int,
        repeats: int = REPEATS,
        vary: float = 0.01,
        ms: float = 2.0,
        per_s: float = 400,
        **others: Any,
    ) -> Path:
        rng = np.random.default_rng(1000 + seed)
        for number in range(repeats):
            slower = float(np.exp(rng.normal(0, vary)))
            make(name, seed=100 * seed + number, ms=ms * slower, per_s=per_s / slower, **others)
        return tmp_path / name

    return write


def _intervals(seed: int, ms: float, per_s: float, seconds: int) -> list[Interval]:
    rng = np.random.default_rng(seed)
    found = []
    for second in range(seconds + 1):
        count = int(rng.normal(per_s, per_s / 50))
        histogram = Histogram()
        histogram.record(rng.gamma(8, ms * 1e6 / 8, count).astype(np.int64) + 1)
        latency = histogram.sparse()
        blank = Interval(
            worker="0",
            step=1,
            phase=Phase.STEADY if second else Phase.WARMUP,
            start_ns=STARTED_NS + second * SECOND,
            length_ns=SECOND,
            worker_cpu_ns=SECOND // 10,
            latencies={Series.E2E: latency, Series.CONFIRM: latency},
        )
        counted: dict[str, Any] = dict.fromkeys(("intended", "published", "confirmed", "delivered", "acked"), count)
        found.append(replace(blank, **counted))
    return found
