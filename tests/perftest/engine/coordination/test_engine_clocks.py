"""Load from hosts whose clocks differ by seconds and drift: every corrected time is true within its stated bound."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest

from perftest.engine.accounting.crossing import CrossingLatencies, Integers
from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.clocks import BURST
from perftest.engine.coordination.coordinator import execute
from perftest.engine.workers import wire
from perftest.engine.workers.remote_worker import RemoteWorker, StartWorker
from perftest.engine.workers.worker import Worker
from perftest.metrics.clock_model import ClockModel
from perftest.metrics.host_clock import ClockExchange
from perftest.metrics.interval import LOCAL_HOST, Phase, Series
from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Plan, Settings
from tests.perftest.engine.coordination.test_engine_execute import MemorySink, plan
from tests.perftest.testing.memory_transport import MemoryTransport
from tests.perftest.testing.shifted_worker import ShiftedHost, starting

SECOND_NS = 1_000_000_000
AHEAD = (5 * SECOND_NS, 100)
BEHIND = (-5 * SECOND_NS, -100)
HOSTS = (LoadHost(name="left", workers=1), LoadHost(name="right", workers=1))
THERE_S = 0.002
"""A message to a worker takes this long, and one from a worker nothing: the exchanges are as lopsided as can be."""


class LopsidedTransport(MemoryTransport):
    """A worker in this process, on a host with a clock of its own, at the end of a link that is slow in one way."""

    def __init__(self, host: ShiftedHost) -> None:
        super().__init__(answers=False)
        self._host = host

    def send(self, line: bytes) -> None:
        asyncio.get_running_loop().call_later(THERE_S, self._take, line)

    def _take(self, line: bytes) -> None:
        if self._worker is None:
            self._worker = Worker(json.loads(line), self.lines_back.put_nowait, host=self._host)
        else:
            self._worker.request(json.loads(line))


def in_memory(clocks: dict[str, ShiftedHost], offsets: set[int]) -> StartWorker:
    """``offsets`` gets the constant of the run."""

    async def start_worker(first: wire.Message, on_message: Callable[[wire.Message], None], who: str) -> RemoteWorker:
        offsets.add(first["offset_ns"])

        async def start() -> LopsidedTransport:
            return LopsidedTransport(clocks[first["host"]])

        return await RemoteWorker.start(first, on_message, who, start)

    return start_worker


def spread(made: Plan, hosts: tuple[LoadHost, ...] = HOSTS, **settings: Any) -> Plan:
    wanted = Settings(**{"in_flight": 5, "size_bytes": 100, "publishers": 4, "consumers": 4, **settings})
    return replace(made.changed(steps=tuple(replace(step, settings=wanted) for step in made.steps)), hosts=hosts)


def run(stub: ModuleType, sink: MemorySink, make: Callable[[Plan], Plan], **more: Any) -> RunOutcome:
    async def scenario() -> RunOutcome:
        async with stub.StubBroker() as broker:
            return await execute(make(plan(broker.uri)), sink, StopRequest(), **more)

    return asyncio.run(scenario())


def true_ns(host: ShiftedHost, shown_ns: int) -> int:
    """What this machine's clock showed at a time of the host's clock."""
    return (shown_ns - host.ahead_ns) * 1_000_000 // (1_000_000 + host.ppm)


@pytest.mark.parametrize("clocks", [(AHEAD, BEHIND), (BEHIND, (86_400 * SECOND_NS, 40))])
def test_every_corrected_time_is_true_within_its_bound(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch, clocks: tuple[tuple[int, int], ...]
) -> None:
    hosts = {name: ShiftedHost(*clock) for name, clock in zip(("left", "right"), clocks, strict=True)}
    offsets: set[int] = set()
    checked, original = [0], CrossingLatencies._at_reference

    def checking(self: CrossingLatencies, host: int, times: Integers) -> tuple[Integers, Integers]:
        corrected, bounds = original(self, host, times)
        (offset_ns,) = offsets
        clock = hosts[HOSTS[host].name]
        truth = np.array([true_ns(clock, shown - offset_ns) + offset_ns for shown in times.tolist()])
        assert (np.abs(corrected - truth) <= bounds + 2).all()
        checked[0] += len(times)
        return corrected, bounds

    monkeypatch.setattr(CrossingLatencies, "_at_reference", checking)
    sink = MemorySink()
    outcome = run(stub, sink, lambda made: spread(made, rate=200.0), start_worker=in_memory(hosts, offsets))
    assert outcome.state == "finished", outcome
    assert checked[0] > 100
    for interval in sink.intervals:
        if Series.E2E in interval.latencies:
            assert int(interval.latencies[Series.E2E].counts.sum()) == interval.delivered
        assert not interval.negative_latencies and not interval.beyond_bound
        assert interval.below_zero <= interval.below_bound <= interval.delivered
        assert 0 < interval.clock_bound_ns < SECOND_NS or not interval.delivered
    (ledger,) = sink.ledgers
    assert ledger["verdict"] == "ok" and ledger["delivered"] == sum(i.delivered for i in sink.intervals)


def test_hosts_begin_and_cut_at_one_moment_and_tell_the_coordinators_time(stub: ModuleType) -> None:
    hosts = {"left": ShiftedHost(*AHEAD), "right": ShiftedHost(*BEHIND)}
    sink = MemorySink()
    outcome = run(stub, sink, spread, start_worker=in_memory(hosts, set()))
    assert outcome.state == "finished", outcome
    by_host = {
        host: [i for i in sink.intervals if i.host == host and i.phase is not Phase.DRAIN] for host in ("left", "right")
    }
    assert len(by_host["left"]) == len(by_host["right"]) > 2
    for left, right in zip(by_host["left"], by_host["right"], strict=True):
        assert abs(left.start_ns - right.start_ns) < SECOND_NS, "clocks differ by ten seconds"
    (began, ended) = (event["t_ns"] for event in sink.events if event["kind"] in ("run_started", "run_ended"))
    assert all(began <= interval.start_ns < ended for interval in sink.intervals)


def test_all_exchanges_and_models_are_recorded(stub: ModuleType) -> None:
    hosts = {"left": ShiftedHost(*AHEAD), "right": ShiftedHost(*BEHIND)}
    told: list[dict[str, Any]] = []
    constants: set[int] = set()
    sink = MemorySink()
    outcome = run(stub, sink, spread, start_worker=in_memory(hosts, constants), on_clock=told.append)
    assert outcome.state == "finished", outcome
    for host, clock in hosts.items():
        mine = [record for record in told if record["host"] == host]
        phases = [record["phase"] for record in mine if "phase" in record]
        assert phases[:BURST] == ["before"] * BURST and phases[-BURST:] == ["after"] * BURST
        assert "during" in phases
        exchanges = [
            ClockExchange(*(record[name] for name in ClockExchange._fields)) for record in mine if "phase" in record
        ]
        assert all(each.is_possible and each.round_trip_ns >= THERE_S * SECOND_NS / 2 for each in exchanges)
        models = [ClockModel.from_json(record["model"]) for record in mine if "model" in record]
        assert len(models) >= 4, "one for each cut"
        shown, offset, bound = models[-1].knots_ns[-1], models[-1].offsets_ns[-1], models[-1].bounds_ns[-1]
        (constant,) = constants
        assert abs(shown + offset - (true_ns(clock, shown - constant) + constant)) <= bound + 2


def test_a_run_on_the_coordinators_host_asks_nobody_for_the_time(stub: ModuleType) -> None:
    asked: list[dict[str, Any]] = []
    sink = MemorySink()
    only = (LoadHost(name=LOCAL_HOST, workers=2),)
    outcome = run(stub, sink, lambda made: spread(made, only), on_clock=asked.append)
    assert outcome.state == "finished", outcome
    assert not asked
    assert all(not interval.clock_bound_ns for interval in sink.intervals)


def test_the_coordinators_host_may_be_one_of_them(stub: ModuleType) -> None:
    """In processes of their own: the clock of the coordinator's host needs no correction."""
    sink = MemorySink()
    here = (LoadHost(name=LOCAL_HOST, workers=1, consumes=()), LoadHost(name="far", workers=1, publishes=()))
    clocks = {LOCAL_HOST: (0, 0), "far": BEHIND}
    outcome = run(stub, sink, lambda made: spread(made, here), start_worker=starting(clocks))
    assert outcome.state == "finished", outcome
    far = [interval for interval in sink.intervals if interval.host == "far" and interval.delivered]
    assert far and all(0 < interval.clock_bound_ns < SECOND_NS for interval in far)
    slowest = max(interval.latencies[Series.E2E].max_ns for interval in far)
    assert slowest < 4 * SECOND_NS, "a clock that is 5 s behind would make it 5 s"
    assert not sum(interval.beyond_bound for interval in sink.intervals)


