"""Commands that change the members of a queue, given again because nobody knows what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra import local_cluster
from infra.local_cluster import Cluster, ClusterError
from tests.integration.testing.pika_clients import connect

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with a queue on all of them, and little patience for changes."""
    limits = {"change_timeout_ms": 1000}
    with local_cluster.temporary(tmp_path_factory.mktemp("members"), limits=limits) as running:
        with connect(running.nodes[0]) as connection:
            connection.channel().queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        yield running


def asked(cluster: Cluster, op: str, node: str) -> dict[str, Any]:
    return local_cluster.change(cluster, {"op": op, "queue": "q", "node": node})


def test_a_change_that_is_made_already_succeeds(cluster: Cluster) -> None:
    """The command that made it may never have heard of it."""
    for op, node in (("remove-member", "node3"), ("add-member", "node3"), ("transfer-leader", "node2")):
        first, second = asked(cluster, op, node), asked(cluster, op, node)
        assert {key: second[key] for key in first} == first
        assert ("told" in second) == (op == "remove-member")


def test_a_change_that_waits_for_a_node_names_the_node_and_goes_on(cluster: Cluster) -> None:
    """Two members, one of them down: the third cannot come in before it is back."""
    asked(cluster, "remove-member", "node3")
    local_cluster.kill(cluster, "node2")
    for _ in range(2):
        with pytest.raises(ClusterError, match="has not caught up yet") as caught:
            asked(cluster, "add-member", "node3")
        assert "node2 does not answer: start that node" in caught.value.fix
    cluster = local_cluster.start_node(cluster, "node2")
    for _ in range(2):
        assert asked(cluster, "add-member", "node3")["members"] == ["node1", "node2", "node3"]
