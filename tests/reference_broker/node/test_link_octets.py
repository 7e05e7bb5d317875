"""Octets to each peer by purpose."""

from __future__ import annotations

from reference_broker.node.link_octets import LinkOctets
from reference_broker.node.peers import FrameKind
from reference_broker.raft import wire
from reference_broker.raft.messages import Heartbeat, InstallSnapshot
from reference_broker.types import GroupId, LogIndex, NodeId, Term

GROUP, PEER, OTHER = GroupId(7), NodeId(2), NodeId(3)


def test_each_frame_counts_for_its_peer_and_purpose() -> None:
    links = LinkOctets({})
    heartbeat = Heartbeat(Term(1), NodeId(1), 1)
    chunk = InstallSnapshot(
        term=Term(1), leader=NodeId(1), index=LogIndex(5), index_term=Term(1), number=1, last=True, data=b"state"
    )
    links.count(PEER, FrameKind.RAFT, wire.encode(GROUP, heartbeat), 40)
    links.count(PEER, FrameKind.RAFT, wire.encode(GROUP, heartbeat), 2)
    links.count(PEER, FrameKind.RAFT, wire.encode(GROUP, chunk), 500)
    links.count(PEER, FrameKind.PROPOSE, [GROUP.to_bytes(8, "big")], 300)
    links.count(OTHER, FrameKind.EFFECTS, [GROUP.to_bytes(8, "big")], 90)
    links.count(OTHER, FrameKind.REQUEST, [b"what"], 8)
    assert links.by_purpose() == {
        PEER: {"raft": 42, "snapshot": 500, "proxied": 300},
        OTHER: {"proxied": 90, "other": 8},
    }
    assert not links.sent, "a queue that is gone has no kind"
