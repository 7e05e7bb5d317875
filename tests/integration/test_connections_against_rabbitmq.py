"""Connections and topology against a real RabbitMQ: what it declares, refuses, blocks and breaks, and over TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import uvloop

from infra import rabbitmq_cluster
from infra.ports import free_ports
from infra.rabbitmq_cluster import HOST, RabbitMQ
from perftest.amqp.errors import AmqpError
from perftest.engine.workers.failures import explain
from perftest.spec.behaviour import Connecting, Consuming, Exchange, Publishing, RoutingKeys, Tls
from perftest.spec.plan import QueueSpec, QueueType, Settings
from tests.perftest.testing.certificates import Authority
from tests.perftest.testing.session_run import Run

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]

SETTINGS = Settings(in_flight=50, prefetch=100, size_bytes=1000, rate=500.0)
CLASSIC = QueueType.CLASSIC


@dataclass(frozen=True, slots=True)
class Broker:
    """A RabbitMQ with TLS, eight channels a connection, and what a session under test asks of a broker."""

    uri: str
    tls_uri: str
    ca_file: str
    node: RabbitMQ


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    cert_file, key_file = authority.issue(HOST)
    (port,) = free_ports(1)
    configuration = f"""
        channel_max = 8
        listeners.ssl.1 = {HOST}:{port}
        ssl_options.cacertfile = {authority.ca_file}
        ssl_options.certfile = {cert_file}
        ssl_options.keyfile = {key_file}
        ssl_options.verify = verify_none
    """
    with rabbitmq_cluster.running(tmp_path_factory.mktemp("rabbitmq"), 1, configuration) as node:
        tls_uri = f"amqps://guest:guest@{HOST}:{port}/%2f"
        yield Broker(node.uris[0], tls_uri, str(authority.ca_file), node)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    uvloop.run(scenario)


async def confirmed(run: Run, count: int) -> None:
    """Until so many more are confirmed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 60
    wanted = count + int(str(run.session.ledger(complete=False)["confirmed"]))
    while int(str(run.session.ledger(complete=False)["confirmed"])) < wanted:
        assert not run.failures, run.failures
        assert loop.time() < deadline, run.texts
        await asyncio.sleep(0.01)


async def event(run: Run, kind: str, count: int) -> None:
    async with asyncio.timeout(60):
        while run.events.count(kind) < count:
            assert not run.failures, run.failures
            await asyncio.sleep(0.01)


def names(*these: str, **more: Any) -> tuple[QueueSpec, ...]:
    return tuple(QueueSpec(name=name, **more) for name in these)


FIXED = Publishing(routing_keys=RoutingKeys.FIXED, routing_key="k")
WORKING: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "several channels": (
        {"publishers": 2, "consumers": 2},
        {"queues": names("a", "b"), "publishing": Publishing(channels=3), "consuming": Consuming(channels=4)},
        1,
    ),
    "direct exchange": (
        {"publishers": 2, "consumers": 2},
        {"queues": names("a", "b"), "exchange": Exchange(name="x")},
        1,
    ),
    "fanout exchange": (
        {"consumers": 3},
        {"queues": names("a", "b", "c"), "exchange": Exchange(name="f", type="fanout")},
        3,
    ),
    "topic exchange, one key": (
        {"consumers": 2},
        {"queues": names("a", "b"), "exchange": Exchange(name="t", type="topic"), "publishing": FIXED},
        2,
    ),
    "exclusive queues": (
        {"publishers": 2, "consumers": 2},
        {"queues": names("a", "b", type=CLASSIC), "connecting": Connecting(exclusive=True)},
        1,
    ),
    "auto-delete queues": ({}, {"queues": names("a", type=CLASSIC, auto_delete=True, durable=False)}, 1),
    "queues of consumers' own": (
        {"consumers": 2},
        {
            "queues": (QueueSpec(name="", type=CLASSIC, auto_delete=True, durable=False),),
            "exchange": Exchange(name="x"),
            "publishing": FIXED,
            "consuming": Consuming(channels=2),
            "connecting": Connecting(exclusive=True),
        },
        4,
    ),
    "the smallest frames": ({"size_bytes": 20_000}, {"connecting": Connecting(frame_max=4096)}, 1),
}


