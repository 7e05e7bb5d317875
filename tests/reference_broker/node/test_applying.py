"""How much of the log a member reads at a time to apply it, and when it does."""

from __future__ import annotations

from typing import Any

import pytest

from reference_broker.message_run import MessageRun
from reference_broker.node.replication import group_runner as group
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.shard import Shard
from reference_broker.types import Entry, GroupId

from .quiet_cluster import QuietCluster, quiet_cluster
from .test_group_storm import FOUNDERS, Publisher, World, member_of

APPLY_BYTES = 1500
DRAIN = GroupRunner._drain


def test_a_member_that_is_far_behind_reads_a_little_at_a_time() -> None:
    """It learns the commit index of a backlog of gigabytes in one message, and must not read all of it for that."""
    world = World(1)
    world.settle_down()
    behind = FOUNDERS[2]
    world.crash(behind)
    publisher = Publisher(world.nodes[FOUNDERS[0]], world)
    for _ in range(16):
        publisher.publish()
        world.settle_down_without(behind)
    world.restart(behind)
    log, read = world.nodes[behind].log, []
    entries = log.entries

    def noted(*arguments: Any) -> list[Entry]:
        found = entries(*arguments)
        read.append([len(entry.payload) for entry in found])
        return found

    log.entries = noted  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group, "_APPLY_BYTES", APPLY_BYTES)
        world.settle_down()
    assert member_of(world, behind).applied == member_of(world, FOUNDERS[0]).applied
    assert max(map(len, read)) > 1, "several small ones come at once"
    assert len(read) > 2
    assert all(len(sizes) == 1 or sum(sizes) <= APPLY_BYTES for sizes in read)
    assert len({node.host.machine.snapshot() for node in world.nodes.values()}) == 1


def test_a_member_that_is_far_behind_lets_others_have_turns() -> None:
    """An entry may take long; the next one waits for a turn of its own."""
    world = World(1)
    world.settle_down()
    behind = FOUNDERS[2]
    world.crash(behind)
    publisher = Publisher(world.nodes[FOUNDERS[0]], world)
    for _ in range(8):
        publisher.publish()
        world.settle_down_without(behind)
    world.restart(behind)
    member, counts = member_of(world, behind), []
    drain = member._drain

    def noted() -> None:
        before = member.applied
        drain()
        counts.append(member.applied - max(before, member.core.log.snapshot_index))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group, "_APPLY_NS", 0)
        patched.setattr(type(member), "_drain", lambda self: noted() if self is member else DRAIN(self))
        world.settle_down()
    assert member.applied == member_of(world, FOUNDERS[0]).applied
    assert sum(counts) > 2 and max(counts) == 1


def members(cluster: QuietCluster) -> tuple[Shard, GroupRunner, list[GroupRunner]]:
    """The node that leads the queue, its member, and the others."""
    leader = cluster.leader(GroupId(1))
    others = [shard.runners[GroupId(1)] for shard in cluster.shards.values() if shard is not leader]
    return leader, leader.runners[GroupId(1)], others


def publish(cluster: QuietCluster, count: int) -> None:
    """So many entries, one after the other, by nobody's client."""
    leader, member, _others = members(cluster)
    for _ in range(count):
        end = member.applied + 1
        run = MessageRun(1, b"\0\1q", bytes(8), 8)
        cluster.loops[leader.node].run(leader.queues["q"].forward, run)
        cluster.wait(lambda end=end: member.applied >= end)


def test_a_follower_without_clients_applies_in_a_while_or_when_there_is_more() -> None:
    """Its answer is what the leader waits for; nobody waits for its machine."""
    with quiet_cluster(commit_notice_delay_ms=200) as cluster:
        cluster.declare(["q"])
        cluster.wait(lambda: all(GroupId(1) in shard.runners for shard in cluster.shards.values()))
        cluster.wait_for_leaders()
        publish(cluster, 20)
        cluster.pass_time(1)
        _leader, member, others = members(cluster)
        assert {other.applied for other in others} == {member.applied}
        begun = member.applied
        publish(cluster, 4)
        assert max(other.core.commit_index for other in others) == begun + 3, "one of them hears of it with each entry"
        assert {other.applied for other in others} == {begun}
        publish(cluster, 16)
        assert max(other.applied for other in others) >= begun + 8
        cluster.pass_time(1)
        assert {other.applied for other in others} == {member.applied} == {begun + 20}


def test_a_follower_with_clients_applies_at_once() -> None:
    """They wait for what an entry brings them."""
    with quiet_cluster() as cluster:
        cluster.declare(["q"])
        cluster.wait(lambda: all(GroupId(1) in shard.runners for shard in cluster.shards.values()))
        cluster.wait_for_leaders()
        publish(cluster, 20)
        cluster.pass_time(1)
        _leader, member, others = members(cluster)
        with pytest.MonkeyPatch.context() as patched:
            for other in others:
                patched.setattr(other.host, "client_nodes", frozenset(cluster.shards))
            publish(cluster, 4)
            assert max(other.applied for other in others) >= member.applied - 1
