"""``amqps``: whom a run trusts, whom it says it is, and what it says when that fails."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Coroutine
from types import ModuleType
from typing import Any

import pytest

from perftest.amqp.errors import AmqpError, ConnectionLostError, MechanismError, TlsError
from perftest.amqp.transport import Connection
from perftest.amqp.uri import parse_uri
from perftest.engine.workers.failures import explain
from perftest.spec.behaviour import Connecting, Tls
from perftest.spec.plan import Settings
from tests.perftest.testing.certificates import Authority
from tests.perftest.testing.session_run import Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=1000)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(scenario)
    else:  # TLS is the event loop's: this is the one of a worker
        uvloop.run(scenario)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


async def work(broker: Any, connecting: Connecting) -> Run:
    """A run in which messages flow, and connections are lost in the middle."""
    run = Run(broker, SETTINGS, connecting=connecting)
    await run.open()
    await run.published(200)
    broker.drop_connections()
    await run.until(lambda: run.events.count("reconnected") == 2)
    await run.published(200)
    record = await run.finish()
    assert record["verdict"] == "ok", str(record)
    assert record["unique"] == record["published"]
    return run


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_without_authorities_nothing_is_checked_and_the_run_says_so(
    stub: ModuleType, authority: Authority, loop: str
) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(tls=authority.server_context("elsewhere"))) as broker:
            assert broker.uri.startswith("amqps://")
            run = await work(broker, Connecting())
            assert run.events.count("warning") == 1
            assert any("not checked" in text for text in run.texts)

    play(scenario()) if loop == "uvloop" else asyncio.run(scenario())


def test_with_an_authority_its_certificates_are_trusted(stub: ModuleType, authority: Authority) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(tls=authority.server_context("127.0.0.1"))) as broker:
            run = await work(broker, Connecting(tls=Tls(ca_file=str(authority.ca_file))))
            assert "warning" not in run.events

    play(scenario())


def test_the_name_that_is_asked_for_is_the_name_that_is_checked(stub: ModuleType, authority: Authority) -> None:
    asked: list[str | None] = []

    def note(_socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        asked.append(name)

    async def scenario() -> None:
        context = authority.server_context("node1.example")
        context.sni_callback = note
        async with stub.StubBroker(stub.Script(tls=context)) as broker:
            tls = Tls(ca_file=str(authority.ca_file), server_names=("node1.example",))
            await work(broker, Connecting(tls=tls))
            assert set(asked) == {"node1.example"}

    play(scenario())


def test_a_certificate_logs_in_by_itself(stub: ModuleType, authority: Authority) -> None:
    async def scenario() -> None:
        context = authority.server_context("127.0.0.1", ask_client=True)
        async with stub.StubBroker(stub.Script(tls=context)) as broker:
            cert_file, key_file = authority.issue("client")
            tls = Tls(ca_file=str(authority.ca_file), cert_file=str(cert_file), key_file=str(key_file))
            await work(broker, Connecting(tls=tls, external=True))
            assert set(broker.logins) == {("EXTERNAL", "")}

    play(scenario())


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], type[AmqpError], str]] = {
    "authority unknown": ({"name": "127.0.0.1"}, {"ca_file": "stranger"}, TlsError, "not trusted"),
    "authority of the system": ({"name": "127.0.0.1"}, {"system_authorities": True}, TlsError, "not trusted"),
    "other name": ({"name": "elsewhere"}, {"ca_file": "authority"}, TlsError, "not trusted"),
    "no such file": ({"name": "127.0.0.1"}, {"ca_file": "/nowhere/ca.pem"}, TlsError, "/nowhere/ca.pem"),
    "not a certificate": ({"name": "127.0.0.1"}, {"cert_file": __file__}, TlsError, "cannot be read"),
    "key alone": ({"name": "127.0.0.1"}, {"key_file": "/nowhere/key.pem"}, TlsError, "no certificate"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_wrong_with_tls_is_told_at_once(
    stub: ModuleType, authority: Authority, stranger: Authority, case: str
) -> None:
    server, client, error, says = REFUSALS[case]
    files = {"authority": str(authority.ca_file), "stranger": str(stranger.ca_file)}
    tls = Tls(**{name: files.get(value, value) if isinstance(value, str) else value for name, value in client.items()})

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(tls=authority.server_context(**server))) as broker:
            with pytest.raises(error) as caught:
                async with asyncio.timeout(10):
                    await Run(broker, SETTINGS, connecting=Connecting(tls=tls)).open()
            told = explain(caught.value)
            assert says in told.what, told
            assert "--tls-ca" in told.fix

    play(scenario())


def test_tls_where_none_is_spoken_is_told(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            with pytest.raises(TlsError, match="does not speak TLS"):
                await Run(broker, SETTINGS, uri=broker.uri.replace("amqp:", "amqps:")).open()

    play(scenario())


def test_what_a_broker_says_before_it_hangs_up_is_heard(authority: Authority) -> None:
    """OpenSSL with a blocking socket sends its alert; asyncio's servers close without one."""
    server = socket.create_server(("127.0.0.1", 0))
    context = authority.server_context("127.0.0.1", ask_client=True)

    def serve() -> None:
        connected, _ = server.accept()
        connected.settimeout(10)
        with connected, contextlib.suppress(OSError):
            context.wrap_socket(connected, server_side=True).close()

    async def scenario() -> None:
        uri = parse_uri(f"amqps://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(TlsError, match="certificate required"):
            await Connection.open(uri, name="t", clock=time.monotonic_ns)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        play(scenario())
    finally:
        thread.join()
        server.close()


@pytest.mark.parametrize(("scheme", "says"), [("amqp", "amqps://"), ("amqps", "certificate of this client")])
def test_what_a_broker_may_mean_that_hangs_up_without_a_word_is_guessed(
    stub: ModuleType, authority: Authority, scheme: str, says: str
) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(tls=authority.server_context("h", ask_client=True))) as broker:
            uri = parse_uri(f"{scheme}://127.0.0.1:{broker.port}")
            with pytest.raises(ConnectionLostError, match=says):
                await Connection.open(uri, name="t", clock=time.monotonic_ns)

    play(scenario())


def test_a_broker_without_the_mechanism_is_told(stub: ModuleType) -> None:
    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(mechanisms="PLAIN AMQPLAIN")) as broker:
            with pytest.raises(MechanismError, match="no EXTERNAL login, only 'PLAIN AMQPLAIN'"):
                await Run(broker, SETTINGS, connecting=Connecting(external=True)).open()

    play(scenario())
