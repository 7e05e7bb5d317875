"""One tag, one subscription after the other: the queue counts the messages of each, and so does the connection."""

from __future__ import annotations

import pytest
from pamqp import base
from pamqp.commands import Basic, Queue

from tests.reference_broker.amqp.testing import publish
from tests.reference_broker.node.test_back_pressure import Client, World, delivery_tags, run


@pytest.mark.parametrize("settle_first", [True, False])
def test_a_tag_that_was_cancelled_gets_messages_when_it_subscribes_again(settle_first: bool) -> None:
    """The queue forgets a consumer that is cancelled and holds nothing, and begins its ids anew. A connection that does
    not would take the first messages for old ones, and they would be lost to everybody until it closes."""

    async def scenario(world: World) -> None:
        client = Client(world)
        for _ in range(3):
            client.raw(publish(1, "q", b"body"))
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        assert delivery_tags(client) == [1, 2, 3]
        ending = [Basic.Ack(3, True), Basic.Cancel("c")]
        client.send(1, *(ending if settle_first else reversed(ending)))
        await world.settle()
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        for _ in range(2):
            client.raw(publish(1, "q", b"body"))
        await world.settle()
        assert delivery_tags(client) == [4, 5]

    run(scenario)


def test_what_is_held_over_a_cancel_is_still_the_same_consumer() -> None:
    """It settles later, and goes on with the next ids when it subscribes before that."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.raw(publish(1, "q", b"body"))
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        client.send(1, Basic.Cancel("c"))
        await world.settle()
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        client.raw(publish(1, "q", b"body"))
        await world.settle()
        assert delivery_tags(client) == [1, 2]
        client.send(1, Basic.Ack(2, True), Basic.Cancel("c"))
        await world.settle()
        assert world.shard.queues["q"].member.machine.counts().settled == 2

    run(scenario)


QUORUM = {"x-queue-type": "quorum"}


def unacked(world: World, queue: str) -> int:
    return world.shard.queues[queue].member.machine.counts().unacked


def test_what_was_delivered_before_is_settled_in_its_own_queue() -> None:
    """A tag is free once it is cancelled. What its holder has of one queue is no message of the next one."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Queue.Declare(0, "r", durable=True, arguments=QUORUM))
        await world.settle()
        for queue in ("q", "q", "q", "r", "r"):
            client.raw(publish(1, queue, b"body"))
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        client.send(1, Basic.Cancel("c"))
        await world.settle()
        client.send(1, Basic.Consume(0, "r", "c"))
        await world.settle()
        assert delivery_tags(client) == [1, 2, 3, 4, 5]
        client.send(1, Basic.Nack(2, multiple=True, requeue=False))
        await world.settle()
        assert (unacked(world, "q"), unacked(world, "r")) == (1, 2)
        client.send(1, Basic.Nack(4, multiple=True, requeue=False))
        await world.settle()
        assert (unacked(world, "q"), unacked(world, "r")) == (0, 1)
        (channel,) = client.server.channels.values()
        assert len(channel.consumers) == 1, "who has settled all is forgotten"

    run(scenario)


@pytest.mark.parametrize(
    "takes", [(Basic.Consume(0, "q", "c"),), (Basic.Get(0, "q"), Basic.Get(0, "q"))], ids=["consume", "get"]
)
def test_what_was_delivered_of_a_queue_that_is_gone_settles_nothing_of_the_next(takes: tuple[base.Frame, ...]) -> None:
    """The next queue of the name counts from 0 again: an old acknowledgement would take messages that nobody has had,
    and whoever holds them when the channel closes has lost them."""

    async def scenario(world: World) -> None:
        client = Client(world)
        for _ in range(2):
            client.raw(publish(1, "q", b"body"))
        await world.settle()
        client.send(1, *takes)
        await world.settle()
        client.send(1, Queue.Delete(0, "q"))
        await world.settle()
        client.send(1, Queue.Declare(0, "q", durable=True, arguments=QUORUM))
        await world.settle()
        for _ in range(2):
            client.raw(publish(1, "q", b"body"))
        await world.settle()
        client.send(1, *takes)
        await world.settle()
        client.send(1, Basic.Ack(1), Basic.Nack(2, requeue=False))
        await world.settle()
        assert unacked(world, "q") == 2
        client.send(1, Basic.Nack(4, multiple=True, requeue=False))
        await world.settle()
        assert unacked(world, "q") == 0

    run(scenario)


def test_what_the_former_queue_tells_again_is_no_delivery_of_the_next() -> None:
    """After a change of leader, say, a queue tells again what its consumers hold. Taken for deliveries of the queue
    that has the tag now, messages would come twice, and acknowledgements would settle messages nobody has had."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, Queue.Declare(0, "r", durable=True, arguments=QUORUM))
        await world.settle()
        for _ in range(2):
            client.raw(publish(1, "q", b"body"))
        client.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        client.send(1, Basic.Cancel("c"))
        await world.settle()
        client.send(1, Basic.Consume(0, "r", "c"))
        await world.settle()
        assert delivery_tags(client) == [1, 2]
        world.shard.queues["q"].member.catch_up(world.shard.clients, [])
        await world.settle()
        assert delivery_tags(client) == []
        client.raw(publish(1, "r", b"body"))
        await world.settle()
        assert delivery_tags(client) == [3], "and the next queue's first message is not taken for an old one"
        client.send(1, Basic.Nack(3, multiple=True, requeue=False))
        await world.settle()
        assert (unacked(world, "q"), unacked(world, "r")) == (0, 0)

    run(scenario)
