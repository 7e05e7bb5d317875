"""The number of queues with a member on each node, the number that each node leads, the groups without a leader, and
the groups that have committed most. Pure.

A node counts as queues come, change and go, which spares looks at all queues: a declare chooses nodes by these counts,
a start waits until no group is without a leader, and a summary names the busiest groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from heapq import nlargest
from operator import itemgetter
from typing import Final

from reference_broker.machines.cluster.metadata import QueueRecord, with_policy
from reference_broker.machines.cluster.policies import Policy
from reference_broker.types import NOBODY, GroupId, LogIndex, NodeId

GROUP_SIZE: Final = 3
"""RabbitMQ's ``quorum_cluster_size`` of 3.10."""


class Census:
    """The counts of one node. It is told every queue, and the leaders of the queues that it takes part in."""

    def __init__(self, here: NodeId) -> None:
        self._here = here
        self.members: Counter[NodeId] = Counter()
        """Queues with a member on each node."""
        self.led: Counter[NodeId] = Counter()
        """Queues that each node leads, or led when this node last heard of it. A new queue counts for the node that is
        to lead it first."""
        self.leaderless: dict[GroupId, None] = {}
        """The groups whose member here knows no leader, in the order in which they lost their leaders."""
        self.leading: dict[GroupId, None] = {}
        """The groups that this node leads, in the order in which it came to lead them."""
        self._where: dict[GroupId, tuple[NodeId, ...]] = {}
        self._leaders: dict[GroupId, NodeId] = {}

    def queue_is(self, record: QueueRecord) -> None:
        """A queue exists, with members on the nodes of this record."""
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
        """A queue has this leader, as far as this node knows. Without a leader, the node that led last still counts."""
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
        """The group has no member here any more."""
        self.leaderless.pop(group, None)
        self.leading.pop(group, None)


class Busiest:
    """The ``count`` groups of a node that have committed most, kept as commit indexes rise. ``everything`` gives all
    groups with their commit indexes.

    A person who measures wants to see the progress of the measured queue once a second, however many other queues there
    are. A commit index only rises, so a group outside the few gets among them by committing, and is noted then. Only
    when one of the few is deleted, all groups are looked at, once, for the group that takes its place.
    """

    def __init__(self, count: int, everything: Callable[[], Iterable[tuple[GroupId, LogIndex]]]) -> None:
        self._count = count
        self._everything = everything
        self._few: dict[GroupId, LogIndex] = {}
        self._least = LogIndex(0)
        """No group outside has committed more."""
        self._is_missing = False

    def note(self, group: GroupId, commit: LogIndex) -> None:
        """The commit index of a group may have risen."""
        if commit <= self._least:
            return
        self._few[group] = commit
        if len(self._few) > self._count:
            del self._few[min(self._few, key=self._few.__getitem__)]
        if len(self._few) == self._count:
            self._least = min(self._few.values())

    def gone(self, group: GroupId) -> None:
        """The group has no member here any more."""
        self._is_missing = self._few.pop(group, None) is not None or self._is_missing

    def groups(self) -> list[GroupId]:
        """The groups, most commits first."""
        if self._is_missing:
            self._is_missing, self._least = False, LogIndex(0)
            self._few = dict(nlargest(self._count, self._everything(), key=itemgetter(1)))
            if len(self._few) == self._count:
                self._least = min(self._few.values())
        return sorted(self._few, key=lambda group: (-self._few[group], group))


def placed(
    record: QueueRecord,
    here: NodeId,
    nodes: Collection[NodeId],
    up: Collection[NodeId],
    census: Census,
    *,
    is_replicated: bool,
    policies: Collection[Policy] = (),
) -> QueueRecord:
    """The record with members, founders and a first leader, whom the declaration elects. The cost does not depend on
    the number of queues.

    The queue gets ``x-quorum-initial-group-size`` members (3 by default), or one on each node if there are fewer nodes.
    ``x-queue-leader-locator`` chooses the first leader: ``client-local`` (default) is the node that the client is
    connected to, ``balanced`` the node that leads the fewest queues, as ``x-queue-master-locator`` = ``min-masters`` of
    a classic queue does; one of ``policies`` may say so, too. The leader's node gets a member. The other members go to
    nodes that run, first to those with the fewest members. A queue that is not replicated has the leader's member only;
    an exclusive one stays with its connection.
    """
    arguments, held, led = dict(record.arguments), census.members, census.led
    wanted = arguments.get("x-quorum-initial-group-size", GROUP_SIZE)
    size = min(int(str(wanted)), len(nodes)) if is_replicated else 1
    order = sorted(nodes, key=lambda node: (node not in up, held[node], node))
    leader = here
    if _is_balanced(with_policy(record, policies)) and not record.exclusive:
        leader = min(order, key=lambda node: (node not in up, led[node], node != here, node))
    members = tuple(sorted([leader, *[node for node in order if node != leader][: size - 1]]))
    return replace(record, members=members, founders=members, leader=leader, elected=True)


def _is_balanced(record: QueueRecord) -> bool:
    arguments = dict(record.arguments)
    is_by_masters = record.kind == "classic" and arguments.get("x-queue-master-locator") == "min-masters"
    return is_by_masters or arguments.get("x-queue-leader-locator") == "balanced"
