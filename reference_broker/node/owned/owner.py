"""A queue that lives on this node alone: its commands are applied at once, in no log.

Theory of operation
-------------------
Commands of this node's clients and of other nodes gather until the turn. The turn applies all of them in the order in
which they came, and executes their effects. The owner needs no agreement, so there are no rounds and no terms. The
*term* of the owner is the boot id of its node, below the number of owners that the queue had before. A higher term
means that the owner has started again, or is another one, and has no channels and consumers.

A queue with *mirrors* has a ring (:mod:`~reference_broker.node.owned.master_ring`). The ring gets the last part of each
turn, and can keep the owner from applying anything while a new mirror is filled.

A queue that has mirrors may get another owner while this node is cut off or suspended. So the owner *doubts* that it
still is the owner when a link breaks or after a suspension: it answers nobody and delivers nothing until it has read
the metadata's decisions so far. A node that is cut off cannot read them, and keeps silent. Confirms are not kept back:
they need the mirrors.

Other nodes reach the owner through a :class:`~reference_broker.node.replication.proxy.Proxy`, by the same frames as the
leader of a Raft group. A link that breaks ends every channel of the other node in this queue: the messages that its
consumers held are ready again. The other node ends its side, too
(:meth:`~reference_broker.node.clients.client_channel.ClientChannel. queue_lost`). So no command is sent twice, and
there is nothing to repeat when the link is back.

Back of the envelope: a turn costs two calls more than the commands and effects in it, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from reference_broker.access.names import shown
from reference_broker.classic.part_codec import DamagedPartError
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.mirroring.operations import AppliedPublishes
from reference_broker.mirroring.ring import RingMember
from reference_broker.node.owned.master_ring import MasterPorts, MasterRing
from reference_broker.node.owned.mirror_frames import RingNote
from reference_broker.node.replication.non_members import NonMember
from reference_broker.node.replication.proposals import (
    DedupTable,
    Proposal,
    Segment,
    UnappliedCommands,
    read_proposal,
)
from reference_broker.queues.port import QueueOwner
from reference_broker.types import GroupId, LogIndex, NodeId, Priority, Term


class OwnerPorts(MasterPorts, Protocol):
    """The node as the owner of a queue uses it."""

    def unused(self, group: GroupId) -> None:
        """The last consumer of an auto-delete queue is gone: delete the queue."""

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call once this node has applied all changes of queues that were committed before now."""

    def drive_failed(self, reason: str) -> None:
        """The drive does not give a message back: stop the node."""


class _Numbers:
    """The numbers of this node's own commands in one priority."""

    __slots__ = ("applied_up_to", "last")

    def __init__(self) -> None:
        self.last = 0
        self.applied_up_to = 0

    def forget(self) -> None:
        """An owner keeps no commands."""


