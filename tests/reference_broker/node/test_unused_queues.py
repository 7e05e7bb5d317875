"""Queues that expire: the time in which nobody could use them does not count, and the log says which are gone, and why.

A queue with ``x-expires`` takes its messages with it. Consumers that lost their node need a leader to come back to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.policies import Policy
from reference_broker.node.hosting.endings import Ending
from reference_broker.node.shard import Shard
from reference_broker.queues.port import Queue
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, NodeId

from .quiet_cluster import NODES, QuietCluster, quiet_cluster

EXPIRES_MS = 5_000
NEARLY_S = 4.0
LONG_S = 30.0
GROUP = GroupId(7)
FIRST = NODES[0]
MIRRORED = Policy(name="ha", pattern="q", definition=(("ha-mode", "all"),), priority=0)


def declare(cluster: QuietCluster, kind: str) -> None:
    """A queue that expires, led or owned by the first node."""
    shard, loop = cluster.shards[FIRST], cluster.loops[FIRST]
    answered: list[object] = []
    if kind == "mirrored":
        loop.run(lambda: shard.metadata.set_policy(MIRRORED, answered.append))
        cluster.wait(lambda: bool(answered))
    name = "classic" if kind == "mirrored" else kind
    record = QueueRecord(name="q", group=GROUP, members=NODES, arguments=(("x-expires", EXPIRES_MS),), kind=name)
    queues: list[Queue] = []
    loop.run(lambda: shard.declare(shard.place(record), queues.append))
    cluster.wait(lambda: bool(queues) and queues[0].proposer.leader != NOBODY)
    assert bool(queues[0].record.mirrors) == (kind == "mirrored")


def leaders(cluster: QuietCluster) -> list[Shard]:
    """The nodes that lead or own the queue."""
    return [shard for shard in cluster.shards.values() if shard.hosting.groups.led_here(GROUP) is not None]


def is_there(cluster: QuietCluster) -> bool:
    return any("q" in shard.queues for shard in cluster.shards.values())


def expired(cluster: QuietCluster) -> int:
    return sum(shard.endings.count[Ending.EXPIRED] for shard in cluster.shards.values())


def all_start_again(cluster: QuietCluster) -> None:
    cluster.stop()
    cluster.scheduler.after(LONG_S, lambda: None)  # nothing else happens any more
    cluster.pass_time(LONG_S)
    cluster.start()


def the_leader_dies(cluster: QuietCluster) -> None:
    cluster.stop(FIRST)


def no_majority_for_a_while(cluster: QuietCluster) -> None:
    """The leader steps down, and nobody can be elected."""
    cluster.stop(*NODES[1:])
    cluster.pass_time(LONG_S)
    cluster.start(*NODES[1:])


REPLICATED = ("quorum", "keyed")
CASES: list[tuple[str, Callable[[QuietCluster], None]]] = [
    *[(kind, change) for kind in REPLICATED for change in (all_start_again, the_leader_dies, no_majority_for_a_while)],
    ("classic", all_start_again),
    ("mirrored", all_start_again),
    ("mirrored", the_leader_dies),
]


@pytest.mark.parametrize(("kind", "change"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_time_without_a_leader_does_not_count(
    kind: str, change: Callable[[QuietCluster], None], caplog: pytest.LogCaptureFixture
) -> None:
    """It was time in which nobody could subscribe: a client that came with the new leader found its queue gone."""
    with quiet_cluster() as cluster, caplog.at_level(logging.INFO, "reference_broker"):
        declare(cluster, kind)
        cluster.pass_time(NEARLY_S)
        change(cluster)
        cluster.wait(lambda: bool(leaders(cluster)))
        cluster.pass_time(NEARLY_S)
        assert is_there(cluster) and not expired(cluster)
        cluster.wait(lambda: not is_there(cluster))
        cluster.wait(lambda: expired(cluster) == 1)
        cluster.pass_time(NEARLY_S)
        assert expired(cluster) == 1
    assert caplog.messages.count(f"queue 'q' was deleted (expired): nobody used it for {EXPIRES_MS} ms") == 1


def test_a_deletion_that_comes_late_is_none() -> None:
    """The queue's leader asked for it while the metadata had no leader. Who uses the queue by then would lose it."""
    with quiet_cluster() as cluster:
        declare(cluster, "quorum")
        asking, loop = cluster.shards[FIRST], cluster.loops[FIRST]
        others = [node for node in NODES if node != FIRST]
        cluster.stop(*others)
        cluster.wait(lambda: asking.runners[METADATA_GROUP].leader == NOBODY)
        loop.run(lambda: asking.services.queue_expired(GROUP, EXPIRES_MS))
        heard: list[dict[str, object]] = []
        cluster.start(*others)
        loop.run(lambda: asking.counts(GROUP, heard.append))
        cluster.wait(lambda: not asking.hosting.groups.ending)
        assert is_there(cluster) and not expired(cluster)
        cluster.wait(lambda: bool(heard))
        assert heard == [{"ready": 0, "consumers": 0, "dead_letters": 0}], "who asked meanwhile has only waited"


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_who_asks_for_a_queue_that_is_ending_hears_when_it_is_gone(kind: str, node: NodeId) -> None:
    """A declaration that was answered before would have declared a queue that goes, with all that is published."""
    with quiet_cluster() as cluster:
        declare(cluster, kind)
        asking, heard = cluster.shards[node], list[tuple[bool, bool]]()
        cluster.wait(lambda: "q" in asking.queues)
        ends = cluster.shards[FIRST].services.queue_expired
        cluster.loops[FIRST].run(lambda: ends(GROUP, EXPIRES_MS))
        cluster.loops[node].run(
            lambda: asking.counts(GROUP, lambda told: heard.append(("error" in told, "q" in asking.queues)))
        )
        cluster.wait(lambda: bool(heard))
        assert heard == [(True, False)]


