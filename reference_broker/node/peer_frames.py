"""A node's handlers for each kind of frame of a peer.

A frame is decoded first: a malformed frame raises ValueError, and the link is closed. Then the frame is obeyed; an
error there is a defect or a safety violation and stops the node (``guarded``).
"""

from __future__ import annotations

from collections.abc import Callable

from reference_broker.node.hosting.hosted_queues import Hosting
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.links.peer_requests import Requests
from reference_broker.node.replication import non_members
from reference_broker.node.replication.proposals import Proposal
from reference_broker.raft import wire
from reference_broker.types import NodeId

Guarded = Callable[..., None]
"""Calls its first argument with the others, and handles its errors."""


class Frames:
    """The frames of a node, by kind."""

    def __init__(
        self,
        hosting: Hosting,
        requests: Requests,
        channels: non_members.Clients,
        guarded: Guarded,
        leader_found: Callable[[], None],
        nodes: Nodes,
        check_suspension: Callable[[], int],
    ) -> None:
        self._hosting = hosting
        self._channels = channels
        self._guarded = guarded
        self._leader_found = leader_found
        self._check_suspension = check_suspension
        self._kinds: dict[int, Callable[[NodeId, memoryview], None]] = {
            FrameKind.PROPOSE: self._propose,
            FrameKind.REQUEST: lambda node, body: requests.frame(node, FrameKind.REQUEST, body),
            FrameKind.ANSWER: lambda node, body: requests.frame(node, FrameKind.ANSWER, body),
            FrameKind.ATTACH: self._attach,
            FrameKind.LEADING: self._leading,
            FrameKind.CATCH_UP: self._catch_up,
            FrameKind.EFFECTS: self._effects,
            FrameKind.APPLIED: self._applied,
            FrameKind.RING: hosting.mirrors.batch,
            FrameKind.NOTE: hosting.mirrors.note,
            FrameKind.COPY: hosting.mirrors.copy,
            FrameKind.FILL: hosting.mirrors.fill,
            FrameKind.LEAVING: lambda node, _body: nodes.left.add(node),
        }

    def take(self, node: NodeId, kind: int, body: memoryview) -> None:
        """A frame of a peer. Raises ValueError if it is damaged."""
        if kind != FrameKind.RAFT:
            self._kinds[kind](node, body)
            return
        group, message = wire.decode(body)
        if (runner := self._hosting.runners.get(group)) is not None:
            self._guarded(runner.step, node, message)
        else:
            self._hosting.early_message(group, node, message)

    def _propose(self, _node: NodeId, body: memoryview) -> None:
        proposal, sealed = Proposal.unpack(body)
        if (runner := self._hosting.hosted.get(proposal.group)) is not None:
            self._guarded(runner.proposed_by_peer, proposal, *runner.read_proposal(bytes(sealed)))

    def _attach(self, node: NodeId, body: memoryview) -> None:
        group, stays = non_members.unpack_attach(body)
        self._hosting.attached(group, node, stays=stays)

    def _leading(self, node: NodeId, body: memoryview) -> None:
        group, term, normal, low = non_members.unpack_leading(body)
        if (proxy := self._hosting.proxies.get(group)) is not None:
            proxy.leading(node, term, normal, low)
            self._hosting.census.leader_is(group, proxy.leader)
            self._leader_found()

    def _catch_up(self, node: NodeId, body: memoryview) -> None:
        group, term, boot_id, known, batch = non_members.unpack_catch_up(body)
        if (runner := self._hosting.hosted.get(group)) is not None:
            asked = [command for command, _size in runner.host.decode(batch, len(batch), 0)] if batch else []
            self._guarded(runner.catch_up, node, term, boot_id, known, asked)

    def _effects(self, node: NodeId, body: memoryview) -> None:
        self._check_suspension()  # other frames do nothing before the turn
        group, effects = non_members.unpack_effects(body)
        if (proxy := self._hosting.proxies.get(group)) is not None:
            proxy.effects(node, effects, self._channels)

    def _applied(self, node: NodeId, body: memoryview) -> None:
        group, normal, low = non_members.unpack_applied(body)
        if (proxy := self._hosting.proxies.get(group)) is not None:
            proxy.applied(node, normal, low)
