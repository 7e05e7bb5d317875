"""Peer links cut a stream into frames: a wrong cut would feed one group's entries to another."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from infra.ports import free_ports
from reference_broker.node.config import Limits, Member
from reference_broker.node.links.boot_ids import BootIds
from reference_broker.node.links.handshake import Handshake, LinkSide
from reference_broker.node.links.peers import FrameReader, Peers
from reference_broker.storage.memory_files import MemoryFiles
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


SECRET = b"s" * 32
WAIT_S = 20


class Events:
    """Notes who says what of its alarms, and whom it reaches."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []
        self.reached: list[tuple[int, frozenset[NodeId]]] = []
        self.news = asyncio.Event()

    def peer_alarms(self, node: NodeId, alarms: int) -> None:
        self.heard.append((node, alarms))
        self.news.set()

    def peer_reaches(self, node: NodeId, reached: frozenset[NodeId]) -> None:
        self.reached.append((node, reached))
        self.news.set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.news.set()

    async def next(self) -> None:
        await asyncio.wait_for(self.news.wait(), WAIT_S)
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
            boots = BootIds(files, "data", (1, 1))
            limits = Limits(heartbeat_ms=5)
            peers.append(Peers(member, members, "c", boots, limits, events[number], secret=b"s"))  # type: ignore[arg-type]
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


class Links:
    """Two or three nodes' links in one process, on real sockets, and who is up for whom."""

    def __init__(self, nodes: int = 2, *, secrets: dict[int, bytes] | None = None, **limits: int) -> None:
        ports = free_ports(nodes)
        self.members = [
            Member(node=NodeId(n), name=f"n{n}", host="127.0.0.1", amqp_port=1, peer_port=ports[n - 1], control_port=1)
            for n in range(1, nodes + 1)
        ]
        self.files = {n: MemoryFiles() for n in range(1, nodes + 1)}
        self.events = {n: Events() for n in range(1, nodes + 1)}
        self._limits = Limits(**limits)
        self._secrets = secrets or {}
        self._boot_ids = dict.fromkeys(self.files, 0)
        self.peers: dict[int, Peers] = {}

    async def start(self, node: int, known_as: tuple[Member, ...] = ()) -> None:
        """A node at its next start; ``known_as`` are the members as it knows them."""
        files = self.files[node]
        files.make_dir("data")
        self._boot_ids[node] += 1
        boots = BootIds(files, "data", (self._boot_ids[node], 1))
        members = known_as or tuple(self.members)
        peers = Peers(
            self.members[node - 1],
            members,
            "c",
            boots,
            self._limits,
            self.events[node],  # type: ignore[arg-type]
            secret=self._secrets.get(node, SECRET),
        )
        self.peers[node] = peers
        await peers.start()

    def written(self, node: int) -> dict[str, Any]:
        """What the node has on disk of the boots of others."""
        files = self.files[node]
        if "lives" not in files.names("data"):
            return {}
        file = files.open("data/lives")
        found: dict[str, Any] = json.loads(file.read(0, file.size()))
        return found

    async def up(self, node: int, other: int) -> None:
        """Once the link is there for both."""
        for here, there in ((node, other), (other, node)):
            while there not in self.peers[here].links:
                await self.events[here].next()

    async def connect(self, node: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.members[node - 1].peer_port)

    def close(self) -> None:
        for peers in self.peers.values():
            peers.close()


@asynccontextmanager
async def links(nodes: int = 2, **choices: Any) -> AsyncIterator[Links]:
    found = Links(nodes, **choices)
    try:
        yield found
    finally:
        found.close()
        await asyncio.sleep(0)


def framed(message: bytes) -> bytes:
    """A message of the handshake as it is on the wire."""
    return struct.pack(">I", 1 + len(message)) + b"\0" + message


