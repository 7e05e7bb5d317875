"""A cluster of three real processes, spoken to by somebody else's client.

Our own generator could share a misunderstanding with our own broker; pika does not.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes

QUORUM = {"x-queue-type": "quorum"}
PERSISTENT = pika.BasicProperties(delivery_mode=2, message_id="m", headers={"k": "v"})


def declared(channel: BlockingChannel, request: pytest.FixtureRequest, **arguments: Any) -> str:
    """A queue named after its test."""
    name: str = request.node.name
    channel.queue_declare(name, durable=True, arguments={**QUORUM, **arguments})
    return name


def publish(channel: BlockingChannel, queue: str, bodies: list[bytes]) -> None:
    """Publish, each confirmed before the next: pika raises on a nack."""
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)


def take(channel: BlockingChannel, queue: str, count: int, **consume: Any) -> list[tuple[Any, Any, bytes]]:
    """The next ``count`` deliveries of a consumer that stays."""
    taken = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=30, **consume):
        assert method is not None, f"only {len(taken)} of {count} messages came"
        taken.append((method, properties, body))
        if len(taken) == count:
            break
    return taken


def bodies(count: int) -> list[bytes]:
    return [b"message %d " % number + b"x" * 1000 for number in range(count)]


def test_messages_arrive_in_order_with_their_properties(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """The first promise of a queue; across nodes: published on one, consumed on each of the others."""
    for consuming in cluster.nodes:
        with connect(cluster.nodes[0]) as publisher, connect(consuming) as consumer:
            queue = declared(publisher.channel(), request)
            publish(publisher.channel(), queue, bodies(20))
            channel = consumer.channel()
            channel.basic_qos(prefetch_count=10)
            seen = []
            for method, properties, body in channel.consume(queue, inactivity_timeout=30):
                assert method is not None
                assert (properties.message_id, properties.headers, properties.delivery_mode) == ("m", {"k": "v"}, 2)
                assert not method.redelivered
                seen.append(body)
                channel.basic_ack(method.delivery_tag)
                if len(seen) == 20:
                    break
            channel.cancel()
            assert seen == bodies(20)


def test_prefetch_bounds_what_a_consumer_holds(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """A consumer that crashes must not take the whole queue with it; acks, single and multiple, bring the next ones."""
    with connect(cluster.nodes[1]) as connection:
        channel = connection.channel()
        queue = declared(channel, request)
        publish(channel, queue, bodies(10))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=3)
        got: list[Any] = []
        channel.basic_consume(queue, lambda _channel, method, _properties, body: got.append((method, body)))
        pump(connection, lambda: len(got) >= 3)
        assert declared_counts(connection, queue)[0] == 7
        channel.basic_ack(got[0][0].delivery_tag)
        pump(connection, lambda: len(got) >= 4)
        channel.basic_ack(got[3][0].delivery_tag, multiple=True)
        pump(connection, lambda: len(got) >= 7)
        assert [body for _, body in got] == bodies(7)


def test_requeued_and_unacked_messages_come_back_redelivered(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """At least once: what was not acknowledged is somebody's again, and says that it was delivered before."""
    with connect(cluster.nodes[0]) as first, connect(cluster.nodes[2]) as second:
        channel = first.channel()
        queue = declared(channel, request)
        publish(channel, queue, bodies(3))
        taken = take(channel, queue, 3)
        channel.basic_nack(taken[0][0].delivery_tag, requeue=True)
        channel.basic_reject(taken[1][0].delivery_tag, requeue=False)
        again = take(channel, queue, 1)
        assert (again[0][2], again[0][0].redelivered) == (bodies(1)[0], True)
        first.close()
        back = take(second.channel(), queue, 2)
        assert [body for _, _, body in back] == [bodies(3)[0], bodies(3)[2]]
        assert all(method.redelivered for method, _, _ in back)


