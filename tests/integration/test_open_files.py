"""A real node with few open files left: it turns clients away, and serves those that it has."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from pathlib import Path

import pika
import pika.exceptions
import psutil
import pytest

from infra import local_cluster
from tests.integration.testing.pika_clients import connect
from tests.integration.testing.scripts import until

pytestmark = [pytest.mark.slow, pytest.mark.processes]

FILES = 160
CLIENTS = 200
FILES_OF_A_MOMENT = 5
"""Of the log, which opens files and closes them again, and of clients that are being turned away."""
QUORUM = {"x-queue-type": "quorum"}


def test_clients_leave_files_for_the_log(tmp_path: Path) -> None:
    with local_cluster.temporary(tmp_path) as cluster, contextlib.ExitStack() as sockets:
        node = cluster.nodes[0]
        connection = connect(node)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        process = psutil.Process(node.pid)
        process.rlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
        room = FILES - FILES // 4 - process.num_fds()
        clients = [
            sockets.enter_context(socket.create_connection(("127.0.0.1", node.amqp_port))) for _ in range(CLIENTS)
        ]
        turned_away = 0
        for client in clients:
            client.settimeout(20)
            client.sendall(b"AMQP\x00\x00\x09\x01")
            with contextlib.suppress(ConnectionError):
                if client.recv(1):
                    continue
            turned_away += 1
        assert CLIENTS - room <= turned_away <= CLIENTS - room + FILES_OF_A_MOMENT
        assert process.num_fds() <= FILES - FILES // 4 + FILES_OF_A_MOMENT
        channel.basic_publish("", "q", b"x" * 100_000)
        channel.queue_declare("q2", durable=True, arguments=QUORUM)
        connection.close()


def test_who_does_not_log_in_leaves_room_for_others(tmp_path: Path) -> None:
    """Clients that are logged in do not count, and whoever leaves makes room."""
    with local_cluster.temporary(tmp_path, nodes=1) as cluster, contextlib.ExitStack() as sockets:
        (config,) = Path(cluster.directory).rglob("node.json")
        config.write_text(json.dumps(json.loads(config.read_text()) | {"limits": {"logins_waiting_max": 5}}))
        local_cluster.kill(cluster, "node1")
        (node,) = local_cluster.start_node(cluster, "node1", until_ready=True).nodes
        for _ in range(7):
            sockets.enter_context(connect(node))
        silent = [sockets.enter_context(socket.create_connection(("127.0.0.1", node.amqp_port))) for _ in range(5)]
        for client in silent:
            client.sendall(b"AMQP\x00\x00\x09\x01")
            client.settimeout(20)
            assert client.recv(1) == b"\x01"
        one_more = sockets.enter_context(socket.create_connection(("127.0.0.1", node.amqp_port), 20))
        with contextlib.suppress(ConnectionError):
            one_more.sendall(b"AMQP\x00\x00\x09\x01")
            assert one_more.recv(1) == b""
        silent[0].close()
        assert until(lambda: opens(node.uri), lambda: opens(node.uri))


def opens(uri: str) -> bool:
    try:
        connect(uri).close()
    except (pika.exceptions.AMQPConnectionError, OSError):
        return False
    return True
