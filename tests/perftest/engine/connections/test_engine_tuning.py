"""What connections agree on with the broker, and what they ask of their sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from types import ModuleType
from typing import Any

import pytest
import uvloop

from perftest.amqp.options import FRAME_LIMIT, FRAME_MAX, ConnectionOptions
from perftest.amqp.transport import Connection
from perftest.amqp.uri import parse_uri
from perftest.spec.behaviour import Connecting
from perftest.spec.plan import Settings
from tests.perftest.testing.session_run import Run

TUNING: dict[str, tuple[dict[str, int], dict[str, int], tuple[int, int]]] = {
    "nothing asked for": ({}, {}, (FRAME_MAX, 60)),
    "less than offered": ({"frame_max": 8192, "heartbeat_s": 5}, {}, (8192, 5)),
    "more than offered": ({"frame_max": 1 << 20, "heartbeat_s": 600}, {}, (FRAME_MAX, 60)),
    "no limits offered": ({"frame_max": 1 << 20, "heartbeat_s": 7}, {"frame_max": 0, "heartbeat_s": 0}, (1 << 20, 7)),
    "nothing asked for, no limits": ({}, {"frame_max": 0, "heartbeat_s": 0}, (FRAME_MAX, 0)),
    "heartbeats off": ({"heartbeat_s": 0}, {}, (FRAME_MAX, 0)),
    "less than AMQP allows": ({"frame_max": 100}, {}, (4096, 60)),
    "more than any buffer": ({"frame_max": 1 << 31}, {"frame_max": 0}, (FRAME_LIMIT, 60)),
    "a broker with small frames": ({}, {"frame_max": 4096}, (4096, 60)),
}


@pytest.mark.parametrize("case", TUNING)
def test_what_is_agreed_on(stub: ModuleType, case: str) -> None:
    asked, offered, agreed = TUNING[case]

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(**offered)) as broker:
            settings = Settings(in_flight=3, prefetch=5, size_bytes=20_000)
            run = Run(broker, settings, connecting=Connecting(**asked))
            await run.open()
            await run.published(20)
            record = await run.finish()
            assert record["verdict"] == "ok" and record["unique"] == record["published"]
            assert {(tuned.frame_max, tuned.heartbeat) for tuned in broker.tuned} == {agreed}

    asyncio.run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_sockets_are_set_up_as_asked(stub: ModuleType, run: Any) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            options = ConnectionOptions(send_buffer=65536, receive_buffer=32768, no_delay=False)
            connection = await Connection.open(
                parse_uri(broker.uri), name="t", clock=time.monotonic_ns, options=options
            )
            there = connection.socket_option
            assert there(socket.SOL_SOCKET, socket.SO_SNDBUF) in (65536, 2 * 65536)  # Linux doubles what it is asked
            assert there(socket.SOL_SOCKET, socket.SO_RCVBUF) in (32768, 2 * 32768)
            assert not there(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await connection.close()
            usual = await Connection.open(parse_uri(broker.uri), name="t", clock=time.monotonic_ns)
            assert usual.socket_option(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await usual.close()

    run(scenario())
