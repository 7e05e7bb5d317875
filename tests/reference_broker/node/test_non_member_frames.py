"""What the leader tells the clients of a node without a member arrives there, in frames of a bounded size."""

from __future__ import annotations

from typing import Any

import pytest

from reference_broker.message_run import MessageRun
from reference_broker.node.replication import non_members
from reference_broker.node.replication.non_members import NonMember
from reference_broker.types import GET_TAG, ChannelId, ConsumerId, GroupId, NodeId

KB = 1024
CONSUMER = ConsumerId(ChannelId(NodeId(4), 1, 2, 3), "tag")


class Link:
    """Keeps the frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.congested: set[NodeId] = set()

    def send(self, _node: NodeId, _kind: int, buffers: list[bytes | memoryview]) -> int:
        self.frames.append(b"".join(buffers))
        return len(self.frames[-1])


class Clients:
    """Keeps what they are told."""

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.lost: list[tuple[ConsumerId, int]] = []

    def takes(self, _group: GroupId, _consumer: ConsumerId, _last: int) -> bool:
        return True

    def missed(self, _group: GroupId, consumer: ConsumerId, last: int) -> None:
        self.lost.append((consumer, last))

    def deliver(self, _group: GroupId, _consumer: ConsumerId, first_id: int, pieces: list[Any], _count: int) -> None:
        for run, start, count, step in pieces:
            for number in range(count):
                self.got.append((first_id, run.content(start + number * step)))
                first_id += 1


def ragged(sizes: list[int]) -> MessageRun:
    return MessageRun.of(b"\0\0", [bytes([number % 256]) * size for number, size in enumerate(sizes)])


UNIFORM = MessageRun(40, b"\0\0", b"".join(bytes([number]) * 100 * KB for number in range(40)), 100 * KB)
MIXED = ragged([300 * KB, 10, 900 * KB, 3000 * KB, 0, 1, 800 * KB, 800 * KB])


@pytest.mark.parametrize(
    "piece", [(UNIFORM, 0, 40, 1), (UNIFORM, 3, 12, 3), (MIXED, 0, 8, 1), (MIXED, 1, 3, 2), (MIXED, 3, 1, 1)]
)
def test_a_delivery_of_many_octets_goes_in_several_frames(piece: tuple[MessageRun, int, int, int]) -> None:
    """A run that an earlier version wrote holds a thousand dead letters of 256 KiB."""
    run, start, count, step = piece
    link, clients = Link(), Clients()
    non_member = NonMember(GroupId(7), NodeId(4), 1, link)
    non_member.deliver(GroupId(7), CONSUMER, 10, [piece, (MIXED, 5, 1, 1)], 0)
    non_member.flush()
    largest = max(run.content_size(start + number * step) for number in range(count))
    assert all(len(frame) <= 1024 * KB + max(largest, 1024 * KB) + KB for frame in link.frames)
    for frame in link.frames:
        group, effects = non_members.unpack_effects(memoryview(frame))
        non_members.call_channels(clients, group, effects)  # type: ignore[arg-type]
    expected = [run.content(start + number * step) for number in range(count)] + [MIXED.content(5)]
    assert clients.got == list(enumerate(expected, 10))


def test_what_a_congested_link_does_not_take_is_told_behind_what_waits_there() -> None:
    """The non-member asks for it when the link has room again: asking earlier would find the link congested again."""
    link, clients = Link(), Clients()
    non_member = NonMember(GroupId(7), NodeId(4), 1, link)
    getter = ConsumerId(CONSUMER.channel, GET_TAG)
    assert non_member.takes(GroupId(7), CONSUMER, 19)
    non_member.deliver(GroupId(7), CONSUMER, 10, [(ragged([5, 6]), 0, 2, 1)], 0)
    link.congested.add(NodeId(4))
    assert not non_member.takes(GroupId(7), CONSUMER, 19)
    assert non_member.takes(GroupId(7), getter, 19), "its client waits"
    non_member.flush()
    _group, effects = non_members.unpack_effects(memoryview(link.frames[0]))
    non_members.call_channels(clients, GroupId(7), effects)  # type: ignore[arg-type]
    assert (clients.got, clients.lost) == ([(10, bytes(5)), (11, b"\1" * 6)], [(CONSUMER, 19)])
