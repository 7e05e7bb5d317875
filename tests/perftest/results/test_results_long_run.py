"""An hour of a run must cost no more memory than a minute: nothing is kept for each interval."""

from __future__ import annotations

import gc
import io
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np

from perftest.engine.accounting.account import CONFIRMED
from perftest.engine.accounting.ledger import Ledger
from perftest.results.legacy import LegacyLatency
from perftest.screen.board import Board
from perftest.screen.perftest_lines import Style
from perftest.screen.views import PlainView
from perftest.telemetry.prometheus import RunCollector

RUN = 3
HOUR_S = 3600
ALLOWED_BYTES = 4 << 20
"""For an hour. A run at 50k messages a second has 300 MB in all, of which the interpreter and numpy take 100."""


def growth(steps: Iterator[None], before: int, measured: int) -> float:
    """Octets that a step leaves behind, after so many that fill what is bounded."""
    for _ in range(before):
        next(steps)
    tracemalloc.start()
    try:
        gc.collect()
        start = tracemalloc.get_traced_memory()[0]
        for _ in range(measured):
            next(steps)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - start) / measured
    finally:
        tracemalloc.stop()


def test_what_the_command_keeps_does_not_grow(tmp_path: Path, records: ModuleType) -> None:
    """Run directory, board, lines, metrics and PerfTest's figures get a record a second and samples of three nodes."""
    plan = records.plan(steps=1)
    writer = records.RunWriter(tmp_path, plan, ["perftest"], now_ns=records.STARTED_NS)
    writer.legacy = LegacyLatency(writer.started_ns)
    board = Board(plan, writer.tally, writer.started_ns, "h", "p")
    view, collector = PlainView(board, Style(label="t"), io.StringIO()), RunCollector()
    view._print = lambda _line: None  # type: ignore[method-assign]
    sinks: tuple[Callable[..., None], ...] = (writer.interval, board.interval, view.interval, collector.interval)
    blank = records.intervals(plan)[1]

    def run() -> Iterator[None]:
        second = 0
        while True:
            second += 1
            record = replace(blank, start_ns=records.STARTED_NS + second * 10**9)
            for sink in sinks:
                sink(record)
            board.event({"t_ns": record.start_ns, "kind": "blocked", "text": f"at {second}"})
            for node in ("a", "b", "c"):
                sample = {"t_ns": record.start_ns, "node": node, "pid": 1, "cpu_ns": second, "metrics": {}}
                writer.broker(sample)
                board.sample(sample)
            yield

    assert growth(run(), 150, 150) * HOUR_S < ALLOWED_BYTES
    writer.close()


def test_what_a_worker_keeps_does_not_grow() -> None:
    """The ledger of 50,000 messages a second, 1000 of them under way: its account moves along."""
    ledger = Ledger(RUN)
    account = ledger.publisher(0)
    count = 50_000
    source = np.full(count, RUN << 16)
    again = np.zeros(count, np.bool_)
    account.published(1000, confirms=True)

    def run() -> Iterator[None]:
        number = 0
        while True:
            numbers = np.arange(number, number + count)
            account.published(count, confirms=True)
            account.answered(numbers, CONFIRMED)
            ledger.delivered(1, source, numbers, again)
            number += count
            del numbers  # it is no part of what is kept
            yield

    assert growth(run(), 20, 60) * HOUR_S < ALLOWED_BYTES
    assert ledger.outstanding() == 0 and ledger.record(complete=False)["unique"] == 80 * count
