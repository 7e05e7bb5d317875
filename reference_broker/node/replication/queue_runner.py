"""The runner of a queue on a node, as the rest of the node sees it.

A :class:`~reference_broker.node.replication.group_runner.GroupRunner` runs a member of a Raft group. This port has the
questions that are the same for every kind of queue: *does this node lead the queue*, and *how is the queue*. Frames of
other nodes, services, reads and status ask these questions. What Raft says (roles, votes, configurations, ticks) is
asked of :attr:`~reference_broker.node.replication.known_groups.Groups.runners` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reference_broker.node.replication.proposals import Proposal, Segment
from reference_broker.queues.port import Applied
from reference_broker.types import GroupId, LogIndex, NodeId, Priority, Term


class CommandCodec(Protocol):
    """Reads the commands of a queue."""

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a batch forwarded at ``sent_ns``, which ends at octet ``end``, each with its size in
        octets."""


class QueueRunner(Protocol):
    """A queue that runs on this node, whether or not the node leads the queue."""

    group: GroupId
    scheduled: bool

    @property
    def unapplied(self) -> Sequence[Applied]:
        """As :attr:`reference_broker.queues.port.Proposer.unapplied`."""

    @property
    def host(self) -> CommandCodec:
        """The codec of the queue's commands."""

    # Does this node lead the queue?

    @property
    def leads(self) -> bool:
        """Whether this node leads the queue."""

    @property
    def leader(self) -> NodeId:
        """The node that leads, as far as this node knows."""

    @property
    def term(self) -> Term:
        """The term of the leader. A later leader has a higher term."""

    # How is the queue?

    def standing(self) -> dict[str, Any]:
        """This node's standing with the queue, for the status: ``role``, ``leader``, ``term`` and indexes."""

    def read(self, answered: Callable[[LogIndex | None], None]) -> None:
        """On the leader: call ``answered`` once everything is applied here that is committed now, with the index of the
        last such entry; with None if the leadership is lost before that is known."""

    # Commands of this node and of others

    def propose(self, command: object, size: int, priority: Priority = ..., *, lazy: bool = ...) -> int:
        """As :meth:`reference_broker.queues.port.Proposer.propose`."""

    def pace(self) -> int | None:
        """As :meth:`reference_broker.queues.port.Proposer.pace`."""

    def read_proposal(self, sealed: bytes) -> tuple[list[Segment], list[tuple[Any, int]]]:
        """The content of a forwarded proposal: segments, and commands with their sizes. Raises ValueError if
        damaged."""

    def proposed_by_peer(
        self, proposal: Proposal, segments: Sequence[Segment], commands: Sequence[tuple[Any, int]]
    ) -> None:
        """Another node's commands. Refused unless this node leads in just the term that the other node believes in."""

    def highest_applied(self, node: NodeId, boot_id: int) -> tuple[int, int]:
        """The highest numbers applied of that start of a node, of normal and of low priority."""

    def catch_up(self, node: NodeId, term: Term, boot_id: int, known: tuple[int, int], asked: Sequence[Any]) -> None:
        """A node without a member knows this leader, and has the results of its commands up to ``known`` of each
        priority: tell it what it may have missed, and from now on everything."""

    def non_member_left(self, node: NodeId) -> None:
        """The node has no clients of the group any more."""

    # Turns and peers

    def turn(self) -> None:
        """Do everything that the inputs since the last turn made necessary."""

    def peer_up(self, node: NodeId) -> None:
        """The link to ``node`` is up again: frames under way to it may be lost."""

    def peer_down(self, node: NodeId) -> None:
        """The link to ``node`` broke."""

    def was_suspended(self) -> None:
        """This process was suspended, and other nodes may have given its node up."""

    def stop(self) -> None:
        """The queue is gone from this node. Later calls do nothing."""
