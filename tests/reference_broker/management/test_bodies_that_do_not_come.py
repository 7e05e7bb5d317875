"""Requests whose body never ends, or is none: each is answered with 400, and none is taken for a defect of the broker.

The routes are those of the API, without a node behind them: a body is read before anybody asks the node.
"""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from reference_broker.access.table import AccessTable
from reference_broker.management import server
from reference_broker.node.config import Limits

PATIENCE_S = 60.0
HEAD = "PUT /api/queues/%2F/q HTTP/1.1\r\nHost: a\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "chunk of 2**64 octets": (CHUNKED, "FFFFFFFFFFFFFFFF\r\nabc"),
    "chunk of half of that": (CHUNKED, "7FFFFFFFFFFFFFFF\r\nabc"),
    "chunk that does not end": (CHUNKED, "5\r\nabc"),
    "chunk after which nothing comes": (CHUNKED, "3\r\nabc\r\n"),
    "body that does not end": ("Content-Length: 30\r\n\r\n", "abc"),
}
WRONG = {
    "chunk without a size": (CHUNKED, "ZZ\r\n"),
    "chunk of more than 2**64 octets": (CHUNKED, "FFFFFFFFFFFFFFFFF\r\nabc"),
    "no gzip": ("Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n", "abc"),
}


async def answered(octets: str) -> bytes:
    """What the API answers to these octets, up to the end of the connection or of the answer."""
    table = AccessTable.of_a_new_cluster()
    access = SimpleNamespace(is_password=table.is_password, loopback_users=())
    machine = SimpleNamespace(access=table)
    limits = Limits(http_idle_ms=10)
    shard: Any = SimpleNamespace(access=access, metadata=SimpleNamespace(machine=machine), limits=limits)
    app = web.Application(client_max_size=server.BODY_MAX)
    server.add_to(app, shard)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.0, lingering_time=0.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        writer.write(octets.encode())
        async with asyncio.timeout(PATIENCE_S):
            found = await reader.readuntil(b"\r\n\r\n")
            found += await reader.read(1000)
        writer.close()
        return found
    finally:
        await asyncio.wait_for(runner.cleanup(), PATIENCE_S)


@pytest.mark.parametrize("case", [*ENDLESS, *WRONG])
def test_a_body_that_does_not_come_is_answered(case: str, caplog: pytest.LogCaptureFixture) -> None:
    head, body = {**ENDLESS, **WRONG}[case]
    with caplog.at_level(logging.ERROR):
        found = asyncio.run(answered(HEAD + head + body))
    assert found.split()[1] == (b"408" if case in ENDLESS else b"400"), found
    if case in ENDLESS:
        assert json.loads(found.partition(b"\r\n\r\n")[2])["reason"] == "the body did not come within 10 ms"
    assert "defect" not in caplog.text


def test_a_client_that_goes_away_is_no_defect() -> None:
    async def scenario() -> None:
        async def read() -> bytes:
            raise ConnectionResetError("Connection lost")

        with pytest.raises(server.ApiError) as refused:
            await server._octets(SimpleNamespace(read=read), 10)  # type: ignore[arg-type]
        assert refused.value.code == 400

    asyncio.run(scenario())
