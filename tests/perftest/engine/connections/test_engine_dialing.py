"""Waiting for servers that are still starting."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import ModuleType
from typing import Any

import pytest

from perftest.amqp.errors import LoginRefusedError
from perftest.engine.connections import dialing
from perftest.engine.connections.dialing import StartupTimeoutError
from perftest.engine.workers.failures import explain
from perftest.spec.behaviour import Connecting
from perftest.spec.plan import Settings
from tests.perftest.testing.session_run import PATIENCE_S, Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100)
NOBODY = "amqp://127.0.0.1:1"


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_run_waits_for_as_many_servers_as_it_is_told(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "ASK_AGAIN_S", 0.01)

    async def scenario() -> None:
        async with stub.StubBroker() as one, stub.StubBroker() as late:
            await late.shut()
            uris = (one.uri, late.uri, NOBODY)
            run = Run(one, SETTINGS, uris=uris, connecting=Connecting(startup_timeout_s=PATIENCE_S, servers_up=2))
            opening = asyncio.ensure_future(run.open())
            await run.until(lambda: run.events.count("waiting") == 3)  # one answers, two do not
            assert not opening.done()
            await late.listen()
            await opening
            assert run.texts[run.events.index("waiting")]
            assert any("2 of 2" in text for text in run.texts)
            await run.published(10)
            await run.finish()

    play(scenario())


def test_servers_that_do_not_come_are_named_with_their_reasons(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = Run(broker, SETTINGS, uris=(broker.uri, NOBODY), connecting=Connecting(startup_timeout_s=0.3))
            with pytest.raises(StartupTimeoutError) as caught:
                await run.open()
            assert "1 of 2" in str(caught.value) and "127.0.0.1:1" in str(caught.value)
            assert "-sul" in explain(caught.value).fix

    play(scenario())


def test_what_waiting_cannot_mend_is_told_at_once(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(password="other")) as broker:
            run = Run(broker, SETTINGS, connecting=Connecting(startup_timeout_s=1000.0))
            with pytest.raises(LoginRefusedError):
                await run.open()

    play(scenario())
