"""A publish to a queue that this node does not know: it may be new elsewhere, and a confirm must not lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Queue

from tests.reference_broker.amqp.testing import method, publish
from tests.reference_broker.node.test_back_pressure import Client, World, run

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
Looking = list[Callable[[bool], None]]
LATE = Queue.Declare(0, "late", durable=True, arguments=QUORUM)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], Looking]:
    """Has the test answer the questions of a node."""

    def taken(world: World) -> Looking:
        looking: Looking = []
        monkeypatch.setattr(world.shard.reads, "when_queues_current", looking.append)
        return looking

    return taken


def names(client: Client) -> list[str]:
    return [each.name for each in client.heard() if isinstance(each, base.Frame)]


def ready(world: World, queue: str) -> int:
    count: int = world.shard.queues[queue].member.machine.counts().ready
    return count


async def declare_elsewhere(world: World) -> None:
    """The news of the queue reaches this node."""
    Client(world).send(1, LATE)
    await world.settle()


def test_what_is_published_before_the_news_of_its_queue_arrives(looks: Callable[[World], Looking]) -> None:
    """All of it, in order, confirmed when it is safe; what the channel does behind it is done behind it."""

    async def scenario(world: World) -> None:
        looking, client = looks(world), Client(world)
        client.raw(b"".join(publish(1, "late", b"%d" % each, mandatory=True) for each in range(100)))
        client.raw(publish(1, "q", b"behind") + method(1, Basic.Qos(0, 0, False)) + publish(1, "late", b"100"))
        await world.settle()
        assert client.heard() == [] and len(looking) == 1
        assert ready(world, "q") == 0
        await declare_elsewhere(world)
        looking.pop()(True)
        await world.settle()
        heard: list[Any] = client.heard()
        assert {each.name for each in heard} == {"Basic.QosOk", "Basic.Ack"} and not looking
        assert max(each.delivery_tag for each in heard if isinstance(each, Basic.Ack)) == 102
        assert (ready(world, "late"), ready(world, "q")) == (101, 1)
        client.send(1, Basic.Consume(0, "late", "c", no_ack=True))
        await world.settle()
        bodies = [each.value for each in client.heard() if hasattr(each, "value")]
        assert bodies == [b"%d" % each for each in range(101)]

    run(scenario)


def test_what_no_queue_takes_is_returned_in_order() -> None:
    """As before: 312, then the confirm; and a client that waits for an answer behind it knows that it was returned."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.raw(publish(1, "none", b"a", mandatory=True) + publish(1, "none", b"b"))
        client.send(1, Basic.Qos(0, 0, False))
        await world.settle()
        heard = names(client)
        assert heard[:2] == ["Basic.Return", "Basic.QosOk"]
        assert set(heard[2:]) == {"Basic.Ack"}

    run(scenario)


def test_a_flood_to_a_queue_that_does_not_exist_asks_once_a_round(looks: Callable[[World], Looking]) -> None:
    """Not once a message: one question serves all that came before it. Memory is bounded meanwhile."""

    async def scenario(world: World) -> None:
        looking, client, other = looks(world), Client(world), Client(world)
        one = publish(1, "none", b"x" * 100)
        sent = 0
        for _ in range(100):
            if client.socket.reading:
                client.raw(one * 1000)
                sent += 1000
        await world.settle()
        assert not client.socket.reading and len(looking) == 1
        assert client.server.core.unread.held_octets <= (1 << 20) + len(one) * 1000
        other.send(1, Basic.Get(0, "q"))
        await world.settle()
        assert names(other) == ["Basic.GetEmpty"]
        rounds = 0
        while looking:
            rounds += 1
            looking.pop()(True)
            await world.settle()
        assert rounds <= sent / 100, "one for each slice of what was sent"
        acks = [each.delivery_tag for each in client.heard() if isinstance(each, Basic.Ack)]
        assert acks[-1] == sent and client.socket.reading

    run(scenario)


def test_other_channels_do_not_wait(looks: Callable[[World], Looking]) -> None:
    """Nor does a question of theirs."""

    async def scenario(world: World) -> None:
        looking, client = looks(world), Client(world)
        client.send(2, Channel.Open())
        client.raw(publish(1, "none", b"x") + publish(2, "q", b"y") + publish(1, "none", b"z"))
        client.send(2, Basic.Get(0, "q"))
        await world.settle()
        client.send(2, Basic.Get(0, "q"))
        await world.settle()
        assert [name for name in names(client) if name.startswith("Basic.Get")] == ["Basic.GetEmpty", "Basic.GetOk"]
        assert len(looking) == 1

    run(scenario)


def test_when_nobody_can_tell_it_is_refused(looks: Callable[[World], Looking]) -> None:
    """Without a majority of the nodes. The publisher sends it again."""

    async def scenario(world: World) -> None:
        looking, client = looks(world), Client(world)
        client.raw(publish(1, "late", b"x", mandatory=True) * 3)
        await world.settle()
        looking.pop()(False)
        await world.settle()
        (nack,) = client.heard()
        assert isinstance(nack, Basic.Nack) and (nack.delivery_tag, nack.multiple) == (3, True)

    run(scenario)


@pytest.mark.parametrize("ends", ["channel", "socket"])
def test_a_publisher_may_go_at_once(ends: str, looks: Callable[[World], Looking]) -> None:
    """Without confirms the end of the channel is all that it can wait for."""

    async def scenario(world: World) -> None:
        looking, client = looks(world), Client(world)
        client.send(3, Channel.Open())
        client.heard()
        client.raw(publish(3, "late", b"x") * 5)
        if ends == "channel":
            client.send(3, Channel.Close(200, "", 0, 0))
            assert client.heard() == []
        else:
            client.server.connection_lost(None)
        await declare_elsewhere(world)
        looking.pop()(True)
        await world.settle()
        assert ready(world, "late") == 5
        assert names(client) == (["Channel.CloseOk"] if ends == "channel" else [])
        assert len(world.shard.queues["late"].member.machine.channels()) == 0, "the queue knows of its end"

    run(scenario)
