"""The shell around the protocol core: answers, ends, and silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from types import ModuleType
from typing import Any

import pytest
from pamqp import commands

from perftest.amqp.errors import (
    BrokerProtocolError,
    ChannelClosedError,
    ConnectionClosedError,
    ConnectionLostError,
    UnreachableError,
)
from perftest.amqp.transport import Connection
from perftest.amqp.uri import parse_uri

DECLARE = commands.Queue.Declare(queue="q")


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def connect(uri: str, timeout_s: float = 10.0) -> Connection:
    return await Connection.open(parse_uri(uri), name="test", clock=time.monotonic_ns, timeout_s=timeout_s)


def test_a_goodbye_is_answered_and_the_reason_is_ours(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            connection = await connect(broker.uri)
            await connection.close()
            error = connection.lost.result()
            assert isinstance(error, ConnectionClosedError) and error.code == 200

    play(scenario())


def test_a_channel_exception_reaches_whoever_asked_and_spares_the_connection(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(refuse_declare=[(406, "no")])) as broker:
            connection = await connect(broker.uri)
            channel = await connection.open_channel()
            with pytest.raises(ChannelClosedError) as caught:
                await connection.call(channel, DECLARE, commands.Queue.DeclareOk)
            assert (caught.value.code, caught.value.method, caught.value.temporary) == (406, "queue.declare", False)
            again = await connection.open_channel()
            answer = await connection.call(again, DECLARE, commands.Queue.DeclareOk)
            assert answer.queue == "q"
            await connection.close()

    play(scenario())


def test_whoever_waits_for_an_answer_hears_of_the_end(stub: ModuleType) -> None:
    """A lost connection must not leave a client hanging."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            connection = await connect(broker.uri)
            channel = await connection.open_channel()
            broker.stall()
            waiting = asyncio.ensure_future(connection.call(channel, DECLARE, commands.Queue.DeclareOk))
            await asyncio.sleep(0)
            broker.drop_connections()
            with pytest.raises(ConnectionLostError):
                await waiting
            with pytest.raises(ConnectionLostError):
                await connection.open_channel()

    play(scenario())


@pytest.mark.parametrize(("code", "temporary"), [(320, True), (541, True), (501, False)])
def test_a_connection_exception_keeps_code_and_text(stub: ModuleType, code: int, temporary: bool) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            connection = await connect(broker.uri)
            broker.tell_all(commands.Connection.Close(code, "because", 0, 0))
            error = await connection.lost
            assert isinstance(error, ConnectionClosedError)
            assert (error.code, error.text, error.temporary) == (code, "because", temporary)

    play(scenario())


def test_an_unasked_answer_is_a_broken_protocol(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            connection = await connect(broker.uri)
            for other in broker.connections:
                other.send(1, commands.Queue.DeclareOk("q", 0, 0))
            assert isinstance(await connection.lost, BrokerProtocolError)

    play(scenario())


def test_silence_for_two_heartbeats_is_a_loss_and_traffic_is_none(stub: ModuleType) -> None:
    """A host that was switched off sends no FIN; only the heartbeat tells."""

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            connection = await connect(broker.uri)
            for _ in range(4):
                connection._beat()
            await connection.open_channel()
            for _ in range(4):
                connection._beat()
            assert not connection.lost.done()
            connection._beat()
            assert isinstance(connection.lost.result(), ConnectionLostError)

    play(scenario())


class Speaker(asyncio.Protocol):
    """A server that says the same to everybody and listens to nobody."""

    def __init__(self, words: bytes, spoken: list[asyncio.Transport]) -> None:
        self._words = words
        self._spoken = spoken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._spoken.append(transport)
        transport.write(self._words)


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [(b"", UnreachableError, "no answer"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", BrokerProtocolError, "speaks HTTP")],
)
def test_a_port_with_something_else_behind_it_is_told(words: bytes, error: type[Exception], says: str) -> None:
    async def scenario() -> None:
        spoken: list[asyncio.Transport] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Speaker(words, spoken), "127.0.0.1", 0)
        with pytest.raises(error, match=says):
            await connect(f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=0.5 if not words else 10)
        for transport in spoken:
            transport.abort()
        server.close()
        await server.wait_closed()

    play(scenario())
