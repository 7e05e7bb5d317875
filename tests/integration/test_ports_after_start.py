"""What a node serves when its start is done: everything. Nobody has to try twice."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from infra import local_cluster
from infra.cluster import Node
from tests.integration.test_management_as_rabbitmq import Api

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def test_the_first_request_after_a_start_is_answered(tmp_path: Path) -> None:
    with local_cluster.temporary(tmp_path) as cluster:
        assert [_answers(node) for node in cluster.nodes] == [200, 200, 200]
        local_cluster.kill(cluster, "node2")
        assert _answers(local_cluster.start_node(cluster, "node2").node("node2")) == 200


def _answers(node: Node) -> int:
    base = f"http://127.0.0.1:{node.metrics_port}"
    with urllib.request.urlopen(f"{base}/metrics", timeout=30) as scraped:
        assert scraped.status == 200
    return Api(base).call("GET", "whoami")[0]
