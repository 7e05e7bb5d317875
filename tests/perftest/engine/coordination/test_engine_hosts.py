"""A run whose load comes from several hosts: clients where the plan says, records that name their host, one ledger."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

from perftest.engine.workers.remote_worker import RemoteWorker
from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Plan
from tests.perftest.engine.coordination.test_engine_execute import MemorySink
from tests.perftest.engine.coordination.test_engine_groups import SMALL, run
from tests.perftest.testing.memory_transport import MemoryTransport

HOSTS = (
    LoadHost(name="left", workers=2, consumes=()),
    LoadHost(name="right", publishes=()),
)


def from_two_hosts(made: Plan) -> Plan:
    settings = replace(SMALL, publishers=4, consumers=2)
    return replace(made.changed(steps=tuple(replace(step, settings=settings) for step in made.steps)), hosts=HOSTS)


def test_one_host_publishes_and_another_consumes(stub: ModuleType) -> None:
    sink = MemorySink()
    outcome = run(stub, sink, from_two_hosts)
    assert outcome.state == "finished", outcome
    sources = {interval.source for interval in sink.intervals}
    assert sources == {("left", "0"), ("left", "1"), ("right", "0")}
    for interval in sink.intervals:
        assert not interval.published if interval.host == "right" else not interval.delivered
    (ledger,) = sink.ledgers
    published = {source: sum(i.published for i in sink.intervals if i.source == source) for source in sources}
    assert published["left", "0"] and published["left", "1"]
    assert ledger["verdict"] == "ok" and ledger["published"] == sum(published.values()) == ledger["delivered"] > 0
    told = [event for event in sink.events if event.get("worker")]
    assert {event["host"] for event in told} <= {"left", "right"}
    skew = {event["kind"]: event["skew_ns"] for event in sink.events if event["kind"] in ("begun", "quiesced")}
    assert {kind: set(hosts) for kind, hosts in skew.items()} == {
        "begun": {"left", "right"}, "quiesced": {"left", "right"},
    }  # fmt: skip
    assert all(late >= 0 for hosts in skew.values() for late in hosts.values())


def with_a_killed_worker(kill_at_cut: int, victim: tuple[str, str]) -> Any:
    """Starts workers of which one dies while it is asked for an interval."""
    cuts = 0

    async def start(first: dict[str, Any], on_message: Any, who: str) -> RemoteWorker:
        transport = MemoryTransport()

        async def same() -> MemoryTransport:
            return transport

        worker = await RemoteWorker.start(first, on_message, who, start=same)
        if (first["host"], first["worker"]) == victim:
            call = worker.call

            async def call_or_die(op: str, **more: Any) -> Any:
                nonlocal cuts
                cuts += op == "cut"
                if op == "cut" and cuts == kill_at_cut:
                    transport.kill()
                return await call(op, **more)

            worker.call = call_or_die  # type: ignore[method-assign]
        return worker

    return start


def test_a_run_goes_on_without_a_host_that_is_lost(stub: ModuleType) -> None:
    sink = MemorySink()
    outcome = run(stub, sink, from_two_hosts, start_worker=with_a_killed_worker(2, ("left", "1")))
    assert outcome.state == "finished", outcome
    (event,) = [event for event in sink.events if event["kind"] == "worker_lost"]
    assert (event["host"], event["worker"]) == ("left", "1")
    mine = [interval for interval in sink.intervals if interval.source == ("left", "1")]
    others = [interval for interval in sink.intervals if interval.source == ("left", "0")]
    assert len(mine) == 1 < len(others), "what the lost worker recorded is kept, and the others went on"
    (ledger,) = sink.ledgers
    assert ledger["missing"] == [{"host": "left", "worker": "1"}]
    assert ledger["verdict"] == "unknown" and not ledger["drained"] and not ledger["complete"]
    assert ledger["lost"] == 0, "what nobody knows is not called a loss"


def test_a_run_ends_when_nobody_is_left_to_consume(stub: ModuleType) -> None:
    sink = MemorySink()
    outcome = run(stub, sink, from_two_hosts, start_worker=with_a_killed_worker(2, ("right", "0")))
    assert outcome.state == "failed" and outcome.error is not None
    assert "right" in outcome.error.where
    assert sum(interval.published for interval in sink.intervals) > 0, "what was recorded is kept"
