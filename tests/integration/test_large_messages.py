"""Messages larger than a frame between nodes, on real processes: a node that was away gets them, and nobody else waits.

Frames are small here, so that messages of a few MiB are what messages of 128 MiB are otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.cluster import Cluster, Node
from tests.integration.testing.pika_clients import connect

pytestmark = [pytest.mark.slow, pytest.mark.processes]

DEADLINE_S = 60
MIB = 1024 * 1024
LIMITS = {"peer_frame_bytes_max": 64 * 1024, "follower_bytes_max": 4 * MIB, "memtable_bytes": 4 * MIB}
SIZES = [3 * MIB] * 8 + [24 * MIB, 10, 60 * 1024, 70 * 1024]
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
def cluster(tmp_path: Path, base_port: int) -> Iterator[Cluster]:
    directory = tmp_path / "cluster"
    for number in (1, 2, 3):
        home = directory / f"node{number}"
        home.mkdir(parents=True)
        (home / "node.json").write_text(json.dumps({"limits": LIMITS}))
    running = local_cluster.start(directory, base_port=base_port)
    try:
        assert json.loads(Path(running.nodes[0].data_dir, "node.json").read_text())["limits"] == LIMITS
        yield running
    finally:
        local_cluster.stop(local_cluster.load(directory))  # a node may be in another process by now


def channel_of(connection: pika.BlockingConnection, *queues: str) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    for queue in queues:
        channel.queue_declare(queue, durable=True, arguments=QUORUM)
    return channel


def publish(channel: BlockingChannel, queue: str, body: bytes) -> None:
    """Returns when the message is confirmed."""
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def bodies() -> list[bytes]:
    return [Random(number).randbytes(size) for number, size in enumerate(SIZES)]


def digests(messages: list[bytes]) -> list[str]:
    return [hashlib.sha256(body).hexdigest() for body in messages]


def take(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    taken: list[bytes] = []
    method: Any
    for method, _properties, body in channel.consume(queue, inactivity_timeout=DEADLINE_S):
        assert method is not None, f"only {len(taken)} of {count} messages"
        taken.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(taken) == count:
            break
    channel.cancel()
    return taken


def indexes(cluster: Cluster, node: Node, queue: str) -> tuple[int, int]:
    """Commit index and applied index of a queue on a node."""
    answer = local_cluster.ask(cluster, node, {"op": "status"})
    row: dict[str, int] = next((row for row in answer["queues"] if row["name"] == queue), {})
    return row.get("commit_index", -1), row.get("applied_index", -1)


def said(node: Node, what: str) -> int:
    return Path(node.log_file).read_text(encoding="utf-8").count(what)


def test_a_node_that_was_away_gets_large_messages_while_others_are_confirmed(cluster: Cluster) -> None:
    """Its link broke at each try, for all queues: confirms came in gusts, and it never caught up."""
    here, away = cluster.nodes[0], cluster.nodes[2]
    with connect(here) as connection:
        channel = channel_of(connection, "large", "small")
        local_cluster.kill(cluster, away.name)
        messages = bodies()
        for body in messages:
            publish(channel, "large", body)
        back = local_cluster.start_node(local_cluster.load(Path(cluster.directory)), away.name)
        confirmed = 0
        while indexes(back, back.node(away.name), "large") < indexes(back, here, "large"):
            publish(channel, "small", b"%d" % confirmed)
            confirmed += 1
            assert confirmed < 100_000, "it never catches up"
    with connect(away) as connection:
        assert digests(take(channel_of(connection), "large", len(SIZES))) == digests(messages)
    for node in cluster.nodes:
        assert not said(node, "closing it"), Path(node.log_file).read_text(encoding="utf-8")
    assert said(here, f"node {away.node} is down") == 1


def test_a_node_without_a_member_publishes_and_consumes_large_messages(cluster: Cluster) -> None:
    """The leader is elsewhere: publishes go there, and deliveries come from there."""
    first, guest = cluster.nodes[0], cluster.nodes[2]
    with connect(first) as connection:
        alone = QUORUM | {"x-quorum-initial-group-size": 1, "x-queue-leader-locator": "client-local"}
        connection.channel().queue_declare("alone", durable=True, arguments=alone)
    with connect(guest) as connection:
        channel = channel_of(connection)
        messages = bodies()
        for body in messages:
            publish(channel, "alone", body)
        assert digests(take(channel, "alone", len(SIZES))) == digests(messages)
    for node in cluster.nodes:
        assert not said(node, "closing it")
