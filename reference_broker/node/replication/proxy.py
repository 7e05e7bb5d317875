"""A proxy: a queue on a node without a member. Commands of the node's clients go to the leader, results come back.

Like a member, the proxy keeps the unapplied commands of its node, numbered by priority
(:mod:`reference_broker.node.replication.proposals`), and sends them again, in order, to each new leader. The proxy
finds the leader by *attaching* to every member. A member that leads, or comes to lead, answers with its term and with
the numbers up to which it has applied this node's commands. The proxy forgets these commands, sends the rest, and asks
for the results that its clients may have missed (:mod:`reference_broker.node.replication.non_members`). The proxy needs
no timers: it attaches again to each member that comes back into reach.

An unused proxy is attached to no member and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.ports import ProposingPorts
from reference_broker.node.replication import non_members
from reference_broker.node.replication.pipeline import Pipeline
from reference_broker.node.replication.proposals import Segment, UnappliedCommands, low_priority, seal
from reference_broker.queues.port import QueueKind
from reference_broker.types import NOBODY, ChannelId, GroupId, NodeId, Priority, Term

_ALL: Final = 1 << 62
"""Above the number of every command."""


class Proxy:
    """One group, seen from a node without a member."""

    def __init__(
        self,
        record: QueueRecord,
        kind: QueueKind,
        node: ProposingPorts,
        now_ms: Callable[[], int],
        unapplied: Sequence[UnappliedCommands] | None = None,
        lost: Callable[[QueueRecord], None] | None = None,
        published_here: Callable[[GroupId, int, Sequence[Any]], None] | None = None,
    ) -> None:
        """``unapplied``: the unapplied commands of this node's former member. ``lost`` is called when the link to the
        owner of an owned queue breaks: the owner ends this node's channels then
        (:mod:`~reference_broker.node.owned.owner`). ``published_here`` gets the publishes of this node's clients to
        such a queue, for a mirror here: the number of the first command, and the commands."""
        self.record = record
        self.group = record.group
        self.scheduled = False
        self._kind = kind
        self._node = node
        self._now_ms = now_ms
        copied = self._copy if lost is not None else None
        self._pipeline = Pipeline(record.group, node, self, self._encode, unapplied, copied=copied)
        self.unapplied = self._pipeline.unapplied
        self._lost = lost
        self._published_here = published_here
        self._asked: dict[tuple[ChannelId, int], tuple[Priority, tuple[int, Any, int]]] = {}
        """The applied commands whose reply a leader was asked for. It may lead no more, so the next leader is asked,
        too, until the reply is here."""
        self._attached = False
        self._is_late = False
        """Frames of the owner may have been read late: the owner has not answered since a suspension."""
        self._stopped = False

    @property
    def leader(self) -> NodeId:
        """The node that leads, as far as this node knows."""
        return self._pipeline.leader

    def _encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        return self._kind.encode(self._now_ms(), commands)

    # Inputs

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        """As :meth:`reference_broker.node.replication.group_runner.GroupRunner.propose`."""
        number = self._pipeline.propose(command, size, priority, lazy=lazy)
        self.attach()
        return number

    def pace(self) -> int | None:
        """None: a node without a member does not know."""
        return None

    def attach(self) -> None:
        """Attach to all members, once."""
        if not self._attached:
            self._attached = True
            for node in sorted(_replica_nodes(self.record)):
                self._attach_to(node)

    def peer_up(self, node: NodeId) -> None:
        """The link to ``node`` is back. Frames under way are lost, and the node no longer knows this proxy."""
        if self._attached and node in _replica_nodes(self.record):
            self._attach_to(node)

    def peer_down(self, node: NodeId) -> None:
        """The link to ``node`` broke."""
        if node == self.leader:
            self._leader_lost()

    def _leader_lost(self) -> None:
        self._pipeline.leader = NOBODY
        self._is_late = False
        if self._lost is not None:
            self._asked.clear()
            self._forget(_ALL, _ALL)
        self._pipeline.start_over()
        if self._lost is not None:
            self._lost(self.record)

    def was_suspended(self) -> None:
        """This process was suspended, and the members may have given this node up. The unread frames are outdated, so
        attach again to get all results repeated. An owner gives no node up while the link holds, and the end of the
        link may be unread behind these frames. Until the owner has answered, other consumers may have their
        messages."""
        if self._lost is not None:
            if self.leader != NOBODY:
                self._is_late = True
                self._attach_to(self.leader)
            return
        self.peer_down(self.leader)
        for node in sorted(_replica_nodes(self.record)) if self._attached else ():
            self._attach_to(node)

    def members_changed(self, record: QueueRecord) -> None:
        """The members of the queue have changed. A mirror that becomes the owner knows none of the channels here, even
        if the former owner can still be reached."""
        new = _replica_nodes(record) - _replica_nodes(self.record)
        if self._lost is not None and self.leader not in (NOBODY, record.leader):
            self._leader_lost()
        self.record = record
        for node in sorted(new) if self._attached else ():
            self._attach_to(node)

    def leading(self, node: NodeId, term: Term, normal: int, low: int) -> None:
        """``node`` leads in ``term`` and has applied this node's commands up to these numbers."""
        if term < self._pipeline.term or self._stopped:
            return
        if self._is_late and node == self.leader:
            self._is_late = False
            if term == self._pipeline.term:
                return  # the link holds, so nothing is missing
        self._pipeline.leader, self._pipeline.term = node, term
        asked = self._questions(normal, low)
        head = non_members.pack_catch_up(self.group, term, self._node.boot_id, normal, low)
        self._node.send(node, FrameKind.CATCH_UP, [head, *(self._encode(asked) if asked else ())])
        self._pipeline.start_over()
        self._node.wake(self)

    def applied(self, node: NodeId, normal: int, low: int) -> None:
        """The leader has applied this node's commands up to these numbers."""
        if node == self.leader:
            self._forget(normal, low)

    def effects(self, node: NodeId, effects: memoryview, clients: non_members.Clients) -> None:
        """Pass the leader's effects to this node's clients. Raises ValueError for a damaged frame."""
        if node == self.leader:
            for question in non_members.call_channels(clients, self.group, effects, are_late=self._is_late):
                self._asked.pop(question, None)

    def owned_here(self) -> None:
        """A mirror of this node becomes the owner. It knows none of the channels here, even if this node has yet to
        hear that the former owner is gone."""
        if self.leader != NOBODY:
            self._leader_lost()
        self.stop()

    def stop(self) -> None:
        """The queue is gone, or this node has a member of its own now, which answers what no leader has."""
        self._stopped = True
        self._ask_again()
        for node in sorted(_replica_nodes(self.record)) if self._attached else ():
            if node != self._node.node:
                self._node.send(node, FrameKind.ATTACH, [non_members.pack_attach(self.group, has_clients=False)])

    # One turn

    def turn(self) -> None:
        """Send the gathered commands, unless all of them may wait."""
        self.scheduled = False
        if not self._stopped and self._pipeline.is_due():
            self._pipeline.forward()

    def _copy(self, head: bytes, segments: Sequence[Segment], commands: Sequence[Any]) -> None:
        """Send the publishes of a batch straight to each mirror, too."""
        if not self.record.mirrors:
            return
        chosen, published = low_priority(segments, commands)
        if not published:
            return
        sealed = seal(self._encode(published), chosen, self._node.now_ns(), self._node.anatomy.clock)
        for mirror in self.record.mirrors:
            if mirror.node != self._node.node:
                self._node.send(mirror.node, FrameKind.COPY, [head, sealed])
            elif self._published_here is not None:
                self._published_here(self.group, chosen[0][3], published)

    def _attach_to(self, node: NodeId) -> None:
        if node != self._node.node:  # which is about to own the queue
            self._node.send(node, FrameKind.ATTACH, [non_members.pack_attach(self.group, has_clients=True)])

    def _questions(self, normal: int, low: int) -> list[Any]:
        """Forget the commands that a leader has applied. Returns the commands without a reply."""
        self._ask_again()
        for priority, applied in zip(Priority, (normal, low), strict=True):
            for taken in self.unapplied[priority].take(applied):
                if (question := self._kind.question(taken[1])) is not None:
                    self._asked[question] = priority, taken
        return [command for _priority, (_number, command, _octets) in self._asked.values()]

    def _ask_again(self) -> None:
        """Count the commands without a reply as not applied: the next leader may have applied fewer."""
        for priority, taken in reversed(self._asked.values()):
            self.unapplied[priority].put_back(taken)
        self._asked.clear()

    def _forget(self, normal: int, low: int) -> list[Any]:
        """Forget the applied commands, and return them."""
        return [*self.unapplied[Priority.NORMAL].applied(normal), *self.unapplied[Priority.LOW].applied(low)]


def _replica_nodes(record: QueueRecord) -> set[NodeId]:
    """The nodes that may lead the queue's group."""
    return {*record.members, *record.leaving}
