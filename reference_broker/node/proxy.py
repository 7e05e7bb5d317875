"""A queue on a node that has no member of it: commands of clients here go to the leader, and its answers come back.

The proxy keeps what a member's runner keeps of its own commands: the commands that are not known to be applied,
numbered by priority (:mod:`reference_broker.node.proposals`), sent again, in order, to whoever leads. It finds the
leader by *attaching* to every member; the one that leads, or comes to lead, says so with its term and with how far it
has applied this node's commands. The proxy forgets those, sends the rest, and asks to be told again what its clients
may have missed (:mod:`reference_broker.node.non_members`). No timers: a member that can be reached again is attached to
again.

A proxy that nobody has used is attached to nobody and costs nothing.
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
    """One group, seen from a node without a member of it."""

    def __init__(
        self,
        record: QueueRecord,
        kind: QueueKind,
        node: ProposingPorts,
        now_ms: Callable[[], int],
        unapplied: dict[Priority, UnappliedCommands] | None = None,
    ) -> None:
        """``unapplied``: what this node's own member, which is gone, has proposed and not seen applied."""
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
        """A node without a member does not know."""
        return None

    def attach(self) -> None:
        """Find the leader, unless that was done."""
        if not self._attached:
            self._attached = True
            for node in sorted(_replica_nodes(self.record)):
                self._attach_to(node)

    def peer_up(self, node: NodeId) -> None:
        """The link to ``node`` stands again: what was under way is lost, and so is what it knew of this node."""
        if self._attached and node in _replica_nodes(self.record):
            self._attach_to(node)

    def peer_down(self, node: NodeId) -> None:
        """The link to ``node`` broke."""
        if node == self.leader:
            self.leader = NOBODY
            self._commands.clear()

    def stood_still(self) -> None:
        """This process did, and others may think that its node is gone: whatever is unread was said to the node before
        that, so have everything said again."""
        self.peer_down(self.leader)
        for node in sorted(_replica_nodes(self.record)) if self._attached else ():
            self._attach_to(node)

    def members_changed(self, record: QueueRecord) -> None:
        """The queue has members on other nodes."""
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
        """Tell this node's clients what the leader says. Raises ValueError if it is damaged."""
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
        """Send what has gathered, unless all of it may wait for more."""
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
        """Forget what is applied; returns those commands."""
        return [*self.unapplied[Priority.NORMAL].applied(normal), *self.unapplied[Priority.LOW].applied(low)]


def _replica_nodes(record: QueueRecord) -> set[NodeId]:
    """The nodes that may lead the queue's group."""
    return {*record.members, *record.leaving}
