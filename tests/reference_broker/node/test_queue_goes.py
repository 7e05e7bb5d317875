"""A queue that goes while requests to it wait: each gets an answer, and the rest of the connection goes on.

The deletion is committed before the queue can answer: the metadata group and the queue's group are independent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Queue

from reference_broker.node.clients.client_channel import ClientChannel
from reference_broker.types import ChannelId
from tests.reference_broker.amqp.testing import publish
from tests.reference_broker.node.test_back_pressure import Client, World, delivery_tags, run

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
REFUSED: list[base.Frame] = [
    Basic.Consume(0, "q", "c"),
    Basic.Consume(0, "q", "c", nowait=True),
    Basic.Get(0, "q"),
    Queue.Purge(0, "q"),
    Queue.Purge(0, "q", nowait=True),
]


def delete(world: World, name: str = "q") -> None:
    """The deletion takes effect on this node, now."""
    world.shard.hosting.queue_removed(world.shard.metadata.machine.queues.pop(name))


def names(client: Client) -> list[str]:
    return [each.name for each in client.heard() if isinstance(each, base.Frame)]


@pytest.mark.parametrize("request_", REFUSED, ids=lambda each: f"{each.name}{' nowait' * getattr(each, 'nowait', 0)}")
def test_a_request_that_waits_is_refused(request_: base.Frame) -> None:
    """As if it had come after the deletion. A channel without an answer would hang for ever."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, request_)
        delete(world)
        await world.settle()
        (close,) = client.heard()
        assert isinstance(close, Channel.Close)
        assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")
        client.send(1, Channel.CloseOk(), Channel.Open())
        assert names(client) == ["Channel.OpenOk"]
        assert all(each.awaited is None for each in client.server.channels.values()), "nobody waits any more"

    run(scenario)


GONE = Channel.Close(404, "NOT_FOUND - no queue 'q' in vhost '/'", 50, 10)
WHILE_COUNTED: list[tuple[base.Frame, base.Frame]] = [
    (Queue.Declare(0, "q", passive=True), GONE),
    (Queue.Declare(0, "q", durable=True, arguments=QUORUM), Queue.DeclareOk("q", 0, 0)),
    (Queue.Delete(0, "q"), Queue.DeleteOk(0)),
    (Queue.Delete(0, "q", if_empty=True), Queue.DeleteOk(0)),
    (Queue.Delete(0, "q", if_unused=True), Queue.DeleteOk(0)),
]


@pytest.mark.parametrize(("request_", "answer"), WHILE_COUNTED, ids=lambda each: each.name)
def test_a_request_that_waits_for_counts_is_one_to_a_queue_that_does_not_exist(
    request_: base.Frame, answer: base.Frame
) -> None:
    """This node heard of the deletion after the request came, and maybe long after the client who deleted the queue."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.raw(publish(1, "q", b"body"))
        await world.settle()
        client.heard()
        client.send(1, request_)
        assert client.heard() == []
        delete(world)
        await world.settle()
        (heard,) = client.heard()
        assert isinstance(heard, base.Frame) and dict(heard) == dict(answer)

    run(scenario)


@pytest.mark.parametrize("nowait", [False, True])
def test_a_cancel_that_waits_is_done(nowait: bool) -> None:
    """The subscription is over either way. The channel goes on, and its tag is free."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        client.heard()
        client.send(1, Basic.Cancel("c", nowait=nowait))
        delete(world)
        await world.settle()
        assert names(client) == ([] if nowait else ["Basic.CancelOk"])
        client.send(1, Queue.Declare(0, "r", durable=True, arguments=QUORUM), Basic.Consume(0, "r", "c"))
        await world.settle()
        client.raw(publish(1, "r", b"body"))
        await world.settle()
        assert sorted(names(client)) == ["Basic.Ack", "Basic.ConsumeOk", "Basic.Deliver", "Queue.DeclareOk"]

    run(scenario)