@pytest.mark.parametrize(
    ("ending", "why"),
    [(Ending.AUTO_DELETE, "its last consumer is gone"), (Ending.EXCLUSIVE, "its connection is gone")],
)
def test_every_queue_that_no_client_deleted_has_a_line(
    ending: Ending, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever looks for a queue that is gone reads in one place what became of it."""
    with quiet_cluster() as cluster, caplog.at_level(logging.INFO, "reference_broker"):
        declare(cluster, "classic")
        shard = cluster.shards[FIRST]
        end: Callable[[], None] = {
            Ending.AUTO_DELETE: lambda: shard.unused(GROUP),
            Ending.EXCLUSIVE: lambda: shard.when_left((), [shard.queues["q"]], lambda: None),
        }[ending]
        cluster.loops[FIRST].run(end)
        cluster.wait(lambda: not is_there(cluster) and bool(shard.endings.count))
        assert shard.endings.count == {ending: 1}
    assert f"queue 'q' was deleted ({ending}): {why}" in caplog.messages


def test_a_queue_that_ended_with_its_node_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Its messages went with the process."""
    with quiet_cluster() as cluster, caplog.at_level(logging.INFO, "reference_broker"):
        shard, answered = cluster.shards[FIRST], list[Queue]()
        record = QueueRecord(name="q", group=GROUP, members=NODES, kind="classic", durable=False)
        placed = replace(shard.place(record), boot_id=shard.boot_id)
        cluster.loops[FIRST].run(lambda: shard.declare(placed, answered.append))
        cluster.wait(lambda: bool(answered))
        cluster.stop(FIRST)
        cluster.start(FIRST)
        cluster.wait(lambda: not is_there(cluster))
        assert cluster.shards[FIRST].endings.count == {Ending.TRANSIENT: 1}
    assert "queue 'q' was deleted (transient): its node has started again" in caplog.messages
