"""A run whose load comes from several hosts: clients where the plan says, records that name their host, one ledger."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Plan
from tests.perftest.engine.coordination.test_engine_execute import MemorySink
from tests.perftest.engine.coordination.test_engine_groups import SMALL, run

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
