"""A flood stops at the socket: what a node holds for a client is bounded, and other clients do not wait for it.

A whole node in one thread with a disk that syncs when the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pamqp import base, commands

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.node.alarms import Room
from reference_broker.node.clients.client_connection import TICK_S, ClientConnection
from reference_broker.node.config import Limits, Member, NodeConfig
from reference_broker.node.shard import Shard
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import METADATA_GROUP, NodeId
from tests.reference_broker.amqp.testing import PROTOCOL_HEADER, method, parse, publish

Basic, Connection = commands.Basic, commands.Connection
ME = Member(node=NodeId(1), name="node1", host="127.0.0.1", amqp_port=1, peer_port=2, control_port=3)
BODY = b"x" * 1000
TURNS = 40


class Socket:
    """The transport of one client."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False
        self.stalls = False
        """The client does not read: what is written waits in the socket."""
        self.waiting: list[bytes] = []
        self.server: ClientConnection | None = None

    def get_extra_info(self, _name: str) -> None:
        """There is no socket."""

    def writelines(self, buffers: list[bytes]) -> None:
        if not self.stalls:
            self.written += [bytes(each) for each in buffers]
            return
        self.waiting += [bytes(each) for each in buffers]
        if self.server is not None:
            self.server.pause_writing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.waiting))

    def read(self) -> None:
        """The client reads everything, and goes on reading."""
        self.stalls = False
        self.written, self.waiting = [*self.written, *self.waiting], []
        if self.server is not None:
            self.server.resume_writing()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class World:
    """One node, its disk, its clock and its clients."""

    def __init__(self, **limits: int) -> None:
        config = NodeConfig(
            name="node1",
            node=NodeId(1),
            cluster="c",
            members=(ME,),
            data_dir=Path("data"),
            wal_dir=Path("wal"),
            segment_dir=Path("segments"),
            logs_dir=Path("logs"),
            classic_dir=Path("data/classic"),
            users={"guest": "guest"},
            limits=Limits(**limits),
        )
        self.failures: list[str] = []
        self.shard = Shard(config, 1, self.failures.append, files=MemoryFiles(), threads=False)
        self.shard.clients.slices.now_ns = lambda: 0  # whatever a client sends is handled at once

    async def settle(self) -> None:
        """Let everything happen that can, the disk included."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            self.shard.log.run_pending()
        assert not self.failures

    async def ready(self) -> None:
        """Until the node leads itself and a queue is declared."""
        self.shard.runners[METADATA_GROUP].lead_if_nobody_does()
        await self.settle()
        client = Client(self)
        client.send(1, commands.Queue.Declare(0, "q", durable=True, arguments={"x-queue-type": "quorum"}))
        await self.settle()
        assert [type(each) for each in client.heard()] == [commands.Queue.DeclareOk]


class Client:
    """A client that is logged in and has channel 1 open in confirm mode."""

    def __init__(self, world: World, heartbeat: int = 0) -> None:
        self.socket = Socket()
        self.server = ClientConnection(world.shard, ConnectionConfig())
        self.socket.server = self.server
        self.server.connection_made(self.socket)  # type: ignore[arg-type]
        properties: Any = {"capabilities": {"connection.blocked": True}}
        self.raw(PROTOCOL_HEADER)
        self.send(0, Connection.StartOk(properties, "PLAIN", "\0guest\0guest", "en_US"))
        self.send(0, Connection.TuneOk(2047, 131_072, heartbeat), Connection.Open("/"))
        self.send(1, commands.Channel.Open(), commands.Confirm.Select())
        self.heard()

    def raw(self, octets: bytes) -> None:
        assert self.socket.reading, "a real transport would not have read this"
        self.server.data_received(octets)

    def send(self, channel: int, *methods: base.Frame) -> None:
        self.raw(method(channel, *methods))

    def heard(self) -> list[object]:
        written, self.socket.written = b"".join(self.socket.written), []
        return [frame for _, frame in parse(written)]

    def flood(self, most: int) -> int:
        """Publish until the socket is not read any more; how many messages that took."""
        for sent in range(most):
            if not self.socket.reading:
                return sent
            self.raw(publish(1, "q", BODY))
        return most


def test_a_request_that_nobody_can_carry_out_ends_the_connection() -> None:
    """The declare is in the log, and no majority has it: the client is told, may ask again, and finds the queue."""

    async def scenario(world: World) -> None:
        declare = commands.Queue.Declare(0, "late", durable=True, arguments={"x-queue-type": "quorum"})
        waiting, idle = Client(world), Client(world)
        waiting.send(1, declare)
        for _ in range(TURNS):
            await asyncio.sleep(0)  # the disk does nothing meanwhile
        for _ in range(int(30 / TICK_S) - 1):
            waiting.server.tick()
            idle.server.tick()
        assert (waiting.heard(), waiting.socket.closed) == ([], False)
        for _ in range(2):
            waiting.server.tick()
            idle.server.tick()
        (told,) = waiting.heard()
        assert isinstance(told, Connection.Close) and told.reply_code == 541, told
        assert "channel 1 within 30000 ms" in told.reply_text and not idle.heard()
        waiting.send(0, Connection.CloseOk())
        assert waiting.socket.closed and not idle.socket.closed
        await world.settle()
        idle.send(1, declare, Basic.Get(0, "late", True))
        await world.settle()
        assert [type(each) for each in idle.heard()] == [commands.Queue.DeclareOk, Basic.GetEmpty]

    run(scenario)


def test_many_short_waits_are_no_long_wait() -> None:
    async def scenario(world: World) -> None:
        client = Client(world)
        for _ in range(int(40 / TICK_S)):
            client.send(1, Basic.Get(0, "q", True))
            client.server.tick()
            await world.settle()
            assert [type(each) for each in client.heard()] == [Basic.GetEmpty]

    run(scenario)


def delivery_tags(client: Client) -> list[int]:
    return [each.delivery_tag for each in client.heard() if isinstance(each, Basic.Deliver)]


def run(scenario: Callable[[World], Awaitable[None]], **limits: int) -> None:
    async def whole() -> None:
        world = World(**limits)
        await world.ready()
        await scenario(world)

    asyncio.run(whole())


def test_a_flood_is_not_read_beyond_the_limit_of_octets() -> None:
    """A publisher that never waits for a confirm must fill its own socket, not the node's memory."""

    async def scenario(world: World) -> None:
        flooder = Client(world)
        sent = flooder.flood(1000)
        assert 50_000 < sent * len(publish(1, "q", BODY)) < 60_000
        await world.settle()
        assert flooder.socket.reading, "the disk has caught up"
        assert [(each.delivery_tag, each.multiple) for each in flooder.heard()] == [(sent, True)]  # type: ignore[attr-defined]
        assert flooder.flood(1000) == sent, "and the same again"

    run(scenario, publish_bytes_max=50_000)


