"""Mirrored classic queues of three real processes, spoken to by pika: the master is killed, and everything goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.error import URLError
from urllib.parse import quote

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.local_cluster import Cluster, Node
from reference_broker.mirroring.master import AHEAD_MIN
from tests.integration.test_management_as_rabbitmq import Api
from tests.integration.testing.pika_clients import connect

pytestmark = [pytest.mark.slow, pytest.mark.processes]

WAIT_S = 30
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, for one test."""
    with local_cluster.temporary(tmp_path_factory.mktemp("cluster")) as running:
        for node in running.nodes:
            until(partial(answers, node))
        yield running


def api(node: Node) -> Api:
    return Api(f"http://127.0.0.1:{node.metrics_port}")


def answers(node: Node) -> bool:
    """Whether the management API of a node is there: its port opens a little later than that of AMQP."""
    with contextlib.suppress(URLError):
        return api(node).call("GET", "overview")[0] == 200
    return False


def set_policy(node: Node, pattern: str, **definition: Any) -> None:
    body = {"pattern": pattern, "definition": {key.replace("_", "-"): value for key, value in definition.items()}}
    status, answer = api(node).call("PUT", f"policies/%2F/{quote(pattern)}", body)
    assert status in (201, 204), answer


def seen(node: Node, queue: str) -> dict[str, Any]:
    """The queue as a node shows it; nothing while it does not."""
    with contextlib.suppress(URLError):
        status, row = api(node).call("GET", f"queues/%2F/{quote(queue)}")
        return row if status == 200 else {}
    return {}


