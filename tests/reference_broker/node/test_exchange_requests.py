"""Exchanges and bindings on a whole node: what a client is told, and which queue gets its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue

from tests.reference_broker.amqp.testing import content, method
from tests.reference_broker.node.test_back_pressure import Client, World, run

CLASSIC: dict[str, Any] = {"x-queue-type": "classic"}


def sent(exchange: str, key: str, body: bytes = b"m", mandatory: bool = False, **headers: Any) -> bytes:
    properties = Basic.Properties(headers=headers or None, delivery_mode=1)
    return method(1, Basic.Publish(0, exchange, key, mandatory)) + content(1, body, properties)


async def told(world: World, client: Client, *methods: base.Frame) -> list[Any]:
    """What the client hears after these methods."""
    client.send(1, *methods)
    await world.settle()
    return client.heard()


async def done(world: World, client: Client, *methods: base.Frame) -> None:
    """Each method is answered with its -ok."""
    heard = await told(world, client, *methods)
    assert [each.name for each in heard] == [f"{each.name}Ok" for each in methods]


async def queues(world: World, client: Client, *names: str) -> None:
    await done(world, client, *(Queue.Declare(0, name, durable=True, arguments=CLASSIC) for name in names))


async def bodies(world: World, client: Client, name: str) -> list[bytes]:
    """Take everything out of a queue."""
    found = []
    while True:
        heard = await told(world, client, Basic.Get(0, name, True))
        if not any(isinstance(each, Basic.GetOk) for each in heard):
            return found
        found.append(heard[-1].value)


def confirmed(heard: Sequence[Any]) -> list[tuple[str, int, bool]]:
    return [(each.name, each.delivery_tag, each.multiple) for each in heard if isinstance(each, Basic.Ack | Basic.Nack)]


def closed(heard: Sequence[Any]) -> tuple[int, str]:
    [close] = [each for each in heard if isinstance(each, Channel.Close | Connection.Close)]
    return close.reply_code, close.reply_text


def test_a_message_for_many_queues_is_in_each_and_confirmed_once() -> None:
    """Through two exchanges and two bindings to one queue: each queue has one copy, and the client one confirm."""

    async def scenario(world: World) -> None:
        client = Client(world)
        await queues(world, client, "a", "b", "c")
        await done(
            world, client,
            Exchange.Declare(0, "all", "fanout"), Exchange.Declare(0, "words", "topic"),
            Queue.Bind(0, "a", "all", "x"), Queue.Bind(0, "b", "all", ""), Queue.Bind(0, "q", "all", ""),
            Exchange.Bind(0, "words", "all", ""),
            Queue.Bind(0, "b", "words", "k.#"), Queue.Bind(0, "c", "words", "k.*"),
        )  # fmt: skip
        client.raw(sent("all", "k.1", b"first") + sent("all", "other", b"second"))
        await world.settle()
        assert confirmed(client.heard()) == [("Basic.Ack", 2, True)]
        assert [await bodies(world, client, name) for name in "abc"] == [
            [b"first", b"second"], [b"first", b"second"], [b"first"],
        ]  # fmt: skip
        assert world.shard.queues["q"].member.machine.counts().ready == 2  # type: ignore[union-attr]

    run(scenario)


def test_a_headers_exchange_takes_a_run_apart() -> None:
    """Neighbours of one run go to different queues, and stay in order."""

    async def scenario(world: World) -> None:
        client = Client(world)
        await queues(world, client, "a", "b")
        await done(
            world, client,
            Queue.Bind(0, "a", "amq.headers", "", arguments={"x-match": "any", "k": 1, "l": 1}),
            Queue.Bind(0, "b", "amq.match", "", arguments={"k": 2}),
            Exchange.Bind(0, "amq.match", "amq.headers", "", arguments={"x-match": "all", "k": 2}),
        )  # fmt: skip
        client.raw(b"".join(sent("amq.headers", "", b"%d" % each, k=each % 3) for each in range(9)))
        client.raw(sent("amq.headers", "", b"none", mandatory=True))
        await world.settle()
        heard = client.heard()
        names = [each.name for each in heard if isinstance(each, base.Frame)]
        assert names.count("Basic.Return") == 1 and names[-1] == "Basic.Ack"
        assert max(tag for _, tag, _ in confirmed(heard)) == 10
        assert await bodies(world, client, "a") == [b"1", b"4", b"7"]
        assert await bodies(world, client, "b") == [b"2", b"5", b"8"]

    run(scenario)


def test_copies_go_where_the_headers_say_and_blind_copies_are_not_seen() -> None:
    """CC stays in the message, BCC does not; also without any exchange of a name."""

    async def scenario(world: World) -> None:
        client = Client(world)
        await queues(world, client, "a", "b", "c")
        client.raw(sent("", "a", CC=["b", "nowhere"], BCC=["c", "a"]))
        await world.settle()
        assert confirmed(client.heard()) == [("Basic.Ack", 1, False)]
        for name in "abc":
            heard = await told(world, client, Basic.Get(0, name, True))
            assert heard[1].properties.headers == {"CC": ["b", "nowhere"]}
            assert heard[0].routing_key == "a"
        client.raw(sent("", "a", CC="b"))
        await world.settle()
        assert closed(client.heard())[0] == 406

    run(scenario)


def test_an_alternate_exchange_takes_what_has_no_route() -> None:
    """And without one, mandatory messages come back before their confirm."""

    async def scenario(world: World) -> None:
        client = Client(world)
        await queues(world, client, "a", "rest")
        alternate = {"alternate-exchange": "amq.fanout"}
        await done(world, client, Exchange.Declare(0, "x", "direct", arguments=alternate), Queue.Bind(0, "a", "x", "a"))
        client.raw(sent("x", "b", mandatory=True))
        await world.settle()
        heard = client.heard()
        assert [each.name for each in heard if isinstance(each, base.Frame)] == ["Basic.Return", "Basic.Ack"]
        assert (heard[0].reply_code, heard[0].exchange, heard[0].routing_key) == (312, "x", "b")
        await done(world, client, Queue.Bind(0, "rest", "amq.fanout", ""))
        client.raw(sent("x", "b", mandatory=True) + sent("x", "a", mandatory=True))
        await world.settle()
        assert confirmed(client.heard()) == [("Basic.Ack", 3, True)]
        assert (len(await bodies(world, client, "rest")), len(await bodies(world, client, "a"))) == (1, 1)

    run(scenario)


REFUSALS: list[tuple[base.Frame, int, str]] = [
    (Exchange.Declare(0, "", "direct"), 403, "operation not permitted on the default exchange"),
    (Exchange.Declare(0, "amq.mine", "direct"), 403, "exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
    (Exchange.Declare(0, "none", "direct", passive=True), 404, "no exchange 'none' in vhost '/'"),
    (Exchange.Declare(0, "amq.direct", "fanout", durable=True), 406, "inequivalent arg 'type' for exchange 'amq.d"),
    (Exchange.Declare(0, "amq.direct", "direct"), 406, "received 'false' but current is 'true'"),
    (Exchange.Declare(0, "n", "direct", arguments={"alternate-exchange": 1}), 406, "for arg 'alternate-exchange' in"),
    (Exchange.Delete(0, "amq.topic"), 403, "deletion of system exchange 'amq.topic' in vhost '/' not allowed"),
    (Exchange.Delete(0, ""), 403, "operation not permitted on the default exchange"),
    (Exchange.Bind(0, "none", "amq.direct", "k"), 404, "no exchange 'none' in vhost '/'"),
    (Exchange.Bind(0, "", "amq.direct", "k"), 403, "operation not permitted on the default exchange"),
    (Queue.Bind(0, "q", "none", "k"), 404, "no exchange 'none' in vhost '/'"),
    (Queue.Bind(0, "none", "amq.direct", "k"), 404, "no queue 'none' in vhost '/'"),
    (Queue.Bind(0, "q", "", "k"), 403, "operation not permitted on the default exchange"),
    (Queue.Bind(0, "q", "amq.match", "", arguments={"x-match": "some"}), 406, "Invalid x-match field value"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "code", "text"), REFUSALS, ids=lambda each: getattr(each, "name", str(each)[:30]))
def test_refusals(request_: base.Frame, code: int, text: str) -> None:
    """In RabbitMQ's words, which clients and people know."""

    async def scenario(world: World) -> None:
        client = Client(world)
        found, words = closed(await told(world, client, request_))
        assert found == code and text in words
        table = world.shard.virtual_host("/").exchanges.table
        assert not list(table.bindings()) and not table.declared()

    run(scenario)


