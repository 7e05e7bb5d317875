"""How many octets this node sends to each peer for queues that one of the two leads and the other does not.

A *proxied* request goes to the node that leads the queue (or owns it), and its results come back. Each node counts what
it sends, so the figures of both ends are the two directions of a link. What Raft replicates is not counted here.

Back of the envelope: two lookups and an addition for a frame, and a frame carries a whole batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from reference_broker.node.peers import FrameKind
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId, NodeId

PROXIED: Final = frozenset(
    {
        FrameKind.PROPOSE, FrameKind.ATTACH, FrameKind.LEADING, FrameKind.CATCH_UP, FrameKind.EFFECTS,
        FrameKind.APPLIED,
    }
)  # fmt: skip
"""The frames of requests and results. Each names the group of its queue in its first octets."""
_GROUP_OCTETS: Final = 8


class LinkOctets:
    """The figures of one node: octets by peer and kind of queue, since its start."""

    def __init__(self, queues: Mapping[GroupId, Queue]) -> None:
        """``queues``: all queues that the node knows."""
        self.sent: Counter[tuple[NodeId, str]] = Counter()
        self._queues = queues

    def count(self, node: NodeId, buffers: list[bytes | memoryview], octets: int) -> None:
        """Note a frame of :data:`PROXIED` for a peer. Frames about metadata or a queue that is gone do not count."""
        group = GroupId(int.from_bytes(buffers[0][:_GROUP_OCTETS], "big"))
        if (queue := self._queues.get(group)) is not None:
            self.sent[node, queue.kind.name] += octets
