"""Waits until a change of the metadata holds on every node that can be reached.

The node that was asked has proposed the change and applied it. Then it asks its peers to say when they have applied it,
too. It does not wait for a peer that is lost meanwhile: when the peer is back, it applies the missed changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.links.peer_requests import Answer, Ask
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.types import METADATA_GROUP, GroupId, NodeId

APPLIED: Final = "applied"
"""The request to say when a group's log is applied up to an index."""


class Everywhere:
    """The other nodes of the cluster, as far as they apply the metadata."""

    def __init__(self, node: NodeId, nodes: Nodes, runners: Mapping[GroupId, GroupRunner], ask: Ask) -> None:
        self._node = node
        self._nodes = nodes
        self._runners = runners
        self._ask = ask

    def then(self, call: Callable[[], None]) -> None:
        """Call once every node that can be reached has applied what this node has applied now."""
        waiting = {node for node in self._nodes.up if node != self._node}
        if not waiting:
            call()
            return
        request: Answer = {"op": APPLIED, "group": METADATA_GROUP, "index": self._runners[METADATA_GROUP].applied}

        def heard(node: NodeId, _answer: Answer) -> None:
            waiting.discard(node)
            if not waiting:
                call()

        for node in sorted(waiting):
            self._ask(node, request, lambda answer, node=node: heard(node, answer))  # type: ignore[misc]
