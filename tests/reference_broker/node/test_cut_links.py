"""Links between nodes that are cut without a word: where leaders go, and when a node is back."""

from __future__ import annotations

import itertools

import pytest

from reference_broker.node.proxy import Proxy
from reference_broker.types import METADATA_GROUP, GroupId, NodeId
from tests.reference_broker.node.quiet_cluster import NODES, QuietCluster, quiet_cluster

QUEUE = GroupId(1)


def cut(cluster: QuietCluster, *between: NodeId) -> None:
    for one, other in itertools.permutations(between, 2):
        cluster.network.block(f"n{one}", f"n{other}")


def heal(cluster: QuietCluster) -> None:
    for source, target in list(cluster.network.blocked):
        cluster.network.unblock(source, target)


def are_all_up(cluster: QuietCluster) -> bool:
    return all(len(shard.nodes.up) == len(NODES) for shard in cluster.shards.values())


def leader_known_by(cluster: QuietCluster, node: NodeId, group: GroupId) -> NodeId:
    hosting = cluster.shards[node].hosting
    found = hosting.runners.get(group) or hosting.proxies[group]
    return found.leader


@pytest.mark.parametrize("members", [2, 3])
def test_one_link_is_cut_and_the_leader_hands_over_to_the_node_that_reaches_both(members: int) -> None:
    """A node that reaches the third node, and not the leader, would serve nobody for as long as the cut lasts."""
    with quiet_cluster() as cluster:
        leader = cluster.leader().node
        cluster.declare(["q"], on=leader, **{"x-quorum-initial-group-size": members})
        third = next(node for node in NODES if node != leader and QUEUE in cluster.shards[node].runners)
        behind = next(node for node in NODES if node not in (leader, third))
        proxy = cluster.shards[behind].hosting.proxies.get(QUEUE)
        assert isinstance(proxy, Proxy) == (members == 2)
        if proxy is not None:
            cluster.loops[behind].run(proxy.attach)
            cluster.wait(lambda: leader_known_by(cluster, behind, QUEUE) == leader)
        cut(cluster, behind, leader)
        cluster.wait(
            lambda: all(
                leader_known_by(cluster, node, group) == third for node in NODES for group in (METADATA_GROUP, QUEUE)
            )
        )
        term = cluster.leader(QUEUE).runners[QUEUE].term
        heal(cluster)
        cluster.wait(lambda: are_all_up(cluster))
        cluster.pass_time(10)
        runner = cluster.leader(QUEUE).runners[QUEUE]
        assert (cluster.leader(QUEUE).node, runner.term) == (third, term), "leaders move once"


def test_a_leader_does_not_hand_over_because_a_node_is_gone() -> None:
    """A node that is lost is lost to all, if not at the same moment."""
    with quiet_cluster() as cluster:
        leader = cluster.leader().node
        cluster.declare(["q"], on=leader)
        gone = next(node for node in NODES if node != leader)
        cut(cluster, *NODES)
        for one, other in itertools.permutations((node for node in NODES if node != gone), 2):
            cluster.network.unblock(f"n{one}", f"n{other}")
        cluster.wait(lambda: gone not in cluster.leader(QUEUE).nodes.up)
        term = cluster.leader(QUEUE).runners[QUEUE].term
        cluster.pass_time(10)
        runner = cluster.leader(QUEUE).runners[QUEUE]
        assert (cluster.leader(QUEUE).node, runner.term) == (leader, term)


@pytest.mark.parametrize("seconds", [5.0, 28.4, 40.9, 55.2])
def test_a_node_is_back_soon_after_the_network_however_long_the_cut_was(seconds: float) -> None:
    """A kernel whose SYN is lost sends it again after pauses that double: after a minute of a cut, a minute more."""
    with quiet_cluster() as cluster:
        away = NODES[-1]
        for other in NODES[:-1]:
            cut(cluster, away, other)
        cluster.wait(lambda: list(cluster.shards[away].nodes.up) == [away])
        cluster.pass_time(seconds)
        heal(cluster)
        healed = cluster.scheduler.now
        cluster.wait(lambda: are_all_up(cluster))
        assert cluster.scheduler.now - healed < cluster.limits.dial_ms / 1000 + 0.3
