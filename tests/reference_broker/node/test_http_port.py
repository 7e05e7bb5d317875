"""The port for metrics without a node behind it: answers that nobody reads, and requests that stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import ClientSession
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from infra.ports import free_ports
from reference_broker.node.config import Limits, Member
from reference_broker.node.endpoints import http_port
from reference_broker.types import NodeId

SAMPLES = 60_000
ASK = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Many:
    """More figures than the buffers of two sockets take."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = GaugeMetricFamily("many", "Many figures", labels=("number",))
        for number in range(SAMPLES):
            found.add_metric((f"{number:0100d}",), number)
        yield found


async def opened(**limits: int) -> tuple[http_port.HttpPort, int]:
    """The port, with limits, and its number."""
    (number,) = free_ports(1)
    me = Member(
        node=NodeId(1), name="n", host="127.0.0.1", amqp_port=1, peer_port=1, control_port=1, metrics_port=number
    )
    shard = SimpleNamespace(
        limits=Limits(**limits), alarms=SimpleNamespace(is_critical=False), config=SimpleNamespace(me=me)
    )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast(Any, Many()))
    return await http_port.serve(cast(Any, shard), registry, lambda _app: None, 1000), number


def asker(number: int) -> socket.socket:
    """Somebody who asks, and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", number))
    client.sendall(ASK)
    return client


async def until_unread(port: http_port.HttpPort) -> None:
    async with asyncio.timeout(30):
        while not any(visit.unread for visit in port.visits):
            await asyncio.sleep(0)


def test_no_more_answers_are_made_while_many_are_not_read() -> None:
    async def run() -> tuple[int, int]:
        port, number = await opened(memory_bytes_max=1 << 20)
        async with ClientSession() as session:
            with asker(number):
                await until_unread(port)
                async with session.get(f"http://127.0.0.1:{number}/metrics") as answer:
                    refused = answer.status
            async with asyncio.timeout(30):
                while port.visits and any(visit.unread for visit in port.visits):
                    await asyncio.sleep(0)
            async with session.get(f"http://127.0.0.1:{number}/metrics") as answer:
                await answer.read()
        await port.close()
        return refused, answer.status

    assert asyncio.run(run()) == (503, 200)


def test_who_reads_nothing_is_dropped_and_who_reads_slowly_is_not() -> None:
    """A look finds what the client has read since the look before."""

    async def run() -> None:
        port, number = await opened(http_idle_ms=10_000_000)
        loop = asyncio.get_running_loop()
        with asker(number) as client:
            client.setblocking(False)
            await until_unread(port)
            (visit,) = port.visits
            visit.look()
            before = visit.unread
            while visit.unread >= before:
                await loop.sock_recv(client, 1 << 16)
            visit.look()
            assert visit in port.visits and visit.unread
            await asyncio.sleep(0)
            while (before := visit.unread) and await settled(visit, before):
                pass
            visit.look()
            visit.look()
            async with asyncio.timeout(30):
                while port.visits:
                    await asyncio.sleep(0)
        await port.close()

    asyncio.run(run())


def test_a_node_stops_although_an_answer_is_not_read() -> None:
    """aiohttp alone would wait for a minute or two."""

    async def run() -> None:
        port, number = await opened()
        with asker(number):
            await until_unread(port)
            async with asyncio.timeout(30):
                await port.close()

    asyncio.run(run())


async def settled(visit: http_port.Visit, before: int) -> bool:
    """Whether the kernel still takes octets of the answer: until its buffers are full."""
    for _ in range(100):
        await asyncio.sleep(0)
    return visit.unread < before


def test_requests_that_stop_keep_nobody_out() -> None:
    """A client that gets an answer keeps its place, though it came first."""

    async def run() -> tuple[list[int], bool]:
        port, number = await opened(http_connections_max=4)
        async with ClientSession() as session, asyncio.timeout(30):
            with asker(number) as reads_nothing:
                await until_unread(port)
                idle = [await asyncio.open_connection("127.0.0.1", number) for _ in range(8)]
                for _, writer in idle:
                    writer.write(b"GET /metrics HTTP/1.1\r\n")
                found = []
                for _ in range(4):
                    async with session.get(f"http://127.0.0.1:{number}/", headers={"Connection": "close"}) as answer:
                        found.append(answer.status)
                assert await idle[0][0].read() == b"", "the eldest gave way"
                is_there = any(visit.unread for visit in port.visits)
                for _, writer in idle:
                    writer.close()
            reads_nothing.close()
        await port.close()
        return found, is_there

    assert asyncio.run(run()) == ([404] * 4, True)
