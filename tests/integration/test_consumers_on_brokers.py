"""What consumers can be told to do, against brokers that were not written for them: the bundled one and RabbitMQ."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from infra import rabbitmq_cluster
from perftest.amqp.errors import AmqpError
from perftest.engine.workers.failures import explain
from perftest.spec.behaviour import Consuming, ExitWhen
from perftest.spec.plan import QueueSpec, QueueType, Settings
from tests.perftest.testing.session_run import Run

SETTINGS = Settings(in_flight=50, prefetch=100, size_bytes=100)
MESSAGES = 100
POLLED = {"rate": 100.0}
"""A message a round trip: nobody should be able to publish much faster than that."""

NEEDS_RABBITMQ = (
    pytest.mark.rabbitmq,
    pytest.mark.skipif(not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed"),
)
BROKERS = (
    pytest.param("bundled", QueueType.QUORUM, marks=pytest.mark.processes),
    pytest.param("rabbitmq", QueueType.QUORUM, marks=NEEDS_RABBITMQ),
    pytest.param("rabbitmq", QueueType.CLASSIC, marks=NEEDS_RABBITMQ),
)
CLASSIC = (pytest.param("bundled", QueueType.CLASSIC, marks=pytest.mark.processes), BROKERS[2])


async def load(uri: str, kind: QueueType, settings: dict[str, Any], how: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Some messages through a queue; the run, and its ledger with the counts of acknowledged messages."""
    queue = QueueSpec(name=f"perftest-consumers-{kind}", type=kind)
    plan_fields = {"queues": (queue,), "consuming": Consuming(**how)}
    values = {name: getattr(SETTINGS, name) for name in ("in_flight", "prefetch", "size_bytes")} | settings
    run = Run(SimpleNamespace(uri=uri), Settings(**values), **plan_fields)
    await run.open()
    await run.until(lambda: run.session.context.counters.delivered >= MESSAGES or "limit_reached" in run.events)
    run.session.quiesce()
    if how.get("exit_when"):
        await run.until(lambda: "limit_reached" in run.events)
    await run.close(drained=await run.drain())
    counts = run.session.cut()
    return run, {**run.session.ledger(complete=True), "acked": counts["acked"]}


def play(uri: str, kind: QueueType, settings: dict[str, Any], how: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    return asyncio.run(load(uri, kind, settings, how))


LOADS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "refused, dropped": ({"ack_interval": 5}, {"nack": True, "requeue": False}),
    "polled": (POLLED, {"polling": True}),
    "polled in intervals": ({"ack_interval": 7} | POLLED, {"polling": True, "polling_interval_ms": 1}),
    "polled, automatic acks": ({"ack_interval": 0} | POLLED, {"polling": True}),
    "time limit of an interval": ({"ack_interval": 90, "ack_after_ms": 5}, {}),
    "latency": ({"consumer_latency_us": 300, "ack_interval": 3}, {}),
    "rate, priority": ({"prefetch": 20}, {"rate": 2000.0, "arguments": {"x-priority": 3}}),
}


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
@pytest.mark.parametrize("name", LOADS)
def test_every_message_is_delivered_and_acknowledged_once(name: str, uri: str, kind: QueueType) -> None:
    settings, how = LOADS[name]
    run, record = play(uri, kind, settings, how)
    assert record["verdict"] == "ok" and record["unique"] == record["published"] >= MESSAGES
    assert record["redelivered"] == 0
    at_hand = sum(consumer._work.waiting for consumer in run.session.consumers)
    assert record["acked"] <= record["unique"] and not at_hand
    if not settings.get("consumer_latency_us") and not how.get("rate"):  # these may end with work at hand
        assert record["acked"] == (0 if settings.get("ack_interval") == 0 else record["unique"])
    assert "connection_lost" not in run.events and "channel_closed" not in run.events


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
def test_refused_messages_come_again(uri: str, kind: QueueType) -> None:
    _, record = play(uri, kind, {"in_flight": 5}, {"nack": True})
    assert record["verdict"] == "ok" and record["unique"] == record["published"]
    assert record["redelivered"] > 0


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
@pytest.mark.parametrize("polling", [False, True])
def test_a_limit_is_exact(uri: str, kind: QueueType, polling: bool) -> None:
    run, record = play(uri, kind, {"ack_interval": 30}, {"messages": 60, "polling": polling})
    assert (record["delivered"], record["acked"], record["verdict"]) == (60, 60, "unknown")
    assert "Consumer reached message limit [1]" in run.texts


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
@pytest.mark.parametrize("exit_when", [ExitWhen.EMPTY, ExitWhen.IDLE])
def test_a_consumer_leaves_an_empty_queue_with_nothing_unacknowledged(
    uri: str, kind: QueueType, exit_when: ExitWhen
) -> None:
    _, record = play(uri, kind, {"ack_interval": 90}, {"exit_when": exit_when})
    assert record["verdict"] == "ok" and record["acked"] == record["unique"] == record["published"]


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
@pytest.mark.parametrize("transaction", [1, 32])
def test_acknowledgements_in_transactions(uri: str, kind: QueueType, transaction: int) -> None:
    _, record = play(uri, kind, {"ack_interval": 4}, {"transaction": transaction})
    assert record["verdict"] == "ok" and record["acked"] == record["unique"] == record["published"]


@pytest.mark.parametrize(("broker", "kind"), CLASSIC)
def test_a_prefetch_of_the_whole_channel(uri: str, kind: QueueType) -> None:
    _, record = play(uri, kind, {"prefetch": 0}, {"channel_prefetch": 10})
    assert record["verdict"] == "ok" and record["unique"] == record["published"]


@pytest.mark.parametrize(("broker", "kind"), BROKERS[:2])
def test_quorum_queues_refuse_a_prefetch_of_the_whole_channel_and_one_is_told_what_to_do(
    uri: str, kind: QueueType
) -> None:
    with pytest.raises(AmqpError) as caught:
        play(uri, kind, {}, {"channel_prefetch": 10})
    error = explain(caught.value)
    assert "540" in error.what and "-Q" in error.fix
