"""A peer that has proved who it is may still send damaged frames: they cost its link, and never the node.

A whole node, a follower of its metadata group, in one thread; the frames come as the link would hand them over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.config import Member, NodeConfig
from reference_broker.node.endpoints import control
from reference_broker.node.links.boot_ids import BootIds
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.peer_requests import Answer
from reference_broker.node.shard import Shard
from reference_broker.raft import wire
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import METADATA_GROUP, GroupId, NodeId
from tests.examples import dear

FOR_THE_NODE = sorted(
    frozenset(FrameKind) - {FrameKind.HELLO, FrameKind.HEARTBEAT, FrameKind.PART, FrameKind.LAST_PART}
)
"""What a link hands to the node; the others it keeps to itself."""
PEER = NodeId(2)
GROUP = GroupId(7)
TURNS = 8


class Node:
    """Node 1 of so many."""

    def __init__(self, nodes: int = 3) -> None:
        members = tuple(
            Member(node=NodeId(n), name=f"n{n}", host="127.0.0.1", amqp_port=1, peer_port=2, control_port=3)
            for n in range(1, nodes + 1)
        )
        config = NodeConfig(
            name="n1",
            node=NodeId(1),
            cluster="c",
            members=members,
            data_dir=Path("data"),
            wal_dir=Path("wal"),
            segment_dir=Path("segments"),
            logs_dir=Path("logs"),
            classic_dir=Path("data/classic"),
            users={},
            secret=b"s" * 32,
        )
        self.failures: list[str] = []
        self.files = MemoryFiles()
        self.asked: list[bytes] = []
        """Numbers of what it asked its peer."""
        self.shard = Shard(config, 1, self.failures.append, files=self.files, threads=False)
        self.shard.send = self.shard.peers.send = self._sent  # type: ignore[method-assign]
        if nodes > 1:
            self.shard.peer_up(PEER, 1)

    @staticmethod
    def operations() -> list[str]:
        """What one node may ask another."""

        async def scenario() -> list[str]:
            return list(Node().shard.peer_answers.methods)

        return asyncio.run(scenario())

    async def take(self, kind: int, body: bytes) -> bool:
        """Whether the frame could be read; all that follows from it has happened."""
        try:
            self.shard.peer_frame(PEER, kind, memoryview(body))
        except ValueError:
            return False
        await self.settle()
        return True

    def _sent(self, _node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> bool:
        if kind is FrameKind.REQUEST:
            self.asked.append(bytes(buffers[0]))
        return True

    async def settle(self) -> None:
        """All that follows happens."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            self.shard.log.run_pending()

    async def lead(self, queue: str) -> None:
        """The only node leads its metadata, and a queue."""
        self.shard.runners[METADATA_GROUP].lead_if_nobody_does()
        await self.settle()
        self.shard.declare(self.shard.place(QueueRecord(name=queue, group=GROUP, members=())), lambda _queue: None)
        await self.settle()
        assert queue in self.shard.queues

    def ask(self, **request: object) -> list[Answer]:
        """What an operator's request came to, in time."""
        answers: list[Answer] = []
        self.shard.operations.answer(request, answers.append)
        return answers


def play(frames: list[tuple[int, bytes]]) -> tuple[list[bool], list[str]]:
    """Which of them could be read, and why the node stopped."""

    async def scenario() -> tuple[list[bool], list[str]]:
        node = Node()
        taken = [await node.take(kind, body) for kind, body in frames]
        node.shard.close()
        return taken, node.failures

    return asyncio.run(scenario())


NUMBER = bytes(4)
KEYS = ("group", "queue", "node", "life", "queues", "member", "voters", "index", "raft_state", "error", "fix", "count")
NUMBERS = [number.to_bytes(size, "big") for size in (1, 2, 4, 8) for number in (0, 1, 2, 3, 256**size - 1)]
BODIES = st.one_of(st.binary(max_size=120), st.lists(st.sampled_from(NUMBERS), max_size=24).map(b"".join))
"""Anything, or numbers of which many are those of groups, terms, nodes and indexes that are there."""


@pytest.mark.parametrize("kind", FOR_THE_NODE, ids=lambda kind: kind.name)
@dear(25)
@given(bodies=st.lists(BODIES, max_size=8))
def test_noise_costs_no_node(kind: FrameKind, bodies: list[bytes]) -> None:
    assert play([(kind, body) for body in bodies])[1] == []


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 3), st.just(2**70), st.sampled_from(("", "q", "leader"))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=6,
)


MEMBER = {
    "raft_state": "leader", "membership": "voter", "voters": [1, 2],
    **dict.fromkeys(("last_log_index", "last_written", "last_applied", "commit_index", "snapshot_index", "term",
                     "machine_version"), 1),
}  # fmt: skip
SHAPED = st.dictionaries(st.sampled_from([*MEMBER, "groups", "ok"]), JSON, max_size=4).map(
    lambda lie: {**MEMBER, **lie}
)
OPERATORS = [
    {"op": "quorum-status", "queue": "q"},
    {"op": "transfer-leader", "queue": "q", "node": "n2"},
    {"op": "rebalance"},
]


