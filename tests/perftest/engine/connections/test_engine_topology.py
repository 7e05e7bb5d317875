"""What a run declares, where, and what it leaves behind: nothing of its own, everything of others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from pamqp import commands

from perftest.amqp.errors import ChannelClosedError, ConnectionClosedError
from perftest.engine.workers.failures import explain
from perftest.spec.behaviour import Allocation, Connecting, Exchange, Publishing, RoutingKeys
from perftest.spec.plan import Plan, QueueSpec, QueueType, Settings
from tests.perftest.testing.session_run import Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100)
CONNECTED_ONLY = replace(SETTINGS, publishers=0, consumers=0)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def opened(broker: Any, *queues: QueueSpec, settings: Settings = CONNECTED_ONLY, **fields: Any) -> Run:
    run = Run(broker, settings, **{"queues": queues, **fields})
    await run.connect()
    return run


async def closed(run: Run) -> None:
    await run.close(drained=True, delete=run.session.context.plan.delete_queues)


def queues(*names: str, **more: Any) -> tuple[QueueSpec, ...]:
    return tuple(QueueSpec(name=name, **more) for name in names)


BINDINGS: dict[str, tuple[tuple[QueueSpec, ...], Publishing, list[tuple[str, str]]]] = {
    "by name": (queues("a", "b"), Publishing(), [("a", "a"), ("b", "b")]),
    "one key": (
        queues("a", "b"),
        Publishing(routing_keys=RoutingKeys.FIXED, routing_key="k"),
        [("a", "k"), ("b", "k")],
    ),
    "random keys": (
        queues("a"),
        Publishing(routing_keys=RoutingKeys.RANDOM, routing_key="k"),
        [("a", "k")],
    ),
    "left out": ((*queues("a", bound=False), *queues("b")), Publishing(), [("b", "b")]),
    "named by the server": (queues("a", ""), Publishing(), [("a", "a")]),
}


@pytest.mark.parametrize("case", BINDINGS)
def test_queues_are_bound_as_messages_are_routed(stub: ModuleType, case: str) -> None:
    specs, publishing, expected = BINDINGS[case]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = await opened(broker, *specs, exchange=Exchange(name="x"), publishing=publishing)
            assert broker.exchanges["x"].bindings == expected
            await closed(run)
            assert (broker.queues, broker.exchanges) == ({}, {})

    play(scenario())


def test_everything_a_queue_is_declared_with_reaches_the_broker(stub: ModuleType) -> None:
    spec = QueueSpec(
        name="a", type=QueueType.CLASSIC, durable=False, auto_delete=True, arguments={"x-max-length": 5, "x-odd": True}
    )

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            exchange = Exchange(name="x", type="topic", durable=False)
            await opened(broker, spec, exchange=exchange)
            declared = broker.queues["a"].declared
            assert (declared.durable, declared.auto_delete, declared.exclusive) == (False, True, False)
            assert declared.arguments == {"x-queue-type": "classic", "x-max-length": 5, "x-odd": True}
            made = broker.exchanges["x"].declared
            assert (made.exchange_type, made.durable) == ("topic", False)

    play(scenario())


def test_what_was_there_before_stays(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.queues["theirs"] = stub.Queue()
            broker.exchanges["x"] = stub.Exchange(commands.Exchange.Declare(exchange="x", exchange_type="direct"))
            specs = (*queues("theirs", predeclared=True), *queues("ours"))
            run = await opened(broker, *specs, exchange=Exchange(name="x"))
            await closed(run)
            assert (list(broker.queues), list(broker.exchanges)) == (["theirs"], ["x"])

    play(scenario())


def test_an_exchange_that_others_use_by_now_stays(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = await opened(broker, *queues("ours"), exchange=Exchange(name="x"))
            broker.exchanges["x"].bindings.append(("theirs", "k"))
            await closed(run)
            assert list(broker.exchanges) == ["x"]
            assert "warning" in run.events

    play(scenario())


def test_nothing_is_deleted_if_the_plan_says_so(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = await opened(broker, *queues("a"), exchange=Exchange(name="x"), delete_queues=False)
            await closed(run)
            assert (list(broker.queues), list(broker.exchanges)) == (["a"], ["x"])

    play(scenario())


def test_what_is_predeclared_and_not_there_may_be_declared_after_all(stub: ModuleType) -> None:
    """PerfTest's -p: use what there is. What there was not stays, too."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.queues["theirs"] = stub.Queue()
            run = await opened(
                broker,
                *queues("theirs", "missing", predeclared=True),
                exchange=Exchange(name="x", type="topic", predeclared=True),
                declare_missing=True,
            )
            declared = broker.queues["missing"].declared
            assert declared.arguments["x-queue-type"] == "quorum" and broker.exchanges["x"].declared.durable
            await closed(run)
            assert (list(broker.queues), list(broker.exchanges)) == (["theirs", "missing"], ["x"])

    play(scenario())


