"""What publishers can be told to do, against brokers that were not written for them: the bundled one and RabbitMQ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from infra import rabbitmq_cluster
from perftest.engine.accounting import stamp
from perftest.spec.behaviour import Argument, Arrivals, Bodies, Publishing, RoutingKeys
from perftest.spec.plan import QueueSpec, QueueType, Settings
from perftest.spec.units import IN_FLIGHT_UNLIMITED
from tests.integration.testing.pika_clients import connect
from tests.perftest.testing.session_run import Run

MESSAGES = 100
NEEDS_RABBITMQ = (
    pytest.mark.rabbitmq,
    pytest.mark.skipif(not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed"),
)
BROKERS = (
    pytest.param("bundled", QueueType.QUORUM, marks=pytest.mark.processes),
    pytest.param("rabbitmq", QueueType.QUORUM, marks=NEEDS_RABBITMQ),
    pytest.param("rabbitmq", QueueType.CLASSIC, marks=NEEDS_RABBITMQ),
)
PROPERTIES: dict[str, Argument] = {
    "contentType": "text/plain",
    "contentEncoding": "identity",
    "priority": 4,
    "correlationId": "c",
    "replyTo": "r",
    "expiration": "600000",
    "messageId": "m",
    "timestamp": "2007-12-03T10:15:30+01:00",
    "type": "t",
    "appId": "a",
    "number": 1 << 40,
    "small": -3,
    "yes": True,
    "text": "né",
}


def new_run(uri: str, kind: QueueType, settings: dict[str, Any], publishing: Publishing) -> Run:
    queue = QueueSpec(name=f"perftest-publishers-{kind}", type=kind)
    values: dict[str, Any] = {"in_flight": 50, "prefetch": 100, "size_bytes": 300}
    broker = SimpleNamespace(uri=uri)
    return Run(broker, Settings(**values | settings), queues=(queue,), publishing=publishing)


async def load(uri: str, kind: QueueType, settings: dict[str, Any], publishing: Publishing) -> dict[str, Any]:
    """Some messages through a queue; the ledger."""
    run = new_run(uri, kind, settings, publishing)
    await run.open()
    counters = run.session.context.counters
    await run.until(lambda: "limit_reached" in run.events if publishing.messages else counters.delivered >= MESSAGES)
    assert "channel_closed" not in run.events and "connection_lost" not in run.events
    return await run.finish()


def make_files(folder: Path) -> dict[str, tuple[str, ...]]:
    """A trace, and bodies of which one is empty and one is larger than a frame."""
    (folder / "trace").write_text("0\n100us\n5ms\n")
    for number, size in enumerate((0, 17, 200_000)):
        (folder / str(number)).write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    return {"trace": (str(folder / "trace"),), "bodies": tuple(str(folder / str(number)) for number in range(3))}


LOADS: dict[str, Callable[[dict[str, tuple[str, ...]]], tuple[dict[str, Any], Publishing]]] = {
    "poisson": lambda _: ({"rate": 1000.0}, Publishing(arrivals=Arrivals.POISSON)),
    "trace": lambda files: ({}, Publishing(arrivals=Arrivals.TRACE, trace=files["trace"][0])),
    "cycles": lambda _: (
        {},
        Publishing(rate_cycle=((1000.0, 0.1), (0.0, 0.05), (3000.0, 0.1)), size_cycle=((40, 0.05), (4000, 0.05))),
    ),
    "files": lambda files: ({}, Publishing(bodies=Bodies(files=files["bodies"], content_type="x/y"))),
    "json": lambda _: ({"persistent": False}, Publishing(bodies=Bodies(json_count=10), properties=PROPERTIES)),
    "unlimited confirms": lambda _: ({"rate": 2000.0, "in_flight": IN_FLIGHT_UNLIMITED}, Publishing()),
    "limit": lambda _: ({"publishers": 3}, Publishing(messages=MESSAGES, properties=PROPERTIES)),
}


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
@pytest.mark.parametrize("name", LOADS)
def test_every_message_is_confirmed_and_delivered_once(name: str, uri: str, kind: QueueType, tmp_path: Path) -> None:
    settings, publishing = LOADS[name](make_files(tmp_path))
    record = asyncio.run(load(uri, kind, settings, publishing))
    assert record["verdict"] == "ok", record
    assert record["confirmed"] == record["published"] == record["unique"] >= MESSAGES
    assert name != "limit" or record["published"] == 3 * MESSAGES


@pytest.mark.parametrize(("broker", "kind"), BROKERS[1:])
@pytest.mark.parametrize("transaction", [1, 30])
def test_messages_in_transactions(uri: str, kind: QueueType, transaction: int) -> None:
    publishing = Publishing(transaction=transaction, messages=MESSAGES)
    record = asyncio.run(load(uri, kind, {"in_flight": 0}, publishing))
    assert record["verdict"] == "ok" and record["confirmed"] == record["unique"] == MESSAGES


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
@pytest.mark.parametrize("bodies", [Bodies(), Bodies(json_count=3)])
def test_messages_that_no_queue_takes_are_returned_and_none_is_lost(uri: str, kind: QueueType, bodies: Bodies) -> None:
    publishing = Publishing(routing_keys=RoutingKeys.RANDOM, messages=MESSAGES, bodies=bodies)
    record = asyncio.run(load(uri, kind, {"mandatory": True}, publishing))
    assert record["verdict"] == "ok" and record["returned"] == record["confirmed"] == MESSAGES


@pytest.mark.parametrize(("broker", "kind"), BROKERS)
@pytest.mark.parametrize("bodies", [Bodies(), Bodies(json_count=3)])
def test_another_client_reads_what_was_meant(uri: str, kind: QueueType, bodies: Bodies) -> None:
    publishing = Publishing(messages=7, properties=PROPERTIES, bodies=bodies)

    async def scenario() -> None:
        run = new_run(uri, kind, {"consumers": 0}, publishing)
        await run.open()
        await run.until(lambda: "limit_reached" in run.events)
        fetched = await asyncio.to_thread(fetch, uri, f"perftest-publishers-{kind}", 7)
        await run.abandon()
        for number, (properties, content) in enumerate(fetched):
            check(properties, content, number, stamped=bool(bodies.json_count))

    asyncio.run(scenario())


def fetch(uri: str, queue: str, count: int) -> list[tuple[pika.BasicProperties, bytes]]:
    """The next messages of a queue, as pika reads them."""
    with connect(uri) as connection:
        channel = connection.channel()
        found = [channel.basic_get(queue, auto_ack=True) for _ in range(count)]
    return [(properties, content) for _, properties, content in found]


def check(properties: pika.BasicProperties, content: bytes, number: int, *, stamped: bool) -> None:
    headers = dict(properties.headers)
    headers.pop("x-delivery-count", None)
    mark = headers.pop("perftest") if stamped else content[: stamp.SIZE]
    mark = mark.encode() if isinstance(mark, str) else mark
    assert stamp.STAMP.unpack(mark)[1] == number
    assert headers == {"number": 1 << 40, "small": -3, "yes": True, "text": "né"}
    assert (properties.content_type, properties.content_encoding) == ("text/plain", "identity")
    assert (properties.delivery_mode, properties.priority, properties.timestamp) == (2, 4, 1196673330)
    assert (properties.correlation_id, properties.reply_to, properties.expiration) == ("c", "r", "600000")
    assert (properties.message_id, properties.type, properties.app_id) == ("m", "t", "a")
    if stamped:
        assert isinstance(json.loads(content), dict) and len(content) == 300
    else:
        assert content[stamp.SIZE :] == stamp.filler(300 - stamp.SIZE)
