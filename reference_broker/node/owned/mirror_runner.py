"""A mirror of a classic queue on this node: frames in, frames out.

The mirror's own work is in :mod:`reference_broker.mirroring.mirror`, and the ring in
:mod:`reference_broker.mirroring.ring`. Clients of this node reach the queue through a
:class:`~reference_broker.node.replication.proxy.Proxy`, as on any other node: the mirror serves nobody. It becomes the
master when the metadata says so (:mod:`reference_broker.node.hosting.hosted_queues`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from reference_broker.access.names import shown
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.mirroring.mirror import DivergedError, MirrorCopy, MirrorStore
from reference_broker.mirroring.ring import Output, RingMember, View
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.owned.mirror_frames import RingNote, pack_note
from reference_broker.node.owned.ring_links import send_outputs
from reference_broker.node.ports import ProposingPorts
from reference_broker.node.replication.proposals import Proposal, Segment
from reference_broker.types import GroupId, NodeId, Term

log = logging.getLogger(__name__)


class MirrorPorts(ProposingPorts, Protocol):
    """The node as a mirror uses it."""

    def mirror_lost(self, record: QueueRecord, mirror: Mirror) -> None:
        """A copy must begin anew, or is out of reach: have the metadata drop it."""


def term_of(record: QueueRecord) -> Term:
    """The term of the master that the mirrors follow."""
    return Term(record.epoch << 32 | record.owner_boot)


def view_of(record: QueueRecord) -> View:
    """The ring of a record."""
    return View(record.changes, (record.leader, *[mirror.node for mirror in record.mirrors]))


class MirrorRunner:
    """One copy on this node."""

    def __init__(self, record: QueueRecord, mirror: Mirror, store: MirrorStore, node: MirrorPorts) -> None:
        """``store`` is empty."""
        self.record = record
        self.group: GroupId = record.group
        self.mirror = mirror
        self.scheduled = False
        self.store = store
        self.copy = MirrorCopy(store)
        self.ring = RingMember(node.node)
        self.ring.is_ready = mirror.since == 0
        self._node = node
        self._told = 0
        self._is_filled = False
        """Whether messages came from the master to fill this copy, which does not know yet that they are safe."""
        self._is_stopped = False
        self.record_changed(record)

    def record_changed(self, record: QueueRecord) -> None:
        """The ring may have other members now."""
        followed = term_of(self.record)
        self.record = record
        if term_of(record) != followed:
            self.copy.copies.begin_anew()
        self._send(self.ring.enter(view_of(record)))
        self._introduce()

    def _introduce(self) -> None:
        """Tell the master how far this copy is."""
        if not self.ring.is_ready:
            self._note(RingNote.JOIN, self.mirror.since)
        else:
            self._note(RingNote.CONFIRM, self.mirror.since, self._told)

    # Frames

    def batch(self, view: int, number: int, payload: bytes) -> None:
        """A batch from the left neighbour."""
        is_new, outputs = self.ring.take(view, number, payload)
        self._send(outputs)
        if not is_new:
            return
        try:
            self.copy.apply(number, payload)
        except (DivergedError, ValueError) as error:
            self._give_up(error)
            return
        self._node.wake(self)

    def noted(self, node: NodeId, kind: RingNote, numbers: tuple[int, int, int]) -> None:
        """A note for this member."""
        first, second, third = numbers
        match kind:
            case RingNote.SUBSCRIBE:
                self._send(self.ring.subscribed(node, first, second))
            case RingNote.ACK:
                self._send(self.ring.ack(first, second))
            case RingNote.WELCOME if first == self.mirror.since and not self.ring.is_ready:
                self._begin(second, third)
            case _:
                log.debug("queue %s: a late note %s", shown(self.record.name), kind)

    def _begin(self, batch: int, next_seq: int) -> None:
        try:
            self.copy.begin(batch, next_seq)
        except DivergedError as error:  # a former master had filled it with more than this one has
            self._give_up(error)
            return
        self._send(self.ring.begin(batch))
        self._node.wake(self)

    def fill(self, since: int, payload: bytes) -> None:
        """Messages that were in the queue before this copy began."""
        if since != self.mirror.since or self.ring.is_ready:
            return
        try:
            self.copy.fill(payload)
        except (DivergedError, ValueError) as error:
            self._give_up(error)
            return
        self._is_filled = True
        self._node.wake(self)

    def copied(self, proposal: Proposal, segments: Sequence[Segment], commands: Sequence[Any]) -> None:
        """Publishes straight from their node."""
        if proposal.term != term_of(self.record):
            return
        position = 0
        for node, _priority, boot_id, first, count in segments:
            self.copy.copies.receive((node, boot_id), first, commands[position : position + count])
            position += count
        self._node.wake(self)

    def copied_here(self, first: int, commands: Sequence[Any]) -> None:
        """Publishes of this node's own clients."""
        self.copy.copies.receive((self._node.node, self._node.boot_id), first, commands)

    def stored(self, seq_end: int) -> None:
        """The store has told that the messages below ``seq_end`` survive."""
        self.copy.stored(seq_end)
        self._node.wake(self)

    def peer_up(self, node: NodeId) -> None:
        """The link to a node is there: earlier frames to it may be lost."""
        self._send(self.ring.link_up(node))
        if node == self.record.leader:
            self._introduce()

    def peer_down(self, node: NodeId) -> None:
        """The link to a node broke. If the ring is open there now, this node's next heartbeat tells the owner
        (:mod:`reference_broker.node.hosting.mirror_steps`)."""
        self.copy.copies.link_broke(node)
        self.ring.link_down(node)
        self._node.wake(self)

    # Turns

    def turn(self) -> None:
        """Tell the master what is confirmed, or that the filled-in messages are safe: then the copy may count as
        synchronised, and may be the only one that survives."""
        self.scheduled = False
        if self._is_filled and self.copy.is_stored:
            self._is_filled = False
            self._note(RingNote.FILLED, self.mirror.since)
        confirmed = self.copy.confirm()
        if confirmed > self._told and not self._is_stopped:
            self._told = confirmed
            self._note(RingNote.CONFIRM, self.mirror.since, confirmed)

    def stop(self) -> None:
        """The copy is not wanted any more."""
        self._is_stopped = True
        self.store.delete()

    def hand_over(self) -> list[Any]:
        """This copy becomes the master's. Returns the commands that only their publishers' nodes have sent."""
        self._is_stopped = True
        self.store.take_over()
        return self.copy.copies.rest()

    def _give_up(self, error: Exception) -> None:
        log.error("queue %s: the mirror here begins anew: %s", shown(self.record.name), error)
        self._node.mirror_lost(self.record, self.mirror)

    def _note(self, kind: RingNote, *numbers: int) -> None:
        self._node.send(self.record.leader, FrameKind.NOTE, [pack_note(self.group, kind, *numbers)])

    def _send(self, outputs: Sequence[Output]) -> None:
        send_outputs(self._node, self.group, outputs)
