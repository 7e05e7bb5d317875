"""TLS between nodes, and between a node and its operators: who has no good certificate is refused, and both sides say
why."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra import control, local_cluster
from infra.cluster import Cluster, ClusterError
from infra.cluster_file import DESCRIPTION_FILE, load
from infra.control_link import OPERATOR, ProofError
from infra.description import NodePlace, adopt, describe, write
from infra.node_process import end_children, spawn, wait
from infra.ports import free_ports
from tests.integration.testing.pika_clients import connect
from tests.perftest.testing.certificates import Authority

pytestmark = [pytest.mark.slow, pytest.mark.processes]

NODES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Secured:
    """Three nodes, each with a directory of its own, and the cluster as an operator sees it."""

    cluster: Cluster
    home: Path
    authority: Authority

    def certify(self, who: str, *, name: str = "", authority: Authority | None = None, expired: bool = False) -> None:
        """Give a node or the operator a certificate."""
        folder = Path(self.cluster.directory if who == OPERATOR else self.home / who, "tls")
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = (authority or self.authority).issue(name or who, expired=expired)
        shutil.copy(self.authority.ca_file, folder / "ca.pem")
        shutil.copy(certificate, folder / f"{who}.pem")
        shutil.copy(key, folder / f"{who}.key")
        (folder / f"{who}.key").chmod(0o600)

    def start(self, node: str, *, until_ready: bool = False) -> Cluster:
        directory = self.home / node
        for file in (Path(self.cluster.directory, DESCRIPTION_FILE), self.cluster.secret_file):
            shutil.copy2(file, directory)
        adopted = adopt(load(directory, DESCRIPTION_FILE), directory, node)
        return local_cluster.start_node(adopted, node, until_ready=until_ready)

    def log(self, node: str) -> str:
        return (self.home / node / node / "node.log").read_text()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    ports = free_ports(12)
    places = [
        NodePlace(name=node, address="127.0.0.1", ports=tuple(ports[4 * number : 4 * number + 4]))
        for number, node in enumerate(NODES)
    ]
    cluster = write(describe("secured", places, tls="tls"), tmp_path / "operator")
    (tmp_path / "ca").mkdir()
    found = Secured(cluster, tmp_path, Authority(tmp_path / "ca"))
    for who in (*NODES, OPERATOR):
        found.certify(who)
    try:
        yield found
    finally:
        for node in NODES:
            with contextlib.suppress(ClusterError):
                local_cluster.stop(load(tmp_path / node))


def test_a_cluster_with_tls_serves_and_answers(secured: Secured) -> None:
    secured.start("a")
    for node in ("b", "c"):
        secured.start(node, until_ready=True)
    body = bytes(3_000_000)  # in parts, so that frames meet records of TLS anywhere
    with contextlib.ExitStack() as connections:
        channels = [connections.enter_context(connect(uri)).channel() for uri in secured.cluster.uris]
        channels[0].queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        for channel in channels:
            channel.confirm_delivery()
            channel.basic_publish("", "q", body, mandatory=True)
        for _ in channels:
            method, _, got = next(channels[2].consume("q", inactivity_timeout=30))
            assert got == body
            channels[2].basic_ack(method.delivery_tag)
    assert {row["state"] for row in local_cluster.status(secured.cluster)} == {"running"}
    for port in ("control_port", "peer_port"):
        with socket.create_connection(("127.0.0.1", getattr(secured.cluster.nodes[0], port)), timeout=20) as plain:
            plain.sendall(json.dumps({"control": 1, "cluster": "secured", "node": "a"}).encode() + b"\n")
            with contextlib.suppress(ConnectionError):
                assert plain.recv(100)[:1] in (b"", b"\x15"), "nothing but an alert of TLS"


@pytest.mark.parametrize("bad", ["expired", "authority", "name"])
def test_a_node_without_a_good_certificate_stays_outside(secured: Secured, bad: str) -> None:
    """Node b dials node a, whose log tells; node a serves its operator all the while."""
    (other := secured.home / "other").mkdir()
    authority = Authority(other, "other") if bad == "authority" else None
    secured.certify("b", name="x" if bad == "name" else "", authority=authority, expired=bad == "expired")
    secured.start("a")
    directory = secured.home / "b"
    shutil.copy2(secured.cluster.secret_file, directory)
    adopted = adopt(secured.cluster, directory, "b")
    child = spawn(adopted, adopted.node("b"), exit_with_stdin=True)
    try:
        assert wait(lambda: "refused: " in secured.log("a"), 20)
        assert "node 2 is up" not in secured.log("a")
        assert bad != "name" or "node 2 is b, and its certificate is for x" in secured.log("a")
        assert control.ask(secured.cluster, secured.cluster.node("a"), {"op": "summary"})["name"] == "a"
    finally:
        end_children([child])


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("expired", "TLS failed|handshake|certificate"),
        ("authority", "TLS failed|handshake|certificate"),
        ("missing", "the certificate of operator is missing"),
    ],
)
def test_an_operator_without_a_good_certificate_is_refused(secured: Secured, bad: str, says: str) -> None:
    secured.start("a")
    (other := secured.home / "other").mkdir()
    if bad == "missing":
        Path(secured.cluster.directory, "tls", f"{OPERATOR}.pem").unlink()
    else:
        authority = Authority(other, "other") if bad == "authority" else None
        secured.certify(OPERATOR, authority=authority, expired=bad == "expired")
    with pytest.raises((ProofError, OSError), match=says):
        control.ask(secured.cluster, secured.cluster.node("a"), {"op": "summary"})


def test_a_key_that_others_can_read_is_refused_before_anything_is_written(secured: Secured) -> None:
    (secured.home / "a" / "tls" / "a.key").chmod(0o644)
    with pytest.raises(ClusterError, match="the key for TLS is open to other users"):
        secured.start("a")
    assert not (secured.home / "a" / "a" / "data").exists()
