"""A channel does one thing after the other: what a client sends behind a request waits for the answer to it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp import base
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx

from reference_broker.amqp.unread import Unread
from tests.reference_broker.amqp.testing import method, publish
from tests.reference_broker.node.test_back_pressure import Client, World, run

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
REQUESTS: list[base.Frame] = [
    Queue.Declare(0, "none", passive=True),
    Queue.Purge(0, "none"),
    Basic.Consume(0, "none", "d"),
    Basic.Get(0, "none"),
]
BEHIND: list[base.Frame] = [
    Basic.Qos(0, 5, False),
    Confirm.Select(),
    Channel.Flow(True),
    Channel.Flow(False),
    Basic.Recover(True),
    Basic.Ack(99),
    Basic.Consume(0, "q", "c"),
    Basic.Cancel("c"),
    Queue.Declare(0, "new", durable=True, arguments=QUORUM),
    Queue.Delete(0, "q"),
    Queue.Bind(0, "q", "x"),
    Exchange.Declare(0, "x"),
    Tx.Select(),
    Basic.Publish(0, "missing", "q"),
]


def names(client: Client) -> list[str]:
    return [each.name for each in client.heard() if isinstance(each, base.Frame)]


@pytest.mark.parametrize("behind", BEHIND, ids=lambda each: each.name)
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: each.name)
def test_nothing_is_done_behind_a_request_that_fails(request_: base.Frame, behind: base.Frame) -> None:
    """Neither answered nor refused: the client is told of the first error, and what follows it does not count."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, request_, behind)
        await world.settle()
        assert names(client) == ["Channel.Close"]
        assert list(world.shard.queues) == ["q"]
        client.send(1, Channel.CloseOk(), Channel.Open())
        assert names(client) == ["Channel.OpenOk"]

    run(scenario)