def test_a_tag_that_is_used_again_at_once_is_another_consumer() -> None:
    """The end of the former one, which nobody waits for, must not be taken for the end of the new one."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Queue.Declare(0, "r", durable=True, arguments=QUORUM), Basic.Consume(0, "q", "c"))
        await world.settle()
        client.heard()
        client.send(1, Basic.Cancel("c", nowait=True), Basic.Consume(0, "r", "c"))
        delete(world)
        await world.settle()
        assert names(client) == ["Basic.ConsumeOk"]

    run(scenario)


def test_a_queue_that_held_messages_of_a_cancelled_consumer_says_nothing_to_the_next_of_that_tag() -> None:
    """The tag consumes from another queue by now."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Queue.Declare(0, "r", durable=True, arguments=QUORUM), Basic.Consume(0, "q", "c"))
        await world.settle()
        client.raw(publish(1, "q", b"body"))
        await world.settle()
        client.send(1, Basic.Cancel("c"))
        await world.settle()
        client.heard()
        client.send(1, Queue.Purge(0, "r"), Basic.Consume(0, "r", "c"))
        delete(world)
        await world.settle()
        assert names(client) == ["Queue.PurgeOk", "Basic.ConsumeOk"]

    run(scenario)


def test_other_channels_of_the_connection_go_on() -> None:
    """One request that waits, and one further method, once stopped the reading of the whole connection."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(
            2, Channel.Open(), Queue.Declare(0, "r", durable=True, arguments=QUORUM), Basic.Consume(0, "r", "c")
        )
        await world.settle()
        client.send(1, Basic.Get(0, "q"), Basic.Get(0, "q"))
        delete(world)
        await world.settle()
        assert client.socket.reading
        client.raw(publish(2, "r", b"body"))
        await world.settle()
        assert delivery_tags(client) == [1]

    run(scenario)


@pytest.mark.parametrize(("is_there_again", "answer"), [(False, "Basic.Ack"), (True, "Basic.Nack")])
def test_what_was_published_to_it_and_has_no_answer(
    is_there_again: bool, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went with the queue, and is confirmed as in RabbitMQ. But a queue of that name may have been declared before
    it was published, on another node: then a confirm would promise what nobody holds."""

    async def scenario(world: World) -> None:
        looking: list[Callable[[bool], None]] = []
        monkeypatch.setattr(world.shard.reads, "when_queues_current", looking.append)
        client, other = Client(world), Client(world)
        client.raw(publish(1, "q", b"body"))
        delete(world)
        if is_there_again:
            other.send(1, Queue.Declare(0, "q", durable=True, arguments=QUORUM))
        await world.settle()
        assert names(client) == []
        looking.pop()(True)
        await world.settle()
        assert names(client) == [answer]

    run(scenario)


def test_a_request_to_another_queue_waits_on() -> None:
    """Only those of the queue that went."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Queue.Declare(0, "r", durable=True, arguments=QUORUM))
        await world.settle()
        client.heard()
        client.send(1, Basic.Get(0, "r"))
        delete(world)
        assert names(client) == []
        await world.settle()
        assert names(client) == ["Basic.GetEmpty"]

    run(scenario)


def test_channels_that_do_not_use_the_queue_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 25,000 channels on a node, the deletion of anybody's queue took a quarter of a second."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(2, Channel.Open())
        client.send(3, Channel.Open())
        client.raw(publish(2, "q", b"x"))
        client.send(3, Basic.Consume(0, "q", "c"))
        await world.settle()
        group = world.shard.metadata.machine.queues["q"].group
        assert [number for number, each in client.server.channels.items() if each.uses(group)] == [2, 3]
        told: list[ChannelId] = []
        monkeypatch.setattr(ClientChannel, "queue_removed", lambda channel, _record: told.append(channel.id))
        delete(world)
        assert [each.channel for each in told] == [2, 3]

    run(scenario)


def test_nobody_keeps_the_commands_of_a_deleted_queue() -> None:
    """The ends of tens of thousands of channels waited with one. Only the collector found them, and it took long."""

    async def scenario(world: World) -> None:
        client, mark = Client(world), bytes(1000)
        client.raw(publish(1, "q", mark) * 10)
        runner = world.shard.hosting.runners[world.shard.queues["q"].record.group]
        assert any(commands.all() for commands in runner.unapplied)
        delete(world)
        assert not any(commands.all() for commands in runner.unapplied)
        await world.settle()

    run(scenario)
