"""A question that the queue has applied is asked again until its reply comes: the leader asked may be gone by then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.machines.batch import decode_batch
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import Checkout, Settle
from reference_broker.node.config import Limits
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.replication.non_members import NonMember, unpack_catch_up
from reference_broker.node.replication.proxy import Proxy
from reference_broker.queues.quorum import QUORUM
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId, Priority, Term

FIRST, ME, SECOND = NodeId(1), NodeId(2), NodeId(3)
CHANNEL = ChannelId(ME, 1, 1, 1)
RECORD = QueueRecord(name="q", group=GroupId(7), members=(FIRST, SECOND), leader=FIRST)
CONSUMER = ConsumerId(CHANNEL, "c")
QUESTION, SETTLE = Checkout(CONSUMER, 10, False, 0, correlation=5), Settle(CONSUMER, ((0, 0),))


class Node:
    """The node of the client that asks, and keeps what it asks whom."""

    node, boot_id, limits, congested = ME, 1, Limits(), frozenset[NodeId]()
    anatomy = Anatomy(clock=1)

    def __init__(self) -> None:
        self.asked: list[tuple[NodeId, list[Any]]] = []
        self.proxy = Proxy(RECORD, QUORUM, self, lambda: 0)  # type: ignore[arg-type]
        for command in (SETTLE, QUESTION):
            self.proxy.propose(command, 1, Priority.NORMAL)

    def send(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        if kind is FrameKind.CATCH_UP:
            batch = unpack_catch_up(memoryview(b"".join(buffers)))[-1]
            self.asked.append((node, [command for _offset, command in decode_batch(batch)[1]] if batch else []))
        return 1

    def now_ns(self) -> int:
        return 1

    def wake(self, *_: Any) -> None: ...

    def hears(self, leader: NodeId, correlation: int) -> None:
        """The leader replies to a question of the channel."""
        frames: list[bytes] = []
        links = SimpleNamespace(send=lambda _node, _kind, buffers: frames.append(b"".join(buffers)))
        there = NonMember(RECORD.group, ME, 1, links)  # type: ignore[arg-type]
        there.reply(CHANNEL, correlation, 0)
        there.flush()
        clients: Any = SimpleNamespace(reply=lambda *_: None)
        for frame in frames:
            self.proxy.effects(leader, memoryview(frame)[8:], clients)

    @property
    def unapplied(self) -> list[Any]:
        return [command for each in self.proxy.unapplied for _number, command, _octets in each.all()]


@pytest.fixture
def node() -> Node:
    return Node()


def test_the_next_leader_is_asked_what_the_last_one_did_not_answer(node: Node) -> None:
    """In the simulator's world 2100158 the first leader had just handed over to the second one, and a consumer waited
    for 30 s."""
    node.proxy.leading(FIRST, Term(1), 2, 0)
    node.proxy.leading(SECOND, Term(2), 2, 0)
    assert node.asked == [(FIRST, [QUESTION]), (SECOND, [QUESTION])]
    assert node.unapplied == []


def test_a_reply_ends_the_question(node: Node) -> None:
    node.proxy.leading(FIRST, Term(1), 2, 0)
    node.hears(FIRST, 4)
    node.proxy.leading(FIRST, Term(1), 2, 0)
    node.hears(FIRST, 5)
    node.proxy.leading(SECOND, Term(2), 2, 0)
    assert [asked for _leader, asked in node.asked] == [[QUESTION], [QUESTION], []]


def test_a_leader_that_has_applied_less_gets_the_question_once_more(node: Node) -> None:
    """It leads a log that holds the command, and replies when it applies the command."""
    node.proxy.leading(FIRST, Term(1), 2, 0)
    node.proxy.leading(SECOND, Term(2), 1, 0)
    assert node.asked[-1] == (SECOND, [])
    assert node.unapplied == [QUESTION]


def test_a_member_that_takes_the_place_of_the_proxy_answers(node: Node) -> None:
    node.proxy.leading(FIRST, Term(1), 2, 0)
    node.proxy.stop()
    assert node.unapplied == [QUESTION]
