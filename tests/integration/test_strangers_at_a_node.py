"""Whoever is no node and no operator of the cluster changes nothing: not on disk, not for clients, and not for long.

Each opening comes to the peer port and to the control port of a node that serves a client all the while.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import control, local_cluster
from infra.cluster import Cluster, make_secret
from infra.control_link import ProofError, connected
from infra.node_process import wait
from tests.integration.testing.pika_clients import connect

pytestmark = [pytest.mark.slow, pytest.mark.processes]

PORTS = ("peer_port", "control_port")
HANDSHAKE_MS = 300
STRANGERS = 8
NONCE = "00" * 32


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, so that the first has peers that somebody may pretend to be."""
    limits = {"handshake_ms": HANDSHAKE_MS, "strangers_max": STRANGERS, "alarm_check_ms": 60_000}
    with local_cluster.temporary(tmp_path_factory.mktemp("strangers"), nodes=3, limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def channel(cluster: Cluster) -> Iterator[BlockingChannel]:
    """A client of the node, with a queue that has a message; the node has written all that follows from it."""
    with connect(cluster.nodes[0]) as connection:
        channel = connection.channel()
        channel.queue_declare("neighbour", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        channel.basic_publish("", "neighbour", b"still here", mandatory=True)
        readings = [on_disk(cluster)]
        assert wait(lambda: readings.append(on_disk(cluster)) or (len(readings) > 50 and alike(readings[-50:])), 30)
        yield channel


@pytest.fixture
def neighbour(channel: BlockingChannel) -> Iterator[BlockingChannel]:
    """That client, which must still be served after the test. A question, because an answer writes nothing."""
    yield channel
    assert channel.queue_declare("neighbour", passive=True).method.message_count == 1


def alike(readings: list[dict[str, str]]) -> bool:
    """Whether nothing has changed for a second."""
    return all(reading == readings[0] for reading in readings)


def frame(body: bytes, kind: int = 0, length: int | None = None) -> bytes:
    """A frame of a link, possibly with a wrong length."""
    return struct.pack(">I", 1 + len(body) if length is None else length) + bytes((kind,)) + body


def link_opening(**changes: object) -> bytes:
    """What node2 would say first to node1."""
    return json.dumps({"version": 2, "cluster": "CLUSTER", "node": 2, "to": 1, "nonce": NONCE, **changes}).encode()


def control_opening(**changes: object) -> bytes:
    """What an operator would say first to node1."""
    return json.dumps({"control": 1, "cluster": "CLUSTER", "node": "node1", "nonce": NONCE, **changes}).encode() + b"\n"


CHANGE = b'{"op": "set-policy", "name": "p", "pattern": "x", "definition": {"max-length": 1}}\n'
"""What would be written down, and answered with "ok"."""
BOOT = json.dumps({"life": [9_000_000, 1], "known": [9_000_000, 1], "frame_max": 1 << 20}).encode()
OPENINGS: dict[str, list[bytes]] = {
    "nothing": [],
    "one octet": [b"\0"],
    "port scanner": [b"\r\n\r\n"],
    "HTTP": [b"GET / HTTP/1.1\r\nHost: node1\r\n\r\n"],
    "TLS": [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)],
    "AMQP": [b"AMQP\x00\x00\x09\x01"],
    "an operator's request without a handshake": [CHANGE],
    "link: half a frame": [frame(link_opening())[:20]],
    "link: four gigabytes": [frame(b"", length=0xFFFFFFFF)],
    "link: a frame of 64 KiB": [frame(bytes(65_535))],
    "link: a message before the handshake": [frame(bytes(100), kind=2)],
    "link: depth": [frame(b"[" * 4000)],
    "link: another cluster": [frame(link_opening(cluster="other"))],
    "link: another version": [frame(link_opening(version=1))],
    "link: no member": [frame(link_opening(node=9))],
    "link: the node itself": [frame(link_opening(node=1))],
    "link: a proof of zeros": [frame(link_opening()), frame(bytes(32) + BOOT)],
    "link: its proof sent back": [frame(link_opening()), b"ECHO"],
    "control: half a line": [control_opening()[:40]],
    "control: a line without an end": [b"{" * 70_000],
    "control: a line of 64 KiB": [b"[" * 65_000 + b"\n"],
    "control: another cluster": [control_opening(cluster="other")],
    "control: another node": [control_opening(node="node2")],
    "control: another version": [control_opening(control=9)],
    "control: no object": [b"[1]\n"],
    "control: a proof of zeros": [control_opening(), b"0" * 64 + b"\n" + CHANGE],
    "control: its proof sent back": [control_opening(), b"ECHO"],
    "control: a request without a proof": [control_opening(), b'{"op": "replace-node", "node": "node3"}\n'],
    "control: octets that are no text": [b"\xff\xfe" * 50 + b"\n"],
}


def conversation(cluster: Cluster, port: str, opening: list[bytes]) -> bytes:
    """Say each part, and hear what comes between; then wait until the node hangs up."""
    heard, answer = b"", b""
    address = ("127.0.0.1", getattr(cluster.nodes[0], port))
    with contextlib.suppress(ConnectionError), socket.create_connection(address, timeout=10) as stranger:
        for number, part in enumerate(opening):
            if number:
                answer = stranger.recv(65_536)
                heard += answer
            stranger.sendall(answer if part == b"ECHO" else part.replace(b"CLUSTER", cluster.cluster.encode()))
        while more := stranger.recv(65_536):
            heard += more
    return heard


def on_disk(cluster: Cluster) -> dict[str, str]:
    """A hash of each file of the first node, but for its log for people."""
    home = Path(cluster.nodes[0].data_dir)
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.name != "node.log"
    }


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("name", OPENINGS)
def test_a_stranger_changes_nothing(cluster: Cluster, neighbour: BlockingChannel, name: str, port: str) -> None:
    before = on_disk(cluster)
    heard = conversation(cluster, port, OPENINGS[name])
    assert on_disk(cluster) == before
    assert b'"ok"' not in heard and cluster.secret() not in heard
    assert local_cluster.is_alive(cluster.nodes[0])