def test_deleting_and_unbinding_what_is_not_there_is_no_error() -> None:
    """As in RabbitMQ: a script that cleans up may run twice."""

    async def scenario(world: World) -> None:
        client = Client(world)
        await done(
            world, client,
            Exchange.Delete(0, "none"), Queue.Unbind(0, "none", "amq.direct", "k"), Queue.Unbind(0, "q", "none", "k"),
            Exchange.Unbind(0, "none", "amq.direct", "k"),
        )  # fmt: skip

    run(scenario)


def test_an_exchange_in_use_stays_and_an_auto_delete_exchange_goes() -> None:
    """if-unused looks at bindings; a queue takes its bindings along, and the exchange that lived on them."""

    async def scenario(world: World) -> None:
        client = Client(world)
        await queues(world, client, "a")
        await done(
            world, client, Exchange.Declare(0, "x", "topic", auto_delete=True), Queue.Bind(0, "", "x", "")
        )  # fmt: skip
        [binding] = world.shard.virtual_host("/").exchanges.table.bindings()
        assert (binding.destination.name, binding.key) == ("a", "a")
        code, text = closed(await told(world, client, Exchange.Delete(0, "x", if_unused=True)))
        assert (code, text) == (406, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")
        await told(world, client, Channel.CloseOk(), Channel.Open(), Queue.Delete(0, "a"))
        assert world.shard.virtual_host("/").exchanges.table.exchange("x") is None

    run(scenario)


@pytest.mark.parametrize("internal", [False, True])
def test_a_publish_that_is_not_allowed_closes_its_channel_and_drops_what_follows(internal: bool) -> None:
    """What came behind in the same octets must not slip through, nor leave anything of the channel."""

    async def scenario(world: World) -> None:
        client, other = Client(world), Client(world)
        if internal:
            await done(world, other, Exchange.Declare(0, "x", "fanout", internal=True))
        channels = len(world.shard.clients.channels)
        client.raw(sent("", "q") + sent("x", "q") + sent("", "q") + sent("x", "q"))
        await world.settle()
        heard = client.heard()
        expected = "cannot publish to internal exchange 'x' in" if internal else "no exchange 'x' in vhost '/'"
        assert expected in closed(heard)[1]
        assert world.shard.queues["q"].member.machine.counts().ready == 1  # type: ignore[union-attr]
        assert len(world.shard.clients.channels) == channels and not client.server.channels

    run(scenario)


def test_an_exchange_that_was_declared_elsewhere_meanwhile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is refused because this node has not heard the news."""

    async def scenario(world: World) -> None:
        looking: list[Callable[[bool], None]] = []
        monkeypatch.setattr(world.shard.reads, "when_queues_current", looking.append)
        client, other = Client(world), Client(world)
        client.raw(sent("late", "k"))
        await world.settle()
        assert client.heard() == [] and len(looking) == 1
        await done(world, other, Exchange.Declare(0, "late", "fanout"), Queue.Bind(0, "q", "late", ""))
        looking.pop()(True)
        await world.settle()
        assert confirmed(client.heard()) == [("Basic.Ack", 1, False)]
        assert world.shard.queues["q"].member.machine.counts().ready == 1  # type: ignore[union-attr]

    run(scenario)


def test_without_answers_nobody_is_answered() -> None:
    """nowait: the next answer is that of the next request."""

    async def scenario(world: World) -> None:
        client = Client(world)
        heard = await told(
            world, client,
            Exchange.Declare(0, "x", "fanout", nowait=True), Queue.Bind(0, "q", "x", "k", nowait=True),
            Exchange.Bind(0, "x", "amq.fanout", nowait=True), Exchange.Declare(0, "x", passive=True),
            Exchange.Unbind(0, "x", "amq.fanout", nowait=True), Exchange.Delete(0, "x", nowait=True),
            Basic.Qos(0, 1, False),
        )  # fmt: skip
        assert [each.name for each in heard] == ["Exchange.DeclareOk", "Basic.QosOk"]
        assert world.shard.virtual_host("/").exchanges.table.exchange("x") is None

    run(scenario)
