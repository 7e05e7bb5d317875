"""A connection that waits for nothing but its client rests, and misses nothing that a tick would have done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pamqp import commands

from reference_broker.node.clients.client_connection import TICK_S
from reference_broker.types import GroupId
from tests.reference_broker.amqp.testing import ScriptedClient
from tests.reference_broker.node.test_back_pressure import TURNS, Client, World, run

Basic, Connection = commands.Basic, commands.Connection


class Counting:
    """A client whose ticks are counted."""

    def __init__(self, world: World) -> None:
        self.client = Client(world)
        self.ticks = 0
        tick = self.client.server.tick

        def counted() -> None:
            self.ticks += 1
            tick()

        self.client.server.tick = counted  # type: ignore[method-assign]


def pass_time(world: World, ticks: int) -> None:
    """Have the node tick while its clock stands, so that no rest is over."""
    for _ in range(ticks):
        world.shard.tick_clients()


def test_an_idle_connection_is_left_alone() -> None:
    async def scenario(world: World) -> None:
        idle = Counting(world)
        pass_time(world, 8)
        assert idle.ticks == 1

    run(scenario)


def test_octets_end_a_rest() -> None:
    async def scenario(world: World) -> None:
        idle = Counting(world)
        pass_time(world, 2)
        idle.client.send(1, Basic.Qos(0, 1, False))
        pass_time(world, 8)
        assert idle.ticks == 2

    run(scenario)


def test_a_connection_that_waits_for_an_answer_does_not_rest() -> None:
    """Its patience is counted in ticks."""

    async def scenario(world: World) -> None:
        waiting = Counting(world)
        waiting.client.send(1, commands.Queue.Declare(0, "late", durable=True, arguments={"x-queue-type": "quorum"}))
        for _ in range(TURNS):
            await asyncio.sleep(0)  # the disk does nothing meanwhile
        pass_time(world, int(30 / TICK_S) + 1)
        (told,) = waiting.client.heard()
        assert isinstance(told, Connection.Close) and "within 30000 ms" in told.reply_text

    run(scenario)


@pytest.mark.parametrize(
    "disturb",
    [
        lambda world: world.shard.hosting.census.member_knows(GroupId(7), 0),
        lambda world: world.shard.nodes.up.clear(),
        lambda world: setattr(world.shard.alarms, "reason", "low on memory"),
    ],
    ids=["a leader is lost", "a node is down", "an alarm"],
)
def test_nobody_rests_while_the_node_is_not_calm(disturb: Callable[[World], None]) -> None:
    """A channel may wait for the lost leader, and a publisher must be told of the alarm."""

    async def scenario(world: World) -> None:
        idle = Counting(world)
        pass_time(world, 4)
        disturb(world)
        pass_time(world, 4)
        assert idle.ticks == 5

    run(scenario)


@pytest.mark.parametrize("heartbeat", [0, 1, 7, 60])
def test_a_tick_is_due_when_it_has_something_to_do(heartbeat: int) -> None:
    """Against ticks at every tenth of a second."""
    client = ScriptedClient()
    client.open(heartbeat=heartbeat)
    client.output()
    for number in range(1, 3000):
        now_s, due_s = number / 10, client.server.due_s
        client.tick(now_s)
        has_acted = bool(client.output()) or not client.server.is_open
        assert has_acted <= (now_s >= due_s), now_s
        if not client.server.is_open:
            return
        assert client.server.due_s > now_s
        if number % 50 == 0 and number < 1000:
            client.raw(b"\x08\0\0\0\0\0\0\xce")
    assert not heartbeat