def test_a_flood_is_not_read_beyond_the_limit_of_commands() -> None:
    """Small messages cost more than their octets."""

    async def scenario(world: World) -> None:
        flooder = Client(world)
        assert flooder.flood(1000) == 21
        await world.settle()
        assert flooder.socket.reading

    run(scenario, publish_commands_max=20)


def test_others_consume_and_settle_while_a_flood_waits() -> None:
    """The way out of a full queue is to empty it."""

    async def scenario(world: World) -> None:
        flooder, consumer = Client(world), Client(world)
        flooder.flood(1000)
        await world.settle()
        flooder.flood(1000)
        assert not flooder.socket.reading
        consumer.send(1, Basic.Qos(0, 30, False), Basic.Consume(0, "q", "c"))
        await world.settle()
        assert delivery_tags(consumer) == list(range(1, 31))
        consumer.send(1, Basic.Ack(30, True))
        await world.settle()
        assert delivery_tags(consumer) == list(range(31, 61))
        assert world.shard.queues["q"].member.machine.counts().settled == 30

    run(scenario, publish_bytes_max=50_000)


def test_a_consumer_without_a_prefetch_holds_the_default_and_no_more() -> None:
    """Prefetch 0 is "no limit" to AMQP. One client that never acknowledges would get the whole queue into its memory,
    and into this node's; RabbitMQ gives it 2000."""

    async def scenario(world: World) -> None:
        publisher, consumer = Client(world), Client(world)
        publisher.flood(40)
        consumer.send(1, Basic.Consume(0, "q", "c"))
        await world.settle()
        assert delivery_tags(consumer) == list(range(1, 31))
        consumer.send(1, Basic.Ack(4, True))
        await world.settle()
        assert delivery_tags(consumer) == list(range(31, 35))

    assert Limits().credit_default == 2000
    run(scenario, credit_default=30)


