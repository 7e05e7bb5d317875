"""AMQP over TLS: other people's clients, certificates as logins, and those who come without."""

from __future__ import annotations

import json
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.credentials import ExternalCredentials, PlainCredentials

from infra import local_cluster
from infra.ports import free_ports
from reference_broker.node.server import IN_TLS_MAX
from tests.integration.test_management_as_rabbitmq import Api
from tests.perftest.testing.certificates import Authority

pytestmark = pytest.mark.processes
DEADLINE_S = 20


@dataclass(frozen=True, slots=True)
class Secured:
    """A node with a port for TLS."""

    cluster: local_cluster.Cluster
    port: int
    authority: Authority

    def context(self, client: str = "", authority: Authority | None = None) -> ssl.SSLContext:
        """For a client, with a certificate of that name."""
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        if client:
            context.load_cert_chain(*(authority or self.authority).issue(client))
        return context

    def connect(
        self, context: ssl.SSLContext, credentials: PlainCredentials | ExternalCredentials
    ) -> pika.BlockingConnection:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self.port, credentials=credentials, ssl_options=pika.SSLOptions(context),
            socket_timeout=DEADLINE_S, blocked_connection_timeout=DEADLINE_S,
        )  # fmt: skip
        return pika.BlockingConnection(parameters)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("authority")
    authority, (port,) = Authority(folder), free_ports(1)
    certificate, key = authority.issue("127.0.0.1")
    key.chmod(0o600)
    tls = {
        "port": port, "certificate": str(certificate), "key": str(key), "ca": str(authority.ca_file),
        "client_certificates": "optional",
    }  # fmt: skip
    with local_cluster.temporary(tmp_path_factory.mktemp("node"), nodes=1) as cluster:
        (config,) = Path(cluster.directory).rglob("node.json")
        config.write_text(json.dumps(json.loads(config.read_text()) | {"client_tls": tls}))
        local_cluster.kill(cluster, "node1")
        cluster = local_cluster.start_node(cluster, "node1", until_ready=True)
        local_cluster.change(cluster, {"op": "add-user", "name": "ann", "password_hash": ""})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        local_cluster.change(cluster, {"op": "set-permissions", "user": "ann", **everything})
        yield Secured(cluster, port, authority)


def test_messages_over_tls(secured: Secured) -> None:
    """Large enough for many records, there and back."""
    connection = secured.connect(secured.context(), PlainCredentials("guest", "guest"))
    channel = connection.channel()
    channel.queue_declare("secured", durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    bodies = [bytes([number]) * 200_000 for number in range(20)]
    for body in bodies:
        channel.basic_publish("", "secured", body)
    assert [channel.basic_get("secured", auto_ack=True)[2] for _ in bodies] == bodies
    connection.close()


def test_a_certificate_is_a_login(secured: Secured) -> None:
    connection = secured.connect(secured.context("ann"), ExternalCredentials())
    connection.channel().queue_declare("", exclusive=True)
    connection.close()


@pytest.mark.parametrize("client", ["nobody", ""])
def test_a_certificate_of_nobody_is_none(secured: Secured, client: str) -> None:
    """Without a certificate, the broker does not offer EXTERNAL."""
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        secured.connect(secured.context(client), ExternalCredentials())


def test_a_certificate_of_another_authority_is_refused(secured: Secured, tmp_path: Path) -> None:
    context = secured.context("ann", Authority(tmp_path, "stranger"))
    with pytest.raises((pika.exceptions.AMQPConnectionError, ssl.SSLError, OSError)):
        secured.connect(context, ExternalCredentials())


def test_old_versions_of_tls_and_plain_octets_are_refused(secured: Secured) -> None:
    """And the node serves on."""
    with socket.create_connection(("127.0.0.1", secured.port), DEADLINE_S) as plain:
        plain.sendall(b"AMQP\x00\x00\x09\x01" + bytes(64))
        assert not plain.recv(4096).startswith(b"\x01")
    old = secured.context()
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.minimum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", secured.port), DEADLINE_S) as wire, pytest.raises(OSError):
        old.wrap_socket(wire, server_hostname="127.0.0.1")
    secured.connect(secured.context(), PlainCredentials("guest", "guest")).close()


def test_those_who_stop_in_the_middle_of_tls_keep_nobody_out_and_are_few(secured: Secured) -> None:
    """Each takes memory until the time for the handshake is over. The oldest of too many is dropped before that."""
    allow_files(2 * IN_TLS_MAX)
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", secured.port), timeout=DEADLINE_S))
            for _ in range(IN_TLS_MAX + 50)
        ]
        secured.connect(secured.context(), PlainCredentials("guest", "guest")).close()
        for each in silent[:50]:
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""


def allow_files(count: int) -> None:
    """Let this process open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def test_the_management_api_knows_the_port_and_the_end_of_its_certificate(secured: Secured) -> None:
    api = Api(f"http://127.0.0.1:{secured.cluster.nodes[0].metrics_port}")
    ports = {row["protocol"]: row["port"] for row in api.call("GET", "overview")[1]["listeners"]}
    assert ports["amqp/ssl"] == secured.port
    assert api.call("GET", f"health/checks/port-listener/{secured.port}")[0] == 200
    assert api.call("GET", "health/checks/protocol-listener/amqps")[0] == 200
    assert api.call("GET", "health/checks/certificate-expiration/0/days")[0] == 200
    code, answer = api.call("GET", "health/checks/certificate-expiration/5000/years")
    (row,) = answer["expired"]
    assert (code, answer["status"], row["protocol"]) == (503, "failed", "amqp/ssl")