@pytest.mark.parametrize("case", WORKING)
def test_messages_go_their_ways_and_nothing_is_left_behind(broker: Broker, case: str) -> None:
    settings, fields, copies = WORKING[case]

    async def scenario() -> None:
        run = Run(broker, replace(SETTINGS, **settings), **fields)
        await run.open()
        await confirmed(run, 300)
        record = await run.finish()
        assert record["verdict"] == "ok", str(record)
        assert record["delivered"] == copies * record["published"], str(record)
        plan = run.session.context.plan
        left = {
            "queues": tuple(replace(queue, predeclared=True) for queue in plan.queues if queue.name),
            "exchange": replace(plan.exchange, predeclared=True),
        }
        again = Run(broker, replace(SETTINGS, publishers=0, consumers=0), **left)
        with pytest.raises(AmqpError, match="404"):
            await again.open()

    play(scenario())


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "exchange of no type": ({}, {"exchange": Exchange(name="x", type="nonsense")}, "direct, fanout"),
    "exchange that is not there": (
        {},
        {"exchange": Exchange(name="nowhere", predeclared=True)},
        "declare the exchange",
    ),
    "queue that is not there": ({}, {"queues": names("nowhere", predeclared=True)}, "declare the queue"),
    "exclusive quorum queues": ({}, {"connecting": Connecting(exclusive=True)}, "cannot be exclusive"),
    "more channels than allowed": ({}, {"publishing": Publishing(channels=9)}, "fewer channels"),
    "virtual host": ({}, {"uri": "vhost"}, "virtual host"),
    "password": ({}, {"uri": "password"}, "user and password"),
    "certificate of strangers": (
        {},
        {"uri": "tls", "connecting": Connecting(tls=Tls(system_authorities=True))},
        "authority",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_rabbitmq_refuses_is_explained(broker: Broker, case: str) -> None:
    settings, fields, fix = REFUSED[case]
    uris = {
        "vhost": broker.uri.replace("%2f", "nowhere"),
        "password": broker.uri.replace("guest:guest", "guest:other"),
        "tls": broker.tls_uri,
    }

    async def scenario() -> None:
        run = Run(
            broker, replace(SETTINGS, **settings), **fields | {"uri": uris.get(fields.get("uri", ""), broker.uri)}
        )
        with pytest.raises(AmqpError) as caught:
            await run.open()
        told = explain(caught.value)
        assert fix in told.fix, told
        assert HOST in told.where, told
        with contextlib.suppress(AmqpError):  # who may not log in cannot tidy up either
            await run.abandon()

    play(scenario())


def test_connections_that_an_operator_closes_come_back(broker: Broker) -> None:
    async def scenario() -> None:
        run = Run(broker, SETTINGS, publishing=Publishing(channels=3), exchange=Exchange(name="x"))
        await run.open()
        await confirmed(run, 100)
        await asyncio.to_thread(broker.node.control, "close_all_connections", "maintenance")
        await event(run, "reconnected", 2)
        await confirmed(run, 100)
        record = await run.finish()
        assert record["verdict"] == "ok", str(record)
        assert any("320" in text and "maintenance" in text for text in run.texts)

    play(scenario())


def test_a_memory_alarm_is_told_with_its_length(broker: Broker) -> None:
    async def scenario() -> None:
        run = Run(broker, SETTINGS)
        await run.open()
        await confirmed(run, 50)
        await asyncio.to_thread(broker.node.control, "set_vm_memory_high_watermark", "0")
        try:
            await event(run, "blocked", 1)
        finally:
            await asyncio.to_thread(broker.node.control, "set_vm_memory_high_watermark", "0.4")
        await event(run, "unblocked", 1)
        await confirmed(run, 50)
        record = await run.finish()
        assert record["verdict"] == "ok", str(record)
        assert any("memory" in text for text in run.texts)

    play(scenario())


@pytest.mark.parametrize("checked", [True, False])
def test_messages_over_tls(broker: Broker, checked: bool) -> None:
    async def scenario() -> None:
        connecting = Connecting(tls=Tls(ca_file=broker.ca_file)) if checked else Connecting()
        run = Run(broker, replace(SETTINGS, rate=None), uri=broker.tls_uri, connecting=connecting)
        await run.open()
        await confirmed(run, 2000)
        record = await run.finish()
        assert record["verdict"] == "ok", str(record)
        assert ("warning" in run.events) is not checked

    play(scenario())
