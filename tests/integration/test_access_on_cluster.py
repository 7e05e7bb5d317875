"""Users of a running cluster: what an operator changes holds at once, on every node, and after a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from infra import local_cluster
from tests.conftest import free_base_port
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes
DEADLINE_S = 20


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster that runs."""
    found = tmp_path_factory.mktemp("users") / "cluster"
    local_cluster.start(found, base_port=free_base_port())
    yield found
    local_cluster.stop(local_cluster.load(found))


@pytest.fixture
def cluster(directory: Path) -> local_cluster.Cluster:
    """As it is now: a test may have started it again."""
    return local_cluster.load(directory)


@pytest.fixture
def user(cluster: local_cluster.Cluster, directory: Path) -> Iterator[str]:
    """A user with all permissions and the password secret."""
    asks(cluster, "add-user", name="ann", password="secret")
    asks(cluster, "set-permissions", user="ann", configure=".*", write=".*", read=".*")
    yield "ann"
    with suppress(local_cluster.ClusterError):
        asks(local_cluster.load(directory), "delete-user", name="ann")


def asks(cluster: local_cluster.Cluster, op: str, **request: object) -> dict[str, Any]:
    return local_cluster.change(cluster, {"op": op, **request})


def perftest(cluster: local_cluster.Cluster, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "perftest.cli", "broker", *words, "--dir", str(cluster.directory)]
    return subprocess.run(line, input=given, capture_output=True, text=True, check=False, timeout=120)


def test_permissions_change_under_an_open_connection(cluster: local_cluster.Cluster, user: str) -> None:
    connection = connect(cluster.nodes[1], user=user)
    channel = connection.channel()
    channel.queue_declare("ann-q", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "ann-q", b"before")
    asks(cluster, "set-permissions", user=user, configure="", write="", read="^ann-")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"access to exchange 'amq.fanout'"):
        channel.basic_publish("amq.fanout", "", b"after")
    channel = connection.channel()
    assert channel.basic_get("ann-q", auto_ack=True)[2] == b"before"
    asks(cluster, "set-permissions", user=user, configure=".*", write=".*", read=".*")
    channel.queue_delete("ann-q")
    connection.close()


def test_a_deleted_user_is_out_on_every_node(cluster: local_cluster.Cluster, user: str) -> None:
    connections = [connect(node, user=user) for node in cluster.nodes]
    asks(cluster, "delete-user", name=user)
    for connection in connections:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            connection.process_data_events(DEADLINE_S)
        assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - user 'ann' was deleted")
    for node in cluster.nodes:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(node, user=user)


def test_limits_of_a_user(cluster: local_cluster.Cluster, user: str) -> None:
    asks(cluster, "set-user-limits", name=user, max_connections=2, max_channels=3)
    first, second = (connect(cluster.nodes[0], user=user) for _ in range(2))
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"user connection limit \(2\) is reached"):
        connect(cluster.nodes[0], user=user)
    first.channel()
    second.channel()
    second.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=r"maximum allowed user limit of \(3\)"):
        first.channel()
    asks(cluster, "set-user-limits", name=user, max_connections=-1, max_channels=-1)
    third = connect(cluster.nodes[0], user=user)
    third.channel()
    second.close()
    third.close()


@pytest.mark.slow
def test_users_are_there_after_a_restart_of_all_nodes(cluster: local_cluster.Cluster, user: str) -> None:
    asks(cluster, "set-topic-permissions", user=user, exchange="amq.topic", write="^{username}[.]", read="")
    local_cluster.stop(cluster)
    cluster = local_cluster.start(Path(cluster.directory))
    connection = connect(cluster.nodes[2], user=user)
    channel = connection.channel()
    channel.basic_publish("amq.topic", "ann.k", b"")
    channel.basic_publish("amq.topic", "bob.k", b"")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"access to topic 'bob.k' in exchange 'amq.topic'"):
        channel.basic_qos(prefetch_count=1)
    connection.close()


