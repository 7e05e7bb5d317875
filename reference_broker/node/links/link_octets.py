"""The octets and frames that this node sends to each peer, by purpose.

========================  ==================================================================================
purpose                   frames
========================  ==================================================================================
``replication``           AppendEntries with entries
``consensus``             all other Raft messages but snapshots: votes, replies, questions, notices of commits
``snapshot``              parts of whole states, for followers that are far behind
``commands``              to the leader or owner of a queue: publishes, acknowledgements, and requests of clients
``deliveries``            back to a node without a member: deliveries, confirms, and answers
``ring``                  batches of a mirrored queue on their way round the ring, and the notes of its members
``mirror``                publishes straight from their node to a mirror
``sync``                  messages for a mirror that is being synchronised
``control``               requests about queues and metadata, and their answers
========================  ==================================================================================

*Commands* and *deliveries* are proxied: a client is on another node than the leader or owner. Of these frames the kind
of queue is known, too. Each node counts its own frames, so the figures of both ends are the two directions of a link.
Handshakes and heartbeats do not count: they cost the same whatever the load is.

Back of the envelope: a lookup and two additions for a frame, a lookup and an addition more for a proxied frame, and a
frame carries a whole batch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.queues.port import Queue
from reference_broker.raft.wire import has_entries, is_snapshot
from reference_broker.types import GroupId, NodeId

REPLICATION: Final = "replication"
CONSENSUS: Final = "consensus"
SNAPSHOT: Final = "snapshot"
COMMANDS: Final = "commands"
DELIVERIES: Final = "deliveries"
RING: Final = "ring"
MIRROR: Final = "mirror"
SYNC: Final = "sync"
CONTROL: Final = "control"
PURPOSES: Final = (REPLICATION, CONSENSUS, SNAPSHOT, COMMANDS, DELIVERIES, RING, MIRROR, SYNC, CONTROL)
_PROXIED: Final = {
    FrameKind.PROPOSE: COMMANDS,
    FrameKind.ATTACH: COMMANDS,
    FrameKind.CATCH_UP: COMMANDS,
    FrameKind.LEADING: DELIVERIES,
    FrameKind.EFFECTS: DELIVERIES,
    FrameKind.APPLIED: DELIVERIES,
}
"""The frames of requests and results. Each names the group of its queue in its first octets."""
_MIRRORED: Final = {
    FrameKind.RING: RING,
    FrameKind.NOTE: RING,
    FrameKind.COPY: MIRROR,
    FrameKind.FILL: SYNC,
}
_GROUP_OCTETS: Final = 8


def purpose_of(kind: FrameKind, head: bytes | memoryview) -> str:
    """The purpose of a frame. ``head``: its first octets, with the table of entries of an AppendEntries."""
    if kind is FrameKind.RAFT:
        if has_entries(head):
            return REPLICATION
        return SNAPSHOT if is_snapshot(head) else CONSENSUS
    return _PROXIED.get(kind) or _MIRRORED.get(kind, CONTROL)


@dataclass(slots=True)
class Sent:
    """The frames and octets sent to one peer for one purpose."""

    frames: int = 0
    octets: int = 0


class LinkOctets:
    """The figures of one node since its start."""

    def __init__(self, queues: Mapping[GroupId, Queue]) -> None:
        """``queues``: all queues that the node knows."""
        self.proxied: Counter[tuple[NodeId, str]] = Counter()
        """Octets of proxied frames by peer and kind of queue."""
        self.sent: defaultdict[tuple[NodeId, str], Sent] = defaultdict(Sent)
        """Frames and octets by peer and purpose."""
        self.raft: dict[tuple[NodeId, int, bool], Sent] = {}
        """The counts of Raft frames, by peer, kind of message, and whether there are buffers behind the head, as in an
        AppendEntries with entries. The sender of a frame of a kind that is known adds it there."""
        self._queues = queues

    def count(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview], octets: int) -> None:
        """Note a frame for a peer. Proxied frames about metadata or a queue that is gone have no kind of queue."""
        sent = self.sent[node, purpose_of(kind, buffers[0])]
        sent.frames += 1
        sent.octets += octets
        if kind is FrameKind.RAFT:
            self.raft[node, buffers[0][0], len(buffers) > 1] = sent
        if kind in _PROXIED:
            group = GroupId(int.from_bytes(buffers[0][:_GROUP_OCTETS], "big"))
            if (queue := self._queues.get(group)) is not None:
                self.proxied[node, queue.kind.name] += octets

    def by_purpose(self) -> dict[NodeId, dict[str, int]]:
        """Octets sent to each peer so far, by purpose."""
        found: dict[NodeId, dict[str, int]] = {}
        for (node, purpose), sent in self.sent.items():
            found.setdefault(node, {})[purpose] = sent.octets
        return found
