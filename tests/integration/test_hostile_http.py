"""Requests that nobody sends on purpose, to the management API of a real node: each gets an answer in the API's form,
no request finds a defect, and the node is as well afterwards as before.

``HOSTILE_HTTP=100000`` sends so many.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from infra import local_cluster
from infra.local_cluster import Cluster
from reference_broker.management.importing import IMPORTERS
from reference_broker.management.reading import READERS
from reference_broker.management.writing import WRITERS
from tests.integration.test_management_as_rabbitmq import Api
from tests.integration.testing.scripts import until

pytestmark = [pytest.mark.slow, pytest.mark.processes]
GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()
EXAMPLES = int(os.environ.get("HOSTILE_HTTP", "1500"))
GROWTH_MAX = 64 << 20
TOLD = {200, 201, 204, 400, 401, 404, 405, 413, 503}
Request = tuple[str, str, bytes, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with local_cluster.temporary(tmp_path_factory.mktemp("http"), nodes=1) as running:
        until(Api(f"http://127.0.0.1:{running.nodes[0].metrics_port}").is_there)
        yield running


KNOWN = ("/", "q", "guest", "amq.topic", "amq.default", "tenant", "", "none", "1", "e", "~", "..")
NAMES = st.sampled_from(KNOWN) | st.text(max_size=300)
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | NAMES
VALUES = st.recursive(
    ATOMS,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(NAMES, each, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from([
    "durable", "auto_delete", "arguments", "type", "routing_key", "payload", "payload_encoding", "properties", "count",
    "ackmode", "encoding", "truncate", "password", "password_hash", "tags", "configure", "write", "read", "exchange",
    "pattern", "definition", "priority", "value", "action", "description", "vhosts", "users", "queues", "exchanges",
    "bindings", "permissions", "parameters", "policies", "name", "vhost", "source", "destination", "internal",
])  # fmt: skip
OBJECTS = st.dictionaries(FIELDS, VALUES, max_size=6).map(lambda each: json.dumps(each).encode())
QUERIES = st.sampled_from(["page", "page_size", "sort", "columns", "name", "use_regex", "vhost"])
PATHS = sorted({path for _method, path in {**WRITERS, **IMPORTERS}} | set(READERS))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A method, an address, a body and a login, of which any part may be nonsense."""
    parts = []
    for part in draw(st.sampled_from(PATHS)).split("/"):
        named = part.startswith("{") or draw(st.integers(0, 30)) == 0
        parts.append(quote(draw(NAMES), safe="") if named else part)
    query = draw(st.dictionaries(QUERIES, NAMES, max_size=3))
    address = "/api/" + "/".join(parts) + "?" * bool(query)
    address += "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
    body = draw(
        st.dictionaries(FIELDS, VALUES, max_size=6).map(lambda each: json.dumps(each).encode()) | st.binary(max_size=60)
    )
    login = draw(st.sampled_from([GUEST] * 9 + ["", "Basic ", "Basic ====", "Bearer x", GUEST + "x"]))
    return draw(st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD"])), address, body, login


def asked(port: int, request: Request) -> tuple[int, bytes]:
    method, address, body, login = request
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, address, body, {"Authorization": login} if login else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_every_request_gets_an_answer(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    assert node.pid is not None and node.metrics_port is not None
    port, process = node.metrics_port, psutil.Process(node.pid)
    for method, path in [*WRITERS, *(("GET", path) for path in READERS)]:
        asked(port, (method, f"/api/{path}", b"{}", GUEST))  # whatever is made once is there now
    before = process.memory_info().rss

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @example(("PUT", "/api/vhosts/a%00b", b"{}", GUEST))
    @example(("PUT", "/api/queues/%2F/a%00b", b'{"durable": true}', GUEST))
    @given(requests())
    def answers(request: Request) -> None:
        code, octets = asked(port, request)
        assert code in TOLD, (code, octets)
        if octets and request[0] != "HEAD":
            found: Any = json.loads(octets)
            assert code < 400 or "reason" in found

    answers()
    assert process.is_running()
    assert process.memory_info().rss - before < GROWTH_MAX
    words = Path(node.log_file).read_text(encoding="utf-8")
    assert "Traceback" not in words, words[-3000:]