def test_an_alarm_stops_publishers_at_their_next_publish_and_nobody_else() -> None:
    """A node that is low on disk must take no more in, and let consumers make room."""

    async def scenario(world: World) -> None:
        publisher, consumer = Client(world, heartbeat=10), Client(world)
        free = {"octets": 0}
        # The process that runs the tests may be large.
        world.shard.alarms._room = Room(memory=lambda: 0, disk=lambda _directory: free["octets"])
        world.shard.check_alarms()
        await world.settle()
        assert (publisher.socket.reading, publisher.heard()) == (True, [])
        publisher.raw(publish(1, "q", BODY))
        await world.settle()
        heard = publisher.heard()
        assert [each.reason for each in heard if isinstance(each, Connection.Blocked)] == ["low on disk"]
        assert any(isinstance(each, Basic.Ack) for each in heard), "what it sent counts"
        assert not publisher.socket.reading
        consumer.send(1, Basic.Get(0, "q", True))
        await world.settle()
        assert any(isinstance(each, Basic.GetOk) for each in consumer.heard())
        publisher.server.core._heard_s -= 1000
        publisher.server.tick()
        assert not publisher.socket.closed, "a client that is not read is not silent"
        free["octets"] = 1 << 40
        world.shard.check_alarms()
        await world.settle()
        assert any(isinstance(each, Connection.Unblocked) for each in publisher.heard())
        assert publisher.socket.reading

    run(scenario)


LEFT_UNREAD = 300_000
LARGE = b"y" * 50_000
ONE_PART = 256 * 1024 + len(LARGE)
"""What a queue reads at a time, and a message more."""
KINDS = ({"x-queue-type": "quorum"}, {"x-queue-type": "classic"})


def deliveries(client: Client) -> list[tuple[int, bool, int]]:
    """Delivery tag, redelivered flag and number of each message."""
    found, heard = [], iter(client.heard())
    for each in heard:
        if isinstance(each, Basic.Deliver):
            next(heard)  # the content header
            found.append((each.delivery_tag, each.redelivered, int(next(heard).value[:6])))  # type: ignore[attr-defined]
    return found


async def numbered(world: World, arguments: dict[str, Any], count: int) -> Client:
    """A client that has published so many messages to a queue of this kind."""
    publisher = Client(world)
    publisher.send(1, commands.Queue.Declare(0, "r", durable=True, arguments=arguments))
    await world.settle()
    for number in range(count):
        publisher.raw(publish(1, "r", b"%06d" % number + LARGE))
    await world.settle()
    return publisher


