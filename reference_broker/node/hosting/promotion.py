"""Promotion: a mirror becomes the master of a queue, because the master's node is lost.

The leader of the metadata group promotes a mirror. So a minority that is cut off promotes none, and its own masters
cannot confirm anything, because they cannot drop silent mirrors. A node that another node reaches is not lost. If a
mirror were promoted because one link is cut, the former master would not know for a while, and with a mirror that is
not synchronised messages would go.

:func:`promoted` says which mirror; :class:`Promotion` says when. The metadata machine then changes the record
(``MoveMaster``), and the node that the record names takes the queue over
(:mod:`reference_broker.node.owned.mirrors_here`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.mirroring.placement import HaPolicy
from reference_broker.node.hosting.mirror_steps import MirrorChanges, Policies
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.replication.known_groups import Groups
from reference_broker.types import METADATA_GROUP, GroupId, NodeId

_PATIENCE: Final = 5
"""Looks after which the leader of the metadata gives up a master's node that it has never seen: after a start of the
whole cluster, nodes come one after another."""
_LONG_PATIENCE: Final = 3 * _PATIENCE
"""Looks before a mirror that is not synchronised is promoted: if the master's node comes back by then, nothing is lost.
A master's node that was stopped in order is not waited for, because a policy asked for the promotion."""


def promoted(
    policy: HaPolicy | None, record: QueueRecord, up: Mapping[NodeId, int], *, was_stopped: bool
) -> Mirror | None:
    """The copy that becomes the master, because the master's node is out of reach: the eldest that is synchronised,
    else the eldest whose process runs, if the policy allows that. ``up``: the boot id of each node in reach;
    ``was_stopped``: the master's node was stopped in order.

    A synchronised copy whose process is gone has on its drive what must survive, because nothing was confirmed without
    it. A copy whose process runs has transient messages, too, so it comes first. One that is not synchronised and
    whose process is gone is never promoted: all nodes were down, and the master's has everything.
    """
    reachable = [mirror for mirror in record.mirrors if mirror.node in up]
    synchronised = [mirror for mirror in reachable if mirror.is_synchronised]
    if synchronised:
        return next((mirror for mirror in synchronised if up[mirror.node] == mirror.boot_id), synchronised[0])
    if policy is None or not (policy.promotes_on_shutdown if was_stopped else policy.promotes_on_failure):
        return None
    return next((mirror for mirror in reachable if up[mirror.node] == mirror.boot_id), None)


class Promotion:
    """The promotions that one node asks for, while it leads the metadata."""

    def __init__(
        self, groups: Groups, nodes: Nodes, changes: MirrorChanges, mirrored: Mapping[GroupId, QueueRecord],
        policies: Policies,
    ) -> None:  # fmt: skip
        """``mirrored``: all queues that have copies."""
        self._groups = groups
        self._nodes = nodes
        self._changes = changes
        self._mirrored = mirrored
        self._policies = policies
        self._looks: dict[NodeId, int] = {}
        """Number of times that each node was missed."""

    def node_lost(self, node: NodeId) -> None:
        """A node is out of reach: have the mirrors of its masters promoted."""
        self._looks[node] = _PATIENCE
        self.look_for_masters()

    def look_again(self) -> None:
        """A while has passed."""
        for node in self._nodes.all:
            if node in self._nodes.up:
                self._looks.pop(node, None)
            else:
                self._looks[node] = self._looks.get(node, 0) + 1
        self.look_for_masters()

    def look_for_masters(self) -> None:
        """Have a mirror promoted for each master whose node is lost, if this node leads the metadata."""
        metadata = self._groups.runners.get(METADATA_GROUP)
        if metadata is None or not metadata.leads or not self._groups.is_current:
            return
        for record in list(self._mirrored.values()):
            looks = self._looks.get(record.leader, 0)
            if record.leader in self._nodes.up or looks < _PATIENCE:
                continue
            if self._nodes.who_reaches((record.leader,)) is not None:
                continue  # only a link is lost, and this node soon leads the metadata no more
            policy, was_stopped = self._policies.ha_policy(record), record.leader in self._nodes.left
            mirror = promoted(policy, record, self._nodes.up, was_stopped=was_stopped)
            if mirror is not None and (mirror.is_synchronised or was_stopped or looks >= _LONG_PATIENCE):
                self._changes.move(record, mirror, self._nodes.up[mirror.node])
