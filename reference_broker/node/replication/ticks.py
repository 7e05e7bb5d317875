"""Raft's time on a node: ticks for the groups that wait for something, and elections a few at a time. Pure.

A group begins to wait only in a turn. So each tick is for the groups that had a turn since the last tick, and for the
groups that waited then. A queue that nobody uses costs nothing.

A node with thousands of groups must not begin all their elections at once: ten thousand candidacies would outlast their
own election timers and begin again and again, and would leave the nodes no time for each other. When a node starts,
:class:`Campaigns` begins the elections, some at a time. When timers run out, :class:`Ticks` limits the elections that
begin in one tick. :class:`HandOver` moves leaders to members that more nodes can reach.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.ports import Runner
from reference_broker.node.replication.census import Busiest
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.raft.roles import Role
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, NodeId

log = logging.getLogger(__name__)

UNDER_WAY_MAX: Final = 128
PATIENCE_TICKS: Final = 20
_LEADERS_TOLD: Final = 10
_TICKED_MAX: Final = 1000
"""The most groups that one tick reaches."""
_ELECTIONS_MAX: Final = 20
"""The most elections that begin in one tick because a timer ran out: with two of three nodes left, 800 a second."""

LOOKS: Final = 4
"""Looks in a row at which a peer must be better placed before it gets groups: longer than a node needs to dial."""
_HANDED_OVER_MAX: Final = 400
"""The most groups that one look hands over: about as many as two nodes elect leaders for until the next look."""


class Campaigns:
    """The elections that a node begins of itself when it starts. ``stand`` makes the member of a group ask for votes,
    if the group has no leader.

    A node that starts stands for the groups in which it voted for itself last; it led most of them when the cluster
    stopped. So leaders come back to where they were, and members do not stand against each other. The number of
    campaigns under way is limited. A next one begins when one is decided, or has taken too long.
    """

    def __init__(self, stand: Callable[[GroupId], None]) -> None:
        self._stand = stand
        self._waiting: dict[GroupId, None] = {}
        self._under_way: dict[GroupId, int] = {}
        """When each began, oldest first."""
        self._ticks = 0

    def begin(self, groups: Iterable[GroupId]) -> None:
        """Stand for these groups, for each when its turn has come."""
        self._waiting.update((group, None) for group in groups if group not in self._under_way)
        self._go_on()

    def decided(self, group: GroupId) -> None:
        """The group has a leader, or its member here gave up, or has no member here any more."""
        self._waiting.pop(group, None)
        if self._under_way.pop(group, None) is not None:
            self._go_on()

    def tick(self) -> None:
        """Time passes: no group waits for long for an election that comes to nothing."""
        self._ticks += 1
        for group, began in list(self._under_way.items()):
            if self._ticks - began < PATIENCE_TICKS:
                break
            del self._under_way[group]
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            group = next(iter(self._waiting))
            del self._waiting[group]
            self._under_way[group] = self._ticks
            self._stand(group)


class HandOver:
    """Leaders move to where more nodes can reach them.

    If one link between two nodes is cut, a third node may reach both. A follower behind the cut gets nothing from its
    leader and cannot replace the leader either, because the third node trusts the leader. So the leader hands over to a
    voter that reaches every node that the leader reaches, and more. After that no voter reaches more than the new
    leader, so leaders do not move to and fro. ``leading`` are the groups that this node leads.
    """

    def __init__(self, runners: Mapping[GroupId, GroupRunner], leading: Collection[GroupId], nodes: Nodes) -> None:
        self._runners = runners
        self._leading = leading
        self._nodes = nodes
        self._looks: dict[NodeId, int] = {}
        """Number of looks in a row at which each of the peers was better placed."""

    def look(self) -> None:
        """Hand groups over to peers that were better placed for some looks. The links of a node go one after the other
        when it is lost, and come one after the other when it is back, and some peer seems to be better placed
        meanwhile."""
        better = self._nodes.better_placed()
        self._looks = {node: self._looks.get(node, 0) + 1 for node in better}
        heirs = [node for node in better if self._looks[node] >= LOOKS]
        if not heirs:
            return
        led = [self._runners[group] for group in self._leading if group in self._runners]
        moved = list(itertools.islice((runner for runner in led if runner.hand_over(heirs)), _HANDED_OVER_MAX))
        if moved:
            lost = ", ".join(self._nodes.name(node) for node in self._nodes.all if node not in self._nodes.up)
            text = "%s cannot be reached from here, but from %s: handing %d groups over to it"
            log.warning(text, lost, self._nodes.name(heirs[0]), len(moved))


class Ticks:
    """The ticks of one node's groups."""

    def __init__(
        self,
        runners: Mapping[GroupId, GroupRunner],
        stirred: dict[Runner, None],
        campaigns: Campaigns,
        busiest: Busiest,
    ) -> None:
        """``stirred`` has the runners that had a turn since the last tick; a tick removes the runners that need no
        tick."""
        self._runners = runners
        self._stirred = stirred
        self._campaigns = campaigns
        self._busiest = busiest
        self._led: list[GroupRunner] = []
        """The members that have found a leader since the last tick."""

    def leader_found(self, runner: GroupRunner) -> None:
        """A member knows a leader; the next tick says so in the log."""
        self._led.append(runner)

    def tick(self) -> None:
        """One unit of Raft's time for the groups that wait for something. The next tick looks at them again; a group
        that waits for nothing is left alone until something happens to it.

        When very many wait, time passes more slowly for them: each tick is for the groups that have waited longest, and
        few of them begin an election in it. The metadata group does not wait for the queues.
        """
        self._campaigns.tick()
        metadata, elections = self._runners[METADATA_GROUP], 0
        due = dict.fromkeys(itertools.islice(self._stirred, _TICKED_MAX))
        if metadata in self._stirred:
            due = {metadata: None, **due}
        for runner in due:
            del self._stirred[runner]
            if not isinstance(runner, GroupRunner) or self._runners.get(runner.group) is not runner:
                continue  # a proxy waits for no time; or the member was removed since
            if runner.group != METADATA_GROUP:
                self._busiest.note(runner.group, runner.core.commit_index)
            if runner.core.needs_tick:
                if elections < _ELECTIONS_MAX or runner.core.leader != NOBODY:
                    runner.tick()
                    elections += runner.scheduled and runner.core.role is not Role.LEADER
                self._stirred[runner] = None
        self._tell_of_leaders()

    def _tell_of_leaders(self) -> None:
        """A line of the log for each leader found, but one line for all when they are many."""
        led, self._led = self._led, []
        if len(led) > _LEADERS_TOLD:
            mine = sum(runner.core.role is Role.LEADER for runner in led)
            log.info("%d groups found a leader, %d of them this node", len(led), mine)
            return
        for runner in led:
            core = runner.core
            log.info("group %x: %s, leader %d, term %d", runner.group, core.role, core.leader, core.term)