def timekeepers() -> list[psutil.Process]:
    """Processes of this test's workers that tell the time."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "perftest.engine.workers.timekeeper" in child.cmdline():
                found.append(child)
    return found


@pytest.mark.parametrize("addresses", [{"left": "127.0.0.1", "right": "::1"}, {"left": "127.0.0.1", "right": "::"}])
def test_a_timekeeper_answers_where_the_network_lets_it(stub: ModuleType, addresses: dict[str, str]) -> None:
    """Where it does not, the worker answers; nobody is left afterwards."""
    told: list[dict[str, Any]] = []
    seen: set[int] = set()

    def see(record: dict[str, Any]) -> None:
        told.append(record)
        seen.update(each.pid for each in timekeepers())

    sink = MemorySink()
    outcome = run(stub, sink, spread, on_clock=see, addresses=addresses)
    assert outcome.state == "finished", outcome
    assert len(seen) == 2
    for interval in sink.intervals:
        assert not interval.beyond_bound
    for host in ("left", "right"):
        exchanges = [record for record in told if record["host"] == host and "phase" in record]
        assert len(exchanges) >= 2 * BURST
        model = ClockModel.from_json(next(r["model"] for r in reversed(told) if r["host"] == host and "model" in r))
        assert abs(model.offsets_ns[-1]) <= model.bounds_ns[-1], "it is this machine's own clock"
    psutil.wait_procs(timekeepers(), timeout=30)
    assert not timekeepers()
