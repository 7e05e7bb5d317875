"""The ring's outputs as frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reference_broker.mirroring.ring import Ack, Content, Output, Subscribe
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.owned.mirror_frames import RingNote, pack_note, pack_ring
from reference_broker.types import GroupId, NodeId


class PeerLinks(Protocol):
    """The links to the peers."""

    def send(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        """Queue a message for a peer; returns its octets, 0 while the peer is down."""


def send_outputs(links: PeerLinks, group: GroupId, outputs: Sequence[Output]) -> None:
    """Send the outputs of a member of the ring."""
    for output in outputs:
        match output:
            case Content(to, view, number, payload):
                links.send(to, FrameKind.RING, [pack_ring(group, view, number), payload])
            case Subscribe(to, view, last):
                links.send(to, FrameKind.NOTE, [pack_note(group, RingNote.SUBSCRIBE, view, last)])
            case Ack(to, view, number):
                links.send(to, FrameKind.NOTE, [pack_note(group, RingNote.ACK, view, number)])
