"""How many queues have a member on each node, how many each node leads, and which groups have no leader. Pure.

Counted as queues come, change and go, so that whoever wants to know looks at no queue: a declare chooses nodes by these
counts, and a start waits until no group is without a leader.
"""

from __future__ import annotations

from collections import Counter

from reference_broker.machines.metadata import QueueRecord
from reference_broker.types import NOBODY, GroupId, NodeId


class Census:
    """The counts of one node, which hears of every queue, and of the leaders of those it takes part in."""

    def __init__(self, here: NodeId) -> None:
        self._here = here
        self.members: Counter[NodeId] = Counter()
        """Queues with a member on each node."""
        self.led: Counter[NodeId] = Counter()
        """Queues that each node leads, or led when last heard of; a new queue counts for the node that is to lead it
        first."""
        self.leaderless: dict[GroupId, None] = {}
        """The groups with a member here that knows no leader, in the order in which they lost it."""
        self.leading: dict[GroupId, None] = {}
        """The groups that this node leads, in the order in which it came to lead them."""
        self._where: dict[GroupId, tuple[NodeId, ...]] = {}
        self._leaders: dict[GroupId, NodeId] = {}

    def queue_is(self, record: QueueRecord) -> None:
        """A queue is there, with its members wanted on these nodes."""
        group = record.group
        self.members.subtract(self._where.get(group, ()))
        self.members.update(record.members)
        self._where[group] = record.members
        if group not in self._leaders:
            self._leaders[group] = record.leader
            self.led[record.leader] += 1

    def queue_gone(self, group: GroupId) -> None:
        """A queue was deleted."""
        self.members.subtract(self._where.pop(group, ()))
        if (leader := self._leaders.pop(group, None)) is not None:
            self.led[leader] -= 1

    def leader_is(self, group: GroupId, leader: NodeId) -> None:
        """Who leads a queue, as far as this node knows; nobody: the node that led last still counts."""
        former = self._leaders.get(group)
        if former not in (None, leader) and leader != NOBODY:
            self._leaders[group] = leader
            self.led[former] -= 1
            self.led[leader] += 1

    def member_knows(self, group: GroupId, leader: NodeId) -> None:
        """The member of a group that is here knows this leader, or none."""
        if leader == NOBODY:
            self.leaderless[group] = None
        else:
            self.leaderless.pop(group, None)
        if leader == self._here:
            self.leading[group] = None
        else:
            self.leading.pop(group, None)
        self.leader_is(group, leader)

    def member_gone(self, group: GroupId) -> None:
        """There is no member of the group here any more."""
        self.leaderless.pop(group, None)
        self.leading.pop(group, None)
