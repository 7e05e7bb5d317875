"""What a node does so that queues have the mirrors that the policies want, and a master if theirs is lost.

The owner of a queue takes one step at a time: it asks the metadata for a change, and takes the next step when the
record has changed. While nodes are missing, steps are looked for again now and then.

The ring goes where there are links. Each node says with its heartbeats which nodes it reaches. A mirror to which the
ring has no link is dropped for as long as that lasts, though its node may reach the owner: else no batch would come
round the ring, and nothing would be confirmed. That waits until the gap has stood for a while. When a node dies, one
node notices it first and says so, and its own mirror must not go for that: the queue would be left with one copy.

When the node of a master is lost, the leader of the metadata group has a mirror promoted. So a minority that is cut off
promotes nobody, and its own masters cannot confirm anything, because they cannot drop the mirrors that do not answer. A
node that another node reaches is not lost. If a mirror were promoted because one link is cut, the former master would
not know for a while, and with a mirror that is not synchronised messages would go.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from reference_broker.access.names import shown
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import AddMirror, DropMirror, Mirror, MoveMaster
from reference_broker.mirroring.placement import (
    AddCopy,
    Drop,
    HaPolicy,
    MoveToCopy,
    fits_in_ring,
    next_step,
    out_of_ring,
    promoted,
)
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.owned.owner import OwnerRunner
from reference_broker.node.replication.census import Census
from reference_broker.node.replication.known_groups import Groups
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, NodeId

log = logging.getLogger(__name__)

_PATIENCE: Final = 5
"""A node that leads the metadata looks so many times before it gives up a master's node that it has never seen: after a
start of the whole cluster, nodes come one after another."""
_LONG_PATIENCE: Final = 3 * _PATIENCE
"""Looks before a mirror that is not synchronised is promoted: if the master's node comes back, nothing is lost. If it
was stopped in order, nobody expects that, and a policy has asked for the promotion."""
_GAP_PATIENCE: Final = 3
"""Looks after which a gap in a ring is one. Nodes notice the death of another node at different times."""


class Policies(Protocol):
    """Who knows the policies."""

    def ha_policy(self, record: QueueRecord) -> HaPolicy | None:
        """What the policies say about copies of the queue."""


class MirrorSteps:
    """The steps of one node."""

    def __init__(
        self, groups: Groups, nodes: Nodes, metadata: MetadataHost, census: Census, mirrored: Mapping[GroupId,
        QueueRecord], policies: Policies,
    ) -> None:  # fmt: skip
        """``mirrored``: all queues that have copies."""
        self._groups = groups
        self._nodes = nodes
        self._metadata = metadata
        self._census = census
        self._mirrored = mirrored
        self._policies = policies
        self._asked: set[tuple[GroupId, int]] = set()
        """Queues, and the number of changes of the record on which a question rests."""
        self._looks: dict[NodeId, int] = {}
        """How often each node was missed."""
        self._look = 0
        self._gaps: dict[GroupId, tuple[Mirror, int]] = {}
        """The mirror behind which a ring has a gap, and the look since when."""

    # The owner

    def step(self, runner: OwnerRunner, record: QueueRecord) -> bool:
        """Take the next step for a queue that this node owns. Returns whether to look again later."""
        policy = self._policies.ha_policy(record) if not record.exclusive else None
        if policy is None and not record.mirrors:
            return False
        if runner.ring is not None and policy is not None:
            runner.ring.fills_automatically, runner.ring.sync_batch = policy.sync_automatically, policy.sync_batch
        for mirror in record.mirrors:
            if self._nodes.up.get(mirror.node) != mirror.boot_id:
                # Its process is gone. This node may have become the master later, so that it saw no link break.
                self._ask(DropMirror, record, member=mirror.node, since=mirror.since)
                return True
        if record.mirrors and record.owner_boot != self._nodes.up[record.leader]:
            return True  # they followed a former process of this node, and go first
        if self._closes_gap(record):
            return True
        up = self._usable(record)
        step = next_step(policy, record, up, self._census.members)
        match step:
            case AddCopy(node):
                boots = {"member_boot": self._nodes.up[node], "owner_boot": self._nodes.up[record.leader]}
                self._ask(AddMirror, record, epoch=record.epoch, member=node, **boots)
            case Drop(mirror):
                self._ask(DropMirror, record, member=mirror.node, since=mirror.since)
            case MoveToCopy(mirror):
                self._move(record, mirror)
        return len(up) < len(self._nodes.all) or step is not None

    def _closes_gap(self, record: QueueRecord) -> bool:
        """Have a mirror dropped that its neighbour in the ring, or who decides about the ring, does not reach for a
        while. Returns whether there is one."""
        mirror = out_of_ring(record, self._nodes.reach_each_other, self._decider)
        former, since = self._gaps.pop(record.group, (None, 0))
        if mirror is None:
            return False
        if mirror != former:
            since = self._look
        self._gaps[record.group] = mirror, since
        if self._look - since < _GAP_PATIENCE:
            return True
        if self._ask(DropMirror, record, member=mirror.node, since=mirror.since):
            text = "queue %s: the mirror on %s is dropped until another node of its ring reaches it again"
            log.warning(text, shown(record.name), self._nodes.name(mirror.node))
        return True

    def _usable(self, record: QueueRecord) -> dict[NodeId, str]:
        """The names of the nodes in reach that have a copy, or could have one: the ring would go through them."""
        present, reaches = {record.leader, *[mirror.node for mirror in record.mirrors]}, self._nodes.reach_each_other
        return {
            node: name
            for node, name in self._nodes.up_names.items()
            if node in present or fits_in_ring(record, node, reaches, self._decider)
        }

    @property
    def _decider(self) -> NodeId:
        metadata = self._groups.runners.get(METADATA_GROUP)
        leader = metadata.core.leader if metadata is not None else NOBODY
        return leader if leader in self._nodes.up else NOBODY

    # The leader of the metadata

    def node_lost(self, node: NodeId) -> None:
        """A node is out of reach: have the mirrors of its masters promoted."""
        self._looks[node] = _PATIENCE
        self.look_for_masters()

    def look_again(self) -> None:
        """A while has passed."""
        self._look += 1
        self._gaps = {group: gap for group, gap in self._gaps.items() if group in self._mirrored}
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
                self._move(record, mirror)

    def _move(self, record: QueueRecord, mirror: Mirror) -> None:
        values = {"member": mirror.node, "since": mirror.since, "member_boot": self._nodes.up[mirror.node]}
        self._ask(MoveMaster, record, epoch=record.epoch, **values)

    def _ask(self, command: type[AddMirror | DropMirror | MoveMaster], record: QueueRecord, **values: int) -> bool:
        """Ask for a change, once. Returns whether this was the first time."""
        key = record.group, record.changes
        if key in self._asked:
            return False
        self._asked.add(key)
        self._metadata.change_mirrors(command, record, lambda _record: self._asked.discard(key), **values)
        return True
