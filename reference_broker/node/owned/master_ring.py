"""The master of a mirrored queue: its batches go round the ring, and new mirrors are welcomed.

Theory of operation
-------------------
The owner of the queue applies commands as always; its store records what changes
(:class:`~reference_broker.mirroring.master.RecordingStore`). At the end of a turn the changes go round the ring as one
batch. Messages are confirmed when they are safe here and every mirror has confirmed the batch.

A *new mirror* asks to join. The owner applies nothing meanwhile: all members must have everything, so that the eldest
mirror never has less than the new mirror. If the mirror is to be filled, it gets all messages of the queue, a few
thousand at a time, and then the number of the batch from which on it is a member like the others. RabbitMQ's
``ha-sync-mode: automatic`` blocks the queue as well. Without filling, the mirror is synchronised when all older
messages are gone.

Frames, and what each is counted as (:mod:`~reference_broker.node.links.link_octets`): RING and NOTE as ``ring``; COPY,
the publishes of this node's own clients straight to each mirror, as ``mirror``; FILL as ``sync``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from reference_broker.classic.part_codec import cut
from reference_broker.classic.parts import Part
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror, mirror_of, mirror_on
from reference_broker.mirroring.master import Confirmations, RecordingStore
from reference_broker.mirroring.operations import Add, AppliedPublishes, Delivered, Take
from reference_broker.mirroring.placement import SYNC_BATCH_MESSAGES
from reference_broker.mirroring.ring import Output, RingMember
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.owned.mirror_frames import RingNote, pack_fill, pack_note
from reference_broker.node.owned.mirror_runner import MirrorPorts, term_of, view_of
from reference_broker.node.owned.ring_links import send_outputs
from reference_broker.node.replication.proposals import Proposal, seal
from reference_broker.types import NodeId, Priority

_FILL_BYTES: Final = 1 << 20
"""The most octets of a FILL, unless one part of a run has more."""


class MirroredHost(Protocol):
    """The queue, as its ring sees it."""

    def record_changes(self) -> RecordingStore:
        """Record all changes to the messages from now on."""

    def encode(self, commands: Sequence[Any]) -> Sequence[bytes | memoryview]:
        """The commands as one batch, for another node."""

    def stored(self, seq_end: int) -> None:
        """The messages below ``seq_end`` are safe, here and on all mirrors."""


class MasterPorts(MirrorPorts, Protocol):
    """The node as a master uses it."""

    def mirror_synchronised(self, record: QueueRecord, mirror: Mirror) -> None:
        """A copy has every message."""


@dataclass(slots=True)
class _Filling:
    """A mirror that gets the messages of the queue."""

    mirror: Mirror
    parts: deque[Part]
    waits: bool = False
    """For the word that the last FILL was taken."""


class MasterRing:
    """The ring of one queue that this node owns."""

    def __init__(
        self, record: QueueRecord, host: MirroredHost, node: MasterPorts, ring: RingMember | None = None,
        applied: Iterable[AppliedPublishes] = (),
    ) -> None:  # fmt: skip
        """``ring``: this node was a member of the ring before it became the master. ``applied``: the publishes that the
        queue has had so far."""
        self.record = record
        self.fills_automatically = False
        """Whether a new mirror is filled: by the policy, or because an operator wants it."""
        self.sync_batch = SYNC_BATCH_MESSAGES
        """Number of messages that go to a new mirror at once."""
        self._fills_once = False
        self._host = host
        self._node = node
        self._log = host.record_changes()
        self._ring = ring or RingMember(node.node)
        self._confirmations = Confirmations()
        self._early: dict[tuple[NodeId, int], int] = {}
        """Confirms of copies that this node does not know yet: node and number of the copy, number of the batch."""
        self._joining: set[tuple[NodeId, int]] = set()
        """New mirrors that ask to join: node and number of the copy. This node may not have heard of the copy yet."""
        self._welcomed: set[tuple[NodeId, int]] = set()
        self._filling: _Filling | None = None
        self._begins: dict[NodeId, int] = {}
        """The beginnings of unsynchronised copies."""
        self._marks: dict[tuple[NodeId, int], int] = {}
        self._applied = {each.node: each for each in applied}
        """The publishes that the queue has had, of the newest process of each node."""
        self._local: list[Any] = []
        self._local_first = 0
        self._told_end = 0
        if ring is not None:
            # All mirrors get the messages that enter from now on. Only the former master knew where unsynchronised
            # mirrors begin.
            self._begins = {each.node: self._log.next_seq for each in record.mirrors if not each.is_synchronised}
        self.record_changed(record)

    def record_changed(self, record: QueueRecord) -> None:
        """The ring may have other members now."""
        same = tuple(each.node for each in record.mirrors if mirror_of(self.record, each.node, each.since) is not None)
        self.record = record
        self._confirmations.mirrors_are(same)
        self._confirmations.mirrors_are(tuple(mirror.node for mirror in record.mirrors))
        self._log.deliveries.is_free = not record.mirrors
        for mirror in record.mirrors:
            self._confirmations.confirmed(mirror.node, self._early.pop((mirror.node, mirror.since), -1))
        copies = {(mirror.node, mirror.since) for mirror in record.mirrors}
        self._welcomed &= copies
        self._joining = {each for each in self._joining if each in copies or each[1] > record.changes}
        if self._filling is not None and (self._filling.mirror.node, self._filling.mirror.since) not in copies:
            self._filling = None
        if all(mirror.is_synchronised for mirror in record.mirrors) and record.mirrors:
            self._fills_once = False
        self._begins = {node: seq for node, seq in self._begins.items() if mirror_on(record, node) is not None}
        self._send(self._ring.enter(view_of(record)))
        if not record.mirrors:
            self._ring.all_have(self._ring.last)

    # What the owner does

    @property
    def is_blocked(self) -> bool:
        """Whether the owner must apply nothing now."""
        return self._filling is not None or any(self._is_copy(*each) for each in self._joining)

    def applied(self, node: NodeId, boot_id: int, number: int) -> None:
        """The publishes of a process are applied up to ``number``, or will be in this turn."""
        self._marks[node, boot_id] = number
        self._applied[node] = AppliedPublishes(node, boot_id, number)

    def published_here(self, number: int, command: Any) -> None:
        """A client of this node has published."""
        if not self.record.mirrors:
            return
        if not self._local:
            self._local_first = number
        self._local.append(command)

    def turn(self, *, are_effects_left: bool) -> bool:
        """Send the changes. Go on with new mirrors. Returns whether more is confirmed than before."""
        self._send_copies()
        self._flush()
        if self.is_blocked and not are_effects_left:
            self._go_on()
        if self._begins:
            self._look_for_synchronised()
        return self._tell_end()

    def stored(self, seq_end: int) -> None:
        """The store has told that the messages below ``seq_end`` survive."""
        self._log.stored_end.stored(seq_end)

    def fill_once(self) -> list[Mirror]:
        """An operator wants the copies synchronised. Returns the copies that must begin anew for that."""
        self._fills_once = True
        return [mirror for mirror in self.record.mirrors if not mirror.is_synchronised]

    def fill_no_more(self) -> list[Mirror]:
        """An operator wants no more copies filled. Returns the copy that has a part of the messages."""
        self._fills_once = False
        return [self._filling.mirror] if self._filling is not None else []

    @property
    def filling(self) -> Mirror | None:
        """The copy that is being filled."""
        return self._filling.mirror if self._filling is not None else None

    def peer_up(self, node: NodeId) -> None:
        """The link to a node is there: earlier frames to it may be lost."""
        self._send(self._ring.link_up(node))

    def peer_down(self, node: NodeId) -> None:
        """The link to a node broke."""
        self._ring.link_down(node)
        if (mirror := mirror_on(self.record, node)) is not None:
            self._node.mirror_lost(self.record, mirror)

    # Frames

    def batch(self, view: int, number: int, payload: bytes) -> bool:
        """A batch is back. Returns whether more may be delivered than before."""
        _is_new, outputs = self._ring.take(view, number, payload)
        self._send(outputs)
        return self._log.deliveries.heard(self._ring.acked)

    def noted(self, node: NodeId, kind: RingNote, numbers: tuple[int, int, int]) -> None:
        """A note of another member."""
        first, second, _third = numbers
        match kind:
            case RingNote.SUBSCRIBE:
                self._send(self._ring.subscribed(node, first, second))
            case RingNote.ACK:
                pass  # it has been round
            case RingNote.CONFIRM:
                self._confirmed(node, first, second)
            case RingNote.JOIN:
                self._wants_to_join(node, first)
            case RingNote.FILLED:
                if self._filling is not None and self._fills(node, first):
                    self._filling.waits = False
            case RingNote.WELCOME:
                pass  # for a mirror that this node is not any more

    def _wants_to_join(self, node: NodeId, since: int) -> None:
        """A new mirror asks, maybe again, because its welcome has not reached it yet."""
        copy = node, since
        if copy not in self._welcomed and not self._fills(node, since):
            self._joining.add(copy)

    def _confirmed(self, node: NodeId, since: int, number: int) -> None:
        if self.record.owner_boot != self._node.boot_id:
            return  # the copies followed a former process here, and count its batches; they are about to go
        if self._is_copy(node, since):
            self._confirmations.confirmed(node, number)
        else:
            self._early[node, since] = number

    def _is_copy(self, node: NodeId, since: int) -> bool:
        mirror = mirror_on(self.record, node)
        return mirror is not None and mirror.since == since

    def _fills(self, node: NodeId, since: int) -> bool:
        filling = self._filling
        return filling is not None and (filling.mirror.node, filling.mirror.since) == (node, since)

    # One turn

    def _send_copies(self) -> None:
        """Send the publishes of this node's clients straight to each mirror."""
        local, self._local = self._local, []
        if not local:
            return
        node = self._node
        segment = (node.node, Priority.LOW, node.boot_id, self._local_first, len(local))
        head = Proposal(group=self.record.group, term=term_of(self.record)).pack()
        sealed = seal(list(self._host.encode(local)), [segment])
        for mirror in self.record.mirrors:
            node.send(mirror.node, FrameKind.COPY, [head, sealed])

    def _flush(self) -> None:
        marks, self._marks = self._marks, {}
        for (node, boot_id), number in marks.items():
            self._log.applied(node, boot_id, number)
        payload = self._log.take_batch()
        if payload and self.record.mirrors:
            outputs = self._ring.broadcast(payload)
            self._confirmations.sent(self._ring.last, self._log.next_seq)
            self._log.deliveries.sent(self._ring.last)
            self._send(outputs)

    def _tell_end(self) -> bool:
        end = self._confirmations.end(self._log.stored_end.end)
        if end <= self._told_end:
            return False
        self._told_end = end
        self._host.stored(end)
        return True

    def _look_for_synchronised(self) -> None:
        """A copy that began when the queue had messages is synchronised when all these are gone."""
        oldest = self._log.oldest()
        for node in [node for node, begins in self._begins.items() if begins <= oldest]:
            if self._confirmations.of(node) >= 0:  # else it has not begun
                del self._begins[node]
                self._synchronised(mirror_on(self.record, node))

    def _synchronised(self, mirror: Mirror | None) -> None:
        if mirror is not None and not mirror.is_synchronised:
            self._node.mirror_synchronised(self.record, mirror)

    # New mirrors

    def _go_on(self) -> None:
        """Take the next step with the first mirror that joins."""
        if self._filling is None:
            mirror = self._next_to_join()
            if mirror is None or not self._all_have_everything():
                return
            self._joining.discard((mirror.node, mirror.since))
            fills = self.fills_automatically or self._fills_once
            self._filling = _Filling(mirror, deque(self._log.parts() if fills else ()))
        if not self._filling.waits:
            self._fill(self._filling)

    def _next_to_join(self) -> Mirror | None:
        """The eldest mirror that has not begun, if it asks to join. Younger mirrors wait for it: what goes round the
        ring comes to them through it."""
        for mirror in self.record.mirrors:
            if self._confirmations.of(mirror.node) < 0:
                return mirror if (mirror.node, mirror.since) in self._joining else None
        return None

    def _all_have_everything(self) -> bool:
        """Whether all mirrors that have begun have confirmed every batch."""
        confirmed = [self._confirmations.of(mirror.node) for mirror in self.record.mirrors]
        return all(number >= self._ring.last for number in confirmed if number >= 0)

    def _fill(self, filling: _Filling) -> None:
        mirror, group = filling.mirror, self.record.group
        buffers: list[bytes | memoryview] = []
        messages = octets = 0
        while filling.parts and messages < self.sync_batch and octets < _FILL_BYTES:
            part = filling.parts.popleft()
            if part.left:
                run = cut(self._log.run(part.seq), 0, part.count)  # after a restart, its last messages may be gone
                messages, octets = messages + part.left, octets + len(run.data)
                buffers += Add(part.seq, run, part.is_persistent, part.expires).buffers()
                for start, count, step in part.gone or ():
                    buffers += Take(part.seq, start, count, step).buffers()
        is_full = self.fills_automatically or self._fills_once
        if buffers:
            filling.waits = True
            buffers += Delivered(self._log.delivered_end).buffers()
        elif is_full:
            buffers = [octets for each in self._applied.values() for octets in each.buffers()]
        if buffers:
            self._node.send(mirror.node, FrameKind.FILL, [pack_fill(group, mirror.since), *buffers])
        if not filling.waits:
            self._filling = None
            self._welcome(mirror, is_full=is_full)

    def _welcome(self, mirror: Mirror, *, is_full: bool) -> None:
        last, next_seq = self._ring.last, self._log.next_seq
        self._welcomed.add((mirror.node, mirror.since))
        self._confirmations.confirmed(mirror.node, last)
        self._ring.all_have(last)
        self._log.deliveries.begin_anew()
        note = pack_note(self.record.group, RingNote.WELCOME, mirror.since, last, next_seq)
        self._node.send(mirror.node, FrameKind.NOTE, [note])
        self._send(self._ring.link_up(mirror.node))  # a former copy there may have got the subscription of this view
        if is_full or self._log.oldest() >= next_seq:
            self._synchronised(mirror)
        else:
            self._begins[mirror.node] = next_seq

    def _send(self, outputs: Sequence[Output]) -> None:
        send_outputs(self._node, self.record.group, outputs)
