"""The steps by which the owner of a queue gives it the mirrors that the policies want.

The owner of a queue takes one step at a time: it asks the metadata for a change, and takes the next step when the
record has changed. While nodes are missing, steps are looked for again now and then.

The ring goes where there are links. Each node says with its heartbeats which nodes it reaches. A mirror without a link
to the ring is dropped while that lasts, even if its node reaches the owner: else no batch would come round the ring,
and nothing would be confirmed. The drop waits until the gap has stood for a while. When a node dies, one node notices
it first and says so, and its own mirror must not go for that: the queue would be left with one copy.

How a mirror becomes the master of a queue whose master is lost stands in
:mod:`~reference_broker.node.hosting.promotion`.
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
)
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.owned.owner import OwnerRunner
from reference_broker.node.replication.census import Census
from reference_broker.node.replication.known_groups import Groups
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, NodeId

log = logging.getLogger(__name__)

_GAP_PATIENCE: Final = 3
"""Looks after which a gap in a ring counts. Nodes notice the death of another node at different times."""


class MirrorChanges:
    """Asks the metadata for changes of mirrors, once for each state of a record."""

    def __init__(self, metadata: MetadataHost) -> None:
        self._metadata = metadata
        self._asked: set[tuple[GroupId, int]] = set()
        """Queues with a question under way, each with the number of changes of its record."""

    def ask(self, command: type[AddMirror | DropMirror | MoveMaster], record: QueueRecord, **values: int) -> bool:
        """Ask for a change. Returns whether this was the first time."""
        key = record.group, record.changes
        if key in self._asked:
            return False
        self._asked.add(key)
        self._metadata.change_mirrors(command, record, lambda _record: self._asked.discard(key), **values)
        return True

    def move(self, record: QueueRecord, mirror: Mirror, boot_id: int) -> None:
        """Ask for a mirror to become the master, as the process of its node with this boot id."""
        values = {"member": mirror.node, "since": mirror.since, "member_boot": boot_id}
        self.ask(MoveMaster, record, epoch=record.epoch, **values)


class Policies(Protocol):
    """The source of the policies."""

    def ha_policy(self, record: QueueRecord) -> HaPolicy | None:
        """The policies' rule for copies of the queue."""


class MirrorSteps:
    """The steps of one node."""

    def __init__(
        self, groups: Groups, nodes: Nodes, changes: MirrorChanges, census: Census, mirrored: Mapping[GroupId,
        QueueRecord], policies: Policies,
    ) -> None:  # fmt: skip
        """``mirrored``: all queues that have copies."""
        self._groups = groups
        self._nodes = nodes
        self._changes = changes
        self._census = census
        self._mirrored = mirrored
        self._policies = policies
        self._look = 0
        self._gaps: dict[GroupId, tuple[Mirror, int]] = {}
        """The mirror behind the gap of each ring, and the look at which the gap was first seen."""

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
                self._changes.ask(DropMirror, record, member=mirror.node, since=mirror.since)
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
                self._changes.ask(AddMirror, record, epoch=record.epoch, member=node, **boots)
            case Drop(mirror):
                self._changes.ask(DropMirror, record, member=mirror.node, since=mirror.since)
            case MoveToCopy(mirror):
                self._changes.move(record, mirror, self._nodes.up[mirror.node])
        return len(up) < len(self._nodes.all) or step is not None

    def look_again(self) -> None:
        """A while has passed: gaps grow older."""
        self._look += 1
        self._gaps = {group: gap for group, gap in self._gaps.items() if group in self._mirrored}

    def _closes_gap(self, record: QueueRecord) -> bool:
        """Drop a mirror that its neighbour in the ring, or the metadata's leader, does not reach for a while. Returns
        whether there is one."""
        mirror = out_of_ring(record, self._nodes.reach_each_other, self._decider)
        former, since = self._gaps.pop(record.group, (None, 0))
        if mirror is None:
            return False
        if mirror != former:
            since = self._look
        self._gaps[record.group] = mirror, since
        if self._look - since < _GAP_PATIENCE:
            return True
        if self._changes.ask(DropMirror, record, member=mirror.node, since=mirror.since):
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
