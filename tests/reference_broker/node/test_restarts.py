"""A node that comes back must come back as it was: with its queues, its messages, and nothing that was deleted.

A WAL of tiny files makes a few hundred messages roll it over many times, so that what comes back is a snapshot, live
entries below it, and a tail of the log behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra.ports import free_ports

pytestmark = pytest.mark.processes

QUORUM = {"x-queue-type": "quorum"}


def await_port(port: int, child: subprocess.Popen[bytes]) -> None:
    """Wait until the node listens. Not with pika, which leaves the sockets of failed attempts to the collector."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        with contextlib.suppress(subprocess.TimeoutExpired):
            pytest.fail(f"the node ended with {child.wait(0.05)} instead of listening")
    pytest.fail("the node does not listen after 30 seconds")


@contextmanager
def node(directory: Path, ending: signal.Signals = signal.SIGTERM) -> Iterator[BlockingChannel]:
    """One single-member node on ``directory``, with a channel in confirm mode; ended by ``ending``."""
    port, peer_port, control_port = free_ports(3)
    member = {"node": 1, "name": "node1", "host": "127.0.0.1", "amqp_port": port}
    config = {
        "name": "node1", "node": 1, "cluster": "restarts",
        "nodes": [{**member, "peer_port": peer_port, "control_port": control_port}],
        "data_dir": str(directory / "data"), "wal_dir": str(directory / "wal"),
        "limits": {"wal_file_bytes": 65_536}, "exit_with_stdin": True,
    }  # fmt: skip
    directory.mkdir(exist_ok=True)
    (directory / "node.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "reference_broker.node", "--config", str(directory / "node.json")]
    with (
        (directory / "node.log").open("ab") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log) as child,
    ):
        try:
            await_port(port, child)
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                yield channel
        finally:
            child.send_signal(ending)
            child.wait(30)


def kill(directory: Path) -> None:
    """``kill -9`` while connections are open."""
    port = json.loads((directory / "node.json").read_text())["nodes"][0]["control_port"]
    with socket.create_connection(("127.0.0.1", port)) as control, control.makefile("rwb") as line:
        line.write(b'{"op":"status"}\n')
        line.flush()
        os.kill(json.loads(line.readline())["pid"], signal.SIGKILL)


def publish(channel: BlockingChannel, queue: str, numbers: range) -> None:
    for number in numbers:
        channel.basic_publish("", queue, b"%06d" % number + b"x" * 1000, pika.BasicProperties(delivery_mode=2))


def numbers(channel: BlockingChannel, queue: str, count: int, *, ack: bool) -> list[int]:
    """The numbers of the next ``count`` messages."""
    taken: list[int] = []
    method: Any
    for method, _properties, body in channel.consume(queue, inactivity_timeout=20):
        assert method is not None, f"only {len(taken)} of {count} messages"
        taken.append(int(body[:6]))
        if ack:
            channel.basic_ack(method.delivery_tag)
        if len(taken) == count:
            break
    channel.cancel()
    return taken


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_queues_and_messages_survive_snapshots_and_restarts(tmp_path: Path, ending: signal.Signals) -> None:
    with node(tmp_path, ending) as channel:
        for queue in ("kept", "deleted"):
            channel.queue_declare(queue, durable=True, arguments=QUORUM)
        publish(channel, "kept", range(300))
        publish(channel, "deleted", range(50))
        assert numbers(channel, "kept", 200, ack=True) == list(range(200))
        publish(channel, "kept", range(300, 400))
        channel.queue_delete("deleted")
        channel.queue_declare("late", durable=True, arguments=QUORUM)
        publish(channel, "late", range(5))
    with node(tmp_path, ending) as channel:
        assert channel.queue_declare("late", passive=True).method.message_count == 5
        publish(channel, "kept", range(400, 600))
        assert numbers(channel, "kept", 100, ack=True) == list(range(200, 300))
        channel.queue_declare("deleted", durable=True, arguments=QUORUM)
        assert channel.queue_declare("deleted", passive=True).method.message_count == 0
    with node(tmp_path, ending) as channel:
        assert numbers(channel, "kept", 300, ack=True) == list(range(300, 600))
        assert numbers(channel, "late", 5, ack=True) == list(range(5))


def test_what_a_consumer_held_when_its_node_was_killed_is_ready_again(tmp_path: Path) -> None:
    """The only member of a group leads as soon as it starts: its machine must hear that those channels are gone."""
    with contextlib.suppress(pika.exceptions.AMQPError), node(tmp_path) as channel:
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        publish(channel, "q", range(20))
        method: Any
        for method, _properties, _body in channel.consume("q", inactivity_timeout=20):
            if method.delivery_tag == 20:
                break
        kill(tmp_path)
        channel.connection.process_data_events(time_limit=20)
    with node(tmp_path) as channel:
        assert numbers(channel, "q", 20, ack=True) == list(range(20))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_name_that_was_used_before_finds_its_present_queue(tmp_path: Path, ending: signal.Signals) -> None:
    """After a restart the log tells again of the queues that came and went; the last one of a name is the one."""
    with node(tmp_path, ending) as channel:
        for generation in range(4):
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            publish(channel, "q", range(generation * 100, generation * 100 + 100))
            assert numbers(channel, "q", 90, ack=True)[0] == generation * 100
            if generation < 3:
                channel.queue_delete("q")
    for _ in range(3):
        with node(tmp_path, ending) as channel:
            assert channel.queue_declare("q", passive=True).method.message_count == 10
    with node(tmp_path, ending) as channel:
        assert numbers(channel, "q", 10, ack=True) == list(range(390, 400))


def octets_of(file: Path) -> int:
    """The size of a file; 0 if it was renamed or removed since it was listed."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_consumed_messages_give_their_disk_space_back(tmp_path: Path) -> None:
    """Otherwise a broker that keeps up would still fill its disk."""
    with node(tmp_path) as channel:
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        for start in range(0, 2000, 200):
            publish(channel, "q", range(start, start + 200))
            assert numbers(channel, "q", 200, ack=True) == list(range(start, start + 200))
        for _ in range(300):  # files are given back beside the writing: a busy machine takes its time
            used = sum(octets_of(file) for file in (tmp_path / "wal").iterdir())
            if used < 1_000_000:
                return
            channel.connection.process_data_events(time_limit=0.1)
    pytest.fail(f"{used} octets of WAL after 2 MB of messages that were all consumed")
