"""The mirrors on this node, and the frames of the rings that this node is in.

A record says on which nodes a queue has copies (:mod:`reference_broker.machines.cluster.mirror_records`). A copy is
started and stopped accordingly. A note may come before the record that explains it, because nodes get a record at
different times; such notes wait here for a while. Batches cannot come too early: a member sends nothing to a neighbour
that has not asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import (
    DropMirror,
    Mirror,
    MirrorSynchronised,
    mirror_of,
    mirror_on,
    store_of,
)
from reference_broker.node.owned.mirror_frames import RingNote, unpack_fill, unpack_note, unpack_ring
from reference_broker.node.owned.mirror_runner import MirrorPorts, MirrorRunner
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.node.replication.proposals import Proposal, sealed_at, unseal
from reference_broker.queues.port import QueueKind
from reference_broker.types import GroupId, NodeId

_EARLY_MAX: Final = 64
"""The most notes of one queue that wait for the queue's record."""
_EARLY_QUEUES_MAX: Final = 1024


class MirrorsPorts(MirrorPorts, Protocol):
    """The node as its mirrors use it."""

    owned: OwnedQueues
    metadata: MetadataHost


class Mirrors:
    """The copies on one node."""

    def __init__(self, node: MirrorsPorts, kinds: Mapping[str, QueueKind]) -> None:
        self.runners: dict[GroupId, MirrorRunner] = {}
        self.mirrored: dict[GroupId, QueueRecord] = {}
        """The records of all queues that have copies anywhere."""
        self._node = node
        self._kinds = kinds
        self._early: dict[GroupId, deque[tuple[NodeId, RingNote, tuple[int, int, int]]]] = {}
        self._left: dict[GroupId, tuple[QueueRecord, int]] = {}
        """The copies of this node's former process that records still name: record, and number of the copy."""
        self._asked: set[tuple[object, ...]] = set()
        """Changes that this node has asked the metadata for."""

    # Records

    def record_is(self, record: QueueRecord) -> None:
        """Start or stop the copy on this node as the record says."""
        group, node = record.group, self._node
        if record.mirrors:
            self.mirrored[group] = record
        else:
            self.mirrored.pop(group, None)
        self._forget_left(group, record)
        mirror = mirror_on(record, node.node)
        runner = self.runners.get(group)
        if mirror is not None and mirror.boot_id != node.boot_id:
            mirror = None  # the copy of a former process, which is gone
        if runner is not None and (mirror is None or runner.mirror.since != mirror.since):
            self._stop(group)
            runner = None
        if mirror is None:
            return
        if runner is None:
            store = node.owned.begin_copy(record, mirror.since)
            runner = self.runners[group] = MirrorRunner(record, mirror, store, node)
            node.owned.follow(record, mirror.since, runner.stored)
            self._take_early(group)
        else:
            runner.mirror = mirror
            runner.record_changed(record)

    def left_behind(self) -> list[GroupId]:
        """The names in the store of the copies of this node's former process that stay on the drive. Nothing was
        confirmed without a copy that its record still names, and after a loss of power it may be the last one: then it
        becomes the master's."""
        for group, record in self.mirrored.items():
            mirror = mirror_on(record, self._node.node)
            if mirror is not None and mirror.boot_id != self._node.boot_id:
                self._left[group] = record, mirror.since
        return [store_of(group, since) for group, (_record, since) in self._left.items()]

    def _forget_left(self, group: GroupId, record: QueueRecord | None) -> None:
        """Delete a copy that was left behind, unless its record, if there still is one, names it or it became the
        master's."""
        here = self._node.node
        former, since = self._left.get(group, (None, 0))
        if former is None or (record is not None and mirror_of(record, here, since) is not None):
            return
        del self._left[group]
        if record is None or (record.leader, record.owner_since) != (here, since):
            self._node.owned.begin_copy(former, since).delete()

    def queue_gone(self, group: GroupId) -> None:
        """The queue was deleted."""
        self._stop(group)
        self._forget_left(group, None)
        self.mirrored.pop(group, None)
        self._early.pop(group, None)

    def take(self, record: QueueRecord) -> MirrorRunner | None:
        """The copy that becomes the master's, if it runs here. An earlier copy goes."""
        runner = self.runners.get(record.group)
        if runner is not None and runner.mirror.since != record.owner_since:
            self._stop(record.group)
        return self.runners.pop(record.group, None)

    def ring_made(self, group: GroupId) -> None:
        """This node is the master of a ring now: hand it the frames that came too early."""
        self._take_early(group)

    def _stop(self, group: GroupId) -> None:
        if (runner := self.runners.pop(group, None)) is not None:
            runner.stop()
            self._node.owned.follow_no_more(runner.record, runner.mirror.since)

    # Changes of the record that this node asks for

    def lost(self, record: QueueRecord, mirror: Mirror) -> None:
        """A copy must begin anew, or is out of reach."""
        values = {"member": mirror.node, "since": mirror.since}
        self._ask(("lost", record.group, *mirror[:3]), DropMirror, record, values)

    def synchronised(self, record: QueueRecord, mirror: Mirror) -> None:
        """A copy has every message."""
        values = {"member": mirror.node, "since": mirror.since}
        self._ask(("synchronised", record.group, *mirror[:3]), MirrorSynchronised, record, values)

    def _ask(
        self, key: tuple[object, ...], command: Callable[..., Any], record: QueueRecord, values: dict[str, Any]
    ) -> None:
        if key not in self._asked:
            self._asked.add(key)
            self._node.metadata.change_mirrors(command, record, lambda _record: self._asked.discard(key), **values)

    # Peers and frames

    def peer_up(self, node: NodeId) -> None:
        """The link to a node is there."""
        for runner in list(self.runners.values()):
            runner.peer_up(node)

    def peer_down(self, node: NodeId) -> None:
        """The link to a node broke."""
        for runner in list(self.runners.values()):
            runner.peer_down(node)

    def batch(self, _node: NodeId, body: memoryview) -> None:
        """A RING. Raises ValueError if it is cut off."""
        group, view, number, payload = unpack_ring(body)
        if (member := self.runners.get(group) or self._node.owned.runners.get(group)) is not None:
            member.batch(view, number, payload)

    def note(self, node: NodeId, body: memoryview) -> None:
        """A NOTE. Raises ValueError if it is damaged."""
        group, kind, numbers = unpack_note(body)
        runner, owner = self.runners.get(group), self._node.owned.runners.get(group)
        if runner is not None:
            runner.noted(node, kind, numbers)
        elif owner is not None and owner.ring is not None:
            owner.noted(node, kind, numbers)
        else:
            self._keep_early(group, node, kind, numbers)

    def copy(self, _node: NodeId, body: memoryview) -> None:
        """A COPY. Raises ValueError if it is damaged."""
        proposal, sealed = Proposal.unpack(body)
        runner = self.runners.get(proposal.group)
        if runner is None:
            return
        octets = bytes(sealed)
        end, segments = unseal(octets)
        decode = self._kinds[runner.record.kind].decode
        assert decode is not None, "a kind with owners can read their commands"
        commands = [command for command, _size in decode(octets, end, sealed_at(octets)[0])]
        if len(commands) != sum(segment[4] for segment in segments):
            raise ValueError(f"{len(commands)} commands in a copy whose segments are {segments}")
        runner.copied(proposal, segments, commands)

    def fill(self, _node: NodeId, body: memoryview) -> None:
        """A FILL. Raises ValueError if it is cut off."""
        group, since, payload = unpack_fill(body)
        if (runner := self.runners.get(group)) is not None:
            runner.fill(since, payload)

    def published_here(self, group: GroupId, first: int, commands: Sequence[Any]) -> None:
        """Clients of this node have published to a queue that has a copy here."""
        if (runner := self.runners.get(group)) is not None:
            runner.copied_here(first, commands)

    def _keep_early(self, group: GroupId, node: NodeId, kind: RingNote, numbers: tuple[int, int, int]) -> None:
        if len(self._early) >= _EARLY_QUEUES_MAX and group not in self._early:
            del self._early[next(iter(self._early))]
        self._early.setdefault(group, deque(maxlen=_EARLY_MAX)).append((node, kind, numbers))

    def _take_early(self, group: GroupId) -> None:
        for node, kind, numbers in self._early.pop(group, ()):
            member = self.runners.get(group) or self._node.owned.runners.get(group)
            if member is not None:
                member.noted(node, kind, numbers)
