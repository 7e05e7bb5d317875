"""A session against a broker that lies, stalls, breaks off: the ledger catches each, and accuses no honest one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from perftest.amqp.errors import AmqpError, ChannelClosedError, LoginRefusedError, UnreachableError, VhostRefusedError
from perftest.engine.publishing.publisher import ConfirmTimeoutError
from perftest.spec.plan import Settings
from tests.perftest.testing.session_run import PATIENCE_S, Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def fate_at(stub: ModuleType, name: str, *numbers: int) -> Callable[[int], Any]:
    return lambda number: stub.Fate[name] if number in numbers else stub.Fate.DELIVER


@pytest.mark.parametrize(
    ("fate", "what"),
    [("LOSE", "lost"), ("DUPLICATE", "duplicated"), ("DELAY", "reordered"), ("DAMAGE", "damaged")],
)
def test_each_lie_of_a_broker_is_caught_with_the_very_message(stub: ModuleType, fate: str, what: str) -> None:
    """A benchmark that does not see this measures brokers that cheat as fast ones."""

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(fate=fate_at(stub, fate, 60, 61, 105))) as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(300)
            record = await run.finish(drain_s=0.5 if fate == "LOSE" else PATIENCE_S)
            assert record[what] == 3
            if fate != "LOSE":
                assert record["verdict"] == "violated"
                spans = [(e["first"], e["last"]) for e in record["examples"] if e["what"] == what]
                assert sorted(n for first, last in spans for n in range(first, last + 1)) == [60, 61, 105]

    play(scenario())


def test_a_loss_is_a_violation_once_the_queues_are_empty(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(fate=fate_at(stub, "LOSE", 7))) as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(100)
            await run.drain(0.2)
            await run.close(drained=True)
            record: dict[str, Any] = run.session.ledger(complete=True)
            assert record["lost"] == 1
            assert record["verdict"] == "violated"
            assert record["examples"] == [{"publisher": 0, "first": 7, "last": 7, "what": "lost"}]

    play(scenario())


def test_a_message_nobody_sent_is_unexpected(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(fate=fate_at(stub, "RENUMBER", 50))) as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(100)
            record = await run.finish(drain_s=0.2)
            assert (record["unexpected"], record["verdict"]) == (1, "violated")

    play(scenario())


def test_refused_and_returned_messages_are_no_losses(stub: ModuleType) -> None:
    def fate(number: int) -> Any:
        return {10: stub.Fate.NACK, 20: stub.Fate.RETURN}.get(number, stub.Fate.DELIVER)

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(fate=fate)) as broker:
            run = Run(broker, replace(SETTINGS, mandatory=True))
            await run.open()
            await run.published(100)
            interval = run.session.cut()
            record = await run.finish()
            assert (record["nacked"], record["returned"], record["lost"]) == (1, 1, 0)
            assert record["verdict"] == "ok"
            assert (interval["nacked"], interval["returned"]) == (1, 1)
            assert "nacked" in run.events

    play(scenario())


@pytest.mark.parametrize(
    ("script", "settings"),
    [
        ({}, {}),
        ({"confirm_each": True}, {}),
        ({"confirm_backwards": True}, {}),
        ({}, {"in_flight": 1, "prefetch": 1}),
        ({}, {"in_flight": 0}),
        ({}, {"ack_interval": 0, "prefetch": 0}),
        ({}, {"ack_interval": 7}),
        ({}, {"publishers": 3, "consumers": 4}),
        ({}, {"size_bytes": 300_000, "in_flight": 3}),
        ({}, {"size_bytes": 28}),
        ({}, {"rate": 2000.0}),
    ],
)
def test_an_honest_broker_is_found_honest(stub: ModuleType, script: dict[str, Any], settings: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(**script)) as broker:
            run = Run(broker, replace(SETTINGS, **settings), queues=2 if "consumers" in settings else 1)
            await run.open()
            await run.published(20 if run.settings.size_bytes > 10_000 else 300)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["published"] == record["delivered"] == record["unique"]
            assert record["redelivered"] == 0
            if run.settings.in_flight:
                assert record["confirmed"] == record["published"]

    play(scenario())


def test_the_broker_sees_exactly_every_nth_acknowledged(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, ack_interval=9))
            await run.open()
            await run.published(100)
            record = await run.finish()
            tags = [tag for tag, multiple in broker.acks if multiple]
            assert tags[:-1] == list(range(9, 9 * len(tags), 9))
            assert tags[-1] == record["delivered"]

    play(scenario())


def test_settings_change_while_messages_flow(stub: ModuleType) -> None:
    """A live sweep must neither lose nor reorder anything by the change itself."""
    changes: list[dict[str, Any]] = [
        {"in_flight": 500},
        {"in_flight": 2},
        {"prefetch": 3},
        {"prefetch": 100, "ack_interval": 40},
        {"ack_interval": 5},
        {"size_bytes": 5000},
        {"in_flight": 0},
        {"ack_interval": 0},
        {"in_flight": 30, "ack_interval": 1},
        {"rate": 5000.0},
        {"rate": 3000.0},
        {"rate": None},
        {"publishers": 3, "consumers": 3},
        {"publishers": 1, "consumers": 1},
        {"persistent": False},
    ]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, 5000)
            await run.open()
            for change in changes:
                await run.published(60)
                await run.change(**change)
            await run.published(60)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["unique"] == record["published"]

    play(scenario())


def test_a_lost_connection_costs_no_message_and_accuses_nobody(stub: ModuleType) -> None:
    """Unconfirmed messages go out again; what is then delivered twice is not the broker's fault."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            for _ in range(3):
                await run.published(200)
                broker.hold_confirms = True
                await run.until(lambda: run.session.publishers[0].unconfirmed == SETTINGS.in_flight)
                broker.drop_connections()
                broker.hold_confirms = False
                before = run.events.count("reconnected")
                await run.until(lambda before=before: run.events.count("reconnected") >= before + 2)  # type: ignore[misc]
            await run.published(100)
            record = await run.finish()
            assert record["verdict"] == "ok", record
            assert record["republished"] == 3 * SETTINGS.in_flight
            assert record["confirmed"] == record["published"] == record["unique"]
            assert run.events.count("connection_lost") == 6

    play(scenario())


