"""A cluster that starts again has no leader before its links are up: how soon a node tries its peers once more."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from reference_broker.node import peers
from reference_broker.node.boot_ids import BootIds
from reference_broker.node.config import Limits, Member
from reference_broker.node.peers import Peers
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import NodeId


def two_members() -> tuple[Member, ...]:
    return tuple(
        Member(node=NodeId(n), name=f"n{n}", host="127.0.0.1", amqp_port=1, peer_port=1, control_port=1) for n in (1, 2)
    )


def dialler(members: tuple[Member, ...], limits: Limits) -> Peers:
    """The links of the node that dials the other."""
    files = MemoryFiles()
    files.make_dir("data")
    return Peers(members[1], members, "c", BootIds(files, "data", (1, 1)), limits, cast(Any, None), b"s" * 32)


class Deaf:
    """An event loop on which nobody answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.dialled = 0

    async def create_connection(self, *_: Any) -> Any:
        self.dialled += 1
        raise ConnectionRefusedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def test_a_peer_that_starts_late_is_dialled_within_a_quarter_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes were killed and start again, one a second behind the others: a pause that has grown to a second by then
    is a second more without a confirm."""
    pauses: list[float] = []
    members = two_members()

    async def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 20:
            raise asyncio.CancelledError

    async def scenario() -> int:
        each = dialler(members, Limits())
        loop = Deaf(asyncio.get_running_loop())
        each._loop = cast(Any, loop)
        with pytest.raises(asyncio.CancelledError):
            await each._keep_dialling(members[0])
        return loop.dialled

    monkeypatch.setattr(peers.asyncio, "sleep", sleep)
    assert asyncio.run(scenario()) == 20
    assert pauses[0] < pauses[-1] == max(pauses) <= 0.25


class Silent(Deaf):
    """An event loop whose packets go nowhere."""

    async def create_connection(self, *_: Any) -> Any:
        self.dialled += 1
        if self.dialled == 4:
            raise asyncio.CancelledError
        await asyncio.Event().wait()


def test_a_peer_that_was_cut_off_in_silence_is_dialled_again() -> None:
    """The kernel repeats its first packet ever more seldom: after a cut of a minute the node would come back half a
    minute after the heal, and its clients would hang all that time."""

    async def scenario() -> int:
        members = two_members()
        each = dialler(members, Limits(dial_ms=1))
        each._loop = cast(Any, silent := Silent(asyncio.get_running_loop()))
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(60):
                await each._keep_dialling(members[0])
        return silent.dialled

    assert asyncio.run(scenario()) == 4
