"""A mirrored queue while links between its nodes are cut: confirms go on, and no message comes twice as if new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations

import pytest

from reference_broker.machines.commands import Enqueue
from reference_broker.machines.metadata import Policy, QueueRecord
from reference_broker.message_run import MessageRun
from reference_broker.types import METADATA_GROUP, GroupId, NodeId, Priority
from tests.reference_broker.node.quiet_cluster import NODES, QuietCluster, quiet_cluster
from tests.reference_broker.node.test_suspension import Reader, content

QUEUE = GroupId(1)
SUSPECT_S = 0.2


class Client(Reader):
    """A connection that publishes, and may consume."""

    def __init__(self, cluster: QuietCluster, node: NodeId, log: list[tuple[NodeId, int, int]]) -> None:
        super().__init__(cluster, cluster.shards[node], QUEUE, log)
        self.confirmed = 0
        self._published = 0

    def publish(self, number: int) -> None:
        self._published += 1
        run = MessageRun.of(b"\x00\x01q", [content(number)])
        self.propose(Enqueue(self.channel, self._published, run), Priority.LOW)

    def committed(self, _group: GroupId, last: int) -> bool:
        self.confirmed = max(self.confirmed, last)
        return True


class Scene:
    """Three nodes with a queue of which each has a copy."""

    def __init__(self, cluster: QuietCluster, master: NodeId, leader: NodeId) -> None:
        """``leader`` is to lead the metadata."""
        self.cluster, self.master = cluster, master
        self._lead(leader)
        done: list[object] = []
        policy = Policy(name="m", pattern="^q", definition=(("ha-mode", "all"), ("ha-sync-mode", "automatic")))
        shard = cluster.shards[master]
        cluster.loops[master].run(shard.metadata.set_policy, policy, done.append)
        cluster.wait(lambda: bool(done))
        record = QueueRecord(name="q", group=QUEUE, members=(master,), kind="classic", leader=master)
        cluster.loops[master].run(lambda: shard.declare(shard.place(record), done.append))
        cluster.wait(lambda: len(done) == 2 and self.copies() == set(NODES) - {master})
        self.log: list[tuple[NodeId, int, int]] = []
        self.published = 0

    def _lead(self, node: NodeId) -> None:
        cluster = self.cluster
        while cluster.leader().node != node:
            former = cluster.leader()
            cluster.loops[former.node].run(former.runners[METADATA_GROUP].core.transfer, node)
            cluster.loops[former.node].run(former.wake, former.runners[METADATA_GROUP])
            cluster.pass_time(1)

    def record(self, node: NodeId | None = None) -> QueueRecord:
        """The queue as a node knows it: its master by default."""
        return self.cluster.shards[node or self.master].metadata.machine.queues["q"]

    def copies(self, node: NodeId | None = None) -> set[NodeId]:
        """The synchronised mirrors."""
        return {mirror.node for mirror in self.record(node).mirrors if mirror.is_synchronised}

    def client(self, node: NodeId) -> Client:
        return Client(self.cluster, node, self.log)

    def publish(self, client: Client, count: int = 1) -> None:
        for _ in range(count):
            self.published += 1
            client.publish(self.published)

    def cut(self, *pairs: tuple[NodeId, NodeId]) -> None:
        """Hold up everything from each node to another."""
        for source, target in pairs:
            self.cluster.network.block(f"n{source}", f"n{target}")

    def heal(self) -> None:
        for source, target in list(self.cluster.network.blocked):
            self.cluster.network.unblock(source, target)


@contextmanager
def scene(master: NodeId = NODES[0], leader: NodeId = NODES[0]) -> Iterator[Scene]:
    with quiet_cluster(suspect_after_ms=int(1000 * SUSPECT_S), heartbeat_ms=50, tick_ms=10) as cluster:
        yield Scene(cluster, master, leader)


@pytest.mark.parametrize("leads", ["one", "other", "master"])
@pytest.mark.parametrize(("master", "one", "other"), list(permutations(NODES)))
def test_confirms_go_on_while_two_mirrors_do_not_reach_each_other(
    master: NodeId, one: NodeId, other: NodeId, leads: str
) -> None:
    """One of the two mirrors is given up for as long as the cut lasts: the one that does not hear the leader of the
    metadata, if that is one of them. Then all have everything again. The cut is in one direction, if a mirror leads."""
    with scene(master, {"one": one, "other": other, "master": master}[leads]) as run:
        client = run.client(master)
        run.publish(client, 10)
        run.cluster.wait(lambda: client.confirmed == 10)
        run.cut(*[(one, other), (other, one)][: 1 + (leads == "master")])
        run.publish(client, 10)
        run.cluster.pass_time(4 * SUSPECT_S)
        for _ in range(5):
            run.publish(client)
            run.cluster.pass_time(SUSPECT_S)
            assert client.confirmed == run.published
            assert len(run.record().mirrors) == 1
        run.heal()
        run.cluster.wait(lambda: len(run.copies()) == 2)
        run.publish(client)
        run.cluster.wait(lambda: client.confirmed == run.published)
