"""Hundreds of queues on real nodes: declared, found again after a start, and asked for in a few words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.slow

QUEUES = 300
SUMMARY_OCTETS_MAX = 10_000


@pytest.fixture
def cluster(tmp_path: Path, base_port: int) -> Iterator[Cluster]:
    yield local_cluster.start(tmp_path / "cluster", base_port=base_port)
    local_cluster.stop(local_cluster.load(tmp_path / "cluster"))


def test_queues_are_all_there_when_a_start_returns(cluster: Cluster, base_port: int) -> None:
    """Whoever starts a cluster uses it: a queue without a leader would refuse its first clients."""
    names = [f"q{number}" for number in range(QUEUES)]
    with connect(cluster.uris[0]) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in names:
            answer = channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            assert (answer.method.message_count, answer.method.consumer_count) == (0, 0)
        for name in names[::10]:
            channel.basic_publish("", name, name.encode())
    local_cluster.stop(cluster)
    cluster = local_cluster.start(Path(cluster.directory), base_port=base_port)
    for said in local_cluster.summary(cluster):
        assert (said["queue_count"], said["leaderless"], said["electing"], len(said["busiest"])) == (QUEUES, 0, 0, 4)
        assert len(json.dumps(said)) < SUMMARY_OCTETS_MAX
    with connect(cluster.uris[1]) as connection:
        channel = connection.channel()
        found = [channel.queue_declare(name, passive=True).method.message_count for name in names]
    assert found == [int(number % 10 == 0) for number in range(QUEUES)]
