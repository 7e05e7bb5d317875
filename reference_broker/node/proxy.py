"""A proxy: a queue on a node without a member. Commands of the node's clients go to the leader, results come back.

Like a member, the proxy keeps the unapplied commands of its node, numbered by priority
(:mod:`reference_broker.node.proposals`), and sends them again, in order, to each new leader. The proxy finds the leader
by *attaching* to every member. A member that leads, or comes to lead, answers with its term and with the numbers up to
which it has applied this node's commands. The proxy forgets these commands, sends the rest, and asks for the results
that its clients may have missed (:mod:`reference_broker.node.non_members`). The proxy needs no timers: it attaches
again to each member that comes back into reach.

An unused proxy is attached to no member and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_broker.machines.metadata import QueueRecord
from reference_broker.node import non_members
from reference_broker.node.command_queue import CommandQueue
from reference_broker.node.node_ports import ProposingPorts
from reference_broker.node.peers import Kind
from reference_broker.node.proposals import Proposal, UnappliedCommands, seal
from reference_broker.queues.port import Channels, QueueKind
from reference_broker.types import NOBODY, NodeId, Priority, Term


class Proxy:
    """One group, seen from a node without a member."""

    def __init__(
        self,
        record: QueueRecord,
        kind: QueueKind,
        node: ProposingPorts,
        now_ms: Callable[[], int],
        unapplied: dict[Priority, UnappliedCommands] | None = None,
    ) -> None:
        """``unapplied``: the unapplied commands of this node's former member."""
        self.record = record
        self.group = record.group
        self.scheduled = False
        self.unapplied = (
            unapplied if unapplied is not None else {priority: UnappliedCommands() for priority in Priority}
        )
        self.leader = NOBODY
        self.term = Term(0)
        self._kind = kind
        self._node = node
        self._now_ms = now_ms
        self._commands = CommandQueue()
        self._waiting = False
        self._attached = False
        self._stopped = False

    # Inputs

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        """As :meth:`reference_broker.node.group.GroupRunner.propose`."""
        number = self.unapplied[priority].add(command, size)
        if self.leader != NOBODY:
            self._commands.add(command, size, (self._node.node, priority, self._node.boot_id), number)
            self._commands.urgent = self._commands.urgent or not lazy
            self._node.wake(self)
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
            self.leader = NOBODY
            self._commands.clear()

    def was_suspended(self) -> None:
        """This process was suspended, and the members may have given this node up. The frames that are still unread are
        outdated, so attach again and have all results repeated."""
        self.peer_down(self.leader)
        for node in sorted(_replica_nodes(self.record)) if self._attached else ():
            self._attach_to(node)

    def members_changed(self, record: QueueRecord) -> None:
        """The members of the queue have changed."""
        new = _replica_nodes(record) - _replica_nodes(self.record)
        self.record = record
        for node in sorted(new) if self._attached else ():
            self._attach_to(node)

    def leading(self, node: NodeId, term: Term, normal: int, low: int) -> None:
        """``node`` leads in ``term`` and has applied this node's commands up to these numbers."""
        if term < self.term or self._stopped:
            return
        self.leader, self.term = node, term
        asked = [command for command in self._forget(normal, low) if self._kind.expects_reply(command)]
        head = non_members.pack_catch_up(self.group, term, self._node.boot_id, normal, low)
        self._node.send(node, Kind.CATCH_UP, [head, *(self._kind.encode(self._now_ms(), asked) if asked else ())])
        self._propose_again()

    def applied(self, node: NodeId, normal: int, low: int) -> None:
        """The leader has applied this node's commands up to these numbers."""
        if node == self.leader:
            self._forget(normal, low)

    def effects(self, node: NodeId, effects: memoryview, clients: Channels) -> None:
        """Pass the leader's effects to this node's clients. Raises ValueError for a damaged frame."""
        if node == self.leader:
            non_members.call_channels(clients, self.group, effects)

    def stop(self) -> None:
        """The queue is gone, or this node has a member of its own now."""
        self._stopped = True
        for node in sorted(_replica_nodes(self.record)) if self._attached else ():
            if node != self._node.node:
                self._node.send(node, Kind.ATTACH, [non_members.pack_attach(self.group, has_clients=False)])

    # One turn

    def turn(self) -> None:
        """Send the gathered commands, unless all of them may wait."""
        self.scheduled = False
        if self._stopped or self.leader == NOBODY or not self._commands.octets:
            return
        if not self._commands.is_due:
            if not self._waiting:
                self._waiting = True
                self._node.later(self._node.limits.settle_delay_ms / 1000, self._delay_over)
            return
        head = Proposal(group=self.group, term=self.term, lazy=not self._commands.urgent).pack()
        limits = self._node.limits
        while self._commands.octets:
            cut = self._commands.cut_for_link(limits, congested=self.leader in self._node.congested)
            if cut is None:
                self._node.when_writable(self.leader, self)
                return
            commands, segments = cut
            batch = self._kind.encode(self._now_ms(), commands)
            sealed = seal(batch, segments, self._node.now_ns(), self._node.anatomy.clock)
            self._node.send(self.leader, Kind.PROPOSE, [head, sealed])

    def _delay_over(self) -> None:
        self._waiting = False
        self._commands.overdue = self._commands.octets > 0
        self._node.wake(self)

    def _attach_to(self, node: NodeId) -> None:
        self._node.send(node, Kind.ATTACH, [non_members.pack_attach(self.group, has_clients=True)])

    def _propose_again(self) -> None:
        self._commands.clear()
        for priority, unapplied in self.unapplied.items():
            for number, command, size in unapplied.all():
                self._commands.add(command, size, (self._node.node, priority, self._node.boot_id), number)
        self._commands.urgent = self._commands.octets > 0
        self._node.wake(self)

    def _forget(self, normal: int, low: int) -> list[Any]:
        """Forget the applied commands, and return them."""
        return [*self.unapplied[Priority.NORMAL].applied(normal), *self.unapplied[Priority.LOW].applied(low)]


def _replica_nodes(record: QueueRecord) -> set[NodeId]:
    """The nodes that may lead the queue's group."""
    return {*record.members, *record.leaving}
