"""A message larger than a frame goes over a link in parts: it must neither break the link nor hold up others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product

import pytest

from infra.ports import free_ports
from reference_broker.node.config import Limits, Member
from reference_broker.node.links.boot_ids import BootIds
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.frame_parts import Assembly
from reference_broker.node.links.peers import Peers
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import NodeId


class Events:
    """Notes who says what."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []
        self.frames: list[tuple[int, int, bytes]] = []
        self.lost: list[int] = []
        self.up: set[int] = set()
        self.writable = 0
        self.news = asyncio.Event()

    def peer_up(self, node: NodeId, boot_id: int) -> None:
        self.up.add(node)
        self.news.set()

    def peer_down(self, node: NodeId) -> None:
        self.up.discard(node)
        self.lost.append(node)
        self.news.set()

    def peer_alarms(self, node: NodeId, alarms: int) -> None:
        self.heard.append((node, alarms))
        self.news.set()

    def peer_frame(self, node: NodeId, kind: int, body: memoryview) -> None:
        self.frames.append((node, kind, bytes(body)))
        self.news.set()

    def peer_writable(self, node: NodeId) -> None:
        self.writable += 1
        self.news.set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.news.set()

    async def until(self, done: Callable[[], bool]) -> None:
        while not done():
            await asyncio.wait_for(self.news.wait(), 20)
            self.news.clear()


@asynccontextmanager
async def linked(*limits: Limits) -> AsyncIterator[tuple[list[Peers], list[Events]]]:
    """Nodes on this machine, not started yet."""
    ports = free_ports(len(limits))
    members = [Member(node=NodeId(n), name=f"n{n}", host="127.0.0.1", amqp_port=1, peer_port=port, control_port=1)
               for n, port in enumerate(ports, 1)]  # fmt: skip
    events, peers = [Events() for _ in limits], []
    for number, member in enumerate(members):
        files = MemoryFiles()
        files.make_dir("data")
        boots = BootIds(files, "data", (1, 1))
        peers.append(Peers(member, tuple(members), "c", boots, limits[number], events[number], secret=b"s"))
    try:
        yield peers, events
    finally:
        for each in peers:
            each.close()


@asynccontextmanager
async def up(*limits: Limits) -> AsyncIterator[tuple[list[Peers], list[Events]]]:
    """Two nodes whose link stands."""
    async with linked(*limits) as (peers, events):
        for each in peers:
            await each.start()
        for number, each in enumerate(events):
            await each.until(lambda other=2 - number, each=each: other in each.up)  # type: ignore[misc]
        yield peers, events


FRAME = 4096
SMALL_FRAMES = Limits(peer_frame_bytes_max=FRAME)
BIG_FRAMES = Limits(peer_frame_bytes_max=8 * FRAME)


def entries(group: int, octets: bytes) -> list[bytes | memoryview]:
    """Buffers of a message about a group; its first octet stands for the kind of Raft message."""
    return [b"\x05" + group.to_bytes(8, "big"), octets]


@pytest.mark.parametrize("limits", [*product((SMALL_FRAMES, BIG_FRAMES), repeat=2)])
@pytest.mark.parametrize("held", [False, True], ids=["at once", "at the end of a turn"])
def test_what_is_larger_than_a_frame_arrives_whole(limits: tuple[Limits, Limits], held: bool) -> None:
    """A node takes frames up to a size of its own, and a message is as large as a client likes: the link broke, the
    leader sent the same entry again, and the follower never got it."""
    message = bytes(number % 251 for number in range(50 * FRAME + 17))

    async def scenario() -> None:
        async with up(*limits) as (peers, events):
            if held:
                peers[0].holds = True
            peers[0].send(NodeId(2), FrameKind.RAFT, entries(7, message))
            peers[0].send(NodeId(2), FrameKind.PROPOSE, [(7).to_bytes(8, "big"), b"behind"])
            peers[0].send(NodeId(2), FrameKind.RAFT, entries(8, b"small"))
            peers[0].flush() if held else None
            await events[1].until(lambda: len(events[1].frames) == 3)
            assert not events[1].lost
        got = [(kind, body) for _node, kind, body in events[1].frames]
        small = (FrameKind.RAFT, b"".join(entries(8, b"small")))
        large, behind = (FrameKind.RAFT, b"".join(entries(7, message))), (FrameKind.PROPOSE, bytes(7) + b"\x07behind")
        assert sorted(got) == sorted([small, large, behind])
        assert got.index(large) < got.index(behind)

    asyncio.run(scenario())


def test_small_frames_of_others_pass_a_large_message() -> None:
    """The confirms of all other queues on the link would wait for the last octet of it."""

    async def scenario() -> None:
        async with up(SMALL_FRAMES, SMALL_FRAMES) as (peers, events):
            peers[0].send(NodeId(2), FrameKind.RAFT, entries(7, bytes(64 << 20)))
            peers[0].send(NodeId(2), FrameKind.RAFT, entries(7, b"behind"))
            peers[0].send(NodeId(2), FrameKind.RAFT, entries(8, b"small"))
            assert NodeId(2) in peers[0].congested
            await events[1].until(lambda: len(events[1].frames) == 3)
            await events[0].until(lambda: events[0].writable > 0)
            assert not peers[0].congested
        sizes = [len(body) for _node, _kind, body in events[1].frames]
        assert sizes == [9 + 5, 9 + (64 << 20), 9 + 6]

    asyncio.run(scenario())


def test_a_message_without_end_closes_the_link() -> None:
    """Who announces parts and parts again must not fill the memory of the node."""
    assembly = Assembly(10_000)
    for _ in range(3):
        assert assembly.add(memoryview(bytes(3000)), last=False) is None
    with pytest.raises(ValueError, match="more than 10000 octets"):
        assembly.add(memoryview(bytes(3000)), last=False)


def test_many_large_frames_in_one_turn_are_a_reason_to_wait() -> None:
    """A thousand queues that catch up at once would put a thousand frames on a link before it could say anything."""

    async def scenario() -> None:
        limits = Limits()
        async with up(limits, limits) as (peers, events):
            frame = bytes(limits.peer_frame_bytes_max // 2)
            peers[0].holds = True
            sent = 0
            while NodeId(2) not in peers[0].congested:
                sent += peers[0].send(NodeId(2), FrameKind.RAFT, entries(sent + 1, frame))
            assert sent <= 4 * limits.peer_frame_bytes_max
            peers[0].flush()
            await events[0].until(lambda: events[0].writable > 0)
            assert not peers[0].congested

    asyncio.run(scenario())