class OwnerRunner:
    """The owner of one queue (:class:`~reference_broker.node.replication.queue_runner.QueueRunner`)."""

    leads = True

    def __init__(self, record: QueueRecord, host: QueueOwner, node: OwnerPorts) -> None:
        """``host`` has the queue's messages already."""
        self.group: GroupId = record.group
        self.host = host
        self.scheduled = False
        self.leader = node.node
        self.term = Term(record.epoch << 32 | node.boot_id)
        self.ring: MasterRing | None = None
        """The mirrors of the queue, once it had any."""
        self.unapplied = tuple(_Numbers() for _ in Priority)
        self._node = node
        self._wake = node.wake
        self._auto_delete = record.auto_delete
        self._had_consumers = False
        self._waiting: list[Any] = []
        self._gone: list[tuple[int, NodeId]] = []
        """The nodes whose links broke while nothing could be applied, with the number of waiting commands then."""
        self._dedup = DedupTable()
        self._non_members: dict[NodeId, NonMember] = {}
        self._told: dict[NodeId, None] = {}
        """The nodes with commands applied since their last note."""
        self._marks: dict[tuple[NodeId, int], int] = {}
        """The highest number of each process's publishes among the waiting commands. Only kept for mirrors."""
        self._stopped = False
        self._doubts = 0
        """Number of doubts so far."""
        self._is_in_doubt = False
        self._applied = 0
        host.started()
        self._wake(self)

    # Commands

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        """Have the command applied at the end of this turn. Returns the number of the command, 0 if the queue is
        gone."""
        if self._stopped:
            return 0
        self._waiting.append(command)
        numbers = self.unapplied[priority]
        numbers.last += 1
        if self.ring is not None and priority is Priority.LOW:
            self._marks[self._node.node, self._node.boot_id] = numbers.last
            self.ring.published_here(numbers.last, command)
        if not self.scheduled:
            self._wake(self)
        return numbers.last

    def pace(self) -> int | None:
        """None: no run waits behind another one."""
        return None

    def read_proposal(self, sealed: bytes) -> tuple[list[Segment], list[tuple[Any, int]]]:
        """What a forwarded proposal holds: segments, and commands with their sizes. Raises ValueError if damaged."""
        return read_proposal(sealed, self.host.decode, self._node.anatomy.clock)

    def proposed_by_peer(
        self, proposal: Proposal, segments: Sequence[Segment], commands: Sequence[tuple[Any, int]]
    ) -> None:
        """Another node's commands. Refused if they are for an earlier start of this node, or if the other node does not
        know yet that this link is new."""
        nodes = dict.fromkeys(segment[0] for segment in segments)
        if proposal.term != self.term or not nodes.keys() <= self._non_members.keys():
            return
        skip = self._dedup.take(segments)
        self._waiting += [command for position, (command, _size) in enumerate(commands) if position not in skip]
        self._told.update(nodes)
        if self.ring is not None:
            for node, priority, boot_id, first, count in segments:
                if priority is Priority.LOW:
                    self._marks[node, boot_id] = first + count - 1
        self._wake(self)

    def highest_applied(self, node: NodeId, boot_id: int) -> tuple[int, int]:
        """The highest numbers applied of that start of a node, of normal and of low priority."""
        self._apply()
        normal, low = (self._dedup.highest((node, priority, boot_id)) for priority in Priority)
        return normal, low

    def catch_up(self, node: NodeId, term: Term, boot_id: int, known: tuple[int, int], asked: Sequence[Any]) -> None:
        """A node knows this owner, and hears everything from now on. Tell it what it may have missed."""
        if self._stopped or term != self.term:
            return
        self._apply()
        non_member = self._non_members[node] = NonMember(self.group, node, boot_id, self._node)
        if not any(gone == node for _waiting, gone in self._gone):  # else its channels here will end anyway
            self.host.catch_up(non_member, asked)
        self._wake(self)

    def non_member_left(self, node: NodeId) -> None:
        """The node has no clients of the queue any more."""
        self._non_members.pop(node, None)

    def stored(self, seq_end: int) -> None:
        """The store has told that the queue's messages below ``seq_end`` survive a loss of power."""
        if self.ring is not None:
            self.ring.stored(seq_end)
        else:
            self.host.stored(seq_end)
        self._wake(self)

    # Mirrors

    def record_changed(self, record: QueueRecord) -> None:
        """The queue may have other mirrors now, or this node is its owner anew."""
        self.term = Term(record.epoch << 32 | self._node.boot_id)
        if self.ring is not None:
            self.ring.record_changed(record)
        elif record.mirrors:
            self.have_mirrors(record)
        self._wake(self)

    def have_mirrors(self, record: QueueRecord, member: RingMember | None = None) -> None:
        """The queue has mirrors from now on. ``member``: this node's former place in the ring."""
        self._apply()
        own = AppliedPublishes(self._node.node, self._node.boot_id, self.unapplied[Priority.LOW].last)
        others = [AppliedPublishes(*each) for each in self._dedup.of(Priority.LOW)]
        self.ring = MasterRing(record, self.host, self._node, member, [own, *others])

    def take_over(self, numbers: Sequence[UnappliedCommands], published: Sequence[Any]) -> None:
        """This node was a mirror before. ``published``: the publishes that came only from publishers' nodes; then come
        this node's own unapplied commands."""
        self._waiting += self.host.taken_over(published)
        for priority in (Priority.NORMAL, Priority.LOW):
            unapplied = numbers[priority]
            self._waiting += [command for _number, command, _size in unapplied.all()]
            self.unapplied[priority].last = unapplied.last
        self._wake(self)

    def numbers(self) -> tuple[UnappliedCommands, ...]:
        """The numbers of this node's commands, for a proxy that goes on with them."""
        return tuple(UnappliedCommands(numbers.last + 1) for numbers in self.unapplied)

    def sync_mirrors(self, *, cancels: bool) -> int:
        """Fill the mirrors that are not synchronised, or stop that. Returns the number of mirrors that begin anew: a
        mirror to be filled drops its messages, as in RabbitMQ."""
        if self.ring is None:
            return 0
        mirrors = self.ring.fill_no_more() if cancels else self.ring.fill_once()
        for mirror in mirrors:
            self._node.mirror_lost(self.ring.record, mirror)
        return len(mirrors)

    def batch(self, view: int, number: int, payload: bytes) -> None:
        """A batch has been round the ring."""
        if self.ring is not None and self.ring.batch(view, number, payload):
            self._wake(self)

    def noted(self, node: NodeId, kind: RingNote, numbers: tuple[int, int, int]) -> None:
        """A note of another member of the ring."""
        if self.ring is not None:
            self.ring.noted(node, kind, numbers)
            self._wake(self)

    # How is the queue?

    def standing(self) -> dict[str, Any]:
        """Role, leader and term. There is no log, so the only index counts the commands that were applied."""
        return {"role": "leader", "leader": self.leader, "term": self.term, "applied_index": self._applied}

    def read(self, answered: Callable[[LogIndex | None], None]) -> None:
        """Call ``answered`` at once, if no other node can become the owner; else when the metadata say that this node
        still is the owner."""

        def certain() -> None:
            self._apply()
            answered(None if self._stopped else LogIndex(self._applied))

        if self._may_be_replaced:
            self._node.when_ready(certain)
        else:
            certain()

    # Doubt

    @property
    def _may_be_replaced(self) -> bool:
        return self.ring is not None and bool(self.ring.record.mirrors)

    def doubt(self) -> None:
        """A mirror may be the owner by now. Answers to earlier questions no longer count."""
        if self._may_be_replaced:
            self._is_in_doubt = True
            self._doubts += 1
            self._node.when_ready(partial(self._certain, self._doubts))

    def _certain(self, number: int) -> None:
        if number == self._doubts:
            self._is_in_doubt = False
            self._wake(self)

    # Peers

    def peer_up(self, node: NodeId) -> None:
        """The other node asks for this owner by itself, unless it has a mirror."""
        if self.ring is not None:
            self.ring.peer_up(node)

    def peer_down(self, node: NodeId) -> None:
        """The link to ``node`` broke: its channels have ended here."""
        self._non_members.pop(node, None)
        self._told.pop(node, None)
        if self.ring is not None:
            self.ring.peer_down(node)
        self.doubt()
        self._apply()
        if self._is_blocked:
            self._gone.append((len(self._waiting), node))
        elif ended := self.host.ends_of(node):
            self._waiting += ended
            self._wake(self)

    def was_suspended(self) -> None:
        """Nobody else can have dealt out what this node holds, unless the queue has mirrors."""
        self.doubt()

    def stop(self) -> None:
        """The queue was deleted: nothing stays of it. Later calls do nothing."""
        self._stopped = True
        self._waiting.clear()
        self.host.delete()

    # One turn

    def turn(self) -> None:
        """Apply the gathered commands, and execute the effects. Some effects may wait for the next turn."""
        self.scheduled = False
        if self._stopped:
            return
        self._apply()
        if self._auto_delete:
            self._look_for_consumers()
        try:
            are_left = self.host.run_effects(self._non_members.values(), only_answers=self._keeps_effects)
        except (OSError, DamagedPartError) as error:
            self._node.drive_failed(f"a message of queue {shown(self.host.record.name)} cannot be read back: {error}")
            return
        self._tell_applied()
        if self.ring is not None:
            self._turn_ring(self.ring, are_effects_left=are_left)
        if are_left:
            self._wake(self)

    def _turn_ring(self, ring: MasterRing, *, are_effects_left: bool) -> None:
        """Give the ring its part of the turn. If more is confirmed or may be applied then, there is another turn."""
        was_blocked = ring.is_blocked
        if ring.turn(are_effects_left=are_effects_left) or (not ring.is_blocked and (was_blocked or self._waiting)):
            self._wake(self)

    @property
    def _keeps_effects(self) -> bool:
        """Whether effects wait: in doubt, and while a new mirror is filled, which does not hear what leaves the queue
        meanwhile."""
        return self._is_in_doubt or (self.ring is not None and self.ring.filling is not None)

    @property
    def _is_blocked(self) -> bool:
        """Whether nothing may be applied now."""
        return self.ring is not None and self.ring.is_blocked

    def _apply(self) -> None:
        if not (self._waiting or self._gone) or self._is_blocked:
            return
        if self.ring is not None:
            marks, self._marks = self._marks, {}
            for (node, boot_id), number in marks.items():
                self.ring.applied(node, boot_id, number)
        commands, self._waiting = self._waiting, []
        self._applied += len(commands)
        if self._gone:
            commands = self._apply_with_ends(commands)
        self.host.apply(commands)
        if self._auto_delete:
            self._look_for_consumers()  # before the end of a consumer is told
        for numbers in self.unapplied:
            numbers.applied_up_to = numbers.last

    def _apply_with_ends(self, commands: list[Any]) -> list[Any]:
        """Apply the commands until the last link broke, and the ends of the channels behind each of these links.
        Returns the rest."""
        gone, self._gone, start = self._gone, [], 0
        for end, node in gone:
            self.host.apply(commands[start:end])
            self.host.apply(self.host.ends_of(node))
            start = end
        return commands[start:]

    def _tell_applied(self) -> None:
        told, self._told = self._told, {}
        for node in told:
            if (non_member := self._non_members.get(node)) is not None:
                non_member.applied(*self.highest_applied(node, non_member.boot_id))

    def _look_for_consumers(self) -> None:
        """Have an auto-delete queue deleted if its last consumer is gone."""
        if self._is_in_doubt:
            return
        has_consumers = self.host.counts().consumers > 0
        if self._had_consumers and not has_consumers:
            self._node.unused(self.group)
        self._had_consumers = has_consumers
