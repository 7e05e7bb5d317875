"""The leader of a queue brings its members in line with the metadata: what it does not do, because the news is old or
too few would be left."""

from __future__ import annotations

import pytest

from reference_broker.machines.cluster.metadata import AddMember, ClearPolicy, QueueRecord, RemoveMember, SetPolicy
from reference_broker.machines.cluster.policies import Policy
from reference_broker.machines.config import NO_LIMIT
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.raft.roles import Role
from reference_broker.types import NOBODY, NodeId, Priority
from tests.reference_broker.node.test_group_storm import FOUNDERS, GROUP, Node, World, member_of


def a_world() -> tuple[World, Node, list[Node]]:
    """Three founders at work: the world, the node that leads, the others."""
    world = World(1)
    world.settle_down()
    leads = next(node for node in world.nodes.values() if member_of(world, node.node).core.role is Role.LEADER)
    return world, leads, [node for node in world.nodes.values() if node is not leads]


def ask(world: World, kind: type[AddMember | RemoveMember], member: NodeId) -> QueueRecord:
    """An operator's request is committed. Returns the queue as it is then."""
    world.metadata.append(kind(name="q", group=GROUP, member=member, node=NOBODY, correlation=0))
    return world.record


def voters(runner: GroupRunner) -> tuple[NodeId, ...]:
    return runner.core.configuration.voters


def set_limit(world: World) -> None:
    limit = Policy(name="limit", pattern="q", definition=(("max-length", 1),), priority=0)
    world.metadata.append(SetPolicy(policy=limit, node=NOBODY, correlation=0))


def clear_limit(world: World) -> None:
    world.metadata.append(ClearPolicy(name="limit", node=NOBODY, correlation=0))


def limits(world: World) -> set[int]:
    return {node.host.machine.config.max_length for node in world.nodes.values()}


def test_a_member_that_came_back_is_not_removed_on_the_news_that_it_is_to_leave() -> None:
    """A leader that was away hears of the removal of a former replica when the next one has long been a voter. If it
    had it removed and were lost then, it could take the majority with it: one of the others might be gone for good."""
    world, leads, (other, _) = a_world()
    old_story = ask(world, RemoveMember, other.node)
    world.settle_down()
    now = ask(world, AddMember, other.node)
    world.settle_down()
    runner = member_of(world, leads.node)
    assert runner.core.role is Role.LEADER and voters(runner) == FOUNDERS
    entries = runner.core.log.last_index
    for record in (old_story, now):
        leads.hosting.members_changed(record)
        leads.tick()
        leads.turn()
    assert (voters(runner), runner.core.log.last_index) == (FOUNDERS, entries)


def test_no_member_is_removed_while_too_few_would_be_left() -> None:
    """Otherwise the removal would be in effect on the leader alone: neither it nor the others could ever be elected if
    it stopped now and the third never came back."""
    world, leads, (leaves, sleeps) = a_world()
    world.crash(sleeps.node)
    ask(world, RemoveMember, leaves.node)
    for _ in range(5):
        world.settle_down_without(sleeps.node)
    runner = member_of(world, leads.node)
    assert world.record.leaving == (leaves.node,) and voters(runner) == FOUNDERS
    world.settle_down()
    assert not world.record.leaving and leaves.member is None


@pytest.mark.parametrize("which", [0, 1], ids=["lower", "higher"])
def test_of_two_that_leave_the_one_goes_first_that_is_down(which: int) -> None:
    """Both are to go, one of them is gone. Without the one that runs the leader could not commit anything."""
    world, leads, others = a_world()
    down, runs = others[which], others[1 - which]
    world.crash(down.node)
    for node in (runs, down):
        ask(world, RemoveMember, node.node)
    for _ in range(10):
        world.settle_down_without(down.node)
    assert not world.record.leaving and runs.member is None
    assert voters(member_of(world, leads.node)) == (leads.node,)


def test_a_node_that_starts_does_not_follow_policies_of_long_ago() -> None:
    """It leads before it has heard the metadata log again. A limit that was taken back long ago would drop messages."""
    world, leads, _ = a_world()
    runner = member_of(world, leads.node)
    entries = runner.core.log.last_index
    leads.hosting.groups.is_current, leads.written_before = False, len(world.metadata) + 2
    set_limit(world)
    world.settle_down()
    assert leads.metadata.machine.policies and not leads.hosting.groups.is_current
    clear_limit(world)
    world.settle_down()
    assert leads.hosting.groups.is_current and not leads.metadata.machine.policies
    assert runner.core.role is Role.LEADER and runner.core.log.last_index == entries


def test_a_policy_that_is_taken_back_at_once_does_not_stay() -> None:
    """Its settings are on their way to the queue's log when the policy goes, and the queue still has those of before:
    what is to be done about that is seen when the others have arrived."""
    world, leads, _ = a_world()
    set_limit(world)
    leads.hear()
    clear_limit(world)
    leads.hear()
    world.settle_down()
    assert limits(world) == {NO_LIMIT}
    set_limit(world)
    world.settle_down()
    assert limits(world) == {1}


def test_the_settings_that_a_former_leader_wished_for_do_not_stay() -> None:
    """It was cut off with them; when it is back they are proposed again, to a leader that has nothing to do."""
    world, leads, others = a_world()
    for other in others:
        world.cut(min(leads.node, other.node), max(leads.node, other.node))
    set_limit(world)
    leads.hear()
    leads.turn()
    for _ in range(20):
        world.settle_down_without(leads.node)
    assert {other.host.machine.config.max_length for other in others} == {1}, "the test needs another leader"
    clear_limit(world)
    for _ in range(20):
        world.settle_down_without(leads.node)
    assert {other.host.machine.config.max_length for other in others} == {NO_LIMIT}
    assert list(member_of(world, leads.node).unapplied[Priority.LOW].all()), "the test needs a wish that comes late"
    world.settle_down()
    assert not list(member_of(world, leads.node).unapplied[Priority.LOW].all()) and limits(world) == {NO_LIMIT}


def test_the_settings_that_a_former_leader_left_in_the_log_do_not_stay() -> None:
    """At its election the next leader has not applied them yet, and finds the settings as they are wanted."""
    world, leads, others = a_world()
    set_limit(world)
    world.run_on(held={(other.node, leads.node) for other in others})
    ends = {member_of(world, other.node).core.log.last_index for other in others}
    assert limits(world) == {NO_LIMIT} and ends == {member_of(world, leads.node).core.log.last_index}
    clear_limit(world)
    world.crash(leads.node)
    for _ in range(20):
        world.settle_down_without(leads.node)
    members = [member_of(world, other.node) for other in others]
    assert all(member.applied > max(ends) for member in members), "the test needs another leader"
    assert {other.host.machine.config.max_length for other in others} == {NO_LIMIT}
