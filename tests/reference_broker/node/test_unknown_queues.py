"""A queue that a node does not know may be new elsewhere: it is looked for before anybody hears that there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Queue

from tests.reference_broker.node.test_back_pressure import Client, World, run

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
REQUESTS: list[tuple[base.Frame, type]] = [
    (Queue.Declare(0, "late", passive=True), Queue.DeclareOk),
    (Basic.Consume(0, "late", "c"), Basic.ConsumeOk),
    (Basic.Get(0, "late"), Basic.GetEmpty),
    (Queue.Purge(0, "late"), Queue.PurgeOk),
    (Queue.Delete(0, "late"), Queue.DeleteOk),
]


@pytest.mark.parametrize(("request_", "granted"), REQUESTS, ids=lambda value: getattr(value, "name", ""))
def test_what_was_declared_elsewhere_meanwhile_is_found(
    request_: base.Frame, granted: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request waits for the news, and what its channel asks after it waits, too."""

    async def scenario(world: World) -> None:
        looking: list[Callable[[bool], None]] = []
        monkeypatch.setattr(world.shard.reads, "when_queues_current", looking.append)
        client, other = Client(world), Client(world)
        client.send(1, request_, Queue.Declare(0, "q", passive=True))
        await world.settle()
        assert client.heard() == [] and len(looking) == 1
        other.send(1, Queue.Declare(0, "late", durable=True, arguments=QUORUM))
        await world.settle()
        looking.pop()(True)
        await world.settle()
        assert [type(each) for each in client.heard()] == [granted, Queue.DeclareOk] and not looking

    run(scenario)


@pytest.mark.parametrize(("request_", "granted"), REQUESTS, ids=lambda value: getattr(value, "name", ""))
def test_what_exists_nowhere_is_looked_for_once(request_: base.Frame, granted: type) -> None:
    """As before: 404, or nothing to delete."""

    async def scenario(world: World) -> None:
        client = Client(world)
        client.send(1, request_)
        await world.settle()
        expected = granted if granted is Queue.DeleteOk else Channel.Close
        assert [type(each) for each in client.heard()] == [expected]
        client.send(2, Channel.Open(), request_)
        await world.settle()
        assert [type(each) for each in client.heard()] == [Channel.OpenOk, expected]

    run(scenario)


def test_a_close_behind_the_request_waits_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client hears of its request first, as from RabbitMQ."""

    async def scenario(world: World) -> None:
        looking: list[Callable[[bool], None]] = []
        monkeypatch.setattr(world.shard.reads, "when_queues_current", looking.append)
        client = Client(world)
        client.send(1, Basic.Get(0, "late"), Channel.Close(200, "", 0, 0))
        await world.settle()
        assert client.heard() == []
        looking.pop()(True)
        await world.settle()
        assert [type(each) for each in client.heard()] == [Channel.Close, Channel.CloseOk]

    run(scenario)