async def read_message(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    return (await reader.readexactly(length))[1:]


async def closed(reader: asyncio.StreamReader) -> None:
    """Until the other side has closed; a reset is as good."""
    async with asyncio.timeout(WAIT_S):
        try:
            while await reader.read(4096):
                pass
        except ConnectionResetError:
            pass


def forger(**changes: Any) -> LinkSide:
    """Somebody who knows everything of node 2 but the secret, and says that it is with a later boot id."""
    known = {
        "cluster": "c",
        "node": NodeId(2),
        "peers": {NodeId(1)},
        "secret": b"t" * 32,
        "boot": (1000, 1),
        "frame_max": 4096,
    }
    return LinkSide(**{**known, "known": lambda _node: (1000, 1), "frame_max": 4096, **changes})


def test_peers_tell_whom_they_reach() -> None:
    """At once, whoever comes or goes; the same said again is told to nobody."""

    async def scenario() -> None:
        async with links(3, heartbeat_ms=5) as found:
            events = found.events[1]
            for node in (1, 2, 3):
                await found.start(node)
            while not {(2, frozenset({1, 3})), (3, frozenset({1, 2}))} <= set(events.reached):
                await events.next()
            found.peers[3].links[NodeId(2)].close()
            found.peers[2].close()
            while events.reached[-1] != (3, {1}):
                await events.next()
            assert all(one != other for one, other in pairwise(events.reached))

    asyncio.run(scenario())


def test_a_forged_life_is_neither_believed_nor_written() -> None:
    """One connection of a stranger, and the real node would be shut out for good, or this one stopped."""

    async def scenario() -> None:
        async with links() as found:
            await found.start(1)
            for first_version in (True, False):
                reader, writer = await found.connect(1)
                handshake = Handshake(forger(), bytes(32), NodeId(1))
                if first_version:
                    hello = {"cluster": "c", "node": 2, "incarnation": 1000, "life": [1000, 1], "known": [1000, 1]}
                    writer.write(framed(json.dumps(hello).encode()))
                else:
                    writer.write(framed(handshake.open()))
                    await read_message(reader)
                    writer.write(framed(handshake._prove(b"close", handshake._tell(NodeId(1)))))
                await closed(reader)
                writer.close()
            assert found.written(1) == {}
            await found.start(2)
            await found.up(1, 2)
            assert found.written(1) == {"2": [1, 1]} and found.written(2) == {"1": [1, 1]}
            found.peers[1].close()
            await found.start(1)
            await found.up(1, 2)

    asyncio.run(scenario())


def test_a_recorded_handshake_opens_nothing() -> None:
    """Somebody listened on the network, and says the very same words."""

    async def scenario() -> None:
        async with links() as found:
            await found.start(1)
            side = forger(secret=SECRET, boot=(5, 1), known=lambda _node: None)
            answers: list[bytes] = []
            opening = closing = b""
            for turn in ("the node's first", "the node's next", "recorded"):
                reader, writer = await found.connect(1)
                handshake = Handshake(side, bytes(32), NodeId(1))
                opening = opening if turn == "recorded" else handshake.open()
                writer.write(framed(opening))
                answers.append(await read_message(reader))
                closing = closing if turn == "recorded" else handshake.take(answers[-1])[0]
                writer.write(framed(closing))
                while turn != "recorded" and 2 not in found.peers[1].links:
                    await found.events[1].next()
                assert turn != "recorded" or answers[-1] != answers[-2], "the node asks for the same proof again"
                writer.write_eof()
                await closed(reader)
                writer.close()
                while turn != "recorded" and found.peers[1].links:
                    await found.events[1].next()
            assert not found.peers[1].links

    asyncio.run(scenario())


def test_a_server_that_answers_for_a_node_is_not_believed() -> None:
    """The dialler, too, asks for a proof."""

    async def scenario() -> None:
        async with links() as found:
            taken = asyncio.Event()

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                handshake = Handshake(forger(node=NodeId(1), peers={NodeId(2)}), bytes(32), None)
                writer.write(framed(handshake.take(await read_message(reader))[0]))
                await closed(reader)
                writer.close()
                taken.set()

            server = await asyncio.start_server(answer, "127.0.0.1", found.members[0].peer_port)
            await found.start(2)
            await asyncio.wait_for(taken.wait(), WAIT_S)
            server.close()
            assert found.written(2) == {} and not found.peers[2].links

    asyncio.run(scenario())


def test_nodes_with_different_secrets_stay_apart_and_say_so_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """Each goes on, and neither fills its log with the other's tries."""

    async def scenario() -> None:
        async with links(3, secrets={2: b"t" * 32}) as found:
            tries = 0
            for node in (1, 3, 2):
                await found.start(node)
            complain = found.peers[2].complain

            def counted(of: NodeId, text: str) -> None:
                nonlocal tries
                tries += 1
                complain(of, text)
                found.events[2].news.set()

            found.peers[2].complain = counted  # type: ignore[method-assign]
            await found.up(1, 3)
            while tries < 5:
                await found.events[2].next()
            assert not found.peers[2].links
            assert found.written(2) == {} and "2" not in found.written(1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    refused = [line for line in caplog.messages if "link to node 1" in line and "another secret" in line]
    assert len(refused) == 1


def test_a_node_that_is_somebody_else_is_not_let_in() -> None:
    """Node 3 has the secret and the ports of 1 and 2 the wrong way round."""

    async def scenario() -> None:
        async with links(3) as found:
            one, two, three = found.members
            crossed = (
                Member(**{**_plain(one), "peer_port": two.peer_port}),
                Member(**{**_plain(two), "peer_port": one.peer_port}),
                three,
            )
            for node in (1, 2):
                await found.start(node)
            await found.up(1, 2)
            await found.start(3, crossed)
            refused = {1: 0, 2: 0}

            def complain(of: NodeId, _text: str) -> None:
                refused[of] += 1
                found.events[3].news.set()

            found.peers[3].complain = complain  # type: ignore[method-assign]
            while not all(refused.values()):
                await found.events[3].next()
            assert not found.peers[3].links and found.written(3) == {}
            assert all("3" not in found.written(node) for node in (1, 2))

    asyncio.run(scenario())


def _plain(member: Member) -> dict[str, Any]:
    return {name: getattr(member, name) for name in Member.__slots__}


@pytest.mark.parametrize(
    "begins", [b"", b"\0\0\0", struct.pack(">I", 300) + b"\0{"], ids=["nothing", "a length", "half"]
)
def test_who_does_not_finish_the_handshake_is_dropped(begins: bytes) -> None:
    """And a node that connects to such a server tries again."""

    async def scenario() -> None:
        async with links(handshake_ms=20) as found:
            await found.start(1)
            reader, writer = await found.connect(1)
            writer.write(begins)
            await closed(reader)
            writer.close()
            assert not found.peers[1]._strangers

    asyncio.run(scenario())


def test_many_who_only_connect_keep_no_peer_out() -> None:
    """The oldest of them has to go; a peer is done in a moment."""

    async def scenario() -> None:
        async with links(handshake_ms=60_000, strangers_max=3) as found:
            await found.start(1)
            crowd = [await found.connect(1) for _ in range(5)]
            for reader, _ in crowd[:2]:
                await closed(reader)
            await found.start(2)
            await found.up(1, 2)
            await closed(crowd[2][0])
            assert len(found.peers[1]._strangers) == 2
            for _, writer in crowd:
                writer.close()

    asyncio.run(scenario())


def test_who_cannot_be_reached_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """A node may be down for weeks, and is dialled every second. The event loop makes a protocol for each try, whether
    or not there is ever a connection."""

    async def scenario() -> None:
        async with links(handshake_ms=1) as found:
            await found.start(2)
            tries, tried = 0, asyncio.Event()
            handshake = found.peers[2].handshake

            def counted(dialled: NodeId | None) -> Handshake:
                nonlocal tries
                tries += 1
                tried.set()
                return handshake(dialled)

            found.peers[2].handshake = counted  # type: ignore[method-assign]
            while tries < 3:
                tried.clear()
                await asyncio.wait_for(tried.wait(), WAIT_S)
            assert not found.peers[2]._open

    with caplog.at_level(logging.WARNING):
        uvloop.run(scenario())
    assert not caplog.messages


def test_a_stranger_may_not_announce_a_long_frame() -> None:
    """Only a peer may make the node keep megabytes."""

    async def scenario() -> None:
        async with links() as found:
            await found.start(1)
            reader, writer = await found.connect(1)
            writer.write(struct.pack(">I", 1 << 20) + b"\0")
            await closed(reader)
            writer.close()

    asyncio.run(scenario())