def test_a_follower_delivers_to_its_own_consumers(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """Local delivery: the node the consumer is connected to sends, whoever leads."""
    with connect(cluster.nodes[0]) as publisher:
        channel = publisher.channel()
        queue = declared(channel, request)
        roles = {status["name"]: queue_status(status, queue) for status in local_cluster.status(cluster)}
        follower = next(node for node in cluster.nodes if roles[node.name]["role"] == "follower")
        before = delivered(cluster)
        publish(channel, queue, bodies(5))
        with connect(follower) as consumer:
            consuming = consumer.channel()
            for method, _, _ in take(consuming, queue, 5):
                consuming.basic_ack(method.delivery_tag)
        after = delivered(cluster)
        grown = {name: after[name] - before[name] for name in after}
        assert grown == {node.name: 5 if node is follower else 0 for node in cluster.nodes}


def test_purge_delete_and_passive_declare(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """Operators clean up with these; a wrong count or a ghost queue would mislead them."""
    with connect(cluster.nodes[2]) as connection:
        channel = connection.channel()
        queue = declared(channel, request)
        publish(channel, queue, bodies(4))
        assert channel.queue_purge(queue).method.message_count == 4
        publish(channel, queue, bodies(2))
        assert channel.queue_delete(queue).method.message_count == 2
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.queue_declare(queue, passive=True)
        assert closed.value.reply_code == 404


def test_unroutable_messages_come_back_or_vanish_confirmed(cluster: Cluster) -> None:
    """A publisher that asked for it must hear that nobody took its message."""
    with connect(cluster.nodes[0]) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "nobody", b"x")
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("", "nobody", b"x", mandatory=True)


def test_a_deleted_queue_cancels_its_consumers(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """A consumer of a queue that is gone must not wait for ever."""
    with connect(cluster.nodes[0]) as consumer, connect(cluster.nodes[1]) as other:
        channel = consumer.channel()
        queue = declared(channel, request)
        cancelled: list[Any] = []
        channel.add_on_cancel_callback(cancelled.append)
        channel.basic_consume(queue, lambda *_: None)
        other.channel().queue_delete(queue)
        pump(consumer, lambda: bool(cancelled))


def test_a_tag_that_changes_its_queue_settles_what_it_had_of_each(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """An acknowledgement that went to the queue that has the tag now would lose messages there."""
    with connect(cluster.nodes[0]) as connection:
        channel, other = connection.channel(), connection.channel()
        first = declared(channel, request)
        second = f"{first}, second"
        channel.queue_declare(second, durable=True, arguments=QUORUM)
        for queue in (first, second):
            publish(other, queue, bodies(3))
        tags: list[int] = []
        for count, queue in ((3, first), (6, second)):
            channel.basic_consume(
                queue, lambda _channel, method, *_: tags.append(method.delivery_tag), consumer_tag="t"
            )
            pump(connection, lambda count=count: len(tags) == count)
            channel.basic_cancel("t")
        channel.basic_ack(tags[2], multiple=True)
        channel.close()
        # The channel is closed before its messages are back: other nodes lead the queues.
        pump(connection, lambda: declared_counts(connection, second) == (3, 0))
        assert declared_counts(connection, first) == (0, 0)


def test_what_was_confirmed_survives_the_loss_of_the_leader(tmp_path: Path) -> None:
    """kill -9 of the leader between confirm and consumption: the reason why quorum queues exist."""
    with local_cluster.temporary(tmp_path) as cluster:
        with connect(cluster.nodes[0]) as connection:
            connection.channel().queue_declare("q", durable=True, arguments=QUORUM)
            publish(connection.channel(), "q", bodies(50))
        leader = next(s for s in local_cluster.status(cluster) if queue_status(s, "q")["role"] == "leader")
        os.kill(leader["pid"], signal.SIGKILL)
        survivor = next(node for node in cluster.nodes if node.name != leader["name"])
        with connect(survivor) as connection:
            channel = connection.channel()
            assert [body for _, _, body in take(channel, "q", 50)] == bodies(50)
            publish(connection.channel(), "q", [b"one more"])


def test_a_stopped_cluster_comes_back_with_its_messages(tmp_path: Path, base_port: int) -> None:
    """Recovery: every node reads its own log again, and the queue is as it was."""
    cluster = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    try:
        with connect(cluster.nodes[0]) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            publish(channel, "q", bodies(30))
            for method, _, _ in take(channel, "q", 10):
                channel.basic_ack(method.delivery_tag)
    finally:
        local_cluster.stop(cluster)
    cluster = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    try:
        with connect(cluster.nodes[1]) as connection:
            assert [body for _, _, body in take(connection.channel(), "q", 20)] == bodies(30)[10:]
    finally:
        local_cluster.stop(cluster)


def pump(connection: pika.BlockingConnection, done: Any) -> None:
    """Let pika work until ``done()``; fails after 30 seconds without progress."""
    for _ in range(3000):
        if done():
            return
        connection.process_data_events(time_limit=0.01)
    raise AssertionError("nothing happened for 30 seconds")


def declared_counts(connection: pika.BlockingConnection, queue: str) -> tuple[int, int]:
    channel = connection.channel()
    method = channel.queue_declare(queue, passive=True).method
    channel.close()
    return method.message_count, method.consumer_count


def queue_status(status: dict[str, Any], queue: str) -> dict[str, Any]:
    found: dict[str, Any] = next(q for q in status["queues"] if q["name"] == queue)
    return found


def delivered(cluster: Cluster) -> dict[str, int]:
    return {status["name"]: status["metrics"]["delivered"] for status in local_cluster.status(cluster)}


def test_a_consumer_without_acks_is_served_to_the_end(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """More messages than any credit: a broker that forgets to give it back stops after 2000."""
    with connect(cluster.nodes[0]) as publisher, connect(cluster.nodes[1]) as consumer:
        channel = publisher.channel()
        queue = declared(channel, request)
        for number in range(5000):
            channel.basic_publish("", queue, b"%d" % number, PERSISTENT)
        taken = take(consumer.channel(), queue, 5000, auto_ack=True)
        assert [body for _, _, body in taken] == [b"%d" % number for number in range(5000)]


@pytest.mark.slow
def test_a_follower_that_was_away_catches_up(tmp_path: Path, base_port: int) -> None:
    """With another node lost after that, what was confirmed without the follower must be on it."""
    cluster = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    try:
        with connect(cluster.nodes[0]) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            away = next(n for n, s in zip(cluster.nodes, local_cluster.status(cluster), strict=True)
                        if queue_status(s, "q")["role"] == "follower" and n is not cluster.nodes[0])  # fmt: skip
            os.kill(away.pid, signal.SIGSTOP)
            publish(connection.channel(), "q", bodies(20))
            os.kill(away.pid, signal.SIGCONT)
            pump(connection, lambda: caught_up(cluster, "q"))
            publish(connection.channel(), "q", [b"one more"])
        with connect(away) as connection:
            assert [body for _, _, body in take(connection.channel(), "q", 21)] == [*bodies(20), b"one more"]
    finally:
        local_cluster.stop(cluster)


def caught_up(cluster: Cluster, queue: str) -> bool:
    statuses = [queue_status(status, queue) for status in local_cluster.status(cluster)]
    return len({status["synced_index"] for status in statuses}) == 1


def test_queues_come_and_go_under_load(cluster: Cluster) -> None:
    """A queue that is deleted while its group still has things to do must not take the node along."""
    with connect(cluster.nodes[0]) as first, connect(cluster.nodes[1]) as second:
        deleting = second.channel()
        for number in range(30):
            channel = first.channel()
            queue = f"short-lived-{number}"
            channel.queue_declare(queue, durable=True, arguments=QUORUM)
            channel.basic_consume(queue, lambda *_: None, auto_ack=True)
            for body in bodies(20):
                channel.basic_publish("", queue, body, PERSISTENT)
            deleting.queue_delete(queue)
            channel.close()
    assert [status["state"] for status in local_cluster.status(cluster)] == ["running"] * 3
