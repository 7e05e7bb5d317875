"""Load from two hosts at virtual time: clocks that differ by ten seconds leave the figures as they were."""

from __future__ import annotations

import json

import pytest

from perftest.engine.api import StopRequest
from perftest.engine.workers import wire
from perftest.engine.workers.worker import Worker
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Phase, Series
from perftest.simulation import calibration, virtual_generator
from perftest.simulation.fitting import setup_of
from perftest.simulation.simulated_world import Simulation, on_simulated
from perftest.simulation.virtual_generator import SimulatedHost, VirtualWorker
from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step
from tests.perftest.engine.coordination.test_engine_execute import MemorySink

SECOND_NS = 1_000_000_000
HOSTS = (LoadHost(name="left", workers=1), LoadHost(name="right", workers=1))
CLOCKS = {"left": (5 * SECOND_NS, 100), "right": (-5 * SECOND_NS, -100)}
PERCENTILES = (1.0, 25.0, 50.0, 75.0, 95.0, 99.0)


def plan() -> Plan:
    """Two publishers and three consumers of one queue on two hosts: half of the messages cross, whoever comes first."""
    settings = Settings(in_flight=50, size_bytes=100, rate=150.0, publishers=2, consumers=3, prefetch=10)
    return Plan.of(
        name="t", title="t", uris=(), isolation=Isolation.LIVE, hosts=HOSTS, interval_s=0.5, drain_s=5.0, seed=3,
        queues=(QueueSpec(name="q", type=QueueType.QUORUM),),
        steps=(Step(number=1, label="", settings=settings, duration_s=3.0, warmup_s=0.5),),
    )  # fmt: skip


class ShiftedVirtualHost(SimulatedHost):
    """A simulated host whose clock differs from that of the world."""

    shift = (0, 0)

    def monotonic_ns(self) -> int:
        ahead_ns, ppm = self.shift
        true_ns = super().monotonic_ns()
        return true_ns + 60 * SECOND_NS + ahead_ns + true_ns * ppm // 1_000_000


class ShiftedVirtualWorker(VirtualWorker):
    """A worker on such a host."""

    clocks: dict[str, tuple[int, int]]

    def _take(self, line: bytes) -> None:
        if self._worker is None:
            message: wire.Message = json.loads(line)
            host = ShiftedVirtualHost(self._loop.world, self._loop.process)
            host.shift = self.clocks[message["host"]]
            self._worker = Worker(message, self._say, host=host)
        else:
            super()._take(line)


def simulated(monkeypatch: pytest.MonkeyPatch, clocks: dict[str, tuple[int, int]]) -> MemorySink:
    monkeypatch.setattr(virtual_generator, "VirtualWorker", ShiftedVirtualWorker)
    monkeypatch.setattr(ShiftedVirtualWorker, "clocks", clocks, raising=False)
    simulation, sink = Simulation(setup_of(calibration.read(calibration.SHIPPED), seed=3)), MemorySink()
    try:
        outcome = simulation.run(on_simulated(plan(), simulation.cluster), sink, StopRequest(), lambda: None)
    finally:
        simulation.end()
    assert outcome.state == "finished", outcome
    return sink


def merged(sink: MemorySink, series: Series) -> Histogram:
    found = Histogram()
    for interval in sink.intervals:
        if interval.phase is Phase.STEADY and series in interval.latencies:
            found.add_sparse(interval.latencies[series])
    return found


def test_offsets_and_drift_change_no_latency_by_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on the virtual clock a microsecond decides which messages share a sync, so the tails differ by chance: there
    a tenth more is allowed, and a quarter from the 95th percentile on, which a handful of messages decide."""
    alike = simulated(monkeypatch, dict.fromkeys(CLOCKS, (0, 0)))
    shifted = simulated(monkeypatch, CLOCKS)
    bound_ns = max(interval.clock_bound_ns for interval in shifted.intervals if interval.phase is Phase.STEADY)
    assert 0 < bound_ns < SECOND_NS // 1000
    for series in (Series.E2E, Series.E2E_SCHED, Series.CONFIRM):
        kept, moved = merged(alike, series), merged(shifted, series)
        assert kept.total == moved.total > 500
        for percentile in PERCENTILES:
            (before,), (after,) = kept.percentiles_ns([percentile]), moved.percentiles_ns([percentile])
            by_chance = before // (500 if percentile <= 75 else 10 if percentile < 95 else 4)
            assert abs(after - before) <= bound_ns + by_chance, (series, percentile)
    assert sum(interval.below_bound for interval in shifted.intervals) == 0, "a network and a sync take longer"