def test_nothing_is_published_or_acknowledged_behind_a_request_that_fails() -> None:
    """Runs of messages and of acknowledgements are read in another way than methods."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.raw(publish(1, "q", b"kept") * 3)
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        client.heard()
        failing = method(1, Queue.Declare(0, "none", passive=True))
        client.raw(failing + publish(1, "q", b"lost") * 20 + method(1, Basic.Ack(1), Basic.Ack(2)))
        await world.settle()
        assert names(client) == ["Channel.Close"]
        counts = world.shard.queues["q"].member.machine.counts()
        assert (counts.ready, counts.settled) == (3, 0)

    run(scenario)


QUESTIONS: list[tuple[base.Frame, str]] = [
    (Queue.Declare(0, "r", durable=True, arguments=QUORUM), "Queue.DeclareOk"),
    (Basic.Qos(0, 1, False), "Basic.QosOk"),
    (Basic.Consume(0, "r", "c"), "Basic.ConsumeOk"),
    (Channel.Flow(True), "Channel.FlowOk"),
    (Basic.Cancel("c"), "Basic.CancelOk"),
    (Confirm.Select(), "Confirm.SelectOk"),
    (Basic.Consume(0, "r", "c"), "Basic.ConsumeOk"),
    (Basic.Cancel("nobody"), "Basic.CancelOk"),
    (Basic.Get(0, "q"), "Basic.GetEmpty"),
    (Basic.Recover(True), "Basic.RecoverOk"),
    (Queue.Purge(0, "q"), "Queue.PurgeOk"),
    (Basic.Qos(0, 2, False), "Basic.QosOk"),
    (Queue.Delete(0, "r"), "Queue.DeleteOk"),
    (Channel.Close(200, "", 0, 0), "Channel.CloseOk"),
    (Channel.Open(), "Channel.OpenOk"),
    (Basic.Get(0, "q"), "Basic.GetEmpty"),
]


@pytest.mark.parametrize("seed", range(5))
def test_answers_come_in_the_order_of_the_questions(seed: int) -> None:
    """However the octets are cut into reads, and whatever other channels say in between."""
    chance = random.Random(seed)

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(2, Channel.Open())
        client.heard()
        parts = [method(1, question) for question, _ in QUESTIONS]
        octets = b"".join(part + method(2, Basic.Qos(0, 1, False)) for part in parts)
        while octets:
            size = chance.choice((1, 7, 20, 100, 1000))
            client.raw(octets[:size])
            octets = octets[size:]
            if chance.random() < 0.2:
                await world.settle()
        await world.settle()
        heard = names(client)
        expected = [answer for _, answer in QUESTIONS]
        others = [name for name in heard if name == "Basic.QosOk"]
        assert [name for name in heard if name not in ("Basic.QosOk", "Basic.Cancel")] == [
            name for name in expected if name != "Basic.QosOk"
        ]
        assert len(others) == len(QUESTIONS) + expected.count("Basic.QosOk")

    run(scenario)


def test_publishes_and_acknowledgements_behind_a_request_are_done_after_it() -> None:
    """A whole life of a channel in one read."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.raw(publish(1, "q", b"body"))
        await world.settle()
        client.heard()
        begin = method(1, Basic.Get(0, "q"), Basic.Ack(1), Queue.Declare(0, "r", durable=True, arguments=QUORUM))
        end = method(1, Queue.Purge(0, "r"), Channel.Close(200, "", 0, 0))
        client.raw(begin + publish(1, "r", b"body") * 50 + end)
        await world.settle()
        heard: list[Any] = [each for each in client.heard() if isinstance(each, base.Frame)]
        answers = [each for each in heard if not isinstance(each, Basic.Ack)]
        assert [each.name for each in answers] == ["Basic.GetOk", "Queue.DeclareOk", "Queue.PurgeOk", "Channel.CloseOk"]
        assert answers[2].message_count == 50
        assert [each.delivery_tag for each in heard if isinstance(each, Basic.Ack)] == [51]
        assert world.shard.queues["q"].member.machine.counts().settled == 1

    run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_messages_between_requests_arrive_whole_however_they_are_cut(seed: int) -> None:
    """A message may begin while its channel waits, and end after that; frames of other channels stand in between."""
    chance = random.Random(seed)

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(2, Channel.Open())
        count, octets = 200, b""
        for number in range(count):
            octets += publish(1, "q", b"%d " % number * chance.choice((1, 40)), step=chance.choice((0, 50)))
            octets += method(1, Basic.Qos(0, 1, False)) * (chance.random() < 0.3)
            octets += method(1, Queue.Declare(0, "q", passive=True)) * (chance.random() < 0.3)
            octets += method(2, Basic.Get(0, "none-of-this", True)) * (number == 20)
        while octets:
            size = chance.choice((1, 7, 20, 100, 1000))
            client.raw(octets[:size])
            octets = octets[size:]
            if chance.random() < 0.1:
                await world.settle()
        while client.server.core.unread.held_octets:
            await world.settle()
        await world.settle()
        heard: list[Any] = client.heard()
        assert not [each for each in heard if isinstance(each, Connection.Close)]
        client.send(1, Basic.Qos(0, 0, False), Basic.Consume(0, "q", "c", no_ack=True))
        await world.settle()
        octets = b"".join(each.value for each in client.heard() if isinstance(each, ContentBody))
        assert list(dict.fromkeys(int(word) for word in octets.split())) == list(range(count))

    run(scenario)


def test_many_requests_at_once_cost_no_more_than_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is not looked through again for each answer."""

    reads = 0
    keep = Unread.keep

    def counted(*arguments: Any) -> int:
        nonlocal reads
        reads += 1
        return keep(*arguments)

    monkeypatch.setattr(Unread, "keep", counted)

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, *[Basic.Get(0, "q")] * 300)
        for _ in range(20):
            await world.settle()
        assert names(client) == ["Basic.GetEmpty"] * 300
        assert reads <= 2

    run(scenario)


def test_what_waits_for_an_answer_is_bounded() -> None:
    """A client that does not stop at a channel that waits fills its own socket. Others of its channels go on before."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Basic.Get(0, "q"))
        sent = client.flood(5000)
        assert 900 < sent < 1100
        assert not client.socket.reading
        await world.settle()
        assert client.socket.reading
        heard = client.heard()
        assert isinstance(heard[0], Basic.GetEmpty)
        acks = [each.delivery_tag for each in heard if isinstance(each, Basic.Ack)]
        assert acks[-1] == sent
        assert client.server.core.unread.held_octets == 0

    run(scenario)


def test_an_error_of_the_connection_behind_a_request_comes_after_its_answer() -> None:
    """The octets behind it are searched for the client's last words."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Basic.Get(0, "q"), Exchange.Declare(0, "x", "moon"), Basic.Get(0, "q"))
        await world.settle()
        heard = client.heard()
        assert [each.name for each in heard if isinstance(each, base.Frame)] == ["Basic.GetEmpty", "Connection.Close"]
        client.send(0, Connection.CloseOk())
        assert client.socket.closed

    run(scenario)