@pytest.mark.parametrize("op", sorted(Node.operations()))
@dear(25)
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6))
def test_a_request_that_makes_no_sense_is_refused(op: str, more: dict[str, object]) -> None:
    body = NUMBER + json.dumps({**more, "op": op}).encode()
    assert play([(FrameKind.REQUEST, body)])[1] == []


def test_a_request_that_is_too_deep_to_read_is_damaged() -> None:
    assert play([(FrameKind.REQUEST, NUMBER + b"[" * 100_000)]) == ([False], [])


N64 = st.sampled_from((0, 1, 2, 3, 2**31, 2**63, 2**64 - 1))
N32 = st.sampled_from((0, 1, 2, 3, 2**31, 2**32 - 1))
FLAG = st.booleans()
LYING_MESSAGES = st.one_of(
    st.builds(AppendEntries, term=N64, leader=N32, prev_index=N64, prev_term=N64, commit=N64),
    st.builds(AppendReply, term=N64, success=FLAG, next_index=N64, synced_index=N64, synced_term=N64),
    st.builds(PreVoteRequest, term=N64, token=N64, candidate=N32, last_index=N64, last_term=N64, machine_version=N32),
    st.builds(PreVoteReply, term=N64, token=N64, granted=FLAG),
    st.builds(VoteRequest, term=N64, candidate=N32, last_index=N64, last_term=N64, transfer=FLAG),
    st.builds(VoteReply, term=N64, granted=FLAG),
    st.builds(InstallSnapshot, term=N64, leader=N32, index=N64, index_term=N64, number=N32, last=FLAG,
              data=st.binary(max_size=20)),
    st.builds(InstallReply, term=N64, index=N64, number=N32, done=FLAG),
    st.builds(Heartbeat, term=N64, leader=N32, round=N64),
    st.builds(HeartbeatReply, term=N64, round=N64),
    st.builds(TimeoutNow, term=N64, leader=N32),
)  # fmt: skip


@given(st.lists(LYING_MESSAGES, max_size=6))
def test_a_well_formed_lie_is_at_most_a_contradiction(messages: list[Message]) -> None:
    """Who has the secret is believed. What cannot be true of any leader stops the node before it serves anybody, and
    says so; nothing else may come of it."""
    frames = [(FrameKind.RAFT, b"".join(map(bytes, wire.encode(METADATA_GROUP, message)))) for message in messages]
    _, failures = play([(int(kind), body) for kind, body in frames])
    assert all("SafetyViolationError" in failure for failure in failures), failures


def test_what_a_node_must_remember_can_be_read_again() -> None:
    """A boot id beyond what a file may hold would keep the node from starting."""

    async def scenario() -> None:
        node = Node()
        for life in (2**70, -1, True, 5):
            await node.take(FrameKind.REQUEST, NUMBER + json.dumps({"op": "outlive", "node": 3, "life": life}).encode())
        await node.take(FrameKind.REQUEST, NUMBER + json.dumps({"op": "outlive", "node": 9, "life": 5}).encode())
        node.shard.close()
        again = BootIds(node.files, "data", (2, 1))
        (life, _), stranger = again.known(NodeId(3)) or (0, 0), again.known(NodeId(9))
        assert (life, stranger) == (5, None)

    asyncio.run(scenario())


@pytest.mark.parametrize("request_", OPERATORS, ids=lambda each: each["op"])
@dear(25)
@given(st.one_of(JSON, SHAPED))
def test_an_answer_that_makes_no_sense_is_an_error_for_who_asked(request_: dict[str, str], lie: object) -> None:
    """What a peer says is looked at later, where an exception would stop the node."""

    async def scenario() -> None:
        node = Node()
        node.shard.metadata.machine.queues["q"] = QueueRecord(name="q", group=GROUP, members=(NodeId(1), PEER))
        answers = node.ask(**request_)
        assert node.asked
        while node.asked:
            await node.take(FrameKind.ANSWER, node.asked.pop(0) + json.dumps(lie).encode())
        assert answers or not isinstance(lie, dict) or "raft_state" in lie
        node.shard.close()
        assert node.failures == []

    asyncio.run(scenario())


@pytest.mark.parametrize("op", ["add-member", "clear-policy", "quorum-status", "rebalance", "remove-member",
                                "replace-node", "set-policy", "transfer-leader"])  # fmt: skip
@dear(25)
@given(st.dictionaries(st.sampled_from((*KEYS, "name", "pattern", "definition", "priority")), JSON, max_size=6))
def test_no_request_of_an_operator_stops_a_node(op: str, more: dict[str, object]) -> None:
    """Once it is in the log of the metadata it would stop every node, at every start."""

    async def scenario() -> None:
        node = Node(1)
        await node.lead("q")
        with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError):  # the control port answers these
            node.ask(**{**more, "op": op})
        await node.settle()
        node.shard.close()
        assert node.failures == []

    asyncio.run(scenario())


def test_a_request_at_the_control_port_that_is_too_deep_to_read_is_answered() -> None:
    answer = asyncio.run(control.respond(None, b"[" * 60_000))  # type: ignore[arg-type]
    assert "no JSON object" in answer["error"]
