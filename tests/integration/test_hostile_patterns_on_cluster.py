"""A user with little power sets patterns that would keep a backtracking matcher busy for years. A real node goes on to
serve others, and starts again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.conftest import free_base_port
from tests.integration.test_management_as_rabbitmq import Api
from tests.integration.testing.pika_clients import connect
from tests.integration.testing.scripts import until

pytestmark = pytest.mark.processes
HOSTILE, NAME = "(a+)+$", "a" * 40 + "!"
LOGIN = "mallory:secret"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a node that runs, with a policymaker and a queue."""
    found = tmp_path_factory.mktemp("patterns") / "cluster"
    cluster = local_cluster.start(found, nodes=1, base_port=free_base_port())
    api = ready_api(cluster)
    assert api.call("PUT", "users/mallory", {"password": "secret", "tags": "policymaker"})[0] == 201
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.call("PUT", "permissions/%2F/mallory", rights)[0] == 201
    assert api.call("PUT", f"queues/%2F/{quote(NAME)}", {"durable": True})[0] == 201
    yield found
    local_cluster.stop(local_cluster.load(found))


def ready_api(cluster: Cluster) -> Api:
    api = Api(f"http://127.0.0.1:{cluster.nodes[0].metrics_port}")
    until(api.is_there)
    return api


def check_others_are_served(cluster: Cluster) -> None:
    with connect(cluster.nodes[0]) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", NAME, b"m")


def test_a_filter_of_a_list(directory: Path) -> None:
    cluster = local_cluster.load(directory)
    query = f"queues?page=1&use_regex=true&name={quote(HOSTILE)}"
    code, found = ready_api(cluster).call("GET", query, login=LOGIN)
    assert (code, found["items"]) == (200, [])
    check_others_are_served(cluster)


def test_a_policy_and_a_restart(directory: Path) -> None:
    cluster = local_cluster.load(directory)
    policy = {"pattern": HOSTILE, "definition": {"max-length": 5}}
    assert ready_api(cluster).call("PUT", "policies/%2F/hostile", policy, LOGIN)[0] == 201
    check_others_are_served(cluster)
    local_cluster.kill(cluster, "node1")
    cluster = local_cluster.start_node(local_cluster.load(directory), "node1", until_ready=True)
    check_others_are_served(cluster)
    code, found = ready_api(cluster).call("GET", "policies/%2F", login=LOGIN)
    assert code == 200 and [each["pattern"] for each in found] == [HOSTILE]
    code, queue = ready_api(cluster).call("GET", f"queues/%2F/{quote(NAME)}", login=LOGIN)
    assert code == 200 and not queue.get("policy")


@pytest.mark.parametrize("part", ["policies/%2F/p", "permissions/%2F/mallory", "topic-permissions/%2F/mallory"])
def test_what_re2_does_not_know_is_refused_in_a_sentence(directory: Path, part: str) -> None:
    given = {"pattern": "(?!amq).*", "definition": {"max-length": 5}, "exchange": "amq.topic"}
    given |= {"configure": "(?!amq).*", "write": "(?!amq).*", "read": "(?!amq).*"}
    code, told = ready_api(local_cluster.load(directory)).call("PUT", part, given)
    assert code == 400
    assert (
        "no regular expression: invalid perl operator: (?! (the syntax is RE2's, without lookaheads" in told["reason"]
    )
