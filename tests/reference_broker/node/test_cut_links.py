"""Links between nodes that are cut without a word: where leaders go, and when a node is back."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pamqp import base
from pamqp.commands import Basic, Connection

from reference_broker.amqp.errors import ReplyCode
from reference_broker.node.clients.client_connection import TICK_S
from reference_broker.node.replication.proxy import Proxy
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, NodeId
from tests.reference_broker.amqp.testing import method, publish
from tests.reference_broker.node.quiet_cluster import NODES, QuietCluster, quiet_cluster
from tests.reference_broker.node.test_back_pressure import Client

QUEUE = GroupId(1)
SENT_AWAY_S = 2.5
SOON_S = 1.3
"""Virtual time: one limit of dialling, and one pause."""


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


def test_a_node_whose_links_come_back_one_after_the_other_moves_no_leader() -> None:
    """Each of two nodes dials at its own times, so one has the node back before the other."""
    with quiet_cluster() as cluster:
        leader = cluster.leader().node
        cluster.declare(["q"], on=leader)
        third, back = (node for node in NODES if node != leader)
        cut(cluster, *NODES)
        for one, other in itertools.permutations((leader, third), 2):
            cluster.network.unblock(f"n{one}", f"n{other}")
        cluster.wait(lambda: all(back not in cluster.shards[node].nodes.up for node in (leader, third)))
        term = cluster.leader(QUEUE).runners[QUEUE].term
        for one, other in itertools.permutations((third, back), 2):
            cluster.network.unblock(f"n{one}", f"n{other}")
        cluster.wait(lambda: back in cluster.shards[third].nodes.up)
        cluster.pass_time(0.2)
        heal(cluster)
        cluster.wait(lambda: are_all_up(cluster))
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
        assert cluster.scheduler.now - healed < SOON_S


@pytest.mark.parametrize(
    "does", [Basic.Consume(0, "q", "c"), b"publishes", b"published before"], ids=["consumes", "publishes", "published"]
)
@pytest.mark.parametrize("members", [1, 3])
def test_a_client_whose_queue_has_no_leader_within_reach_is_told_so(does: base.Frame | bytes, members: int) -> None:
    """It would wait for the whole cut, and say nothing. A client with nothing open there is left alone."""
    with quiet_cluster() as cluster:
        leader = cluster.leader().node
        cluster.declare(["q"], on=leader, **{"x-quorum-initial-group-size": members})
        behind = next(node for node in NODES if node != leader)
        client, is_open = connected(cluster, behind), does != b"published before"
        if not is_open:
            said(cluster, behind, client, publish(1, "q", b"x"))
            cluster.wait(lambda: client.heard() != [])
        if isinstance(does, base.Frame):
            said(cluster, behind, client, method(1, does))
            cluster.wait(lambda: client.heard() != [])
        cut(cluster, *NODES)
        cluster.wait(lambda: leader_known_by(cluster, behind, QUEUE) == NOBODY)
        if does == b"publishes":
            said(cluster, behind, client, publish(1, "q", b"x"))
        ticks = int(cluster.limits.answer_timeout_ms / 1000 / TICK_S)
        for _ in range(ticks):
            cluster.loops[behind].run(client.server.tick)
        assert client.heard() == []
        cluster.loops[behind].run(client.server.tick)
        told = client.heard()
        assert len(told) == is_open
        for close in told:
            assert isinstance(close, Connection.Close) and close.reply_code == ReplyCode.CONNECTION_FORCED
            assert "no leader of queue 'q' was within reach" in close.reply_text


@pytest.mark.parametrize("links", [1, 2, 3])
def test_a_client_of_a_leader_that_another_node_reaches_is_sent_there(links: int) -> None:
    """The only member has nobody to hand over to. If no node reaches it, it is no use to go elsewhere."""
    with quiet_cluster() as cluster:
        leader = cluster.leader().node
        cluster.declare(["q"], on=leader, **{"x-quorum-initial-group-size": 1})
        behind, third = (node for node in NODES if node != leader)
        client = connected(cluster, behind)
        said(cluster, behind, client, method(1, Basic.Consume(0, "q", "c")))
        cluster.wait(lambda: client.heard() != [])
        for pair in itertools.islice(((behind, leader), (third, leader), (behind, third)), links):
            cut(cluster, *pair)
        cluster.wait(lambda: leader_known_by(cluster, behind, QUEUE) == NOBODY)
        cluster.wait(lambda: len(cluster.shards[third].nodes.up) == (3, 2, 1)[links - 1])
        cluster.pass_time(1)
        for _ in range(int(SENT_AWAY_S / TICK_S)):
            cluster.loops[behind].run(client.server.tick)
        assert client.heard() == []
        cluster.loops[behind].run(client.server.tick)
        told = client.heard()
        assert len(told) == (links == 1)
        for close in told:
            assert isinstance(close, Connection.Close) and close.reply_code == ReplyCode.CONNECTION_FORCED
            assert f"use n{third};" in close.reply_text


def connected(cluster: QuietCluster, node: NodeId) -> Client:
    made: list[Client] = []
    cluster.loops[node].run(lambda: made.append(Client(cast(Any, SimpleNamespace(shard=cluster.shards[node])))))
    return made[0]


def said(cluster: QuietCluster, node: NodeId, client: Client, octets: bytes) -> None:
    cluster.loops[node].run(lambda: client.raw(octets))
