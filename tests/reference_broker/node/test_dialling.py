"""A cluster that starts again has no leader before its links are up, and a node behind a mended cut serves nobody
before its links are up: how soon a node tries its peers once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from reference_broker.node.config import Limits, Member
from reference_broker.node.links import peers
from reference_broker.node.links.boot_ids import BootIds
from reference_broker.node.links.peers import Peers
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import NodeId

WAIT_S = 60


class Deaf:
    """An event loop on which nobody answers. ``answer`` is what comes of a connection."""

    def __init__(self, answer: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer = answer
        self.dialled = 0
        self.third = asyncio.Event()

    async def create_connection(self, *_: Any) -> Any:
        self.dialled += 1
        if self.dialled == 3:
            self.third.set()
        return await self._answer()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def dialling(port: int = 1, **limits: int) -> tuple[Peers, Member]:
    """The links of node 2, and node 1, which node 2 dials."""
    members = tuple(
        Member(node=NodeId(n), name=f"n{n}", host="127.0.0.1", amqp_port=1, peer_port=port, control_port=1)
        for n in (1, 2)
    )
    files = MemoryFiles()
    files.make_dir("data")
    boots, events = BootIds(files, "data", (1, 1)), cast(Any, None)
    return Peers(members[1], members, "c", boots, Limits(**limits), events, b"s" * 32), members[0]


def test_a_peer_that_starts_late_is_dialled_within_a_quarter_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes were killed and start again, one a second behind the others: a pause that has grown to a second by then
    is a second more without a confirm."""
    pauses: list[float] = []

    async def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 20:
            raise asyncio.CancelledError

    async def refuse() -> None:
        raise ConnectionRefusedError

    async def scenario() -> int:
        each, member = dialling()
        loop = Deaf(refuse)
        each._loop = cast(Any, loop)
        with pytest.raises(asyncio.CancelledError):
            await each._keep_dialling(member)
        return loop.dialled

    monkeypatch.setattr(peers.asyncio, "sleep", sleep)
    assert asyncio.run(scenario()) == 20
    assert pauses[0] < pauses[-1] == max(pauses) <= 0.25


def test_a_peer_behind_a_silent_cut_is_dialled_again_and_again() -> None:
    """The kernel would try once more after pauses that double: a node that was cut off for a minute came back up to a
    minute after the network."""

    async def scenario() -> None:
        each, member = dialling(dial_ms=10)
        loop = Deaf(asyncio.Event().wait)
        each._loop = cast(Any, loop)
        task = asyncio.create_task(each._keep_dialling(member))
        await asyncio.wait_for(loop.third.wait(), WAIT_S)
        task.cancel()

    asyncio.run(scenario())


def test_a_peer_that_takes_connections_and_says_nothing_is_dialled_again() -> None:
    """The cut fell into the handshake, so what was said is lost. A stranger may have long, a peer may not be silent for
    longer than ``suspect_after_ms``."""

    async def scenario() -> None:
        third, taken = asyncio.Event(), 0

        def take(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal taken
            taken += 1
            if taken == 3:
                third.set()
            writers.append(writer)

        writers: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(take, "127.0.0.1", 0)
        each, member = dialling(server.sockets[0].getsockname()[1], suspect_after_ms=20, handshake_ms=1000 * WAIT_S)
        task = asyncio.create_task(each._keep_dialling(member))
        await asyncio.wait_for(third.wait(), WAIT_S)
        task.cancel()
        each.close()
        for writer in writers:
            writer.close()
        server.close()

    asyncio.run(scenario())
