"""A host that is lost costs its own share of the load and not the run; everything says what is missing."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import pytest

from perftest.engine.coordination import load
from perftest.engine.workers import remote_worker, wire
from perftest.engine.workers.remote_worker import RemoteWorker, StartWorker
from perftest.spec.load_hosts import LoadHost
from tests.perftest.engine.coordination.test_engine_clocks import run, spread
from tests.perftest.engine.coordination.test_engine_execute import MemorySink
from tests.perftest.testing.memory_transport import MemoryTransport


class DyingTransport(MemoryTransport):
    """A worker in this process that is gone as soon as it gets the request ``op`` for the ``times``-th time."""

    def __init__(self, op: str, times: int = 1) -> None:
        super().__init__()
        self._op, self._left = op, times

    def send(self, line: bytes) -> None:
        self._left -= json.loads(line).get("op") == self._op
        if self._left > 0:
            super().send(line)
        elif not self.killed:
            if self._worker is not None:
                for client in (*self._worker.session.publishers, *self._worker.session.consumers):
                    client.link.abort()
                self._worker.session.publishers.clear()
                self._worker.session.consumers.clear()
            self.kill()


class SilentTransport(DyingTransport):
    """Says nothing from then on, until it is killed."""

    def send(self, line: bytes) -> None:
        self._left -= json.loads(line).get("op") == self._op
        if self._left > 0:
            MemoryTransport.send(self, line)

    async def lines(self) -> AsyncIterator[bytes]:
        async for line in super().lines():
            if self._left > 0:
                yield line


def with_dying(host: str, op: str, times: int = 1, transport: type[DyingTransport] = DyingTransport) -> StartWorker:
    """Workers in memory, of which those of ``host`` die."""

    async def start_worker(first: wire.Message, on_message: Callable[[wire.Message], None], who: str) -> RemoteWorker:
        async def start() -> MemoryTransport:
            return transport(op, times) if first["host"] == host else MemoryTransport()

        return await RemoteWorker.start(first, on_message, who, start)

    return start_worker


def lost(sink: MemorySink) -> list[dict[str, Any]]:
    return [event for event in sink.events if event["kind"] == "host_lost"]


@pytest.mark.parametrize(
    ("host", "op", "times"), [("left", "begin", 1), ("right", "cut", 2), ("left", "left", 1), ("right", "settle", 1)]
)
def test_a_run_goes_on_without_a_host_and_says_what_is_missing(
    stub: ModuleType, host: str, op: str, times: int
) -> None:
    """With real accounts. Every request, and other faults: test_engine_scripted_workers."""
    sink = MemorySink()
    outcome = run(stub, sink, spread, start_worker=with_dying(host, op, times))
    assert outcome.state == "finished" and outcome.error is None, outcome
    (event,) = lost(sink)
    assert event["host"] == host and "the worker was killed" in str(event["text"])
    (ledger,) = sink.ledgers
    assert ledger["verdict"] == "unknown" and not ledger["lost"] and not ledger["duplicated"]
    (missing,) = ledger["missing"]
    assert missing["host"] == host
    other = "right" if host == "left" else "left"
    assert sum(interval.published for interval in sink.intervals if interval.host == other) > 0


def test_a_host_that_is_lost_before_anything_is_measured_ends_the_run(stub: ModuleType) -> None:
    sink = MemorySink()
    outcome = run(stub, sink, spread, start_worker=with_dying("left", "connect_publishers"))
    assert outcome.state == "failed" and outcome.error is not None and "of left" in outcome.error.where
    assert not lost(sink)


def test_the_last_host_ends_the_run(stub: ModuleType) -> None:
    def alone(made: Any) -> Any:
        return spread(made, hosts=(LoadHost(name="left", workers=2),))

    outcome = run(stub, MemorySink(), alone, start_worker=with_dying("left", "cut"))
    assert outcome.state == "failed"


def test_a_silent_host_is_given_up_and_the_intervals_that_passed_are_one(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker takes requests and says nothing, as one that was stopped."""
    monkeypatch.setattr(remote_worker, "WATCH_S", 0.05)
    monkeypatch.setattr(remote_worker, "SILENCE_S", 0.5)
    sink = MemorySink()
    outcome = run(stub, sink, spread, start_worker=with_dying("left", "cut", transport=SilentTransport))
    assert outcome.state == "finished", outcome
    (event,) = lost(sink)
    assert "said nothing" in str(event["text"])
    assert sum(interval.published for interval in sink.intervals if interval.host == "right") > 0


class LateTransport(MemoryTransport):
    """A worker whose second interval and everything after it come when the connection is back, all at once: when the
    other host has told so many intervals."""

    def __init__(self, sink: MemorySink, intervals: int) -> None:
        super().__init__()
        self._sink, self._intervals = sink, intervals
        self._cuts = 0
        self._back: asyncio.Event | None = None
        self._held: list[bytes] = []

    def send(self, line: bytes) -> None:
        self._cuts += json.loads(line).get("op") == "cut"
        if self._cuts == 2 and self._back is None:
            self._back = asyncio.Event()
            self._wait_for(self._others() + self._intervals)
        if self._back is None or self._back.is_set():
            super().send(line)
        else:
            self._held.append(line)

    def _others(self) -> int:
        return sum(interval.host == "right" for interval in self._sink.intervals)

    def _wait_for(self, others: int) -> None:
        assert self._back is not None
        if self._others() < others:
            asyncio.get_running_loop().call_later(0.01, self._wait_for, others)
            return
        self._back.set()
        for line in self._held:
            MemoryTransport.send(self, line)


@pytest.mark.parametrize("away", [3, 6])
def test_intervals_of_a_silent_host_come_later_and_those_of_others_at_once(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    monkeypatch.setattr(load, "LATE_S", 0.1)
    sink = MemorySink()

    async def start_worker(first: wire.Message, on_message: Callable[[wire.Message], None], who: str) -> RemoteWorker:
        async def start() -> MemoryTransport:
            return LateTransport(sink, away) if first["host"] == "left" else MemoryTransport()

        return await RemoteWorker.start(first, on_message, who, start)

    def longer(made: Any) -> Any:
        steps = tuple(dataclasses.replace(step, duration_s=2.0, warmup_s=0.0) for step in made.steps[:1])
        return spread(made.changed(steps=steps, interval_s=0.2))

    outcome = run(stub, sink, longer, start_worker=start_worker)
    assert outcome.state == "finished" and not lost(sink), outcome
    ledger = sink.ledgers[-1]
    assert ledger["verdict"] == "ok"
    assert sum(interval.published for interval in sink.intervals) == ledger["published"] > 0
    left, right = ([each for each in sink.intervals if each.host == host] for host in ("left", "right"))
    for each, other in itertools.pairwise([one for one in left if one.worker == left[0].worker]):
        gap_ns = other.start_ns - each.start_ns - each.length_ns
        assert other.start_ns > each.start_ns, "in order"
        assert gap_ns < 200_000_000, "no interval is missing, but for what a busy machine leaves open of clocks"
    longest = max(left, key=lambda interval: interval.length_ns)
    at = sink.intervals.index(longest)
    before = [each for each in sink.intervals[:at] if each.host == "right" and each.start_ns > longest.start_ns]
    assert len(before) >= away - 1, "those of the other host were recorded while this one was silent"
    assert {event.get("host") for event in sink.events if event["kind"] == "cut_late"} >= {"left"}
    assert len(right) > len(left)