def until(is_so: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


def until_synchronised(node: Node, queue: str, count: int) -> None:
    until(lambda: len(seen(node, queue).get("synchronised_slave_nodes", ())) == count, lambda: seen(node, queue))


def declared(channel: BlockingChannel, queue: str, **arguments: Any) -> None:
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic", **arguments})


def publish(
    channel: BlockingChannel, queue: str, numbers: range, properties: pika.BasicProperties = PERSISTENT
) -> None:
    for number in numbers:
        channel.basic_publish("", queue, b"%d" % number, properties, mandatory=True)


def drained(channel: BlockingChannel, queue: str) -> list[tuple[int, bool]]:
    """Everything in the queue: number, and whether it comes as redelivered."""
    found: list[tuple[int, bool]] = []
    while True:
        method, _properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((int(body), method.redelivered))


@pytest.mark.parametrize("mode", [{}, {"x-queue-mode": "lazy"}], ids=["classic", "lazy"])
def test_everything_confirmed_is_there_when_the_master_is_killed(cluster: Cluster, mode: dict[str, Any]) -> None:
    """Transient messages, too: a mirror has them in memory. What was delivered comes as redelivered, in its old place;
    what the master was far from delivering comes as new."""
    first, second, third = cluster.nodes
    set_policy(first, "orders", ha_mode="all")
    with connect(second) as publisher, connect(third) as other:
        channel = publisher.channel()
        channel.confirm_delivery()
        with connect(first) as near:
            declared(near.channel(), "orders", **mode)
            until_synchronised(first, "orders", 2)
            assert seen(second, "orders")["node"] == first.name
            publish(channel, "orders", range(600))
            publish(channel, "orders", range(600, 610), pika.BasicProperties(delivery_mode=1))
            held = near.channel()
            held.basic_qos(prefetch_count=5)
            got: list[int] = []
            held.basic_consume("orders", lambda _c, _m, _p, body: got.append(int(body)))
            until(lambda: near.process_data_events(0.01) or len(got) == 5)
            held.basic_ack(3, multiple=True)
            until(lambda: near.process_data_events(0.01) or len(got) == 8)
            local_cluster.kill(cluster, first.name)
            with contextlib.suppress(Exception):
                near.process_data_events(0.1)
        until(lambda: seen(third, "orders").get("state") == "running", lambda: seen(third, "orders"))
        assert seen(third, "orders")["node"] == second.name
        assert seen(third, "orders")["slave_nodes"] == [third.name]
        found = drained(other.channel(), "orders")
        assert [number for number, _ in found] == list(range(3, 610))
        flags = dict(found)
        assert all(flags[number] for number in range(3, 8))
        assert not any(flags[number] for number in range(8 + 2 * AHEAD_MIN, 610))
        publish(channel, "orders", range(610, 620))
        assert [number for number, _ in drained(other.channel(), "orders")] == list(range(610, 620))


def test_consumers_go_on_at_the_new_master(cluster: Cluster) -> None:
    """By themselves, with what they had not acknowledged; a consumer that asked for it is cancelled instead."""
    first, second, third = cluster.nodes
    set_policy(first, "work", ha_mode="exactly", ha_params=2)
    with connect(first) as near:
        declared(near.channel(), "work")
        until_synchronised(first, "work", 1)
    heir = next(node for node in cluster.nodes if node.name == seen(first, "work")["slave_nodes"][0])
    outside = next(node for node in (second, third) if node is not heir)
    with connect(heir) as on_heir, connect(outside) as elsewhere:
        publisher = elsewhere.channel()
        publisher.confirm_delivery()
        got: dict[str, list[tuple[int, bool]]] = {"heir": [], "outside": []}
        cancelled: list[str] = []

        def consume(connection: pika.BlockingConnection, who: str, **arguments: Any) -> BlockingChannel:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=4)
            channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))

            def delivered(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
                got[who].append((int(body), method.redelivered))

            channel.basic_consume("work", delivered, consumer_tag=who, arguments=arguments)
            return channel

        consume(on_heir, "heir")
        channel = consume(elsewhere, "outside")
        consume(elsewhere, "leaves", **{"x-cancel-on-ha-failover": True})
        publish(publisher, "work", range(12))

        def go_on() -> None:
            on_heir.process_data_events(0.01)
            elsewhere.process_data_events(0.01)

        got["leaves"] = []
        until(lambda: go_on() or len(got["heir"]) + len(got["outside"]) >= 8, lambda: got)
        local_cluster.kill(cluster, first.name)
        until(lambda: go_on() or cancelled == ["leaves"], lambda: cancelled)

        def again() -> list[int]:
            return sorted(number for who in ("heir", "outside") for number, redelivered in got[who] if redelivered)

        until(lambda: go_on() or len(again()) == 8, lambda: got)
        assert again() == list(range(8))
        before = len(got["outside"])
        channel.basic_ack(1)  # of before the change: nobody knows it any more, and nothing happens
        channel.basic_ack(0, multiple=True)
        until(lambda: go_on() or len(got["outside"]) == before + 4, lambda: got)


def test_a_new_mirror_is_filled_or_waits_until_old_messages_are_gone(cluster: Cluster) -> None:
    """As ``ha-sync-mode`` says."""
    first, second, _third = cluster.nodes
    with connect(second) as other, connect(first) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in ("auto", "manual"):
            declared(channel, queue)
            publish(channel, queue, range(100))
            assert "slave_nodes" not in seen(first, queue)
        channel.basic_get("auto", auto_ack=True)
        set_policy(first, "auto", ha_mode="all", ha_sync_mode="automatic")
        set_policy(first, "manual", ha_mode="exactly", ha_params=2)
        until_synchronised(first, "auto", 2)
        until(lambda: len(seen(first, "manual")["slave_nodes"]) == 1)
        publish(channel, "manual", range(100, 110))
        assert seen(first, "manual")["synchronised_slave_nodes"] == []
        for _ in range(99):
            channel.basic_get("manual", auto_ack=True)
        assert seen(first, "manual")["synchronised_slave_nodes"] == []
        channel.basic_get("manual", auto_ack=True)
        until_synchronised(first, "manual", 1)
        connection.close()
        local_cluster.kill(cluster, first.name)
        until(lambda: all(seen(second, queue).get("state") == "running" for queue in ("auto", "manual")))
        assert [number for number, _ in drained(other.channel(), "auto")] == list(range(1, 100))
        assert [number for number, _ in drained(other.channel(), "manual")] == list(range(100, 110))


def test_a_node_that_comes_back_begins_as_a_new_mirror(cluster: Cluster) -> None:
    """With nothing of what it had: the queue went on without it."""
    first, second, third = cluster.nodes
    set_policy(first, "back", ha_mode="all", ha_sync_mode="automatic")
    with connect(second) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with connect(first) as near:
            declared(near.channel(), "back")
        until_synchronised(second, "back", 2)
        publish(channel, "back", range(20))
        local_cluster.kill(cluster, first.name)
        until(lambda: seen(second, "back").get("state") == "running")
        drained(channel, "back")
        publish(channel, "back", range(20, 40))
        cluster = local_cluster.start_node(cluster, first.name)
        until_synchronised(second, "back", 2)
        assert seen(second, "back")["slave_nodes"] == [third.name, first.name]
    for node in (second, third):
        local_cluster.kill(cluster, node.name)
        until(lambda lost=node: seen(first, "back").get("node") not in (None, lost.name))  # type: ignore[misc]
        cluster = local_cluster.start_node(cluster, node.name)
        until_synchronised(first, "back", 2)
    assert seen(first, "back")["node"] == first.name
    with connect(cluster.nodes[0]) as again:
        assert [number for number, _ in drained(again.channel(), "back")] == list(range(20, 40))


def test_the_whole_cluster_starts_again(cluster: Cluster) -> None:
    """The master has what was persistent, and its mirrors begin anew."""
    first = cluster.nodes[0]
    set_policy(first, "all", ha_mode="all", ha_sync_mode="automatic")
    with connect(first) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declared(channel, "all")
        until_synchronised(first, "all", 2)
        publish(channel, "all", range(30))
        connection.close()
    for node in cluster.nodes:
        local_cluster.kill(cluster, node.name)
    for node in cluster.nodes:
        cluster = local_cluster.start_node(cluster, node.name)
    until_synchronised(cluster.nodes[1], "all", 2)
    with connect(cluster.nodes[2]) as connection:
        assert [number for number, _ in drained(connection.channel(), "all")] == list(range(30))


def test_the_whole_cluster_is_killed_and_the_master_does_not_come_back(cluster: Cluster) -> None:
    """Nothing was confirmed without the mirrors, so what they have on their drives is all that was confirmed."""
    first, second, third = cluster.nodes
    set_policy(first, "last", ha_mode="all")
    with connect(first) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declared(channel, "last")
        until_synchronised(first, "last", 2)
        publish(channel, "last", range(30))
        connection.close()
    for node in cluster.nodes:
        local_cluster.kill(cluster, node.name)
    for node in (second, third):
        cluster = local_cluster.start_node(cluster, node.name)
    until(lambda: seen(second, "last").get("node") in (second.name, third.name))
    with connect(cluster.nodes[1]) as connection:
        assert [number for number, _ in drained(connection.channel(), "last")] == list(range(30))


@pytest.mark.parametrize(("on_shutdown", "state"), [("when-synced", "down"), ("always", "running")])
def test_a_master_that_is_stopped_in_order_is_not_lost(cluster: Cluster, on_shutdown: str, state: str) -> None:
    """A mirror that lacks messages takes its place only if the policy says so; if it is killed, any mirror does."""
    first, second, _third = cluster.nodes
    with connect(first) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declared(channel, "kept")
        publish(channel, "kept", range(5))
        set_policy(first, "kept", ha_mode="all", ha_promote_on_shutdown=on_shutdown)
        until(lambda: len(seen(first, "kept").get("slave_nodes", ())) == 2)
        connection.close()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGTERM)
    until(lambda: not local_cluster.is_alive(first))
    until(lambda: seen(second, "kept").get("node") != first.name or seen(second, "kept").get("state") == "down")
    cluster = local_cluster.start_node(cluster, first.name)
    until(lambda: seen(second, "kept").get("state") == "running")
    with connect(cluster.nodes[1]) as connection:
        left = [number for number, _ in drained(connection.channel(), "kept")]
        assert left == (list(range(5)) if state == "down" else [])