def test_a_node_that_comes_back_later_is_waited_for(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(50)
            await broker.shut()
            await run.until(lambda: run.events.count("connection_lost") == 2)
            await broker.listen()
            await run.until(lambda: run.events.count("reconnected") == 2)
            await run.published(50)
            record = await run.finish()
            assert record["verdict"] == "ok", record

    play(scenario())


def test_a_cancelled_consumer_subscribes_again(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(50)
            broker.cancel_consumers()
            await run.until(lambda: "reconnected" in run.events)
            await run.published(50)
            record = await run.finish()
            assert "consumer_cancelled" in run.events
            assert record["verdict"] == "ok", record

    play(scenario())


def test_a_blocked_connection_is_an_event(stub: ModuleType) -> None:
    from pamqp import commands

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            broker.tell_all(commands.Connection.Blocked("low on disk"))
            await run.until(lambda: "blocked" in run.events)
            broker.tell_all(commands.Connection.Unblocked())
            await run.until(lambda: "unblocked" in run.events)
            await run.finish()

    play(scenario())


def test_a_broker_that_never_confirms_ends_the_run(stub: ModuleType) -> None:
    """Without this a run hangs for ever on a broker without a quorum."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.hold_confirms = True
            run = Run(broker, SETTINGS)
            await run.open()
            await run.until(lambda: run.session.publishers[0].unconfirmed == SETTINGS.in_flight)
            publisher = run.session.publishers[0]
            publisher.check(time.monotonic_ns() + round((PATIENCE_S - 5) * 1e9))
            assert not run.failures
            publisher.check(time.monotonic_ns() + round((PATIENCE_S + 5) * 1e9))
            assert [type(error) for error in run.failures] == [ConfirmTimeoutError]
            await run.abandon()

    play(scenario())


def test_a_stalled_broker_shows_in_the_latencies_of_its_messages(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, rate=500.0))
            await run.open()
            await run.published(50)
            run.session.cut()
            broker.stall()
            before = time.monotonic_ns()
            await run.until(lambda: time.monotonic_ns() - before > 300_000_000)
            broker.resume()
            await run.published(150)
            counts = run.session.cut()["counts"]
            assert counts["e2e_sched"]["max"] >= 290_000_000
            assert counts["lag"]["max"] >= 200_000_000
            await run.finish()

    play(scenario())


@pytest.mark.parametrize("code", [506, 311])
def test_a_declaration_that_fails_for_the_moment_is_tried_again(stub: ModuleType, code: int) -> None:
    """An election right after the start of a cluster must not end the run."""

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(refuse_declare=[(code, "election")] * 2)) as broker:
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(10)
            await run.finish()

    play(scenario())


@pytest.mark.parametrize("code", [403, 404, 405, 406])
def test_a_declaration_that_cannot_succeed_fails_at_once(stub: ModuleType, code: int) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(refuse_declare=[(code, "no")])) as broker:
            with pytest.raises(ChannelClosedError) as caught:
                await Run(broker, SETTINGS).open()
            assert caught.value.code == code
            assert broker.uri.split("@")[1].split("/")[0] in caught.value.__notes__[0]

    play(scenario())


@pytest.mark.parametrize(
    ("script", "uri", "error"),
    [
        ({"password": "other"}, "", LoginRefusedError),
        ({"vhosts": ("x",)}, "", VhostRefusedError),
        ({}, "amqp://127.0.0.1:1", UnreachableError),
    ],
)
def test_what_cannot_be_connected_to_is_told_apart(
    stub: ModuleType, script: dict[str, Any], uri: str, error: type[AmqpError]
) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(**script)) as broker:
            with pytest.raises(error):
                await Run(broker, SETTINGS, uri=uri).open()

    play(scenario())


def test_messages_of_an_earlier_run_are_purged_with_a_queue_that_is_ours(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.queues["q0"] = stub.Queue()
            broker.queues["q0"].ready.append(stub.Message(b"", 0))
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(10)
            record = await run.finish()
            assert (record["foreign"], record["verdict"]) == (0, "ok")

    play(scenario())
