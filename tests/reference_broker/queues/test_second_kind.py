"""A kind of queue is an entry in a table: a second kind serves clients on every node, and no client code knows it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Queue
from pamqp.header import ContentHeader

from reference_broker.queues.kinds import KINDS
from reference_broker.queues.port import QueueMember
from reference_broker.types import NodeId
from tests.reference_broker.amqp.testing import publish
from tests.reference_broker.node.quiet_cluster import NODES, QuietCluster, quiet_cluster
from tests.reference_broker.node.test_back_pressure import Client
from tests.reference_broker.queues.last_value import LAST_VALUE, LastValueMember

TWO_KINDS = {**KINDS, LAST_VALUE.name: LAST_VALUE}
ARGUMENTS: dict[str, Any] = {"x-queue-type": "last-value", "x-quorum-initial-group-size": 1}
HERE, THERE, ELSEWHERE = NODES


class Remote:
    """A client that is connected to one node of the cluster."""

    def __init__(self, cluster: QuietCluster, node: NodeId) -> None:
        self._cluster, self._loop = cluster, cluster.loops[node]
        self._loop.run(self._connect, node)
        cluster.wait(lambda: hasattr(self, "client"))
        self.bodies: list[bytes] = []
        self.methods: list[Any] = []

    def _connect(self, node: NodeId) -> None:
        self.client = Client(SimpleNamespace(shard=self._cluster.shards[node]))  # type: ignore[arg-type]

    def send(self, *methods: Any) -> None:
        self._loop.run(self.client.send, 1, *methods)

    def publish(self, *bodies: bytes) -> None:
        self._loop.run(self.client.raw, b"".join(publish(1, "v", body) for body in bodies))

    def ask(self, method: Any, answer: type[Any]) -> Any:
        """Send, and wait for the answer."""
        self.send(method)
        return self.hear(answer)

    def hear(self, kind: type[Any], done: Callable[[Any], bool] = lambda _heard: True) -> Any:
        """Wait for a method, which is returned; what comes before is kept."""
        found: list[Any] = []

        def look() -> bool:
            for each in self.client.heard():
                if hasattr(each, "value"):
                    self.bodies.append(each.value)
                elif not isinstance(each, ContentHeader):
                    self.methods.append(each)
            found[:] = [each for each in self.methods if isinstance(each, kind) and done(each)]
            return bool(found)

        self._cluster.wait(look)
        self.methods.clear()
        return found[-1]


@pytest.fixture
def cluster() -> Any:
    with quiet_cluster(kinds=TWO_KINDS) as started:
        started.wait_for_leaders()
        yield started


def test_clients_of_every_node_use_a_kind_that_they_do_not_know(cluster: QuietCluster) -> None:
    """Its only member is on one node: commands travel there in its own codec, and what it says comes back."""
    owner, publisher, reader = Remote(cluster, HERE), Remote(cluster, THERE), Remote(cluster, ELSEWHERE)
    assert owner.ask(Queue.Declare(0, "v", durable=True, arguments=ARGUMENTS), Queue.DeclareOk).message_count == 0
    cluster.wait(lambda: all("v" in shard.queues for shard in cluster.shards.values()))
    assert [shard.queues["v"].member is not None for shard in cluster.shards.values()] == [True, False, False]
    publisher.publish(b"one", b"two", b"three")
    assert publisher.hear(Basic.Ack, lambda ack: ack.delivery_tag == 3).multiple
    assert reader.ask(Basic.Get(0, "v", no_ack=True), Basic.GetOk).message_count == 0
    assert reader.bodies == [b"three"]
    reader.ask(Basic.Consume(0, "v", "c"), Basic.ConsumeOk)
    publisher.publish(b"four")
    assert reader.hear(Basic.Deliver).consumer_tag == "c"
    assert reader.bodies == [b"three", b"four"]
    reader.send(Basic.Ack(2))
    declared = publisher.ask(Queue.Declare(0, "v", passive=True), Queue.DeclareOk)
    assert (declared.message_count, declared.consumer_count) == (1, 1)
    reader.ask(Basic.Cancel("c"), Basic.CancelOk)
    assert owner.ask(Queue.Purge(0, "v"), Queue.PurgeOk).message_count == 1
    reader.ask(Basic.Get(0, "v"), Basic.GetEmpty)
    publisher.ask(Queue.Delete(0, "v"), Queue.DeleteOk)
    cluster.wait(lambda: not any(shard.queues for shard in cluster.shards.values()))


def test_its_state_outlives_its_node_as_a_snapshot_and_as_a_log(cluster: QuietCluster) -> None:
    """Members of all kinds are recovered by one code: the record says which kind reads the octets."""
    first = Remote(cluster, HERE)
    first.ask(Queue.Declare(0, "v", durable=True, arguments=ARGUMENTS), Queue.DeclareOk)
    first.publish(b"old")
    first.hear(Basic.Ack)
    group = cluster.shards[HERE].queues["v"].record.group
    for body in (b"in a snapshot", b"in the log"):
        first.publish(body)
        first.hear(Basic.Ack)
        if body == b"in a snapshot":
            cluster.loops[HERE].run(cluster.shards[HERE].runners[group].take_snapshot)
            cluster.pass_time(1)
    assert cluster.shards[HERE].runners[group].core.log.snapshot_index > 0
    cluster.stop(HERE)
    cluster.start(HERE)
    cluster.wait(lambda: "v" in cluster.shards[HERE].queues)
    member: QueueMember | None = cluster.shards[HERE].queues["v"].member
    assert isinstance(member, LastValueMember)
    again = Remote(cluster, HERE)
    again.ask(Basic.Get(0, "v"), Basic.GetOk)
    assert again.bodies == [b"in the log"]


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"x-delivery-limit": 3}, "invalid arg 'x-delivery-limit' for queue 'v' in vhost '/' of queue type"),
        ({"x-expires": 0}, "invalid arg 'x-expires' for queue 'v' in vhost '/': {value_zero,0}"),
        ({"x-queue-type": "first-value"}, "unsupported queue type 'first-value'"),
    ],
    ids=["foreign", "wrong", "unknown"],
)
def test_its_declaration_is_checked_by_its_own_rules(
    cluster: QuietCluster, arguments: dict[str, Any], text: str
) -> None:
    """What one kind knows is foreign to another."""
    client = Remote(cluster, HERE)
    refused = client.ask(Queue.Declare(0, "v", durable=True, arguments={**ARGUMENTS, **arguments}), Channel.Close)
    assert refused.reply_code == 406
    assert text in refused.reply_text


def test_a_queue_of_one_kind_is_not_declared_again_as_another(cluster: QuietCluster) -> None:
    """The client would get a queue that does something else."""
    client = Remote(cluster, HERE)
    client.ask(Queue.Declare(0, "v", durable=True, arguments=ARGUMENTS), Queue.DeclareOk)
    quorum = {**ARGUMENTS, "x-queue-type": "quorum"}
    refused = client.ask(Queue.Declare(0, "v", durable=True, arguments=quorum), Channel.Close)
    assert "inequivalent arg 'x-queue-type' for queue 'v'" in refused.reply_text
    assert "received 'quorum' but current is 'last-value'" in refused.reply_text
