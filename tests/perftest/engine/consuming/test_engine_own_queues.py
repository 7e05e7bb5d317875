"""Consumers with queues of their own: every message comes once to each of them, and that is no duplication."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from perftest.spec.behaviour import Connecting, Consuming, Exchange, Publishing, RoutingKeys
from perftest.spec.plan import QueueSpec, QueueType, Settings
from tests.perftest.testing.session_run import Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100, consumers=3)
NAMELESS = QueueSpec(name="", type=QueueType.CLASSIC, durable=False, auto_delete=True)
KEPT = replace(NAMELESS, durable=True, auto_delete=False)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def fan_out(broker: Any, queue: QueueSpec = NAMELESS, settings: Settings = SETTINGS, **fields: Any) -> Run:
    usual: dict[str, Any] = {
        "exchange": Exchange(name="direct"),
        "publishing": Publishing(routing_keys=RoutingKeys.FIXED, routing_key="key"),
    }
    return Run(broker, settings, queues=(queue,), **usual | fields)


@pytest.mark.parametrize("queue", [NAMELESS, KEPT])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"consuming": Consuming(polling=True)},
        {"consuming": Consuming(channels=2)},
        {"exchange": Exchange(name="f", type="fanout"), "publishing": Publishing()},
        {"connecting": Connecting(exclusive=True)},
    ],
)
def test_each_consumer_gets_every_message_once(stub: ModuleType, queue: QueueSpec, fields: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = fan_out(broker, queue, **fields)
            await run.open()
            assert len(broker.queues) == len(run.session.consumers)
            await run.published(200)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            copies = 3 * run.session.context.plan.consuming.channels
            assert record["unique"] == record["delivered"] == copies * record["published"]
            assert record["confirmed"] == record["published"]
            assert not broker.queues

    play(scenario())


@pytest.mark.parametrize(("fate", "what"), [("DUPLICATE", "duplicated"), ("DELAY", "reordered"), ("DAMAGE", "damaged")])
def test_a_lie_is_caught_in_each_copy(stub: ModuleType, fate: str, what: str) -> None:
    async def scenario() -> None:
        script = stub.Script(fate=lambda number: stub.Fate[fate if number == 50 else "DELIVER"])
        async with stub.StubBroker(script) as broker:
            run = fan_out(broker)
            await run.open()
            await run.published(200)
            record = await run.finish()
            assert (record[what], record["verdict"]) == (3, "violated"), record

    play(scenario())


@pytest.mark.parametrize("queue", [NAMELESS, KEPT])
def test_consumers_come_and_go(stub: ModuleType, queue: QueueSpec) -> None:
    """From one that came late nothing earlier is expected, and nothing later from one that left."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = fan_out(broker, queue)
            await run.open()
            for consumers in (5, 2, 4, 1):
                await run.published(100)
                await run.change(consumers=consumers)
                assert len(broker.queues) == consumers
            await run.published(100)
            record = await run.finish()
            assert {name: record[name] for name in ("lost", "duplicated", "reordered", "unexpected")} == {
                "lost": 0,
                "duplicated": 0,
                "reordered": 0,
                "unexpected": 0,
            }
            assert record["drained"] and not broker.queues

    play(scenario())


@pytest.mark.parametrize("queue", [NAMELESS, KEPT])
def test_a_queue_that_goes_with_its_connection_takes_its_messages_along(stub: ModuleType, queue: QueueSpec) -> None:
    """Nobody is accused of losing them; one that stays is found again, with all it holds."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = fan_out(broker, queue)
            await run.open()
            await run.published(100)
            names = set(broker.queues)
            before = broker.published
            broker.drop_connections()
            await run.until(lambda: run.events.count("reconnected") == 4)
            assert (set(broker.queues) == names) is (queue is KEPT)
            await run.until(lambda: broker.published >= before + 100)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            if queue is KEPT:
                assert record["unique"] == 3 * record["published"]

    play(scenario())


@pytest.mark.parametrize("change", [{"prefetch": 3}, {"ack_interval": 0}, {"ack_interval": 4, "prefetch": 9}])
def test_a_changed_subscription_does_not_cost_the_queue(stub: ModuleType, change: dict[str, Any]) -> None:
    """For a moment nobody would be subscribed, and the broker would delete it."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = fan_out(broker)
            await run.open()
            await run.published(100)
            names = set(broker.queues)
            await run.load.apply(replace(run.settings, **change))
            assert set(broker.queues) == names
            await run.published(100)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["unique"] == 3 * record["published"] and not broker.queues

    play(scenario())


def test_steps_of_their_own_have_queues_of_their_own(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = fan_out(broker)
            for _ in range(3):
                await run.open()
                await run.published(100)
                record = await run.finish()
                assert record["verdict"] == "ok", record
            assert record["unique"] == 3 * record["published"]

    play(scenario())


def test_a_consumer_that_reached_its_limit_is_owed_nothing(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = fan_out(broker, KEPT, consuming=Consuming(messages=50))
            await run.open()
            await run.until(lambda: "limit_reached" in run.events)
            await run.until(lambda: not broker.queues)
            record = await run.finish()
            assert record["delivered"] == 150
            assert record["abandoned"] == record["undelivered"]
            assert record["lost"] == 0

    play(scenario())
