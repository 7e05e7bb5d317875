"""Clients that want a node's memory: half messages, transactions without end, publishes that nobody consumes, channels
by the thousand, consumers that do not read. The node stays near its limit, and is well again once they are gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from pamqp import commands, frame, header
from pamqp.body import ContentBody

from infra import local_cluster
from infra.local_cluster import Cluster, Node
from perftest.amqp.uri import AmqpUri, parse_uri

pytestmark = [pytest.mark.slow, pytest.mark.processes]
LIMIT: Final = 256 << 20
MOST: Final = 1.2 * LIMIT
WAIT_S: Final = 30
INCOMPLETE_MS: Final = 1000
REST_S: Final = 0.05
"""CPU time of an idle node in a quarter of a second, at most."""
_HEADER: Final = b"AMQP\x00\x00\x09\x01"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One node with little memory."""
    limits = {"memory_bytes_max": LIMIT, "incomplete_ms": INCOMPLETE_MS}
    with local_cluster.temporary(tmp_path, nodes=1, limits=limits) as running:
        yield running


async def opened(node: Node) -> Client:
    """A connection with channel 1."""
    uri = parse_uri(node.uri)
    reader, writer = await asyncio.open_connection(uri.host, uri.port)
    try:
        await login(reader, writer, uri)
    except BaseException:
        await hung_up([(reader, writer)])
        raise
    return reader, writer


async def login(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, uri: AmqpUri) -> None:
    writer.write(_HEADER)
    await heard(reader)
    start = commands.Connection.StartOk({}, "PLAIN", f"\0{uri.user}\0{uri.password}", "en_US")  # type: ignore[arg-type]
    writer.write(frame.marshal(start, 0))
    await heard(reader)
    tune = frame.marshal(commands.Connection.TuneOk(2047, 131072, 0), 0)
    writer.write(tune + frame.marshal(commands.Connection.Open("/"), 0))
    await heard(reader)
    writer.write(frame.marshal(commands.Channel.Open(), 1))
    await heard(reader)


async def heard(reader: asyncio.StreamReader) -> Any:
    head = await reader.readexactly(7)
    body = await reader.readexactly(int.from_bytes(head[3:7], "big") + 1)
    return frame.unmarshal(head + body)[2]


def published(queue: str, octets: int, sent: int) -> bytes:
    """A publish of which ``sent`` octets of the body are there."""
    head = header.ContentHeader(0, octets, commands.Basic.Properties(delivery_mode=2))
    parts = [frame.marshal(commands.Basic.Publish(0, "", queue), 1), frame.marshal(head, 1)]
    parts += [frame.marshal(ContentBody(b"x" * min(100_000, sent - at)), 1) for at in range(0, sent, 100_000)]
    return b"".join(parts)


async def pump(client: Client, octets: bytes, times: int) -> None:
    """Write until the node reads no more."""
    try:
        for _ in range(times):
            client[1].write(octets)
            await asyncio.wait_for(client[1].drain(), 2)
    except (TimeoutError, OSError):
        return


async def half_messages(node: Node) -> list[Client]:
    clients = [await opened(node) for _ in range(20)]
    octets = published("none", 100 << 20, 40 << 20)
    await asyncio.gather(*(pump(client, octets, 1) for client in clients))
    return clients


async def transactions(node: Node) -> list[Client]:
    clients = [await opened(node) for _ in range(40)]
    for reader, writer in clients:
        writer.write(frame.marshal(commands.Tx.Select(), 1))
        await heard(reader)
    octets = published("none", 1 << 20, 1 << 20)
    await asyncio.gather(*(pump(client, octets, 40) for client in clients))
    return clients


async def publishes(node: Node) -> list[Client]:
    clients = [await opened(node) for _ in range(20)]
    reader, writer = clients[0]
    writer.write(frame.marshal(commands.Queue.Declare(0, "q", durable=False, exclusive=True), 1))
    await heard(reader)
    octets = published("q", 100_000, 100_000)
    await asyncio.gather(*(pump(client, octets, 400) for client in clients))
    return clients


async def channels(node: Node) -> list[Client]:
    clients = [await opened(node) for _ in range(150)]
    octets = b"".join(frame.marshal(commands.Channel.Open(), number) for number in range(2, 2048))
    await asyncio.gather(*(pump(client, octets, 1) for client in clients))
    return clients


async def unread(node: Node) -> list[Client]:
    """Consumers that read nothing, each with fifty messages of 100 KB for it: 160 MB, beside the messages."""
    clients = [await opened(node) for _ in range(32)]
    for number, (reader, writer) in enumerate(clients):
        queue = f"unread-{number % 2}"
        arguments = {"x-queue-type": "quorum"} if number % 2 else {"x-queue-mode": "lazy"}
        writer.write(frame.marshal(commands.Queue.Declare(0, queue, durable=True, arguments=arguments), 1))
        await heard(reader)
    for number in range(2):
        await pump(clients[number], published(f"unread-{number}", 100_000, 100_000), 800)
    for number, (_reader, writer) in enumerate(clients):
        writer.write(frame.marshal(commands.Basic.Qos(0, 50, False), 1))
        writer.write(frame.marshal(commands.Basic.Consume(0, f"unread-{number % 2}"), 1))
        await writer.drain()
    await asyncio.to_thread(at_rest, node)
    return clients


def at_rest(node: Node) -> None:
    """Wait until a node has nothing more to write: its clients read nothing, and it hardly uses CPU time any more."""
    process = psutil.Process(node.pid)
    used, quiet = sum(process.cpu_times()[:2]), 0
    deadline = time.monotonic() + WAIT_S
    while quiet < 2 and time.monotonic() < deadline:
        time.sleep(0.25)
        before, used = used, sum(process.cpu_times()[:2])
        quiet = quiet + 1 if used - before <= REST_S else 0


async def hung_up(clients: list[Client]) -> None:
    """Leave without a word, and with octets under way that the node does not read."""
    for _reader, writer in clients:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for _reader, writer in clients), return_exceptions=True)


class Watch:
    """The most memory that a process held."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._process = psutil.Process(pid)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(0.01):
            self.most = max(self.most, self._process.memory_info().rss)


@pytest.mark.parametrize(
    "attack", [half_messages, transactions, publishes, channels, unread], ids=lambda each: each.__name__
)
def test_the_memory_stays_near_its_limit_and_comes_back(
    cluster: Cluster, attack: Callable[[Node], Awaitable[list[Client]]]
) -> None:
    node = cluster.nodes[0]
    assert node.pid is not None

    async def scenario() -> None:
        await hung_up(await asyncio.wait_for(attack(node), 2 * WAIT_S))

    with Watch(node.pid) as watch:
        asyncio.run(scenario())
        end = time.monotonic() + WAIT_S
        while not _is_well(cluster) and time.monotonic() < end:
            time.sleep(0.1)
    assert _is_well(cluster), "publishers are stopped, though nobody uses the memory"
    assert watch.most < MOST, f"{watch.most >> 20} MiB"


def _is_well(cluster: Cluster) -> bool:
    return asyncio.run(_confirms(cluster.nodes[0]))


async def _confirms(node: Node) -> bool:
    """Whether a publisher gets its confirm."""
    clients: list[Client] = []
    try:
        async with asyncio.timeout(2):
            clients.append(await opened(node))
            reader, writer = clients[0]
            writer.write(frame.marshal(commands.Confirm.Select(), 1))
            await heard(reader)
            writer.write(published("none", 1, 1))
            return isinstance(await heard(reader), commands.Basic.Ack)
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return False
    finally:
        await hung_up(clients)
