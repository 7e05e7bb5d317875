"""A node that jumps over a part of the metadata log does not hear of the masters between. If the queue has come back to
the node in the meantime, it is another copy that is the master's: its messages count, not those of the former one. In
the simulator's world 4100495 a node went on with its former copy, and deleted the copy that had the messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror, store_of
from reference_broker.message_run import MessageRun
from reference_broker.node.shard import Shard
from reference_broker.types import NodeId
from tests.reference_broker.node.quiet_cluster import NODES, QuietCluster, quiet_cluster
from tests.reference_broker.node.test_suspension import content

ME, OTHER = NODES[:2]


def put(shard: Shard, record: QueueRecord, since: int, count: int) -> None:
    """Messages of a copy, as a former process left them on the drive."""
    copy = shard.owned.begin_copy(record, since)
    copy.add(MessageRun.of(b"\x00\x01q", [content(number) for number in range(count)]), persistent=True)
    copy.take_over()


def declared(cluster: QuietCluster, owner: NodeId) -> tuple[Shard, QueueRecord]:
    cluster.declare(["q"], on=owner, kind="classic")
    shard = cluster.shards[ME]
    cluster.wait(lambda: "q" in shard.metadata.machine.queues)
    return shard, shard.metadata.machine.queues["q"]


def counts(shard: Shard, record: QueueRecord) -> int:
    member = shard.queues["q"].member
    assert member is not None and record.group in shard.owned.runners
    return member.counts().ready


def told(cluster: QuietCluster, shard: Shard, record: QueueRecord) -> None:
    cluster.loops[ME].run(lambda: shard.hosting.members_changed(record))
    cluster.pass_time(0.1)


def test_the_queue_has_come_back_as_another_copy() -> None:
    with quiet_cluster() as cluster:
        shard, record = declared(cluster, ME)
        put(shard, record, 15, 5)
        told(cluster, shard, replace(record, changes=17, epoch=4, owner_since=15))
        assert counts(shard, record) == 5
        shard.owned.became_current(shard.hosting.mirrors.left_behind())
        store = shard.owned.store
        assert store is not None and store.has(store_of(record.group, 15)) is not None
        assert store.has(store_of(record.group, 0)) is None


@pytest.mark.parametrize(("becomes", "ready"), [(3, 2), (9, 0)])
def test_a_later_copy_than_the_one_here_becomes_the_masters(becomes: int, ready: int) -> None:
    """The earlier copy's messages are not the later one's, which has none yet."""
    with quiet_cluster() as cluster:
        shard, record = declared(cluster, OTHER)
        mirror = Mirror(ME, shard.boot_id, 3, is_synchronised=False)
        told(cluster, shard, replace(record, changes=3, mirrors=(mirror,)))
        put(shard, record, 3, 2)
        told(cluster, shard, replace(record, changes=10, leader=ME, members=(ME,), epoch=2, owner_since=becomes))
        assert counts(shard, record) == ready
        store = shard.owned.store
        assert store is not None and (store.has(store_of(record.group, 3)) is not None) is (becomes == 3)
