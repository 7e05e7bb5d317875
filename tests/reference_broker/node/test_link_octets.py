"""Octets to each peer by purpose."""

from __future__ import annotations

from zlib import crc32

import pytest

from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.link_octets import PURPOSES, LinkOctets, purpose_of
from reference_broker.raft import wire
from reference_broker.raft.messages import AppendEntries, Heartbeat, InstallSnapshot, Message
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term

GROUP, PEER, OTHER = GroupId(7), NodeId(2), NodeId(3)


def entries(count: int) -> AppendEntries:
    """An AppendEntries with as many small entries."""
    made = tuple(Entry(LogIndex(at), Term(1), EntryKind.COMMAND, crc32(b"x"), b"x") for at in range(2, count + 2))
    return AppendEntries(
        term=Term(1), leader=NodeId(1), prev_index=LogIndex(1), prev_term=Term(1), commit=LogIndex(1), entries=made
    )


CHUNK = InstallSnapshot(
    term=Term(1), leader=NodeId(1), index=LogIndex(5), index_term=Term(1), number=1, last=True, data=b"state"
)
RAFT: list[tuple[Message, str]] = [
    (entries(2), "replication"),
    (entries(0), "consensus"),
    (Heartbeat(Term(1), NodeId(1), 1), "consensus"),
    (CHUNK, "snapshot"),
]
OTHERS = [
    (FrameKind.PROPOSE, "commands"),
    (FrameKind.ATTACH, "commands"),
    (FrameKind.CATCH_UP, "commands"),
    (FrameKind.LEADING, "deliveries"),
    (FrameKind.EFFECTS, "deliveries"),
    (FrameKind.APPLIED, "deliveries"),
    (FrameKind.RING, "ring"),
    (FrameKind.NOTE, "ring"),
    (FrameKind.COPY, "mirror"),
    (FrameKind.FILL, "sync"),
    (FrameKind.REQUEST, "control"),
    (FrameKind.ANSWER, "control"),
]


@pytest.mark.parametrize(("message", "purpose"), RAFT)
def test_a_notice_of_a_commit_is_no_replication(message: Message, purpose: str) -> None:
    """An idle queue sends notices and heartbeats; as replication they would look like messages."""
    assert purpose_of(FrameKind.RAFT, wire.encode(GROUP, message)[0]) == purpose


@pytest.mark.parametrize(("kind", "purpose"), OTHERS)
def test_proxied_frames_are_known_by_their_direction(kind: FrameKind, purpose: str) -> None:
    """Whoever moves a publisher wants to know what publishers cost, apart from consumers and mirrors."""
    assert purpose_of(kind, GROUP.to_bytes(8, "big")) == purpose


def test_each_frame_counts_for_its_peer_and_purpose() -> None:
    links = LinkOctets({})
    for octets in (40, 2):
        links.count(PEER, FrameKind.RAFT, wire.encode(GROUP, entries(0)), octets)
    links.count(PEER, FrameKind.RAFT, wire.encode(GROUP, CHUNK), 500)
    links.count(PEER, FrameKind.PROPOSE, [GROUP.to_bytes(8, "big")], 300)
    links.count(OTHER, FrameKind.EFFECTS, [GROUP.to_bytes(8, "big")], 90)
    links.count(OTHER, FrameKind.REQUEST, [b"what"], 8)
    assert links.by_purpose() == {
        PEER: {"consensus": 42, "snapshot": 500, "commands": 300},
        OTHER: {"deliveries": 90, "control": 8},
    }
    assert links.sent[PEER, "consensus"].frames == 2
    assert not links.proxied, "a queue that is gone has no kind"


def test_every_purpose_is_told() -> None:
    """The metrics have a sample for each of these, also before the first frame."""
    assert {purpose for _, purpose in (*RAFT, *OTHERS)} == set(PURPOSES)
