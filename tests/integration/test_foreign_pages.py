"""Requests that a page of another origin has a browser send with the login that the browser knows: none changes
anything. Programs that say little of what they send go on as before."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra import local_cluster
from tests.integration.test_management_as_rabbitmq import Api
from tests.integration.testing.scripts import until

pytestmark = pytest.mark.processes
LOGIN = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
FOREIGN = {"Origin": "https://evil.example"}
USER = {"users": [{"name": "mallory", "password": "x", "tags": "administrator"}]}
PUBLISH = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
TOLD = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with local_cluster.temporary(tmp_path_factory.mktemp("pages"), nodes=1) as cluster:
        port = cluster.nodes[0].metrics_port
        until(Api(f"http://127.0.0.1:{port}").is_there)
        yield port


def asked(
    port: int, method: str, path: str, headers: dict[str, str], body: Any = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """The code, the headers and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({**FOREIGN, "Content-Type": "text/plain"}, 403),
        ({**FOREIGN, "Content-Type": "application/x-www-form-urlencoded"}, 403),
        ({**FOREIGN, "Content-Type": "application/json"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ],
)
def test_a_page_makes_no_user_and_publishes_nothing(port: int, headers: dict[str, str], code: int) -> None:
    for path, body in (("/api/definitions", USER), ("/api/exchanges/%2F/amq.default/publish", PUBLISH)):
        found, _headers, told = asked(port, "POST", path, LOGIN | headers, body)
        assert found == code and json.loads(told)["reason"]
    assert asked(port, "GET", "/api/users/mallory", LOGIN)[0] == 404


def test_a_page_neither_puts_nor_deletes(port: int) -> None:
    queue, durable = "/api/queues/%2F/kept", {"durable": True}
    assert asked(port, "PUT", queue, LOGIN, durable)[0] == 201
    assert asked(port, "DELETE", queue, LOGIN | FOREIGN)[0] == 403
    assert asked(port, "PUT", "/api/queues/%2F/new", LOGIN | FOREIGN, durable)[0] == 403
    assert asked(port, "GET", queue, LOGIN)[0] == 200
    assert asked(port, "GET", "/api/queues/%2F/new", LOGIN)[0] == 404
    assert asked(port, "DELETE", queue, LOGIN)[0] == 204


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/json"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json", "Origin": "http://127.0.0.1:PORT", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=["no type", "rabbitmqadmin", "curl -d", "a page of the port"],
)
def test_programs_go_on(port: int, headers: dict[str, str]) -> None:
    headers = LOGIN | {name: value.replace("PORT", str(port)) for name, value in headers.items()}
    assert asked(port, "PUT", "/api/vhosts/tenant", headers, {})[0] in (201, 204)
    assert asked(port, "POST", "/api/exchanges/%2F/amq.default/publish", headers, PUBLISH)[0] == 200
    assert asked(port, "DELETE", "/api/vhosts/tenant", headers)[0] == 204


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        ("GET", "/", LOGIN, 200),
        ("GET", "/", {}, 401),
        ("GET", "/metrics", {}, 200),
        ("GET", "/nothing", {}, 404),
        ("POST", "/metrics", {}, 405),
        ("GET", "/api/overview", LOGIN, 200),
        ("GET", "/api/overview", {}, 401),
        ("GET", "/api/vhosts/none", LOGIN, 404),
        ("POST", "/api/definitions", LOGIN | FOREIGN, 403),
        ("OPTIONS", "/api/definitions", FOREIGN, 405),
        ("POST", "/api/definitions", {"Expect": "the impossible"}, 417),
    ],
)
def test_every_answer_tells_browsers_what_they_may_do(
    port: int, method: str, path: str, headers: dict[str, str], code: int
) -> None:
    found, told, _body = asked(port, method, path, headers)
    assert found == code
    assert {name: told[name] for name in TOLD} == TOLD
    assert told["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in told["Content-Security-Policy"]
    assert not [name for name in told if name.startswith("Access-Control")]


def test_the_answer_to_what_is_no_http_tells_the_same(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(b"what is this?\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()
    assert answer.startswith(("HTTP/1.0 400", "HTTP/1.1 400"))
    for name, value in TOLD.items():
        assert f"{name}: {value}\r\n" in answer
    assert "Content-Security-Policy: default-src 'none'" in answer


@pytest.mark.slow
def test_what_is_no_http_leaves_no_traceback(tmp_path: Path) -> None:
    """A line of the log for many of them: nobody fills the drive so."""
    with local_cluster.temporary(tmp_path, nodes=1) as cluster:
        (node,) = cluster.nodes
        until(Api(f"http://127.0.0.1:{node.metrics_port}").is_there)
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", node.metrics_port), 30) as client:
                client.sendall(b"what is this?\r\n\r\n")
                assert client.recv(1 << 16).startswith(b"HTTP")
        words = Path(node.log_file).read_text(encoding="utf-8")
    assert "Traceback" not in words and words.count("sent no HTTP") == 1
