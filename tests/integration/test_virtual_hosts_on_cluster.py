"""Virtual hosts of a running cluster, spoken to by pika: what one has, no client of another can reach."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.conftest import free_base_port
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes
WAIT_S = 20
QUORUM = {"x-queue-type": "quorum"}
ATTEMPTS: list[Callable[[BlockingChannel, str], object]] = [
    lambda channel, name: channel.queue_declare(name, durable=True),
    lambda channel, name: channel.queue_declare(name, passive=True),
    lambda channel, name: channel.queue_bind(name, "amq.topic", "k"),
    lambda channel, name: channel.basic_get(name),
    lambda channel, name: channel.basic_consume(name, lambda *_: None),
    lambda channel, name: channel.queue_purge(name),
]
KINDS = [QUORUM, {"x-queue-type": "classic"}, {"x-queue-type": "keyed"}]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster that runs."""
    found = tmp_path_factory.mktemp("vhosts") / "cluster"
    local_cluster.start(found, base_port=free_base_port())
    yield found
    local_cluster.stop(local_cluster.load(found))


@pytest.fixture
def cluster(directory: Path) -> Iterator[Cluster]:
    """With an empty virtual host *tenant*, in which guest may do everything."""
    running = local_cluster.load(directory)
    asks(running, "add-vhost", name="tenant")
    asks(running, "set-permissions", user="guest", vhost="tenant", configure=".*", write=".*", read=".*")
    yield running
    running = local_cluster.load(directory)
    if "tenant" in [vhost["name"] for vhost in asks(running, "vhosts")["vhosts"]]:
        asks(running, "delete-vhost", name="tenant")


def asks(cluster: Cluster, op: str, **request: object) -> dict[str, Any]:
    return local_cluster.change(cluster, {"op": op, **request})


def perftest(cluster: Cluster, *words: str) -> Any:
    line = [sys.executable, "-m", "perftest.cli", "broker", *words, "--dir", str(cluster.directory)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)


def confirming(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def taken(channel: BlockingChannel, queue: str) -> bytes | None:
    """The next message of a queue, once there is one."""
    end = time.monotonic() + WAIT_S
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is None and time.monotonic() < end:
        time.sleep(0.01)
    return bytes(body) if body is not None else None


@pytest.mark.parametrize("arguments", KINDS, ids=lambda kind: kind["x-queue-type"])
def test_one_name_is_two_queues(cluster: Cluster, arguments: dict[str, str]) -> None:
    """On every node, whichever leads them."""
    with connect(cluster.nodes[0]) as here, connect(cluster.nodes[1], vhost="tenant") as there:
        first, second = confirming(here), confirming(there)
        for channel, body in ((first, b"here"), (second, b"there")):
            channel.queue_declare("same", durable=True, arguments=arguments)
            channel.exchange_declare("orders", "topic")
            channel.queue_bind("same", "orders", "a.*")
            channel.basic_publish("", "same", body)
            channel.basic_publish("orders", "a.b", body + b" by topic")
        with connect(cluster.nodes[2], vhost="tenant") as reader:
            found = reader.channel()
            assert [taken(found, "same") for _ in range(2)] == [b"there", b"there by topic"]
            assert found.basic_get("same")[0] is None
        second.queue_delete("same")
        assert [taken(first, "same") for _ in range(2)] == [b"here", b"here by topic"]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'same' in vhost 'tenant'"):
            second.queue_declare("same", passive=True)
        first.queue_delete("same")
        first.exchange_delete("orders")


def test_no_name_reaches_into_another_virtual_host(cluster: Cluster) -> None:
    """The name of the tenant's queue in the cluster has a NUL, which a client can write, too."""
    with connect(cluster.nodes[0]) as here, connect(cluster.nodes[0], vhost="tenant") as there:
        there.channel().queue_declare("secret", durable=True, arguments=QUORUM)
        thief = confirming(here)
        with pytest.raises(pika.exceptions.UnroutableError):
            thief.basic_publish("", "tenant\0secret", b"x", mandatory=True)
        with pytest.raises(pika.exceptions.UnroutableError):
            thief.basic_publish("", "secret", b"x", pika.BasicProperties(headers={"CC": ["tenant\0secret"]}), True)
        for attempt in ATTEMPTS:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"no queue|NUL"):
                attempt(here.channel(), "tenant\0secret")
        assert there.channel().queue_declare("secret", passive=True).method.message_count == 0


def test_dead_letters_and_policies_stay_within(cluster: Cluster) -> None:
    asks(cluster, "set-policy", vhost="tenant", name="p", pattern="^full$",
         definition={"max-length": 1, "dead-letter-exchange": "dead"})  # fmt: skip
    with connect(cluster.nodes[0]) as here, connect(cluster.nodes[1], vhost="tenant") as there:
        for connection in (here, there):
            channel = confirming(connection)
            channel.exchange_declare("dead", "fanout")
            for name in ("full", "grave"):
                channel.queue_declare(name, durable=True, arguments=QUORUM)
            channel.queue_bind("grave", "dead", "")
            for number in range(3):
                channel.basic_publish("", "full", b"%d" % number)
        channel = there.channel()
        assert taken(channel, "grave") == b"0"
        assert taken(channel, "full") == b"2"
        assert here.channel().queue_declare("full", passive=True).method.message_count == 3
        method, properties, _body = channel.basic_get("grave", auto_ack=True)
        assert properties.headers["x-death"][0]["queue"] == "full", "clients know the short name alone"
        assert method.exchange == "dead"
        for name in ("full", "grave"):
            here.channel().queue_delete(name)
        here.channel().exchange_delete("dead")


