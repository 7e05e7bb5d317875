"""Thousands of connections to one node: how long until all are served when they come at once, what they hold, and what
they cost while nothing happens."""

from __future__ import annotations

import asyncio
import resource
import time
from typing import TypeVar

from pamqp import commands, frame
from pamqp.base import Frame as Method

from perftest.amqp.uri import AmqpUri, parse_uri
from tests.bench.context import Broker, Context
from tests.bench.figures import BenchError

BENCH = "connections"
_Method = TypeVar("_Method", bound=Method)
_SETTLE_S = 3.0
_TIMEOUT_S = 120.0
_SPARE_FILES = 200
_HEADER = b"AMQP\x00\x00\x09\x01"


def measure(context: Context, _names: list[str]) -> None:
    """Once on each broker."""
    count = context.lengths.connections
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + _SPARE_FILES:
        raise BenchError(f"{count} connections need more open files than the {most} that this process may have")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with context.brokers() as brokers:
        for broker in brokers:
            context.note(BENCH, broker.name, asyncio.run(one(broker, count, context.lengths.idle_s)))


async def one(broker: Broker, count: int, idle_s: float) -> dict[str, float]:
    """Open so many connections to the first node, each with a channel; look at the nodes while all are idle."""
    uri, held = parse_uri(broker.uris[0]), broker.rss_bytes()
    began = time.monotonic()
    async with asyncio.timeout(_TIMEOUT_S):
        writers = await asyncio.gather(*(_opened(uri) for _ in range(count)))
    served_s = time.monotonic() - began
    try:
        await asyncio.sleep(min(_SETTLE_S, idle_s))
        began, before = time.monotonic(), broker.cpu_s()
        await asyncio.sleep(idle_s)
        passed = time.monotonic() - began
        busiest = max(100 * (after - used) / passed for after, used in zip(broker.cpu_s(), before, strict=True))
        return {
            "all_served_s": served_s,
            "kib_each": (broker.rss_bytes() - held) / 1024 / count,
            "busiest_node_percent": busiest,
        }
    finally:
        for writer in writers:
            writer.close()


async def _opened(uri: AmqpUri) -> asyncio.StreamWriter:
    """A connection with channel 1 open."""
    reader, writer = await asyncio.open_connection(uri.host, uri.port)
    writer.write(_HEADER)
    await _heard(reader, commands.Connection.Start)
    login = f"\0{uri.user}\0{uri.password}"
    writer.write(frame.marshal(commands.Connection.StartOk({}, "PLAIN", login, "en_US"), 0))  # type: ignore[arg-type]
    tune = await _heard(reader, commands.Connection.Tune)
    answer = commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 600)
    writer.write(frame.marshal(answer, 0) + frame.marshal(commands.Connection.Open(uri.vhost), 0))
    await _heard(reader, commands.Connection.OpenOk)
    writer.write(frame.marshal(commands.Channel.Open(), 1))
    await _heard(reader, commands.Channel.OpenOk)
    return writer


async def _heard(reader: asyncio.StreamReader, kind: type[_Method]) -> _Method:
    head = await reader.readexactly(7)
    body = await reader.readexactly(int.from_bytes(head[3:7], "big") + 1)
    _size, _channel, found = frame.unmarshal(head + body)
    if not isinstance(found, kind):
        raise BenchError(f"the broker answered with {found.name} instead of {kind.__name__}")
    return found