def test_the_commands(cluster: local_cluster.Cluster) -> None:
    """As an operator: no password on the command line, none in an answer."""
    for _ in range(2):  # whoever got no answer gives the command again
        assert perftest(cluster, "add-user", "bob", "--tag", "monitoring", given="pass word\n").returncode == 0
    refused = perftest(cluster, "add-user", "bob", "--tag", "monitoring", given="another\n")
    assert refused.returncode == 1 and "user 'bob' exists already, with another password" in refused.stderr
    assert perftest(cluster, "authenticate", "bob", given="pass word\n").returncode == 0
    assert perftest(cluster, "authenticate", "bob", given="wrong\n").returncode == 1
    assert perftest(cluster, "set-password", "bob", given="another\n").returncode == 0
    assert perftest(cluster, "set-permissions", "bob", "^a", "^b", "").returncode == 0
    assert perftest(cluster, "set-topic-permissions", "bob", "amq.topic", "^x", "^y").returncode == 0
    assert perftest(cluster, "set-user-tags", "bob").returncode == 0
    assert perftest(cluster, "set-user-limits", "bob", "--connections", "5").returncode == 0
    told = perftest(cluster, "users", "--json").stdout
    rows = {row["name"]: row for row in json.loads(told)}
    assert rows["bob"] == {
        "name": "bob", "tags": [], "has_password": True, "max_connections": 5, "max_channels": -1,
    }  # fmt: skip
    assert "another" not in told and "hash" not in told
    (row,) = (row for row in json.loads(perftest(cluster, "permissions", "--json").stdout) if row["user"] == "bob")
    assert (row["configure"], row["write"], row["read"]) == ("^a", "^b", "")
    assert "amq.topic" in perftest(cluster, "topic-permissions").stdout
    assert perftest(cluster, "clear-topic-permissions", "bob").returncode == 0
    assert perftest(cluster, "clear-permissions", "bob").returncode == 0
    assert perftest(cluster, "delete-user", "bob").stdout == "user bob is deleted\n"
    again = perftest(cluster, "delete-user", "bob")
    assert again.returncode == 0 and again.stdout.startswith("there was no user 'bob'; there is ")
    assert "bob" not in perftest(cluster, "users").stdout


WRONG = [
    (("add-user", "guest"), "user 'guest' exists already"),
    (("add-user", "x" * 256), "name"),
    (("set-permissions", "guest", "[", "", ""), "is no regular expression"),
    (("set-permissions", "nobody", "", "", ""), "name one of "),
    (("set-permissions", "guest", "", "", "", "--vhost", "v"), "virtual host 'v' does not exist"),
    (("set-user-limits", "guest", "--connections", "-2"), "max_connections -2 is no limit"),
]


@pytest.mark.parametrize(("words", "expected"), WRONG)
def test_wrong_requests_are_told(cluster: local_cluster.Cluster, words: tuple[str, ...], expected: str) -> None:
    found = perftest(cluster, *words, given="secret\n")
    assert found.returncode == 1
    assert expected in found.stderr


def test_definitions_as_files(cluster: local_cluster.Cluster, tmp_path: Path) -> None:
    """More than a line of the control port takes, there and back."""
    file, many = tmp_path / "setup.json", tmp_path / "many.json"
    assert perftest(cluster, "export-definitions", str(file)).returncode == 0
    found = json.loads(file.read_text())
    queue = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    found["queues"] = [queue | {"name": f"many-{number:03d}-{'x' * 200}"} for number in range(300)]
    many.write_text(json.dumps(found))
    assert perftest(cluster, "import-definitions", str(many)).returncode == 0
    assert len(json.loads(perftest(cluster, "export-definitions", "-").stdout)["queues"]) >= 300
    found["queues"].append({"name": 5})
    many.write_text(json.dumps(found))
    refused = perftest(cluster, "import-definitions", str(many))
    assert (refused.returncode, "queues[300].name: 5" in refused.stderr) == (1, True)
    many.write_text("{")
    assert perftest(cluster, "import-definitions", str(many)).returncode == 2