def test_a_virtual_host_goes_with_everything_in_it(cluster: Cluster) -> None:
    """Its connections end, on every node, and a new one of that name is empty."""
    connections = [connect(node, vhost="tenant") for node in cluster.nodes]
    channel = confirming(connections[0])
    for name in ("q1", "q2"):
        channel.queue_declare(name, durable=True, arguments=QUORUM)
        channel.basic_publish("", name, b"x")
    channel.queue_declare("classic", durable=True)
    channel.exchange_declare("orders", "topic", durable=True)
    asks(cluster, "set-policy", vhost="tenant", name="p", pattern=".*", definition={"max-length": 1})
    asks(cluster, "delete-vhost", name="tenant")
    for connection in connections:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="vhost 'tenant' was deleted"):
            connection.channel().basic_qos(prefetch_count=1)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost tenant not found"):
        connect(cluster.nodes[1], vhost="tenant")
    assert asks(cluster, "policies")["policies"] == []
    asks(cluster, "add-vhost", name="tenant")
    asks(cluster, "set-permissions", user="guest", vhost="tenant", configure=".*", write=".*", read=".*")
    with connect(cluster.nodes[2], vhost="tenant") as again:
        for name in ("q1", "q2", "classic"):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
                again.channel().queue_declare(name, passive=True)
        assert again.channel().queue_declare("q1", durable=True, arguments=QUORUM).method.message_count == 0


def test_limits_of_a_virtual_host(cluster: Cluster) -> None:
    asks(cluster, "set-vhost-limits", name="tenant", max_queues=1, max_connections=2)
    with connect(cluster.nodes[0], vhost="tenant") as there, connect(cluster.nodes[0], vhost="tenant"):
        channel = there.channel()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"queue limit in vhost 'tenant' \(1\)"):
            channel.queue_declare("one-more", durable=True, arguments=QUORUM)
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"connection limit \(2\)"):
            connect(cluster.nodes[0], vhost="tenant")
        with connect(cluster.nodes[0]) as here:
            here.channel().queue_declare("elsewhere", durable=True, arguments=QUORUM)
            here.channel().queue_delete("elsewhere")


@pytest.mark.slow
def test_a_virtual_host_is_there_after_a_restart_of_all_nodes(cluster: Cluster) -> None:
    with connect(cluster.nodes[0], vhost="tenant") as there:
        channel = confirming(there)
        channel.exchange_declare("orders", "topic", durable=True)
        for name, arguments in (("kept", QUORUM), ("classic", {})):
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.queue_bind(name, "orders", "#")
        channel.basic_publish("orders", "k", b"kept", pika.BasicProperties(delivery_mode=2))
    local_cluster.stop(cluster)
    cluster = local_cluster.start(Path(cluster.directory))
    with connect(cluster.nodes[1], vhost="tenant") as there:
        channel = confirming(there)
        assert [taken(channel, name) for name in ("kept", "classic")] == [b"kept"] * 2
        channel.basic_publish("orders", "k", b"after")
        assert [taken(channel, name) for name in ("kept", "classic")] == [b"after"] * 2


def test_the_commands(cluster: Cluster) -> None:
    assert perftest(cluster, "add-vhost", "second", "--description", "for tests", "--tag", "a").returncode == 0
    assert perftest(cluster, "set-vhost-limits", "second", "--queues", "5").returncode == 0
    rows = {row["name"]: row for row in json.loads(perftest(cluster, "vhosts", "--json").stdout)}
    assert rows["second"] == {
        "name": "second", "description": "for tests", "tags": ["a"], "queues": 0, "max_connections": -1,
        "max_queues": 5,
    }  # fmt: skip
    with connect(cluster.nodes[0], vhost="tenant") as there:
        there.channel().queue_declare("q", durable=True, arguments=QUORUM)
    assert perftest(cluster, "quorum-status", "q", "--vhost", "tenant").returncode == 0
    assert perftest(cluster, "transfer-leader", "q", "2", "--vhost", "tenant").returncode == 0
    refused = perftest(cluster, "quorum-status", "q")
    assert (refused.returncode, "no queue 'q'" in refused.stderr) == (1, True)
    refused = perftest(cluster, "quorum-status", "none", "--vhost", "tenant")
    assert "no queue 'none' in virtual host 'tenant'" in refused.stderr
    assert "name one of q" in refused.stderr
    assert perftest(cluster, "set-policy", "p", "q", '{"max-length": 5}', "--vhost", "tenant").returncode == 0
    (policy,) = json.loads(perftest(cluster, "policies", "--json").stdout)
    assert (policy["vhost"], policy["name"]) == ("tenant", "p")
    assert perftest(cluster, "clear-policy", "p").stdout == "there was no policy 'p'; there is none\n"
    for _ in range(2):  # whoever got no answer gives the command again
        assert perftest(cluster, "add-vhost", "tenant").returncode == 0
        assert perftest(cluster, "clear-policy", "p", "--vhost", "tenant").returncode == 0
        assert perftest(cluster, "delete-vhost", "second").returncode == 0
    assert perftest(cluster, "delete-vhost", "none").stdout == "there was no virtual host 'none'; there is /, tenant\n"
    for words, text in (
        (("add-vhost", "tenant", "--tag", "b"), "exists already, with another description or other tags"),
        (("set-vhost-limits", "tenant", "--queues", "-2"), "max_queues -2 is no limit"),
        (("quorum-status", "q", "--vhost", "none"), "virtual host 'none' does not exist"),
    ):
        refused = perftest(cluster, *words)
        assert (refused.returncode, text in refused.stderr) == (1, True), refused.stderr
