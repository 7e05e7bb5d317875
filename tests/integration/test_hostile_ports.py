"""Whoever connects and says nothing, or half of what there is to say, takes neither the open files of a node nor its
ports for long.

The nodes have few open files, so that the test comes to the limit with few sockets.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra import local_cluster
from infra.cluster import Cluster, Node
from infra.ports import free_ports
from tests.integration.test_management_as_rabbitmq import Api
from tests.integration.testing.pika_clients import connect
from tests.integration.testing.scripts import until
from tests.perftest.testing.certificates import Authority

pytestmark = [pytest.mark.slow, pytest.mark.processes]

FILES = 512
KEPT = FILES // 4
SOCKETS = FILES + 100
IDLE_MS = 500
LONG_MS = 600_000
WAL_BYTES = 1 << 20
"""The log needs another file after some messages."""
DEADLINE_S = 30
QUORUM = {"x-queue-type": "quorum"}
GUEST = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q="
HALVES = {
    "nothing": "",
    "half a line": "GET /metr",
    "half the headers": "GET /metrics HTTP/1.1\r\nHost: x\r\n",
    "half a body": f"POST /api/definitions HTTP/1.1\r\nHost: x\r\n{GUEST}\r\nContent-Length: 10\r\n\r\n{{",
    "half a body of a stranger": "POST /api/definitions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
    "a whole request, and no other": "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
}


@dataclass(frozen=True, slots=True)
class Attacked:
    """A node with few open files, and its port for TLS."""

    node: Node
    tls_port: int

    def log(self) -> str:
        """What the node has logged."""
        return Path(self.node.log_file).read_text(encoding="utf-8")


def files(node: Node) -> int:
    """Those that the node has open."""
    return int(psutil.Process(node.pid).num_fds())


def started(folder: Path, **limits: int) -> contextlib.AbstractContextManager[Cluster]:
    return local_cluster.temporary(folder, nodes=1, limits=limits)


def with_tls(cluster: Cluster, folder: Path) -> Attacked:
    """The same node with a port for TLS and few open files."""
    (port,), authority = free_ports(1), Authority(folder)
    certificate, key = authority.issue("127.0.0.1")
    key.chmod(0o600)
    tls = {"port": port, "certificate": str(certificate), "key": str(key)}
    (config,) = Path(cluster.directory).rglob("node.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | {"client_tls": tls}))
    local_cluster.kill(cluster, "node1")
    (node,) = local_cluster.start_node(cluster, "node1", until_ready=True).nodes
    until(Api(f"http://127.0.0.1:{node.metrics_port}").is_there)
    psutil.Process(node.pid).rlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    return Attacked(node, port)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A node that waits for slow clients for long, so that none of them goes during a test."""
    with started(tmp_path_factory.mktemp("attacked"), http_idle_ms=LONG_MS, wal_file_bytes=WAL_BYTES) as cluster:
        yield with_tls(cluster, tmp_path_factory.mktemp("authority"))


def opened(port: int, stack: contextlib.ExitStack, said: str = "") -> list[socket.socket]:
    """More sockets than the node may have open files, each of which says the same."""
    found = []
    for _ in range(SOCKETS):
        each = stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        with contextlib.suppress(ConnectionError):
            each.sendall(said.encode())
        found.append(each)
    return found


def publish(channel: Any) -> None:
    """A message that the node confirms, larger than what the log writes at once."""
    channel.basic_publish("", "q", b"x" * 100_000, mandatory=True)


@pytest.mark.parametrize("said", HALVES.values(), ids=HALVES)
def test_idle_clients_of_the_metrics_port_leave_the_rest_alone(attacked: Attacked, said: str) -> None:
    """A publisher goes on, others log in, and the log gets the files that it needs."""
    node = attacked.node
    with contextlib.ExitStack() as sockets, connect(node) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        channel.confirm_delivery()
        assert node.metrics_port is not None
        opened(node.metrics_port, sockets, said)
        for number in range(20):
            publish(channel)
            with connect(node) as other:
                other.channel().queue_declare(f"q{number}", durable=True, arguments=QUORUM)
        assert files(node) <= FILES - KEPT
    assert "a client of the metrics port is turned away" in attacked.log()


@pytest.mark.parametrize("port", ["amqp_port", "tls_port", "peer_port", "control_port"])
def test_idle_clients_of_any_port_leave_files_for_the_log(attacked: Attacked, port: str) -> None:
    """All ports at once are full, and a publisher that is there goes on."""
    node = attacked.node
    where = attacked.tls_port if port == "tls_port" else getattr(node, port)
    with contextlib.ExitStack() as sockets, connect(node) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        channel.confirm_delivery()
        opened(where, sockets)
        assert node.metrics_port is not None
        opened(node.metrics_port, sockets)
        for number in range(20):
            publish(channel)
            channel.queue_declare(f"q{number}", durable=True, arguments=QUORUM)
        assert files(node) <= FILES - KEPT // 2
    assert until(lambda: files(node) < FILES // 4, lambda: files(node) < FILES // 4)


@pytest.mark.parametrize("said", HALVES.values(), ids=HALVES)
def test_a_client_that_does_not_go_on_is_dropped(hasty: Node, said: str) -> None:
    """The node closes the connection by itself."""
    assert hasty.metrics_port is not None
    with socket.create_connection(("127.0.0.1", hasty.metrics_port), DEADLINE_S) as client:
        client.sendall(said.encode())
        while client.recv(1 << 16):
            pass


def test_a_client_that_drips_is_dropped(hasty: Node) -> None:
    """A header every now and then does not keep the connection."""
    assert hasty.metrics_port is not None
    with socket.create_connection(("127.0.0.1", hasty.metrics_port), IDLE_MS / 10_000) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            while not is_closed(client):
                client.sendall(b"X: y\r\n")


def test_a_client_that_does_not_read_its_answers_is_dropped(hasty: Node) -> None:
    """The answers to so many requests fill the buffers of both sides."""
    assert hasty.metrics_port is not None
    before = files(hasty)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(DEADLINE_S)
        client.connect(("127.0.0.1", hasty.metrics_port))
        with contextlib.suppress(ConnectionError):
            while True:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    assert until(lambda: files(hasty) <= before, lambda: files(hasty) <= before)


def test_a_client_that_asks_again_in_time_is_kept(hasty: Node) -> None:
    """One connection carries requests for longer than a client may be idle."""
    assert hasty.metrics_port is not None
    client = http.client.HTTPConnection("127.0.0.1", hasty.metrics_port, timeout=DEADLINE_S)
    client.connect()
    kept = client.sock
    with contextlib.closing(socket.create_connection(("127.0.0.1", hasty.metrics_port), IDLE_MS / 10_000)) as silent:
        while not is_closed(silent):
            client.request("GET", "/metrics")
            assert client.getresponse().read()
    client.request("GET", "/metrics")
    assert client.getresponse().read() and client.sock is kept
    client.close()


def is_closed(client: socket.socket) -> bool:
    """Whether the node has closed the connection, for which the socket's time-out waits."""
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that soon loses patience."""
    with started(tmp_path_factory.mktemp("hasty"), http_idle_ms=IDLE_MS) as cluster:
        (node,) = cluster.nodes
        until(Api(f"http://127.0.0.1:{node.metrics_port}").is_there)
        yield node
