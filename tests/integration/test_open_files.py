"""A real node with few open files left: it turns clients away, and serves those that it has."""

from __future__ import annotations

import contextlib
import resource
import socket
from pathlib import Path

import pika
import psutil
import pytest

from infra import local_cluster

pytestmark = pytest.mark.processes

FILES = 160
CLIENTS = 200
QUORUM = {"x-queue-type": "quorum"}


def test_clients_leave_files_for_the_log(tmp_path: Path) -> None:
    with local_cluster.temporary(tmp_path) as cluster, contextlib.ExitStack() as sockets:
        node = cluster.nodes[0]
        connection = pika.BlockingConnection(pika.URLParameters(node.uri))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        psutil.Process(node.pid).rlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
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
        assert turned_away == CLIENTS + 1 - (FILES - FILES // 4)
        channel.basic_publish("", "q", b"x" * 100_000)
        channel.queue_declare("q2", durable=True, arguments=QUORUM)
        connection.close()