class Got:
    """What the consumers of one connection got: number, and whether it came as redelivered."""

    def __init__(self, node: Node, queue: str) -> None:
        self.connection = connect(node)
        self.queue = queue
        self.messages: list[tuple[int, bool]] = []
        self._channel = self.connection.channel()

    def consume(self) -> None:
        self._channel.basic_qos(prefetch_count=1000)
        self._channel.basic_consume(
            self.queue, lambda _c, method, _p, body: self.messages.append((int(body), method.redelivered))
        )

    def get(self) -> None:
        method, _properties, body = self._channel.basic_get(self.queue)
        if method is not None:
            self.messages.append((int(body), method.redelivered))

    def until_quiet(self) -> None:
        """Read until nothing came for a while, or the broker has closed the connection."""
        with contextlib.suppress(pika.exceptions.AMQPError):
            had = -1
            while len(self.messages) > had:
                had = len(self.messages)
                self.connection.process_data_events(1)

    def until_got(self, count: int) -> None:
        until(lambda: self.connection.process_data_events(0.05) or len(self.messages) >= count, lambda: self.messages)


@contextlib.contextmanager
def listening(node: Node, queue: str) -> Iterator[Got]:
    got = Got(node, queue)
    try:
        yield got
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            got.connection.close()


@pytest.mark.parametrize("pattern", ["orders", "others"], ids=["mirrored", "not mirrored"])
def test_what_a_paused_node_finds_unread_comes_as_redelivered(cluster: Cluster, pattern: str) -> None:
    """The owner gave the node up and delivered the messages to somebody else, while they lay in the node's socket."""
    first, second, third = cluster.nodes
    set_policy(first, pattern, ha_mode="all")
    with connect(first) as near, listening(third, "orders") as asleep, listening(second, "orders") as other:
        channel = near.channel()
        declared(channel, "orders")
        asleep.consume()
        publish(channel, "orders", range(10))
        asleep.until_got(10)
        local_cluster.pause(cluster, third.name)
        publish(channel, "orders", range(10, 200), pika.BasicProperties(delivery_mode=1))
        near.process_data_events(0)
        other.consume()
        other.until_got(200)
        local_cluster.resume(cluster, third.name)
        asleep.until_quiet()
        as_new = {number for number, redelivered in asleep.messages[10:] if not redelivered}
        assert not as_new & {number for number, _ in other.messages}
        assert all(redelivered for number, redelivered in other.messages if number < 10)


def test_a_master_that_was_paused_delivers_nothing_as_new_that_the_next_delivers_as_new(cluster: Cluster) -> None:
    """Its consumer gets what lay in its buffers; another consumer asks for messages as soon as it goes on."""
    first, second, third = cluster.nodes
    set_policy(first, "orders", ha_mode="all")
    with connect(second) as far, listening(first, "orders") as near, listening(third, "orders") as other:
        with connect(first) as declaring:
            declared(declaring.channel(), "orders")
        until_synchronised(second, "orders", 2)
        channel = far.channel()
        channel.confirm_delivery()
        publish(channel, "orders", range(100))
        for _ in range(10):
            near.get()
        local_cluster.pause(cluster, first.name)
        until(lambda: seen(third, "orders").get("node") not in (None, first.name), lambda: seen(third, "orders"))
        other.consume()
        other.until_got(100)
        local_cluster.resume(cluster, first.name)
        near.consume()
        for _ in range(10):
            near.get()
        near.until_quiet()
        other.until_quiet()
        as_new = [number for each in (near, other) for number, redelivered in each.messages if not redelivered]
        assert len(as_new) == len(set(as_new))