PROBLEMS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "predeclared queue": ({"queues": queues("a", predeclared=True)}, "404", "queue 'a'", "declare the queue"),
    "predeclared exchange": (
        {"exchange": Exchange(name="y", predeclared=True)},
        "404",
        "exchange 'y'",
        "declare the exchange",
    ),
    "exchange of another type": (
        {"exchange": Exchange(name="x", type="fanout")},
        "406",
        "exchange 'x'",
        "match it (-t)",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_is_not_as_it_should_be_is_told_with_its_name(stub: ModuleType, case: str) -> None:
    fields, what, where, fix = PROBLEMS[case]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            broker.exchanges["x"] = stub.Exchange(commands.Exchange.Declare(exchange="x", exchange_type="direct"))
            with pytest.raises(ChannelClosedError) as caught:
                await opened(
                    broker, *fields.get("queues", queues("q")), **{k: v for k, v in fields.items() if k != "queues"}
                )
            told = explain(caught.value)
            assert what in told.what and where in told.where and "127.0.0.1" in told.where
            assert fix in told.fix

    play(scenario())


def test_queues_are_declared_in_turn_at_each_uri_so_that_leaders_spread(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as one, stub.StubBroker() as two, stub.StubBroker() as three:
            brokers = (one, two, three)
            run = await opened(one, *queues(*"abcdefg"), uris=tuple(broker.uri for broker in brokers))
            assert [sorted(broker.queues) for broker in brokers] == [["a", "d", "g"], ["b", "e"], ["c", "f"]]
            assert {name for broker in brokers for name, _ in broker.declared_at} == {"perftest control"}
            await closed(run)
            assert not any(broker.queues for broker in brokers)

    play(scenario())


def test_the_share_of_a_node_that_is_down_is_declared_at_the_next(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = await opened(broker, *queues(*"abc"), uris=(broker.uri, "amqp://127.0.0.1:1"))
            assert sorted(broker.queues) == ["a", "b", "c"]
            await closed(run)

    play(scenario())


@pytest.mark.parametrize("allocation", list(Allocation))
def test_connections_spread_over_the_uris(stub: ModuleType, allocation: Allocation) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as one, stub.StubBroker() as two:
            spread = []
            for seed in (1, 1, 2):
                settings = replace(SETTINGS, publishers=12, consumers=12, rate=1.0)
                run = await opened(
                    one,
                    *queues("a"),
                    settings=settings,
                    uris=(one.uri, two.uri),
                    connecting=Connecting(allocation=allocation),
                    seed=seed,
                )
                spread.append(sorted(connection.name for connection in one.connections))
                assert len(one.connections) + len(two.connections) == 24
                await closed(run)
            assert spread[0] == spread[1], "the same seed gives the same allocation"
            if allocation is Allocation.ROUND_ROBIN:
                assert Counter(name.split()[1] for name in spread[0]) == {"publisher": 6, "consumer": 6}
                assert spread[0] == spread[2]
            else:
                assert 0 < len(spread[0]) < 24 and spread[0] != spread[2]

    play(scenario())


def test_a_broker_that_forgot_everything_is_told_again(stub: ModuleType) -> None:
    """A node that comes back without its disk has neither exchange nor queues nor bindings."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, queues=2, exchange=Exchange(name="x"))
            await run.open()
            broker.drop_connections()
            broker.queues.clear()
            broker.exchanges.clear()
            await run.until(lambda: run.events.count("reconnected") == 2)
            assert broker.exchanges["x"].bindings == [("q0", "q0")]
            assert list(broker.queues) == ["q0"]
            await run.abandon()

    play(scenario())


def test_exclusive_queues_are_declared_by_the_connection_that_uses_them(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            settings = replace(SETTINGS, publishers=2, consumers=2)
            fields = {"exchange": Exchange(name="x"), "connecting": Connecting(exclusive=True)}
            run = await opened(broker, *queues("a", "b", type=QueueType.CLASSIC), settings=settings, **fields)
            assert sorted(broker.declared_at) == [
                ("perftest connection of queue 'a'", "a"),
                ("perftest connection of queue 'b'", "b"),
            ]
            assert all(queue.owner is not None for queue in broker.queues.values())
            assert sorted(broker.exchanges["x"].bindings) == [("a", "a"), ("b", "b")]
            await closed(run)
            assert (broker.queues, broker.exchanges) == ({}, {})

    play(scenario())


@pytest.mark.parametrize(
    ("code", "text", "fix"),
    [
        (
            406,
            "PRECONDITION_FAILED - invalid property 'exclusive-owner' for queue 'a' in vhost '/'",
            "cannot be exclusive",
        ),
        (406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'a' in vhost '/'", "other properties"),
        (406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out", "consumer_timeout"),
        (406, "PRECONDITION_FAILED - invalid arg 'x-queue-type': \"unsupported queue type 'keyed'\"", "bundled broker"),
        (406, "PRECONDITION_FAILED - message size 134217729 is larger than configured max size", "max_message_size"),
        (406, "PRECONDITION_FAILED - invalid expiration 'soon': no_integer", "milliseconds"),
        (403, "ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'u'", "this exchange"),
        (403, "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u'", "this queue"),
        (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", "another consumer"),
        (405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q'", "another connection"),
        (499, "of the future", "broker's log"),
    ],
)
def test_what_rabbitmq_says_when_it_closes_a_channel_is_answered_with_what_to_do(
    code: int, text: str, fix: str
) -> None:
    method = "queue.declare" if "other properties" in fix else ""
    assert fix in explain(ChannelClosedError(code, text, method)).fix


@pytest.mark.parametrize(
    ("method", "text", "fix"),
    [
        ("queue.declare", "whatever it says", "a queue of this name exists with other properties"),
        ("exchange.declare", "inequivalent arg 'type'", "an exchange of this name exists with another type"),
        ("basic.publish", "message size 9 is larger than configured max size 8", "max_message_size"),
        ("basic.publish", "invalid message: delivery mode 3 is neither 1 nor 2", "what is published"),
        ("basic.publish", "transaction is larger than 1000 messages: commit more often", "what is published"),
        ("basic.ack", "unknown delivery tag 7", "does not know a message that it delivered"),
        ("basic.nack", "of the future", "see the broker's log"),
        ("basic.consume", "reply consumer already set", "see the broker's log"),
        ("tx.commit", "partial tx completion", "see the broker's log"),
        ("confirm.select", "cannot switch from tx to confirm mode", "see the broker's log"),
        ("", "of the future", "see the broker's log"),
    ],
)
def test_a_refusal_406_is_told_by_the_method_that_it_answers(method: str, text: str, fix: str) -> None:
    told = explain(ChannelClosedError(406, f"PRECONDITION_FAILED - {text}", method))
    assert text in told.what and method in told.what
    assert fix in told.fix and ("other properties" in told.fix) is (method == "queue.declare")


def test_a_broker_with_the_default_exchange_alone_can_still_be_measured() -> None:
    """The bundled one: PerfTest's default is an exchange of its own."""
    refused = ConnectionClosedError(540, "NOT_IMPLEMENTED - only the default exchange exists", "exchange.declare")
    assert "-e amq.default" in explain(refused).fix


def test_a_queue_named_by_the_server_is_declared_and_bound_for_one_consumer(stub: ModuleType) -> None:
    from perftest.engine.connections import topology
    from perftest.engine.connections.dialing import dial

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            publishing = Publishing(routing_keys=RoutingKeys.FIXED, routing_key="k")
            spec = QueueSpec(name="", type=QueueType.CLASSIC, auto_delete=True)
            run = await opened(broker, spec, exchange=Exchange(name="x"), publishing=publishing)
            plan: Plan = run.session.context.plan
            connection = await dial(run.session.context, 0, name="own")
            channel = await connection.open_channel()
            names = {await topology.declare_own(connection, channel, spec, plan) for _ in range(2)}
            assert sorted(broker.exchanges["x"].bindings) == sorted((name, "k") for name in names)
            assert len(names) == 2 and names == set(broker.queues)
            await connection.close()
            await closed(run)

    play(scenario())


def test_a_broker_that_never_lets_go_is_left(stub: ModuleType) -> None:
    """Closing takes as long as the plan says, and no longer."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, replace(SETTINGS, publishers=3), connecting=Connecting(shutdown_timeout_s=0.2))
            await run.open()
            await run.published(10)
            broker.stall()
            async with asyncio.timeout(15):
                await run.abandon(delete=False)
            assert "warning" in run.events and not run.session.publishers

    play(scenario())
