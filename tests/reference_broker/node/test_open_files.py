"""A client too many is turned away, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import ssl
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.ports import free_ports
from reference_broker.node.config import Limits, Member
from reference_broker.node.endpoints import control
from reference_broker.node.links import open_files, tls
from reference_broker.node.links.open_files import ClientCrowd
from reference_broker.node.links.strangers import Complaints, Strangers
from reference_broker.types import NodeId


@pytest.mark.parametrize(
    ("crowd", "words"),
    [
        (ClientCrowd(10, 4, lacks_memory=False), ""),
        (ClientCrowd(10, 5, lacks_memory=False), "5 others are not logged in yet"),
        (ClientCrowd(49, 0, lacks_memory=False), ""),
        (ClientCrowd(1, 0, lacks_memory=True), "memory_bytes_max"),
        (ClientCrowd(50, 0, lacks_memory=False), "50 are connected; the limit is connections_max"),
    ],
)
def test_a_client_too_many_is_turned_away(crowd: ClientCrowd, words: str, caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(connections_max=50, logins_waiting_max=5)
    turned_away(lambda: open_files.why_no_client(crowd, limits), words, caplog)


@pytest.mark.parametrize(
    ("connected", "http_connections_max", "lacks_memory", "words"),
    [
        (9, 10, False, ""),
        (10, 10, False, "10 are connected; the limit is http_connections_max"),
        (0, 10, True, "memory_bytes_max"),
        (74, 1000, False, ""),
        (75, 1000, False, "75 are connected, a quarter of the files for clients"),
    ],
)
def test_the_port_for_metrics_takes_few(
    connected: int, http_connections_max: int, lacks_memory: bool, words: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (400, 400))
    monkeypatch.setattr(open_files, "lowest_free", lambda: 20)
    limits = Limits(http_connections_max=http_connections_max)
    turned_away(lambda: open_files.why_no_visitor(connected, limits, lacks_memory=lacks_memory), words, caplog)


@pytest.mark.parametrize(("lowest_free", "words"), [(75, ""), (76, "ulimit -n"), (100, "ulimit -n")])
def test_a_quarter_of_the_files_is_kept_back(
    lowest_free: int, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client that has just connected has the file before."""
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (100, 400))
    monkeypatch.setattr(open_files, "lowest_free", lambda: lowest_free)
    turned_away(lambda: "", words, caplog)


def turned_away(why_not: object, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """Twice, with one line in the log."""
    assert callable(why_not)
    door = open_files.Door("a client of a port", why_not, Complaints(lambda: 0.0))
    with caplog.at_level(logging.WARNING):
        assert [door.turns_away() is not None for _ in range(2)] == [bool(words)] * 2
    assert [line for line in caplog.messages if not line.startswith("a client of a port is turned away: ")] == []
    assert [words in line for line in caplog.messages] == [True] * bool(words)


@pytest.mark.parametrize(("files", "most"), [(4096, 64), (160, 5), (8, 1), (1 << 20, 64)])
def test_strangers_leave_most_of_what_is_kept_back(files: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (files, files))
    assert open_files.strangers_max(Limits()) == most


@contextlib.contextmanager
def few_files(number: int) -> Iterator[None]:
    """This process may have so many files open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_lowest_free_number_tells_how_many_files_are_open() -> None:
    """A file more raises it by one at least; once the kernel gives no more, it is the limit."""
    first = open_files.lowest_free()
    with contextlib.ExitStack() as files:
        files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        second = open_files.lowest_free()
        assert second > first
        with few_files(first + 1):
            assert open_files.lowest_free() == first + 1


def test_a_connection_over_tls_keeps_no_file_that_is_kept_back() -> None:
    """It gets another number than the kernel gave it first. Clients over TLS would creep into what is kept back."""

    async def run() -> tuple[int, int]:
        strangers = Strangers(10, lambda _text: None)
        asked: list[int] = []

        def has_no_room(number: int) -> bool:
            asked.append(number)
            return False

        door = tls.TlsDoor(
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), 30.0, asyncio.Protocol, strangers, lambda _text: None,
            has_no_room,
        )  # fmt: skip
        server = await asyncio.get_running_loop().create_server(lambda: door, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        server.close()
        return len(asked), len(strangers)

    assert asyncio.run(run()) == (1, 0)


@pytest.mark.parametrize("secret", [b"", b"s" * 32], ids=["no secret", "a secret"])
def test_who_needs_no_secret_for_the_control_port_is_a_client(
    secret: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would drop such connections otherwise. With a secret, those without proof are few."""
    (number,) = free_ports(1)
    me = Member(node=NodeId(1), name="n", host="127.0.0.1", amqp_port=1, peer_port=1, control_port=number)
    config = SimpleNamespace(me=me, limits=Limits(), tls=None, secret=secret, cluster="c", name="n")
    node = SimpleNamespace(shard=SimpleNamespace(config=config))

    async def run() -> bytes:
        server = await control.serve(cast(Any, node))
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        try:
            writer.write(b"{}\n")
            return await reader.read(1)
        except ConnectionError:
            return b""
        finally:
            writer.close()
            server.close()

    monkeypatch.setattr(open_files, "lowest_free", lambda: 1 << 30)
    assert asyncio.run(run()) == (b"{" if secret else b"")
    assert any("a client of the control port is turned away" in line for line in caplog.messages) is not bool(secret)


def test_the_limit_is_raised_to_what_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (100, 400))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: set_to.append(limits))
    open_files.raise_limit()
    assert set_to == [(400, 400)]
