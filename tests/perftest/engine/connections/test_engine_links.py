"""Connections that many clients share: who lives where, and what becomes of the others when one of them has trouble."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from pamqp import commands

from perftest.amqp.errors import ChannelClosedError, NoChannelLeftError
from perftest.amqp.transport import Connection
from perftest.amqp.uri import parse_uri
from perftest.engine.connections import link
from perftest.engine.connections.recovery import RecoveryOffError
from perftest.spec.behaviour import Connecting, Consuming, Publishing
from perftest.spec.plan import Settings
from tests.perftest.testing.session_run import Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize(
    ("publishers", "publisher_channels", "consumers", "consumer_channels", "connections"),
    [(1, 1, 1, 1, 2), (2, 3, 1, 4, 3), (1, 50, 2, 25, 3)],
)
def test_each_channel_is_a_client_with_an_account_of_its_own(
    stub: ModuleType, publishers: int, publisher_channels: int, consumers: int, consumer_channels: int, connections: int
) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(
                broker,
                replace(SETTINGS, publishers=publishers, consumers=consumers, in_flight=5),
                queues=3,
                publishing=Publishing(channels=publisher_channels),
                consuming=Consuming(channels=consumer_channels),
            )
            await run.open()
            everybody = publishers * publisher_channels
            assert len(broker.connections) == connections
            assert len(run.session.publishers) == everybody
            assert len(run.session.consumers) == consumers * consumer_channels
            await run.until(lambda: all(p.unconfirmed or p._ledger.next for p in run.session.publishers))
            await run.published(10 * everybody)
            record = await run.finish()
            assert record["verdict"] == "ok", str(record)
            assert record["confirmed"] == record["published"] == record["unique"]
            assert len(broker.connections) == 0
            assert run.events == []

    play(scenario())


def test_a_channel_that_ends_is_made_again_alone(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, publishing=Publishing(channels=3), consuming=Consuming(channels=2))
            await run.open()
            await run.published(50)
            for connection in tuple(broker.connections):
                connection.close_channel(2, 506, "out of something")
            await run.until(lambda: run.events.count("reconnected") == 2)
            await run.published(200)
            record = await run.finish()
            assert run.events.count("channel_closed") == 2
            assert "connection_lost" not in run.events
            assert record["verdict"] == "ok", str(record)
            assert record["confirmed"] == record["published"] == record["unique"]

    play(scenario())


def test_a_connection_comes_back_with_all_its_clients(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, publishing=Publishing(channels=5), consuming=Consuming(channels=5), queues=5)
            await run.open()
            for _ in range(3):
                await run.published(50)
                before = run.events.count("reconnected")
                broker.drop_connections()
                await run.until(lambda before=before: run.events.count("reconnected") == before + 2)  # type: ignore[misc]
            await run.published(100)
            record = await run.finish()
            assert run.events.count("connection_lost") == 6
            assert record["verdict"] == "ok", str(record)
            assert record["confirmed"] == record["published"] == record["unique"]

    play(scenario())


def test_channels_come_and_go_within_a_run_and_connections_with_the_last(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, publishing=Publishing(channels=2), consuming=Consuming(channels=3))
            await run.open()
            for number in (3, 1, 2, 1):
                await run.published(30)
                await run.load.apply(replace(SETTINGS, publishers=number, consumers=number))
                await run.until(lambda number=number: len(broker.connections) == 2 * number)  # type: ignore[misc]
            await run.published(30)
            record = await run.finish()
            assert record["verdict"] == "ok", str(record)
            assert record["confirmed"] == record["published"] == record["unique"]

    play(scenario())


def test_a_channel_closed_for_good_ends_the_run_with_the_reason(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, publishing=Publishing(channels=2))
            await run.open()
            await run.published(20)
            publishing = next(one for one in broker.connections if not one.consumers)
            publishing.close_channel(2, 404, "NOT_FOUND - no exchange 'x'")
            async with asyncio.timeout(5):
                while not run.failures:
                    await asyncio.sleep(0)
            (error,) = run.failures
            assert isinstance(error, ChannelClosedError)
            assert "publisher 1 at amqp://" in error.__notes__[0]
            await run.abandon()

    play(scenario())


def test_without_recovery_a_loss_ends_the_run(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, connecting=Connecting(recover=False))
            await run.open()
            await run.published(20)
            broker.drop_connections()
            async with asyncio.timeout(5):
                while len(run.failures) < 2:
                    await asyncio.sleep(0)
            assert all(isinstance(error, RecoveryOffError) for error in run.failures)
            assert "reconnected" not in run.events
            await run.abandon(delete=False)

    play(scenario())


def test_exclusive_queues_have_one_connection_each(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            settings = replace(SETTINGS, publishers=4, consumers=6)
            run = Run(broker, settings, queues=2, connecting=Connecting(exclusive=True))
            await run.open()
            assert len(broker.connections) == 2
            await run.published(100)
            broker.drop_connections()
            await run.until(lambda: run.events.count("reconnected") == 2)
            await run.published(100)
            record = await run.finish()
            assert record["verdict"] == "ok", str(record)
            assert record["unique"] == record["published"]

    play(scenario())


def test_more_channels_than_the_broker_allows_are_refused_in_words(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(channel_max=4)) as broker:
            run = Run(broker, SETTINGS, publishing=Publishing(channels=5))
            with pytest.raises(NoChannelLeftError, match="allows 4 channels"):
                await run.open()

    play(scenario())


def test_a_block_says_how_long_it_took(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, publishing=Publishing(channels=3))
            await run.open()
            broker.tell_all(commands.Connection.Blocked("low on memory"))
            await run.until(lambda: run.events.count("blocked") == 2)
            await run.until(lambda: bool(run.session.publishers[0].unconfirmed))
            run.session.publishers[0].check(1 << 62)
            assert "low on memory" in str(run.failures.pop())
            broker.tell_all(commands.Connection.Unblocked())
            await run.until(lambda: run.events.count("unblocked") == 2)
            assert any("was blocked for 0." in text for text in run.texts)
            await run.finish()

    play(scenario())


def test_a_thousand_links_do_not_return_all_at_once(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CONNECTS_AT_ONCE", 3)
    most = 0

    def count(connection: Any, _channel: int) -> None:
        nonlocal most
        most = max(most, sum(1 for one in connection.broker.connections if not one.channels))
        connection.send(0, commands.Connection.OpenOk())

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, publishers=20, consumers=20))
            await run.open()
            broker.script.instead["Connection.Open"] = count
            broker.drop_connections()
            await run.until(lambda: run.events.count("reconnected") == 40)
            assert 1 <= most <= 3
            record = await run.finish()
            assert record["verdict"] == "ok", str(record)

    play(scenario())


def test_an_address_of_version_6_is_connected_to(stub: ModuleType) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(host="::1")) as broker:
            run = Run(broker, SETTINGS, uri=f"amqp://guest:guest@[::1]:{broker.port}/%2f")
            await run.open()
            await run.published(20)
            assert (await run.finish())["verdict"] == "ok"

    play(scenario())


@pytest.mark.parametrize("stage", ["between two tries", "in the middle of a handshake", "while channels are opened"])
def test_a_run_that_ends_while_a_node_is_away_leaves_nothing_behind(stub: ModuleType, stage: str) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            recovery = (600.0, 600.0) if stage == "between two tries" else None
            run = Run(broker, replace(SETTINGS, publishers=3), connecting=Connecting(recovery_s=recovery))
            await run.open()
            await run.published(20)
            asked = []
            silent = {"in the middle of a handshake": "Connection.Open", "while channels are opened": "Channel.Open"}
            broker.script.instead[silent.get(stage, "")] = lambda connection, channel: asked.append(connection)
            broker.drop_connections()
            await run.until(lambda: run.events.count("connection_lost") == 4)
            if stage in silent:
                await run.until(lambda: len(asked) >= 4)
            async with asyncio.timeout(5):
                await run.abandon(delete=False)
            await run.until(lambda: not broker.connections)
            assert not run.failures

    play(scenario())


def test_a_channel_number_is_not_used_again_while_there_are_others(stub: ModuleType) -> None:
    """Its last user may not know yet that it has ended, and would write on the channel of another."""

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(channel_max=5)) as broker:
            connection = await Connection.open(parse_uri(broker.uri), name="t", clock=time.monotonic_ns)
            numbers = []
            for _ in range(8):
                numbers.append(await connection.open_channel())
                await connection.close_channel(numbers[-1])
            assert numbers == [1, 2, 3, 4, 5, 1, 2, 3]
            await connection.close()

    play(scenario())
