"""How many octets this node sends to each peer, and what for.

A *proxied* request goes to the node that leads the queue (or owns it), and its results come back. Of these frames the
kind of queue is known, too. Each node counts what it sends, so the figures of both ends are the two directions of a
link. Handshakes and heartbeats do not count: they cost the same whatever the load is.

Back of the envelope: a lookup and an addition for a frame, two of both for a proxied frame, and a frame carries a whole
batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from reference_broker.node.peers import FrameKind
from reference_broker.queues.port import Queue
from reference_broker.raft.wire import is_snapshot
from reference_broker.types import GroupId, NodeId

PROXIED: Final = frozenset(
    {
        FrameKind.PROPOSE, FrameKind.ATTACH, FrameKind.LEADING, FrameKind.CATCH_UP, FrameKind.EFFECTS,
        FrameKind.APPLIED,
    }
)  # fmt: skip
"""The frames of requests and results. Each names the group of its queue in its first octets."""
_GROUP_OCTETS: Final = 8
RAFT: Final = "raft"
SNAPSHOT: Final = "snapshot"
_PURPOSES: Final = {
    **dict.fromkeys(FrameKind, "other"),
    **dict.fromkeys(PROXIED, "proxied"),
    FrameKind.RAFT: RAFT,
}


class LinkOctets:
    """The figures of one node: octets by peer and kind of queue, since its start."""

    def __init__(self, queues: Mapping[GroupId, Queue]) -> None:
        """``queues``: all queues that the node knows."""
        self.sent: Counter[tuple[NodeId, str]] = Counter()
        """Octets of proxied frames by peer and kind of queue."""
        self._sent_for: Counter[tuple[NodeId, str]] = Counter()
        self._queues = queues

    def count(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview], octets: int) -> None:
        """Note a frame for a peer. Proxied frames about metadata or a queue that is gone have no kind of queue."""
        if kind is FrameKind.RAFT:
            self._sent_for[node, SNAPSHOT if is_snapshot(buffers[0]) else RAFT] += octets
            return
        self._sent_for[node, _PURPOSES[kind]] += octets
        if kind in PROXIED:
            group = GroupId(int.from_bytes(buffers[0][:_GROUP_OCTETS], "big"))
            if (queue := self._queues.get(group)) is not None:
                self.sent[node, queue.kind.name] += octets

    def by_purpose(self) -> dict[NodeId, dict[str, int]]:
        """Octets sent to each peer so far, for each purpose that there was."""
        found: dict[NodeId, dict[str, int]] = {}
        for (node, purpose), octets in self._sent_for.items():
            found.setdefault(node, {})[purpose] = octets
        return found