@pytest.mark.parametrize("arguments", KINDS, ids=["quorum", "classic"])
def test_what_a_client_does_not_read_stays_in_the_queue(arguments: dict[str, Any]) -> None:
    """The node keeps no more for the client than the limit and what one read brings, and forgets nothing."""

    async def scenario(world: World) -> None:
        publisher, consumer = await numbered(world, arguments, 60), Client(world)
        consumer.socket.stalls = True
        consumer.send(1, Basic.Qos(0, 80, False), Basic.Consume(0, "r", "c"))
        await world.settle()
        assert LEFT_UNREAD < consumer.socket.get_write_buffer_size() < LEFT_UNREAD + ONE_PART
        kept = consumer.socket.get_write_buffer_size()
        for number in range(60, 70):
            publisher.raw(publish(1, "r", b"%06d" % number + LARGE))
        await world.settle()
        assert consumer.socket.get_write_buffer_size() == kept, "it has fallen behind: nothing goes out of turn"
        assert world.shard.queues["r"].member.machine.counts().unacked == 70, "its credit is used all the same"
        consumer.socket.read()
        await world.settle()
        assert deliveries(consumer) == [(number + 1, False, number) for number in range(70)]
        consumer.send(1, Basic.Ack(0, True))
        await world.settle()
        assert world.shard.queues["r"].member.machine.counts().settled == 70

    run(scenario, unread_bytes_max=LEFT_UNREAD)


@pytest.mark.parametrize("arguments", KINDS, ids=["quorum", "classic"])
def test_a_consumer_that_is_cancelled_behind_gives_back_what_it_missed(arguments: dict[str, Any]) -> None:
    """Nobody else would ever get these messages: the client has not had them, and cannot settle them."""

    async def scenario(world: World) -> None:
        await numbered(world, arguments, 60)
        consumer, other = Client(world), Client(world)
        consumer.socket.stalls = True
        consumer.send(1, Basic.Qos(0, 80, False), Basic.Consume(0, "r", "c"))
        await world.settle()
        consumer.send(1, Basic.Cancel("c"))
        await world.settle()
        consumer.socket.read()
        had = [number for _tag, _again, number in deliveries(consumer)]
        assert had == list(range(len(had))) and 0 < len(had) < 60
        other.send(1, Basic.Qos(0, 80, False), Basic.Consume(0, "r", "d"))
        await world.settle()
        rest: list[int] = []
        while got := deliveries(other):  # its socket is full at each turn, too, as all of this is one process
            rest += [number for _tag, _again, number in got]
            await world.settle()
        assert rest == list(range(len(had), 60))

    run(scenario, unread_bytes_max=LEFT_UNREAD)


@pytest.mark.parametrize("seed", range(12))
def test_a_client_that_stalls_now_and_then_sees_what_another_sees(seed: int) -> None:
    """Each message once, in order, whatever it acknowledges, returns or leaves unread; also without acknowledgement."""

    async def scenario(world: World) -> None:
        random = Random(seed)
        no_ack = random.random() < 0.3
        publisher, consumer = await numbered(world, random.choice(KINDS), 5), Client(world)
        consumer.send(1, Basic.Qos(0, random.choice((3, 20, 200)), False))
        consumer.send(1, Basic.Consume(0, "r", "c", no_ack=no_ack))
        sent, seen, again, open_tags = 5, list[int](), 0, list[int]()

        def look() -> None:
            nonlocal again
            for tag, redelivered, number in deliveries(consumer):
                open_tags.extend([] if no_ack else [tag])
                again += redelivered
                seen.extend([] if redelivered else [number])

        returned = 0
        while sent < 200:
            for _ in range(random.choice((1, 1, 5, 20))):
                publisher.raw(publish(1, "r", b"%06d" % sent + LARGE))
                sent += 1
            consumer.socket.stalls = consumer.socket.stalls or random.random() < 0.4
            if random.random() < 0.7:
                await world.settle()
            if random.random() < 0.5:
                consumer.socket.read()
                look()
            while open_tags and random.random() < 0.8:
                tag = open_tags.pop(0)
                if random.random() < 0.1:
                    returned += 1
                    consumer.send(1, Basic.Nack(tag, False, True))
                else:
                    consumer.send(1, Basic.Ack(tag, False))
        machine = world.shard.queues["r"].member.machine
        for _ in range(sent):
            if machine.counts().settled == sent:
                break
            consumer.socket.read()
            await world.settle()
            look()
            for tag in open_tags:
                consumer.send(1, Basic.Ack(tag, False))
            open_tags.clear()
            await world.settle()
        assert (seen, again) == (list(range(sent)), returned)

    run(scenario, unread_bytes_max=LEFT_UNREAD)