@pytest.mark.parametrize("port", PORTS)
def test_many_strangers_keep_nobody_out_and_cost_little(
    cluster: Cluster, neighbour: BlockingChannel, port: str
) -> None:
    process, node = psutil.Process(cluster.nodes[0].pid), cluster.nodes[0]
    before = process.memory_info().rss
    with contextlib.ExitStack() as held:
        for _ in range(10 * STRANGERS):
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", getattr(node, port)), timeout=10))
            with contextlib.suppress(ConnectionError):
                stranger.sendall(b"{" * 4000)
        assert control.ask(cluster, node, {"op": "summary"})["name"] == node.name
        assert process.memory_info().rss - before < 64 * 1024 * 1024
    deadline = time.monotonic() + 20
    while len(process.net_connections()) > 20 and time.monotonic() < deadline:
        control.ask(cluster, node, {"op": "summary"})
    assert len(process.net_connections()) <= 20, "those who said nothing are dropped"


def test_a_recorded_handshake_opens_nothing(cluster: Cluster) -> None:
    """What an operator said once, octet by octet, to the same node."""
    node, said = cluster.nodes[0], []
    with connected(cluster, node, 10) as lines:
        lines.flush()
    with connected(cluster, node, 10) as lines:
        write = lines.write
        lines.write = lambda octets: said.append(bytes(octets)) or write(octets)  # type: ignore[method-assign,func-returns-value,assignment]
        lines.write(b'{"op": "summary"}\n')
        lines.flush()
        assert b'"name"' in lines.readline()
    assert b'"ok"' not in conversation(cluster, "control_port", [control_opening(), *said])


def test_who_has_another_secret_is_told_so(cluster: Cluster, tmp_path: Path) -> None:
    """Before anything was sent that could do harm; and the node's log says so, too."""
    other = replace(cluster, directory=str(tmp_path))
    make_secret(other)
    with pytest.raises(ProofError, match="has another secret than this cluster"):
        control.ask(other, cluster.nodes[0], {"op": "summary"})
    (row, *_) = local_cluster.status(other)
    assert row["state"] == "silent" and "another secret" in row["problem"]


def test_who_reaches_another_node_asks_nothing(cluster: Cluster) -> None:
    first, second, _ = cluster.nodes
    with pytest.raises(ProofError, match="takes node2 for another node"):
        control.ask(cluster, replace(first, control_port=second.control_port), {"op": "summary"})


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_an_open_secret_is_not_used(cluster: Cluster, mode: int) -> None:
    cluster.secret_file.chmod(mode)
    try:
        with pytest.raises(ProofError, match="open to other users"):
            control.ask(cluster, cluster.nodes[0], {"op": "summary"})
    finally:
        cluster.secret_file.chmod(0o600)


def test_the_secret_is_nowhere_but_in_its_file(cluster: Cluster) -> None:
    """Neither in a command line, nor in an environment, nor in a log, nor in a configuration."""
    secret = cluster.secret().decode()
    for node in cluster.nodes:
        process = psutil.Process(node.pid)
        assert secret not in " ".join([*process.cmdline(), *process.environ().values()])
    files = [path for path in Path(cluster.directory).rglob("*") if path.is_file() and path != cluster.secret_file]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
