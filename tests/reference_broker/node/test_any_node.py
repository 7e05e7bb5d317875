"""Clients of any node can use any queue, wherever its members are, and operators can move them under load.

Five processes, one queue with three members, clients on the other two nodes: what a client sees must not depend on
where it is connected.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.cluster import Cluster
from infra.node_process import wait

pytestmark = pytest.mark.processes

QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with local_cluster.temporary(Path(tmp_path_factory.mktemp("five")), nodes=5) as running:
        yield running


OPEN: list[pika.BlockingConnection] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def connect(cluster: Cluster, number: int) -> BlockingChannel:
    OPEN.append(pika.BlockingConnection(pika.URLParameters(cluster.nodes[number - 1].uri)))
    channel = OPEN[-1].channel()
    channel.confirm_delivery()
    return channel


def ask(cluster: Cluster, number: int, **request: object) -> dict[str, Any]:
    return local_cluster.ask(cluster, cluster.nodes[number - 1], request)


def take(channel: BlockingChannel, queue: str, count: int) -> list[int]:
    taken: list[int] = []
    method: Any
    for method, _properties, body in channel.consume(queue, inactivity_timeout=20):
        assert method is not None, f"only {len(taken)} of {count} messages"
        taken.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(taken) == count:
            break
    channel.cancel()
    return taken


def members(cluster: Cluster, queue: str) -> dict[str, str]:
    connect(cluster, 5).queue_declare(queue, passive=True)  # a node that has just heard of the queue
    rows = ask(cluster, 5, op="quorum-status", queue=queue)["members"]
    return {row["node_name"]: row["raft_state"] for row in rows}


def test_what_was_declared_is_known_on_every_node_at_once(cluster: Cluster) -> None:
    """Two programs agree on a queue by telling each other its name; the second one must not hear that there is none.
    What is deleted on one node is as certainly gone on all."""
    here, elsewhere = connect(cluster, 1), [connect(cluster, number) for number in (2, 3, 4, 5)]
    for number in range(20):
        name, there = f"fresh{number}", elsewhere[number % 4]
        here.queue_declare(name, durable=True, arguments=QUORUM)
        if number % 2:
            assert there.queue_declare(name, passive=True).method.message_count == 0
        else:
            there.basic_cancel(there.basic_consume(name, lambda *_: None))
        there.queue_delete(name)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
            connect(cluster, 1 + (number + 2) % 5).queue_declare(name, passive=True)
    assert here.queue_delete("never").method.message_count == 0


def test_a_node_without_a_member_serves_its_clients_all_the_same(cluster: Cluster) -> None:
    """Declare, publish with confirms, get, consume, acknowledge, purge and delete."""
    connect(cluster, 1).queue_declare("far", durable=True, arguments=QUORUM)
    where = members(cluster, "far")
    assert len(where) == 3
    outside = [number for number in range(1, 6) if f"node{number}" not in where]
    publisher, consumer = (connect(cluster, number) for number in outside)
    for number in range(50):
        publisher.basic_publish("", "far", b"%d" % number)
    assert consumer.queue_declare("far", durable=True, arguments=QUORUM).method.message_count == 50
    method, _, body = publisher.basic_get("far", auto_ack=False)
    assert body == b"0"
    publisher.basic_ack(method.delivery_tag)
    assert take(consumer, "far", 49) == list(range(1, 50))
    for number in range(7):
        publisher.basic_publish("", "far", b"%d" % number)
    assert consumer.queue_purge("far").method.message_count == 7
    consumer.queue_delete("far")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
        consumer.queue_declare("far", passive=True)


def test_members_and_leaders_move_while_messages_flow(cluster: Cluster) -> None:
    """Every member is replaced, one after the other, and nothing that was confirmed is lost."""
    publisher = connect(cluster, 1)
    publisher.queue_declare("moving", durable=True, arguments={**QUORUM, "x-quorum-initial-group-size": 2})
    numbers = iter(range(1000))
    sent: list[int] = []

    def publish() -> None:
        for _ in range(20):
            sent.append(next(numbers))
            publisher.basic_publish("", "moving", b"%d" % sent[-1])

    publish()
    before = set(members(cluster, "moving"))
    others = sorted({f"node{number}" for number in range(1, 6)} - before)
    for name in others:
        assert ask(cluster, 2, op="add-member", queue="moving", node=name).get("ok")
        publish()
    assert ask(cluster, 3, op="transfer-leader", queue="moving", node=others[0]) == {"ok": True, "leader": others[0]}
    publish()
    for name in sorted(before):
        assert ask(cluster, 4, op="remove-member", queue="moving", node=name).get("ok")
        publish()
    assert set(members(cluster, "moving")) == set(others)
    assert "leader" in members(cluster, "moving").values()
    assert take(connect(cluster, 1), "moving", len(sent)) == sent


def test_a_policy_changes_a_queue_that_is_there(cluster: Cluster) -> None:
    """Set, it limits the queue; cleared, the queue is as it was declared."""
    channel = connect(cluster, 1)
    channel.queue_declare("limited", durable=True, arguments=QUORUM)
    policy = {"name": "few", "pattern": "^limited$", "definition": {"max-length": 2}}
    assert ask(cluster, 3, op="set-policy", **policy)["ok"]

    def published(count: int) -> int:
        for number in range(count):
            channel.basic_publish("", "limited", b"%d" % number)
        return int(channel.queue_declare("limited", passive=True).method.message_count)

    assert any(published(5) == 2 for _ in range(20)), "the policy does not take effect"
    assert ask(cluster, 2, op="clear-policy", name="few")["ok"]
    assert any(published(5) > 2 for _ in range(20)), "the queue keeps a limit that nobody set"


def test_leaders_are_evened_out(cluster: Cluster) -> None:
    """Queues declared through one node are led there; rebalancing spreads them, and does nothing more after that."""
    channel = connect(cluster, 1)
    for number in range(6):
        channel.queue_declare(f"even{number}", durable=True, arguments={**QUORUM, "x-quorum-initial-group-size": 5})
    moved = ask(cluster, 2, op="rebalance")["moved"]
    assert len(moved) >= 3
    assert all(row["from"] == "node1" for row in moved if row["queue"].startswith("even"))
    assert ask(cluster, 3, op="rebalance")["moved"] == []


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"op": "quorum-status", "queue": "nobody's"}, "no queue"),
        ({"op": "add-member", "queue": "even0", "node": "node9"}, "no node 'node9'"),
        ({"op": "set-policy", "name": "p", "pattern": "(", "definition": {"max-length": 1}}, "no regular expression"),
        ({"op": "set-policy", "name": "p", "pattern": ".", "definition": {"max-size": 1}}, "nothing that a policy"),
        ({"op": "clear-policy", "name": ""}, "no policy"),
        ({"op": "explode"}, "unknown operation"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_remedy(cluster: Cluster, request_: dict[str, object], says: str) -> None:
    connect(cluster, 1).queue_declare("even0", durable=True, arguments={**QUORUM, "x-quorum-initial-group-size": 5})
    answer = local_cluster.ask(cluster, cluster.nodes[0], request_)
    assert says in answer["error"]
    assert answer["fix"]
    assert "{" not in answer["fix"], "an operator reads this at a command, and types no JSON"


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_figures_are_served_to_prometheus_and_as_json(cluster: Cluster) -> None:
    connect(cluster, 1).queue_declare("seen", durable=True, arguments=QUORUM)
    port = ask(cluster, 1, op="status")["metrics_port"]
    assert wait(lambda: is_listening(port), 20), "the metrics come a little later than AMQP"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text = response.read().decode()
    assert 'rabbitmq_queue_messages_ready{queue="seen",vhost="/"} 0.0' in text
    assert "rabbitmq_raft_term_total" in text
    names = {family["name"] for family in ask(cluster, 1, op="metrics")["metrics"]}
    assert {"rabbitmq_raft_log_commit_index", "rabbitmq_raft_log_wal_syncs", "rabbitmq_queue_messages_ready"} <= names
