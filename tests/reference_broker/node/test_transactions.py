"""Transactions on a whole node in one thread, whose disk syncs when the test says so."""

from __future__ import annotations

import asyncio

from pamqp import base, commands

from tests.reference_broker.amqp.testing import publish
from tests.reference_broker.node.test_back_pressure import TURNS, Client, World, run

Basic, Channel, Tx = commands.Basic, commands.Channel, commands.Tx


def names(client: Client) -> list[str]:
    return [each.name for each in client.heard() if isinstance(each, base.Frame)]


def client_with_tx(world: World) -> Client:
    client = Client(world)
    client.send(2, Channel.Open(), Tx.Select())
    assert names(client) == ["Channel.OpenOk", "Tx.SelectOk"]
    return client


async def ready(world: World, client: Client) -> int:
    client.send(1, commands.Queue.Declare(0, "q", passive=True))
    await world.settle()
    (answer,) = client.heard()
    assert isinstance(answer, commands.Queue.DeclareOk)
    return int(answer.message_count or 0)


def test_commit_ok_waits_for_the_disk() -> None:
    """The client may take a committed message for safe."""

    async def scenario(world: World) -> None:
        client = client_with_tx(world)
        client.raw(publish(2, "q", b"1") + publish(2, "q", b"2"))
        await world.settle()
        assert await ready(world, client) == 0
        client.send(2, Tx.Commit())
        for _ in range(TURNS):
            await asyncio.sleep(0)  # the disk does nothing meanwhile
        assert names(client) == []
        await world.settle()
        assert names(client) == ["Tx.CommitOk"]
        assert await ready(world, client) == 2

    run(scenario)


def test_what_is_sent_behind_a_commit_belongs_to_the_next_transaction() -> None:
    async def scenario(world: World) -> None:
        client = client_with_tx(world)
        client.raw(publish(2, "q", b"1"))
        client.send(2, Tx.Commit())
        client.raw(publish(2, "q", b"2"))
        client.send(2, Tx.Rollback())
        await world.settle()
        assert names(client) == ["Tx.CommitOk", "Tx.RollbackOk"]
        assert await ready(world, client) == 1

    run(scenario)


def test_a_commit_to_a_queue_that_goes_meanwhile_is_answered() -> None:
    async def scenario(world: World) -> None:
        client = client_with_tx(world)
        client.raw(publish(2, "q", b"1"))
        client.send(2, Tx.Commit())
        client.send(1, commands.Queue.Delete(0, "q"))
        await world.settle()
        assert sorted(names(client)) == ["Queue.DeleteOk", "Tx.CommitOk"]

    run(scenario)


def test_a_channel_that_ends_behind_its_commit_has_committed() -> None:
    async def scenario(world: World) -> None:
        client = client_with_tx(world)
        client.raw(publish(2, "q", b"1"))
        client.send(2, Tx.Commit())
        client.send(2, Channel.Close(0, "", 0, 0))
        await world.settle()
        assert await ready(world, Client(world)) == 1

    run(scenario)


def test_an_open_transaction_is_bounded_in_octets() -> None:
    async def scenario(world: World) -> None:
        client = client_with_tx(world)
        for _ in range(5):
            client.raw(publish(2, "q", b"x" * 1000))
        (closed,) = client.heard()
        assert isinstance(closed, Channel.Close) and closed.reply_code == 406
        assert "larger than 4000 octets (transaction_bytes_max)" in closed.reply_text
        client.send(2, Channel.CloseOk(), Channel.Open(), Tx.Select(), Tx.Commit())
        await world.settle()
        assert names(client) == ["Channel.OpenOk", "Tx.SelectOk", "Tx.CommitOk"]
        assert await ready(world, client) == 0

    run(scenario, transaction_bytes_max=4000)


def test_an_open_transaction_is_bounded_in_commands() -> None:
    async def scenario(world: World) -> None:
        client = client_with_tx(world)
        for _ in range(4):
            client.raw(publish(2, "q", b""))
        (closed,) = client.heard()
        assert isinstance(closed, Channel.Close) and "(transaction_commands_max)" in closed.reply_text

    run(scenario, transaction_commands_max=3)
