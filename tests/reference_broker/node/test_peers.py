"""Peer links cut a stream into frames: a wrong cut would feed one group's entries to another."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.ports import free_ports
from reference_broker.log.memory_files import MemoryFiles
from reference_broker.node.config import Limits, Member
from reference_broker.node.lives import Lives
from reference_broker.node.peers import FrameReader, Peers
from reference_broker.types import NodeId


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.lists(st.integers(1, 700), max_size=30))
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
    reader, seen = FrameReader(1000), []
    at = 0
    for cut in [*cuts, len(stream)]:
        if at < len(stream):
            reader.feed(stream[at : at + cut], lambda body: seen.append(bytes(body)))
            at += cut
    assert seen == bodies


@pytest.mark.parametrize("length", [0, 1001, 0xFFFFFFFF])
def test_an_absurd_length_is_refused_before_anything_is_allocated(length: int) -> None:
    with pytest.raises(ValueError, match="announced"):
        FrameReader(1000).feed(struct.pack(">I", length) + b"x", lambda body: None)


class Events:
    """Notes who says what of its alarms."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []
        self.news = asyncio.Event()

    def peer_alarms(self, node: NodeId, alarms: int) -> None:
        self.heard.append((node, alarms))
        self.news.set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.news.set()

    async def next(self) -> None:
        await asyncio.wait_for(self.news.wait(), 20)
        self.news.clear()


def test_alarms_travel_with_heartbeats() -> None:
    """A peer hears of an alarm at once, when the link comes up later too, and of its end; an unchanged one is told to
    nobody with each heartbeat."""

    async def scenario() -> None:
        ports = free_ports(2)
        members = [Member(node=NodeId(n), name=f"n{n}", host="127.0.0.1", amqp_port=1, peer_port=ports[n - 1],
                          control_port=1) for n in (1, 2)]  # fmt: skip
        events = [Events(), Events()]
        peers = []
        for number, member in enumerate(members):
            files = MemoryFiles()
            files.make_dir("data")
            lives = Lives(files, "data", (1, 1))
            peers.append(Peers(member, members, "c", lives, Limits(heartbeat_ms=5), events[number]))  # type: ignore[arg-type]
        try:
            peers[0].tell_alarms(2)
            for each in peers:
                await each.start()
            while not events[1].heard:
                await events[1].next()
            peers[0].tell_alarms(3)
            while len(events[1].heard) < 2:
                await events[1].next()
            peers[0].tell_alarms(0)
            while len(events[1].heard) < 3:
                await events[1].next()
            peers[1].tell_alarms(1)
            while not events[0].heard:
                await events[0].next()
        finally:
            for each in peers:
                each.close()
        assert events[1].heard == [(1, 2), (1, 3), (1, 0)]
        assert events[0].heard == [(2, 1)]

    asyncio.run(scenario())
