"""The latency anatomy of real nodes: each message followed once, stages that sum to the whole, nothing impossible."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pika
import pytest
from hdrh.histogram import HdrHistogram
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.local_cluster import Cluster, Node
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes

MESSAGES = 40
RESOLUTION = 0.001
"""Half a bucket of three significant figures, and a little."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with local_cluster.temporary(tmp_path_factory.mktemp("anatomy"), nodes=3) as running:
        yield running


def publish_and_consume(publisher: BlockingChannel, connection: pika.BlockingConnection, queue: str) -> None:
    """One message after the other, each confirmed and delivered before the next."""
    arrived: list[int] = []
    channel = connection.channel()
    channel.basic_consume(queue, lambda ch, method, _properties, _body: arrived.append(method.delivery_tag) or None)
    for number in range(MESSAGES):
        publisher.basic_publish("", queue, b"x" * 100)
        while len(arrived) <= number:
            connection.process_data_events(time_limit=1)
        channel.basic_ack(arrived[-1])


def stages(cluster: Cluster, node: Node, chain: str) -> dict[str, tuple[int, float]]:
    """Messages and sum of the times of each stage."""
    answer = local_cluster.ask(cluster, node, {"op": "anatomy"})
    assert (answer["foreign"], answer["forgotten"]) == (0, 0)
    found = {stage: HdrHistogram.decode(payload) for stage, payload in answer["chains"][chain].items()}
    counts = {stage: histogram.get_total_count() for stage, histogram in found.items()}
    return {stage: (counts[stage], found[stage].get_mean_value() * counts[stage]) for stage in found}


def test_every_message_is_followed_from_node_to_node(cluster: Cluster) -> None:
    """Published at a follower, led by another node, consumed at the third: the longest way there is."""
    nodes = cluster.nodes
    with connect(nodes[0]) as first:
        first.channel().queue_declare("followed", durable=True, arguments={"x-queue-type": "quorum"})
    leader = nodes[local_cluster.ask(cluster, nodes[0], {"op": "status"})["queues"][0]["leader"] - 1]
    publishing, consuming = (node for node in nodes if node is not leader)
    with connect(publishing) as second, connect(consuming) as third:
        channel = second.channel()
        channel.confirm_delivery()
        began = time.monotonic_ns()
        publish_and_consume(channel, third, "followed")
        elapsed = time.monotonic_ns() - began
        for node, chain in ((consuming, "delivery"), (publishing, "confirm")):
            found = stages(cluster, node, chain)
            count, total = found.pop("total")
            assert count == MESSAGES
            assert {stage_count for stage_count, _sum in found.values()} == {MESSAGES}
            assert sum(time_ns for _count, time_ns in found.values()) == pytest.approx(total, rel=RESOLUTION)
            assert 0 < total < 2 * elapsed
            assert found["forward"][1] > 0
            assert found["append"][1] > 0
        assert stages(cluster, leader, "delivery")["total"][0] == 0
