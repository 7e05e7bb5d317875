"""Policies that change what runs already, on three nodes: where unroutable messages go, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pika
import pytest

from infra import local_cluster
from tests.integration.testing.pika_clients import connect
from tests.integration.testing.scripts import until

pytestmark = pytest.mark.processes
BODY = b"m" * 1000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_cluster.Cluster]:
    with local_cluster.temporary(tmp_path_factory.mktemp("nodes")) as running:
        yield running


def channel(cluster: local_cluster.Cluster, node: int) -> Any:
    found = connect(cluster.uris[node]).channel()
    found.confirm_delivery()
    return found


def comes_true(condition: Callable[[], bool]) -> bool:
    return until(condition, condition)


def is_routed(channel: Any, exchange: str) -> bool:
    try:
        channel.basic_publish(exchange, "nowhere", b"m", mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True


def test_an_alternate_exchange_by_policy_holds_on_every_node(cluster: local_cluster.Cluster) -> None:
    """For clients that publish already, too."""
    channels = [channel(cluster, node) for node in range(3)]
    channels[0].exchange_declare("orders", "direct")
    channels[0].exchange_declare("lost", "fanout")
    channels[0].queue_declare("lost", durable=True, arguments={"x-queue-type": "quorum"})
    channels[0].queue_bind("lost", "lost")
    assert not any(is_routed(each, "orders") for each in channels)
    policy = {"name": "p", "pattern": "^orders$", "definition": {"alternate-exchange": "lost"}}
    local_cluster.change(cluster, {"op": "set-policy", **policy, "apply_to": "exchanges"})
    for each in channels:
        assert comes_true(partial(is_routed, each, "orders"))
    local_cluster.change(cluster, {"op": "clear-policy", "name": "p"})
    for each in channels:
        assert comes_true(lambda each=each: not is_routed(each, "orders"))  # type: ignore[misc]
        each.connection.close()


def test_a_policy_makes_a_queue_lazy_while_it_runs(cluster: local_cluster.Cluster) -> None:
    """Transient messages of a queue that is not lazy stay in memory."""
    ours = channel(cluster, 0)
    ours.queue_declare("transient", durable=True)
    definition = {"name": "lazy", "pattern": "^transient$", "definition": {"queue-mode": "lazy"}}

    def written() -> int:
        ours.basic_publish("", "transient", BODY)
        return int(local_cluster.summary(cluster)[0]["metrics"]["classic_handed_bytes"])

    assert written() == 0
    local_cluster.change(cluster, {"op": "set-policy", **definition})
    assert comes_true(lambda: written() > 0)
    local_cluster.change(cluster, {"op": "clear-policy", "name": "lazy"})
    assert comes_true(lambda: written() == written())
    ours.connection.close()
