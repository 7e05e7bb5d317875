"""One list of requests, two brokers: the management API here and that of a real RabbitMQ.

Codes are compared, and of the answers the fields that both brokers can know alike.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra import local_cluster, rabbitmq_cluster
from infra.ports import free_ports
from tests.integration.testing.scripts import until

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.processes,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]
QUORUM = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
GET = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # of test12


@dataclass(frozen=True, slots=True)
class Api:
    """The API of a broker."""

    base: str

    def call(self, method: str, path: str, body: Any = None, login: str = "guest:guest") -> tuple[int, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base}/api/{path}", data, method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _read(answer.read())
        except urllib.error.HTTPError as refused:
            return refused.code, _read(refused.read())

    def is_there(self) -> bool:
        try:
            return self.call("GET", "overview")[0] == 200
        except OSError:
            return False


def _read(octets: bytes) -> Any:
    return json.loads(octets) if octets else None


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Api]]:
    (port,) = free_ports(1)
    configuration = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    with (
        rabbitmq_cluster.running(
            tmp_path_factory.mktemp("rabbitmq"), nodes=1, configuration=configuration, plugins=("rabbitmq_management",)
        ),
        local_cluster.temporary(tmp_path_factory.mktemp("ours")) as ours,
    ):
        found = {
            "RabbitMQ": Api(f"http://127.0.0.1:{port}"),
            "ours": Api(f"http://127.0.0.1:{ours.nodes[1].metrics_port}"),
        }
        for api in found.values():
            until(api.is_there)
        yield found


def picked(answer: Any, keys: tuple[str, ...]) -> Any:
    """These fields of an object, or of each object of a list. The exchange of RabbitMQ's tracer is left out."""
    if isinstance(answer, list):
        rows = (picked(each, keys) for each in answer if each.get("name") != "amq.rabbitmq.trace")
        return sorted(rows, key=str)
    return {key: answer.get(key) for key in keys} if isinstance(answer, dict) else answer


Step = tuple[str, str, Any, tuple[str, ...]]
QUEUE = ("name", "vhost", "durable", "auto_delete", "exclusive", "type", "arguments")
EXCHANGE = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
BINDING = ("source", "destination", "destination_type", "routing_key", "arguments", "vhost")
MESSAGE = ("payload", "payload_bytes", "payload_encoding", "exchange", "routing_key", "redelivered", "properties")
ERROR = ("error", "reason")
STEPS: tuple[Step, ...] = (
    ("GET", "whoami", None, ("name",)),
    ("GET", "vhosts", None, ("name",)),
    ("GET", "exchanges/%2F", None, ("name", "type", "durable")),
    ("PUT", "queues/%2F/q", QUORUM, ()),
    ("PUT", "queues/%2F/q", QUORUM, ()),
    ("PUT", "queues/%2F/q", {"durable": True}, ()),
    ("PUT", "queues/%2F/wrong", {"durable": True, "arguments": {"x-max-length": -1}}, ERROR),
    ("PUT", "queues/%2F/wrong", {"durable": "perhaps"}, ()),
    ("PUT", "queues/%2F/wrong", b"{", ()),
    ("PUT", "queues/%2F/wrong", b"[]", ()),
    ("PUT", "queues/none/q", QUORUM, ()),
    ("PUT", "queues/%2F/c%2Fd", {"durable": True}, ()),
    ("PUT", "queues/%2F/not-durable", {}, ()),
    ("PUT", "queues/%2F/gr%C3%B6%C3%9Fe%20(1)%3F", {"durable": True}, ()),
    ("PUT", "exchanges/%2F/stra%C3%9Fe%25", {"type": "topic", "durable": True}, ()),
    ("POST", "bindings/%2F/e/stra%C3%9Fe%25/q/gr%C3%B6%C3%9Fe%20(1)%3F", {"routing_key": "ä.*"}, ()),
    ("POST", "exchanges/%2F/stra%C3%9Fe%25/publish",
     {"properties": {}, "routing_key": "ä.b", "payload": "x", "payload_encoding": "string"}, ("routed",)),
    ("POST", "queues/%2F/gr%C3%B6%C3%9Fe%20(1)%3F/get", GET, MESSAGE[:-1]),
    ("DELETE", "queues/%2F/gr%C3%B6%C3%9Fe%20(1)%3F/contents", None, ()),
    ("DELETE", "exchanges/%2F/stra%C3%9Fe%25", None, ()),
    ("DELETE", "queues/%2F/gr%C3%B6%C3%9Fe%20(1)%3F", None, ()),
    ("GET", "queues", None, QUEUE),
    ("GET", "queues/%2F/c%2Fd", None, QUEUE),
    ("GET", "queues/%2F/none", None, ERROR),
    ("GET", "queues/none", None, ()),
    ("PUT", "exchanges/%2F/x", {"type": "topic", "durable": True}, ()),
    ("PUT", "exchanges/%2F/x", {"type": "topic", "durable": True}, ()),
    ("PUT", "exchanges/%2F/x", {"type": "fanout", "durable": True}, ()),
    ("PUT", "exchanges/%2F/wrong", {"type": "no-such-type"}, ()),
    ("PUT", "exchanges/%2F/amq.new", {"type": "topic"}, ()),
    ("GET", "exchanges/%2F/x", None, EXCHANGE),
    ("GET", "exchanges/%2F/none", None, ERROR),
    ("POST", "bindings/%2F/e/x/q/q", {"routing_key": "a.*"}, ()),
    ("POST", "bindings/%2F/e/x/q/q", {"routing_key": "b", "arguments": {"k": "v"}}, ()),
    ("POST", "bindings/%2F/e/amq.fanout/e/x", {"routing_key": "k"}, ()),
    ("POST", "bindings/%2F/e/x/q/none", {"routing_key": "k"}, ()),
    ("GET", "bindings/%2F", None, BINDING),
    ("GET", "queues/%2F/q/bindings", None, BINDING),
    ("GET", "exchanges/%2F/x/bindings/source", None, BINDING),
    ("GET", "exchanges/%2F/x/bindings/destination", None, BINDING),
    ("GET", "bindings/%2F/e/x/q/q", None, BINDING),
    ("DELETE", "bindings/%2F/e/x/q/q/a.%2A", None, ()),
    ("DELETE", "bindings/%2F/e/x/q/q/none", None, ()),
    ("POST", "bindings/%2F/e/x/q/c%2Fd", {"routing_key": "c.*"}, ()),
    ("POST", "exchanges/%2F/x/publish",
     {"properties": {"delivery_mode": 2, "headers": {"h": 1}}, "routing_key": "c.b", "payload": "text",
      "payload_encoding": "string"}, ("routed",)),
    ("POST", "exchanges/%2F/x/publish",
     {"properties": {}, "routing_key": "z", "payload": "x", "payload_encoding": "string"}, ("routed",)),
    ("POST", "exchanges/%2F/amq.default/publish",
     {"properties": {"type": "t"}, "routing_key": "c/d", "payload": "/wD+", "payload_encoding": "base64"}, ("routed",)),
    ("POST", "exchanges/%2F/none/publish",
     {"properties": {}, "routing_key": "q", "payload": "", "payload_encoding": "string"}, ()),
    ("POST", "exchanges/%2F/x/publish", {"routing_key": "q"}, ()),
    ("POST", "queues/%2F/c%2Fd/get", GET, MESSAGE),
    ("POST", "queues/%2F/c%2Fd/get", GET | {"ackmode": "ack_requeue_false", "truncate": 2}, MESSAGE),
    ("POST", "queues/%2F/c%2Fd/get", GET, MESSAGE),
    ("POST", "queues/%2F/q/get", {"count": 1}, ()),
    ("POST", "queues/%2F/none/get", GET, ()),
    ("DELETE", "queues/%2F/c%2Fd/contents", None, ()),
    ("PUT", "users/ann", {"password": "secret", "tags": "monitoring"}, ()),
    ("PUT", "users/ann", {"password": "secret", "tags": "monitoring"}, ()),
    ("PUT", "users/hashed", {"password_hash": HASH, "tags": ""}, ()),
    ("PUT", "users/wrong", {}, ()),
    ("PUT", "users/wrong", {"password": "x"}, ()),
    ("PUT", "users/locked", {"tags": "x"}, ()),
    ("GET", "users/locked", None, ("name", "tags")),
    ("DELETE", "users/locked", None, ()),
    ("GET", "users/hashed", None, ("name", "password_hash", "hashing_algorithm", "tags")),
    ("GET", "users/none", None, ERROR),
    ("PUT", "permissions/%2F/ann", {"configure": "", "write": "", "read": ".*"}, ()),
    ("PUT", "permissions/%2F/ann", {"configure": "[", "write": "", "read": ".*"}, ()),
    ("PUT", "permissions/%2F/ann", {"configure": ""}, ()),
    ("PUT", "permissions/%2F/none", {"configure": "", "write": "", "read": ""}, ()),
    ("PUT", "topic-permissions/%2F/ann", {"exchange": "amq.topic", "write": "^a", "read": ""}, ()),
    ("GET", "permissions", None, ("user", "vhost", "configure", "write", "read")),
    ("GET", "users/ann/permissions", None, ("user", "vhost", "configure", "write", "read")),
    ("GET", "topic-permissions", None, ("user", "vhost", "exchange", "write", "read")),
    ("DELETE", "topic-permissions/%2F/ann", None, ()),
    ("PUT", "policies/%2F/p", {"pattern": "^q$", "definition": {"max-length": 10}, "priority": 2}, ()),
    ("PUT", "policies/%2F/p", {"pattern": "[", "definition": {"max-length": 10}}, ()),
    ("PUT", "policies/%2F/p", {"pattern": "q", "definition": {"no-such-key": 1}}, ()),
    ("GET", "policies/%2F/p", None, ("name", "vhost", "pattern", "definition", "priority")),
    ("GET", "policies/%2F/none", None, ERROR),
    ("PUT", "operator-policies/%2F/p", {"pattern": "^q$", "definition": {"max-length": 3, "expires": 9000000}}, ()),
    ("PUT", "operator-policies/%2F/p", {"pattern": "^q$", "definition": {"overflow": "drop-head"}}, ()),
    ("GET", "operator-policies", None, ("name", "pattern", "definition", "priority")),
    ("GET", "policies", None, ("name",)),
    ("GET", "operator-policies/%2F/p", None, ("name", "vhost", "pattern", "definition", "priority")),
    ("DELETE", "operator-policies/%2F/p", None, ()),
    ("DELETE", "operator-policies/%2F/p", None, ()),
    ("DELETE", "policies/%2F/p", None, ()),
    ("DELETE", "policies/%2F/p", None, ()),
    ("GET", "health/checks/alarms", None, ("status",)),
    ("GET", "health/checks/local-alarms", None, ("status",)),
    ("GET", "health/checks/virtual-hosts", None, ("status",)),
    ("GET", "health/checks/node-is-quorum-critical", None, ("status",)),
    ("GET", "queues?page=1&page_size=2&sort=name&columns=name", None,
     ("items", "total_count", "filtered_count", "item_count", "page", "page_count", "page_size")),
    ("GET", "queues?page=1&name=durable", None, ("filtered_count", "total_count", "item_count")),
    ("GET", "queues?page=99", None, ()),
    ("GET", "queues?columns=name,durable", None, ("name", "durable", "type")),
    ("GET", "no/such/path", None, ()),
    ("DELETE", "exchanges/%2F/amq.topic", None, ()),
    ("DELETE", "exchanges/%2F/x?if-unused=true", None, ()),
    ("DELETE", "exchanges/%2F/x", None, ()),
    ("DELETE", "exchanges/%2F/x", None, ()),
    ("DELETE", "queues/%2F/c%2Fd?if-empty=true", None, ()),
    ("DELETE", "queues/%2F/q", None, ()),
    ("DELETE", "queues/%2F/q", None, ()),
    ("DELETE", "permissions/%2F/ann", None, ()),
    ("DELETE", "permissions/%2F/ann", None, ()),
    ("DELETE", "users/hashed", None, ()),
    ("DELETE", "users/hashed", None, ()),
)  # fmt: skip


def test_the_same_requests_get_the_same_answers(brokers: dict[str, Api]) -> None:
    found = differences(brokers, STEPS)
    assert not found, found


def differences(brokers: dict[str, Api], steps: tuple[Step, ...]) -> str:
    """The steps that the brokers answer in different ways."""
    differ = []
    for method, path, body, keys in steps:
        answers = {name: api.call(method, path, body) for name, api in brokers.items()}
        told = {name: (code, picked(answer, keys) if keys else None) for name, (code, answer) in answers.items()}
        if told["ours"] != told["RabbitMQ"]:
            differ.append(f"{method} {path} {body}\n  ours     {answers['ours']}\n  RabbitMQ {answers['RabbitMQ']}")
    return "\n".join(differ)


GET_TEXTS = {"count": "1", "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": "50000"}
SETTINGS = {"pattern": "^texts", "definition": {"max-length": 10}}
PUBLISHED = {"properties": {}, "routing_key": "texts", "payload": "x", "payload_encoding": "string"}
TEXT_STEPS: tuple[Step, ...] = (
    ("PUT", "queues/%2F/texts", {"durable": "true", "auto_delete": "false", "arguments": {}, "vhost": "/"}, ()),
    ("PUT", "queues/%2F/texts", {"durable": "true", "arguments": []}, ()),
    ("PUT", "queues/%2F/texts", {"durable": "false"}, ERROR),
    ("PUT", "queues/%2F/wrong", {"durable": "TRUE"}, ()),
    ("PUT", "queues/%2F/wrong", {"durable": 1}, ()),
    ("PUT", "queues/%2F/wrong", {"durable": None}, ()),
    ("PUT", "queues/%2F/wrong", {"arguments": {"x-max-length": "10"}}, ERROR),
    ("GET", "queues/%2F/texts", None, QUEUE),
    ("PUT", "exchanges/%2F/texts", {"type": "topic", "durable": "true", "auto_delete": "false", "internal": "true",
                                    "arguments": {}}, ()),
    ("PUT", "exchanges/%2F/untyped", {}, ()),
    ("PUT", "exchanges/%2F/wrong", {"type": "direct", "durable": "perhaps"}, ()),
    ("GET", "exchanges/%2F/texts", None, EXCHANGE),
    ("GET", "exchanges/%2F/untyped", None, EXCHANGE),
    ("POST", "bindings/%2F/e/texts/q/texts", None, ()),
    ("POST", "bindings/%2F/e/texts/q/texts", {"routing_key": "a", "arguments": []}, ()),
    ("GET", "bindings/%2F/e/texts/q/texts", None, (*BINDING, "properties_key")),
    ("GET", "bindings/%2F/e/texts/q/texts/~", None, (*BINDING, "properties_key")),
    ("GET", "bindings/%2F/e/texts/q/texts/a", None, (*BINDING, "properties_key")),
    ("GET", "bindings/%2F/e/texts/q/texts/none", None, ERROR),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISHED, ("routed",)),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISHED | {"properties": {"headers": []}}, ("routed",)),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISHED | {"properties": {"delivery_mode": "2"}}, ()),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISHED | {"properties": {"expiration": 60000}}, ()),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISHED | {"properties": {"timestamp": "12345"}}, ()),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISHED | {"payload": 5}, ()),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISHED | {"payload": {"a": 1}}, ()),
    ("POST", "queues/%2F/texts/get", GET_TEXTS, MESSAGE[:-1]),
    ("POST", "queues/%2F/texts/get", GET_TEXTS | {"count": "2", "truncate": "0"}, MESSAGE[:-2]),
    ("POST", "queues/%2F/texts/get", GET_TEXTS | {"count": "0"}, MESSAGE),
    ("POST", "queues/%2F/texts/get", GET_TEXTS | {"count": "x"}, ()),
    ("POST", "queues/%2F/texts/get", GET_TEXTS | {"count": "1.5"}, ()),
    ("POST", "queues/%2F/texts/get", GET_TEXTS | {"encoding": "x"}, ()),
    ("PUT", "policies/%2F/texts", SETTINGS | {"priority": "2"}, ()),
    ("PUT", "policies/%2F/texts", SETTINGS | {"definition": {"max-length": "10"}}, ()),
    ("PUT", "policies/%2F/texts", SETTINGS | {"priority": None}, ()),
    ("PUT", "policies/%2F/texts", {"pattern": "^texts"}, ()),
    ("PUT", "policies/%2F/texts", SETTINGS | {"definition": {}}, ()),
    ("PUT", "policies/%2F/texts", SETTINGS | {"name": "other", "vhost": "/"}, ()),
    ("GET", "policies/%2F", None, ("name", "pattern", "definition", "priority")),
    ("PUT", "user-limits/guest/max-channels", {"value": "1000"}, ()),
    ("PUT", "user-limits/guest/max-wrong", {"value": 1}, ()),
    ("PUT", "user-limits/none/max-channels", {"value": 1}, ()),
    ("DELETE", "user-limits/guest/max-wrong", None, ()),
    ("DELETE", "user-limits/guest/max-channels", None, ()),
    ("PUT", "vhosts/texts", {"tracing": "false"}, ()),
    ("PUT", "vhost-limits/texts/max-queues", {"value": "1000"}, ()),
    ("PUT", "vhost-limits/texts/max-queues", {"value": 1.5}, ()),
    ("PUT", "vhost-limits/texts/max-queues", {}, ()),
    ("PUT", "vhost-limits/texts/max-wrong", {"value": 1}, ()),
    ("DELETE", "vhost-limits/texts/max-wrong", None, ()),
    ("DELETE", "vhost-limits/texts/max-queues", None, ()),
    ("PUT", "vhosts/wrong", {"tracing": "perhaps"}, ()),
    ("PUT", "users/texts", {"password": "x", "tags": ["a", "b"]}, ()),
    ("PUT", "users/texts", {"password": "x", "tags": "a, b",
                              "hashing_algorithm": "rabbit_password_hashing_sha256"}, ()),
    ("GET", "users/texts", None, ("name", "tags", "hashing_algorithm", "limits")),
    ("PUT", "permissions/texts/texts", {"configure": "", "write": "", "read": "", "vhost": "/", "user": "guest"}, ()),
    ("GET", "permissions/texts/texts", None, ("user", "vhost", "configure", "write", "read")),
    ("DELETE", "users/texts", None, ()),
    ("DELETE", "vhosts/texts", None, ()),
    ("DELETE", "policies/%2F/texts", None, ()),
    ("DELETE", "queues/%2F/texts", None, ()),
    ("DELETE", "exchanges/%2F/texts", None, ()),
    ("DELETE", "exchanges/%2F/untyped", None, ()),
)  # fmt: skip


def test_texts_for_numbers_and_flags_count_where_they_do_for_rabbitmq(brokers: dict[str, Api]) -> None:
    """rabbitmqadmin sends {"durable": "true", "count": "1"}."""
    found = differences(brokers, TEXT_STEPS)
    assert not found, found


ADMIN = Path("/usr/sbin/rabbitmqadmin"), Path("/usr/bin/rabbitmqadmin")
DEFINITIONS = "definitions.json"
PRETTY = ("--format", "pretty_json")
ADMIN_STEPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("declare", "vhost", "name=scripts"), ()),
    (("declare", "user", "name=ann", "password=secret", "tags=management"), ()),
    (("declare", "permission", "vhost=scripts", "user=ann", "configure=.*", "write=.*", "read=.*"), ()),
    (("list", "permissions", *PRETTY), ("user", "vhost", "configure", "write", "read")),
    (("list", "users", *PRETTY), ("name", "tags")),
    (("list", "vhosts", *PRETTY), ("name",)),
    (("declare", "queue", "name=q", "durable=true"), ()),
    (("declare", "queue", "name=gone", "durable=false", "auto_delete=true"), ()),
    (("declare", "queue", "name=quorum", "queue_type=quorum"), ()),
    (("declare", "queue", "name=short", 'arguments={"x-max-length": 3}'), ()),
    (("declare", "queue", "name=q", "durable=false"), ()),
    (("list", "queues", *PRETTY), QUEUE),
    (("declare", "exchange", "name=x", "type=topic"), ()),
    (("declare", "exchange", "name=y", "type=fanout", "durable=false", "internal=true"), ()),
    (("declare", "exchange", "name=wrong", "type=none"), ()),
    (("list", "exchanges", *PRETTY), EXCHANGE),
    (("declare", "binding", "source=x", "destination=q", "routing_key=a.*"), ()),
    (("declare", "binding", "source=x", "destination=y", "destination_type=exchange"), ()),
    (("declare", "binding", "source=x", "destination=none"), ()),
    (("list", "bindings", *PRETTY), BINDING),
    (("publish", "exchange=x", "routing_key=a.b", "payload=hello", 'properties={"delivery_mode": 2}'), ()),
    (("publish", "routing_key=q", "payload=again"), ()),
    (("publish", "routing_key=none", "payload=lost"), ()),
    (("publish", "exchange=none", "routing_key=none", "payload=lost"), ()),
    (("get", "queue=q", "count=2", *PRETTY), MESSAGE[:-1]),
    (("get", "queue=q", "ackmode=ack_requeue_false", "encoding=base64", *PRETTY), MESSAGE),
    (("get", "queue=none", *PRETTY), ()),
    (("purge", "queue", "name=q"), ()),
    (("get", "queue=q", *PRETTY), MESSAGE),
    (("declare", "policy", "name=p", "pattern=^q", 'definition={"max-length": 9}', "priority=2",
      "apply-to=queues"), ()),
    (("list", "policies", *PRETTY), ("vhost", "name", "pattern", "definition", "priority", "apply-to")),
    (("declare", "operator_policy", "name=o", "pattern=^q", 'definition={"max-length": 5}', "apply-to=queues"), ()),
    (("list", "operator_policies", *PRETTY), ("vhost", "name", "pattern", "definition", "priority", "apply-to")),
    (("declare", "vhost_limit", "vhost=scripts", "name=max-queues", "value=9"), ()),
    (("list", "vhost_limits", *PRETTY), ("vhost", "value")),
    (("export", DEFINITIONS), ()),
    (("delete", "queue", "name=gone"), ()),
    (("delete", "vhost_limit", "vhost=scripts", "name=max-queues"), ()),
    (("delete", "operator_policy", "name=o"), ()),
    (("delete", "policy", "name=p"), ()),
    (("delete", "policy", "name=p"), ()),
    (("delete", "binding", "source=x", "destination_type=queue", "destination=q", "properties_key=a.*"), ()),
    (("delete", "exchange", "name=x"), ()),
    (("delete", "exchange", "name=y"), ()),
    (("delete", "queue", "name=q"), ()),
    (("delete", "queue", "name=quorum"), ()),
    (("delete", "queue", "name=q"), ()),
    (("import", DEFINITIONS), ()),
    (("list", "queues", *PRETTY), QUEUE),
    (("list", "exchanges", *PRETTY), EXCHANGE),
    (("list", "bindings", *PRETTY), BINDING),
    (("list", "policies", *PRETTY), ("vhost", "name", "pattern", "definition", "priority", "apply-to")),
    (("list", "queues", "name", "durable"), ()),
    (("list", "connections"), ()),
    (("list", "channels"), ()),
    (("list", "consumers"), ()),
    (("list", "nodes", "running", *PRETTY), ()),
    (("show", "overview", *PRETTY), ()),
    (("delete", "permission", "vhost=scripts", "user=ann"), ()),
    (("delete", "user", "name=ann"), ()),
    (("delete", "vhost", "name=scripts"), ()),
)  # fmt: skip


def test_the_script_rabbitmqadmin_does_the_same_to_both(brokers: dict[str, Api], tmp_path: Path) -> None:
    """The script of the installed RabbitMQ, in a virtual host of its own but for what belongs to none."""
    script = next((path for path in ADMIN if path.exists()), None)
    if script is None:
        pytest.skip("rabbitmqadmin is not installed, which comes with rabbitmq-server")
    differ = []
    for words, keys in ADMIN_STEPS:
        told = {name: _administered(script, api, tmp_path / name, words, keys) for name, api in brokers.items()}
        if told["ours"] != told["RabbitMQ"]:
            differ.append(f"{' '.join(words)}\n  ours     {told['ours']}\n  RabbitMQ {told['RabbitMQ']}")
    assert not differ, "\n".join(differ)


def _administered(
    script: Path, api: Api, directory: Path, words: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[int, Any]:
    """How the script ended, and what it said: of answers in JSON these fields."""
    directory.mkdir(exist_ok=True)
    port, options = api.base.rpartition(":")[2], () if "vhost" in words else ("--vhost", "scripts")
    done = subprocess.run(
        [sys.executable, script, "--host", "127.0.0.1", "--port", port, *options, *words],
        capture_output=True, text=True, timeout=120, check=False, cwd=directory,
    )  # fmt: skip
    said = done.stdout
    if keys and done.returncode == 0:
        return 0, picked(json.loads(said), keys)
    return done.returncode, "" if PRETTY[1] in words or words[0] == "import" else said


STATUS = ("status",)
PARAMETER = ("component", "vhost", "name", "value")
OPERATORS = {"pattern": "^asked", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
ASKING_STEPS: tuple[Step, ...] = (
    ("GET", "aliveness-test/%2F", None, STATUS),
    ("GET", "aliveness-test/%2F", None, STATUS),
    ("GET", "aliveness-test/none", None, ERROR[:1]),
    ("GET", "queues/%2F/aliveness-test", None, QUEUE),
    ("DELETE", "queues/%2F/aliveness-test", None, ()),
    ("GET", "healthchecks/node", None, STATUS),
    ("GET", "healthchecks/node/none", None, ERROR),
    ("GET", "health/checks/protocol-listener/amqp", None, ("status", "protocol")),
    ("GET", "health/checks/protocol-listener/AMQP", None, ("status", "protocol")),
    ("GET", "health/checks/protocol-listener/amqp091", None, ("status", "protocol")),
    ("GET", "health/checks/protocol-listener/http", None, ("status", "protocol")),
    ("GET", "health/checks/protocol-listener/clustering", None, ("status", "protocol")),
    ("GET", "health/checks/protocol-listener/amqps", None, ("status", "reason", "missing")),
    ("GET", "health/checks/protocol-listener/nonsense", None, ("status", "reason", "missing")),
    ("GET", "health/checks/port-listener/1", None, ("status", "reason", "missing")),
    ("GET", "health/checks/port-listener/x", None, ERROR),
    ("GET", "health/checks/certificate-expiration/1/days", None, STATUS),
    ("GET", "health/checks/certificate-expiration/2/weeks", None, STATUS),
    ("GET", "health/checks/certificate-expiration/3/months", None, STATUS),
    ("GET", "health/checks/certificate-expiration/4/years", None, STATUS),
    ("GET", "health/checks/certificate-expiration/x/months", None, ERROR),
    ("GET", "health/checks/certificate-expiration/1/nonsense", None, ERROR),
    ("GET", "health/checks/node-is-mirror-sync-critical", None, STATUS),
    ("GET", "health/checks/nonsense", None, ()),
    ("GET", "parameters", None, PARAMETER),
    ("PUT", "operator-policies/%2F/asked", OPERATORS, ()),
    ("PUT", "vhosts/asked", None, ()),
    ("PUT", "parameters/vhost-limits/asked/limits", {"value": {"max-queues": 5}}, ()),
    ("PUT", "parameters/vhost-limits/asked/limits", {"value": {"max-connections": 6}}, ()),
    ("GET", "parameters", None, PARAMETER),
    ("GET", "parameters/operator_policy", None, PARAMETER),
    ("GET", "parameters/operator_policy/%2F", None, PARAMETER),
    ("GET", "parameters/operator_policy/%2F/asked", None, PARAMETER),
    ("GET", "parameters/operator_policy/%2F/none", None, ERROR),
    ("GET", "parameters/vhost-limits/asked", None, PARAMETER),
    ("GET", "parameters/vhost-limits/asked/limits", None, PARAMETER),
    ("GET", "parameters/vhost-limits/none", None, ERROR[:1]),
    ("GET", "parameters/shovel", None, PARAMETER),
    ("GET", "parameters/shovel/%2F", None, PARAMETER),
    ("GET", "parameters/shovel/%2F/none", None, ERROR),
    ("GET", "vhost-limits/asked", None, ("vhost", "value")),
    ("PUT", "parameters/vhost-limits/asked/limits", {"value": 5}, ()),
    ("PUT", "parameters/vhost-limits/none/limits", {"value": {"max-queues": 5}}, ()),
    ("PUT", "parameters/nonsense/%2F/x", {"value": {"a": 1}}, ()),
    ("PUT", "parameters/policy/%2F/x", {"value": SETTINGS}, ()),
    ("PUT", "parameters/operator_policy/%2F/asked", {"value": OPERATORS | {"priority": 3}}, ()),
    ("PUT", "parameters/operator_policy/%2F/asked", {"value": OPERATORS | {"definition": {"wrong": 3}}}, ()),
    ("GET", "operator-policies/%2F/asked", None, ("name", "vhost", "pattern", "definition", "priority", "apply-to")),
    ("DELETE", "parameters/vhost-limits/asked/limits", None, ()),
    ("DELETE", "parameters/operator_policy/%2F/asked", None, ()),
    ("DELETE", "parameters/operator_policy/%2F/asked", None, ()),
    ("DELETE", "parameters/shovel/%2F/none", None, ()),
    ("GET", "global-parameters/none", None, ERROR),
    ("DELETE", "global-parameters/none", None, ()),
    ("PUT", "global-parameters/wrong", {}, ()),
    ("PUT", "feature-flags/quorum_queue/enable", {"name": "quorum_queue"}, ()),
    ("PUT", "feature-flags/none/enable", {"name": "none"}, ()),
    ("GET", "auth", None, ("enable_uaa", "uaa_client_id", "uaa_location")),
    ("PUT", "cluster-name", {}, ()),
    ("PUT", "users/lonely", {"password": "x", "tags": "a"}, ()),
    ("PUT", "users/crowd", {"password": "x", "tags": ""}, ()),
    ("PUT", "permissions/asked/crowd", {"configure": "", "write": "", "read": ""}, ()),
    ("GET", "users/without-permissions", None, ("name", "tags", "limits")),
    ("GET", "user-limits/crowd", None, ("user", "value")),
    ("PUT", "user-limits/crowd/max-channels", {"value": 5}, ()),
    ("GET", "user-limits", None, ("user", "value")),
    ("GET", "user-limits/crowd", None, ("user", "value")),
    ("GET", "user-limits/none", None, ERROR),
    ("GET", "users/none/permissions", None, ERROR),
    ("GET", "users/none/topic-permissions", None, ERROR),
    ("GET", "connections/username/crowd", None, ("name",)),
    ("POST", "users/bulk-delete", {"users": ["crowd", "lonely"]}, ()),
    ("POST", "users/bulk-delete", {"users": ["crowd"]}, ()),
    ("POST", "users/bulk-delete", {}, ()),
    ("GET", "user-limits", None, ("user", "value")),
    ("DELETE", "connections/username/nobody", None, ()),
    ("GET", "connections/none", None, ERROR),
    ("GET", "channels/none", None, ERROR),
    ("GET", "consumers/%2F", None, ()),
    ("GET", "consumers/none", None, ERROR[:1]),
    ("GET", "vhosts/%2F/channels", None, ()),
    ("GET", "vhosts/none/connections", None, ERROR[:1]),
    ("GET", "vhosts/none/permissions", None, ERROR[:1]),
    ("GET", "vhosts/none/topic-permissions", None, ERROR[:1]),
    ("POST", "vhosts/asked/start/none", None, ()),
    ("POST", "rebalance/queues", None, ()),
    ("DELETE", "vhosts/asked", None, ()),
)  # fmt: skip


def test_what_scripts_ask_is_answered_alike(brokers: dict[str, Api]) -> None:
    found = differences(brokers, ASKING_STEPS)
    assert not found, found


def test_every_feature_flag_here_is_one_of_rabbitmq_and_enabled(brokers: dict[str, Api]) -> None:
    told = {name: api.call("GET", "feature-flags")[1] for name, api in brokers.items()}
    ours, rabbit = (
        {row["name"]: (row["state"], row["stability"], row["desc"]) for row in told[name]}
        for name in ("ours", "RabbitMQ")
    )
    assert ours and ours.items() <= rabbit.items()


def test_global_parameters_name_the_cluster_and_nobody_sets_others(brokers: dict[str, Api]) -> None:
    ours = brokers["ours"]
    name = ours.call("GET", "cluster-name")[1]["name"]
    assert {"name": "cluster_name", "value": name} in ours.call("GET", "global-parameters")[1]
    assert ours.call("GET", "global-parameters/cluster_name") == (200, {"name": "cluster_name", "value": name})
    assert ours.call("PUT", "cluster-name", {"name": name})[0] == 204
    for path, body in (("cluster-name", {"name": "other"}), ("global-parameters/a", {"value": 1})):
        code, answer = ours.call("PUT", path, body)
        assert (code, "here" in answer["reason"]) == (400, True), answer
    assert ours.call("GET", "cluster-name")[1]["name"] == name


def test_listeners_are_those_that_checks_find(brokers: dict[str, Api]) -> None:
    for api in brokers.values():
        rows = api.call("GET", "overview")[1]["listeners"]
        assert {"amqp", "clustering", "http"} <= {row["protocol"] for row in rows}
        node = api.call("GET", "overview")[1]["node"]
        ports = [row["port"] for row in rows if row["node"] == node]
        assert [api.call("GET", f"health/checks/port-listener/{port}") for port in ports] == [
            (200, {"status": "ok", "port": port}) for port in ports
        ]
        assert api.call("GET", f"healthchecks/node/{node}") == (200, {"status": "ok"})
        assert api.call("GET", f"nodes/{node}")[1]["running"] is True


POLICY = ("name", "vhost", "pattern", "definition", "priority", "apply-to")
KEYS: tuple[tuple[str, Any], ...] = (
    ("max-in-memory-length", 5), ("max-in-memory-length", -5), ("max-in-memory-bytes", 5),
    ("queue-master-locator", "min-masters"), ("queue-master-locator", "client-local"),
    ("queue-master-locator", "random"), ("queue-master-locator", "nonsense"), ("queue-master-locator", 5),
    ("queue-leader-locator", "balanced"), ("queue-leader-locator", "client-local"),
    ("ha-promote-on-shutdown", "always"), ("ha-promote-on-failure", "always"), ("ha-sync-mode", "automatic"),
    ("ha-params", 5), ("overflow", "reject-publish-dlx"), ("overflow", "nonsense"), ("queue-version", 2),
    ("queue-version", 3), ("queue-mode", "lazy"), ("queue-mode", "default"), ("queue-mode", "nonsense"),
    ("delivery-limit", 5), ("delivery-limit", -1), ("alternate-exchange", "x"), ("alternate-exchange", 5),
    ("max-age", "1D"), ("stream-max-segment-size-bytes", 5), ("initial-cluster-size", 5), ("max-priority", 5),
    ("single-active-consumer", True), ("federation-upstream-set", "all"), ("target-group-size", 5),
    ("dead-letter-strategy", "at-least-once"), ("expires", 0), ("message-ttl", 0),
)  # fmt: skip
LIMITS: tuple[tuple[str, Any], ...] = (
    ("max-in-memory-length", 5), ("max-in-memory-bytes", 5), ("delivery-limit", 5), ("ha-mode", "all"),
    ("ha-promote-on-failure", "always"), ("alternate-exchange", "x"), ("queue-version", 2), ("queue-mode", "lazy"),
    ("queue-leader-locator", "balanced"), ("initial-cluster-size", 5), ("message-ttl", 5),
)  # fmt: skip
UNROUTABLE = {"properties": {}, "routing_key": "nobody", "payload": "x", "payload_encoding": "string"}
ALTERNATE = {"pattern": "^px$", "definition": {"alternate-exchange": "lost"}}
POLICY_STEPS: tuple[Step, ...] = (
    *(("PUT", f"policies/%2F/key{number}", {"pattern": "^zz", "definition": {key: value}}, ())
      for number, (key, value) in enumerate(KEYS)),
    *(("PUT", f"operator-policies/%2F/key{number}", {"pattern": "^zz", "definition": {key: value}}, ())
      for number, (key, value) in enumerate(LIMITS)),
    ("GET", "policies/%2F", None, POLICY),
    ("GET", "operator-policies/%2F", None, POLICY),
    *(("DELETE", f"policies/%2F/key{number}", None, ()) for number in range(len(KEYS))),
    *(("DELETE", f"operator-policies/%2F/key{number}", None, ()) for number in range(len(LIMITS))),
    ("PUT", "exchanges/%2F/px", {"type": "direct"}, ()),
    ("PUT", "exchanges/%2F/lost", {"type": "fanout"}, ()),
    ("PUT", "queues/%2F/lost", {}, ()),
    ("POST", "bindings/%2F/e/lost/q/lost", {}, ()),
    ("PUT", "policies/%2F/p", ALTERNATE | {"apply-to": "nothing"}, ()),
    ("PUT", "policies/%2F/p", ALTERNATE | {"apply-to": "classic_queues"}, ()),
    ("PUT", "policies/%2F/p", ALTERNATE | {"apply-to": "queues"}, ()),
    ("GET", "policies/%2F/p", None, POLICY),
    ("GET", "exchanges/%2F/px", None, (*EXCHANGE, "policy")),
    ("POST", "exchanges/%2F/px/publish", UNROUTABLE, ("routed",)),
    ("PUT", "policies/%2F/p", ALTERNATE | {"apply-to": "exchanges"}, ()),
    ("GET", "policies/%2F/p", None, POLICY),
    ("GET", "exchanges/%2F/px", None, (*EXCHANGE, "policy")),
    ("POST", "exchanges/%2F/px/publish", UNROUTABLE, ("routed",)),
    ("PUT", "exchanges/%2F/own", {"type": "direct", "arguments": {"alternate-exchange": "none"}}, ()),
    ("PUT", "policies/%2F/p", {"pattern": ".*", "definition": {"alternate-exchange": "lost"}}, ()),
    ("GET", "policies/%2F/p", None, POLICY),
    ("POST", "exchanges/%2F/px/publish", UNROUTABLE, ("routed",)),
    ("POST", "exchanges/%2F/own/publish", UNROUTABLE, ("routed",)),
    ("POST", "exchanges/%2F/amq.topic/publish", UNROUTABLE, ("routed",)),
    ("POST", "exchanges/%2F/amq.default/publish", UNROUTABLE, ("routed",)),
    ("PUT", "policies/%2F/higher", {"pattern": "^px$", "definition": {"max-length": 5}, "priority": 1}, ()),
    ("POST", "exchanges/%2F/px/publish", UNROUTABLE, ("routed",)),
    ("POST", "queues/%2F/lost/get", GET | {"ackmode": "ack_requeue_false"}, MESSAGE[:-1]),
    ("PUT", "policies/%2F/higher", {"pattern": "^lost$", "definition": {"max-length": 5}, "priority": 1,
                                    "apply-to": "exchanges"}, ()),
    ("POST", "exchanges/%2F/px/publish", UNROUTABLE, ("routed",)),
    ("DELETE", "policies/%2F/higher", None, ()),
    ("DELETE", "policies/%2F/p", None, ()),
    ("POST", "exchanges/%2F/px/publish", UNROUTABLE, ("routed",)),
    ("DELETE", "exchanges/%2F/px", None, ()),
    ("DELETE", "exchanges/%2F/own", None, ()),
    ("DELETE", "exchanges/%2F/lost", None, ()),
    ("DELETE", "queues/%2F/lost", None, ()),
)  # fmt: skip


def test_policies_take_the_same_settings_and_hold_for_the_same_exchanges(brokers: dict[str, Api]) -> None:
    found = differences(brokers, POLICY_STEPS)
    assert not found, found


VHOST_STEPS: tuple[Step, ...] = (
    ("PUT", "vhosts/tenant", {"description": "a tenant", "tags": "one,two"}, ()),
    ("PUT", "vhosts/tenant", {"description": "the tenant", "tags": "one"}, ()),
    ("PUT", "vhosts/a%2Fb", None, ()),
    ("GET", "vhosts", None, ("name",)),
    ("GET", "vhosts/tenant", None, ("name", "tags", "tracing")),
    ("GET", "vhosts/none", None, ERROR),
    ("DELETE", "vhosts/none", None, ()),
    ("GET", "exchanges/tenant", None, EXCHANGE),
    ("GET", "queues/tenant", None, QUEUE),
    ("PUT", "users/ann", {"password": "secret", "tags": "management"}, ()),
    ("PUT", "permissions/tenant/ann", {"configure": ".*", "write": ".*", "read": ".*"}, ()),
    ("PUT", "permissions/none/ann", {"configure": ".*", "write": ".*", "read": ".*"}, ()),
    ("PUT", "permissions/tenant/guest", {"configure": ".*", "write": ".*", "read": ".*"}, ()),
    ("GET", "vhosts/tenant/permissions", None, ("user", "vhost", "configure", "write", "read")),
    ("GET", "permissions/tenant/ann", None, ("user", "vhost", "configure", "write", "read")),
    ("PUT", "queues/tenant/q", QUORUM, ()),
    ("PUT", "queues/%2F/q", {"durable": True}, ()),
    ("GET", "queues/tenant/q", None, QUEUE),
    ("GET", "queues/%2F/q", None, QUEUE),
    ("GET", "queues?sort=vhost", None, QUEUE),
    ("PUT", "exchanges/tenant/x", {"type": "topic", "durable": True}, ()),
    ("GET", "exchanges/%2F/x", None, ERROR),
    ("POST", "bindings/tenant/e/x/q/q", {"routing_key": "a.*"}, ()),
    ("POST", "bindings/%2F/e/x/q/q", {"routing_key": "a.*"}, ()),
    ("GET", "bindings", None, BINDING),
    ("GET", "bindings/tenant", None, BINDING),
    ("GET", "queues/tenant/q/bindings", None, BINDING),
    ("POST", "exchanges/tenant/x/publish",
     {"properties": {}, "routing_key": "a.b", "payload": "x", "payload_encoding": "string"}, ("routed",)),
    ("POST", "queues/%2F/q/get", GET, MESSAGE),
    ("POST", "queues/tenant/q/get", GET, MESSAGE[:-1]),
    ("PUT", "policies/tenant/p", {"pattern": "^q$", "definition": {"max-length": 10}}, ()),
    ("PUT", "policies/%2F/p", {"pattern": ".*", "definition": {"max-length": 20}}, ()),
    ("GET", "policies", None, ("vhost", "name", "pattern", "definition")),
    ("GET", "policies/tenant", None, ("vhost", "name", "pattern", "definition")),
    ("PUT", "operator-policies/tenant/p", {"pattern": ".*", "definition": {"max-length": 5}}, ()),
    ("GET", "operator-policies/%2F", None, ("vhost", "name")),
    ("GET", "operator-policies/tenant/p", None, ("vhost", "name", "pattern", "definition")),
    ("DELETE", "policies/tenant/p", None, ()),
    ("DELETE", "policies/tenant/p", None, ()),
    ("GET", "policies/%2F/p", None, ("vhost", "name")),
    ("PUT", "vhost-limits/tenant/max-queues", {"value": 1}, ()),
    ("PUT", "vhost-limits/tenant/max-connections", {"value": 7}, ()),
    ("PUT", "vhost-limits/none/max-queues", {"value": 1}, ()),
    ("GET", "vhost-limits", None, ("vhost", "value")),
    ("GET", "vhost-limits/tenant", None, ("vhost", "value")),
    ("PUT", "queues/tenant/one-more", QUORUM, ERROR),
    ("DELETE", "vhost-limits/tenant/max-queues", None, ()),
    ("DELETE", "vhost-limits/tenant/max-connections", None, ()),
    ("GET", "vhost-limits/tenant", None, ("vhost", "value")),
    ("GET", "definitions/tenant", None, ("queues", "exchanges", "bindings", "policies")),
    ("POST", "definitions/a%2Fb",
     {"queues": [{"name": "put", "durable": True, "auto_delete": False, "arguments": {}}]}, ()),
    ("GET", "queues/a%2Fb", None, QUEUE),
    ("DELETE", "vhosts/tenant", None, ()),
    ("DELETE", "vhosts/tenant", None, ()),
    ("GET", "queues/tenant", None, ()),
    ("GET", "queues", None, QUEUE),
    ("GET", "permissions", None, ("user", "vhost")),
    ("PUT", "vhosts/tenant", None, ()),
    ("GET", "queues/tenant", None, QUEUE),
    ("GET", "exchanges/tenant", None, EXCHANGE),
    ("GET", "policies/tenant", None, ()),
    ("DELETE", "vhosts/tenant", None, ()),
    ("DELETE", "vhosts/a%2Fb", None, ()),
    ("DELETE", "queues/%2F/q", None, ()),
    ("DELETE", "policies/%2F/p", None, ()),
    ("DELETE", "users/ann", None, ()),
)  # fmt: skip


def test_virtual_hosts_answer_alike(brokers: dict[str, Api]) -> None:
    """One name in two virtual hosts is two queues, and a virtual host goes with everything in it."""
    found = differences(brokers, VHOST_STEPS)
    assert not found, found


WRONG: tuple[tuple[str, str, Any, int, str], ...] = (
    ("POST", "exchanges/%2F/amq.default/publish",
     {"properties": {}, "routing_key": "q", "payload": "?", "payload_encoding": "base64"}, 400, "payload is no base64"),
    ("POST", "exchanges/%2F/amq.default/publish",
     {"properties": {"delivery_mode": 9}, "routing_key": "q", "payload": ""}, 400, "delivery_mode"),
    ("POST", "exchanges/%2F/amq.default/publish",
     {"properties": {"nonsense": 9}, "routing_key": "q", "payload": ""}, 400, "nonsense"),
    ("PUT", "users/ann", b"x" * (17 << 20), 413, "larger than"),
    ("PUT", "users/ann", b'{"password": ' + b"[" * 100_000, 400, "no JSON"),
    ("PUT", "users/ann", {"password": 5, "tags": []}, 400, "password"),
    ("GET", "queues?page=0", None, 400, "page"),
    ("GET", "queues?page=1&page_size=1000", None, 400, "page_size"),
    ("GET", "queues?page=1&name=%5B&use_regex=true", None, 400, "no regular expression"),
    ("POST", "definitions", {"queues": [{}], "users": 5, "permissions": [5]}, 400, "users: must be a list"),
    ("POST", "definitions", {"queues": [{}]}, 400, "queues[0].durable: is missing"),
    ("POST", "definitions", {"vhosts": [{"name": "a\0b"}]}, 400, "vhosts[0].name: 'a\\x00b'"),
    ("POST", "definitions", {"vhosts": [{"name": "v", "tags": []}, {"name": "v", "tags": ["a"]}]}, 400, "twice"),
    ("POST", "definitions",
     {"queues": [{"name": "q", "vhost": "none", "durable": True, "auto_delete": False, "arguments": {}}]}, 400,
     "queues[0].vhost: 'none'"),
    ("PUT", "vhosts/a%00b", None, 400, "NUL"),
    ("PUT", "vhosts/v", {"description": 5}, 400, "description"),
    ("PUT", "vhost-limits/%2F/max-sizes", {"value": 5}, 400, "max-connections or max-queues"),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": "many"}, 400, "value"),
    ("POST", "definitions", {"users": [{"name": "a", "password_hash": "x", "tags": []}]}, 400, "hash"),
    ("POST", "definitions",
     {"exchanges": [{"name": "e", "vhost": "/", "type": kind, "durable": True, "auto_delete": False, "arguments": {}}
                    for kind in ("fanout", "direct")]}, 400, "stands here twice"),
    ("PATCH", "queues", None, 405, "Method Not Allowed"),
)  # fmt: skip


def test_wrong_requests_are_told_and_change_nothing(brokers: dict[str, Api]) -> None:
    ours = brokers["ours"]
    before = ours.call("GET", "definitions")
    for method, path, body, code, words in WRONG:
        found, answer = ours.call(method, path, body)
        assert (found, words in answer["reason"]) == (code, True), (method, path, answer)
    assert ours.call("GET", "definitions") == before


LOGINS = ("ann:secret", "ann:wrong", "nobody:x", "untagged:secret", "manager:secret", "admin:secret", "guest:guest")
ASKED = (
    ("GET", "overview", None), ("GET", "users", None), ("GET", "connections", None), ("GET", "queues", None),
    ("GET", "policies", None), ("PUT", "queues/%2F/new", {"durable": True}),
    ("PUT", "users/x", {"password": "p", "tags": ""}),
    ("PUT", "policies/%2F/x", {"pattern": "a", "definition": {"expires": 9}}), ("GET", "definitions", None),
    ("GET", "nodes", None), ("GET", "whoami", None), ("GET", "vhosts", None), ("GET", "queues/closed", None),
    ("PUT", "queues/closed/q", {"durable": True}), ("PUT", "vhosts/closed", None), ("GET", "vhosts/closed", None),
    ("GET", "vhost-limits", None), ("PUT", "vhost-limits/closed/max-queues", {"value": 1}),
    ("GET", "vhosts/closed/permissions", None), ("GET", "policies/closed", None),
    ("PUT", "policies/closed/x", {"pattern": "a", "definition": {"expires": 9}}), ("GET", "definitions/closed", None),
    ("GET", "exchanges/closed/amq.topic", None), ("GET", "vhosts/closed/connections", None),
    ("GET", "permissions/closed/guest", None),
    ("PUT", "permissions/none/guest", {"configure": "", "write": "", "read": ""}),
    ("GET", "queues/none", None), ("GET", "connections", None),
    ("GET", "operator-policies/closed", None), ("GET", "topic-permissions/closed/ann", None),
    ("DELETE", "queues/closed/q", None), ("GET", "bindings/closed", None),
    ("GET", "parameters", None), ("GET", "parameters/vhost-limits", None),
    ("GET", "parameters/vhost-limits/closed", None), ("GET", "global-parameters", None),
    ("GET", "feature-flags", None), ("GET", "auth", None), ("GET", "user-limits", None),
    ("GET", "user-limits/guest", None), ("GET", "user-limits/ann", None), ("GET", "users/without-permissions", None),
    ("POST", "users/bulk-delete", {"users": []}), ("GET", "aliveness-test/closed", None),
    ("GET", "aliveness-test/%2F", None), ("GET", "healthchecks/node", None),
    ("GET", "health/checks/protocol-listener/amqp", None),
    ("GET", "health/checks/certificate-expiration/1/days", None),
    ("GET", "health/checks/node-is-mirror-sync-critical", None), ("GET", "health/checks/alarms", None),
    ("GET", "extensions", None), ("GET", "cluster-name", None), ("POST", "rebalance/queues", None),
    ("PUT", "feature-flags/quorum_queue/enable", {}), ("PUT", "global-parameters/x", {}),
    ("DELETE", "global-parameters/none", None),
)  # fmt: skip


def test_tags_open_the_same_doors(brokers: dict[str, Api]) -> None:
    answers: dict[str, list[tuple[str, str, int]]] = {}
    for name, api in brokers.items():
        assert api.call("PUT", "vhosts/closed")[0] in (201, 204)
        for user, tags in (
            ("ann", "monitoring"),
            ("untagged", ""),
            ("manager", "management"),
            ("admin", "administrator"),
        ):
            assert api.call("PUT", f"users/{user}", {"password": "secret", "tags": tags})[0] in (201, 204)
            api.call("PUT", f"permissions/%2F/{user}", {"configure": "", "write": "", "read": ""})
        answers[name] = [
            (login, f"{method} {path}", api.call(method, path, body, login)[0])
            for login in LOGINS
            for method, path, body in ASKED
        ]
        for path in ("queues/%2F/new", "users/x", "policies/%2F/x", "vhosts/closed"):
            api.call("DELETE", path)
    differ = [pair for pair in zip(answers["ours"], answers["RabbitMQ"], strict=True) if pair[0] != pair[1]]
    assert not differ, "\n".join(f"ours {ours}, RabbitMQ {rabbit[2]}" for ours, rabbit in differ)


def test_counters_have_rates(brokers: dict[str, Api]) -> None:
    """Under RabbitMQ's names, which scripts read."""
    message = {"properties": {}, "routing_key": "rated", "payload": "x", "payload_encoding": "string"}
    for api in brokers.values():
        api.call("PUT", "queues/%2F/rated", QUORUM)

        def has_rates(api: Api = api) -> bool:
            api.call("POST", "exchanges/%2F/amq.default/publish", message)
            rows = (api.call("GET", "queues/%2F/rated")[1], api.call("GET", "overview")[1])
            stats = [row.get("message_stats", {}) for row in rows]
            return all(each.get("publish_details", {}).get("rate", 0) > 0 for each in stats)

        assert until(has_rates, has_rates)
        assert api.call("DELETE", "queues/%2F/rated")[0] == 204


QUEUE_ROW = {"name": "brought", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
PUT_POLICY = {"vhost": "/", "name": "brought", "pattern": "^b", "definition": {"max-length": 5}, "priority": 0}
BROUGHT: tuple[Any, ...] = (
    {"queues": [{"name": "bare", "vhost": "/", "durable": True, "auto_delete": False}]},
    {"queues": [QUEUE_ROW | {"vhost": "none"}]},
    {"queues": [QUEUE_ROW | {"durable": "true"}]},
    {"queues": [{"name": "brought"}]},
    {"queues": [QUEUE_ROW | {"arguments": {"x-max-length": -1}}]},
    {"users": [{"name": "brought", "password": "secret", "tags": "management"}]},
    {"users": [{"name": "brought", "password_hash": HASH, "tags": ["a"]}]},
    {"permissions": [{"user": "none", "vhost": "/", "configure": "", "write": "", "read": ""}]},
    {"policies": [PUT_POLICY]},
    {"policies": [PUT_POLICY | {"definition": {"no-such": 5}}]},
    {"global_parameters": [{"name": "cluster_name", "value": "any"}]},
    {"exchanges": [{"name": "brought", "vhost": "/", "type": "none", "durable": True, "auto_delete": False,
                    "arguments": {}}]},
    {"nonsense": [5]},
)  # fmt: skip
IMPORT_STEPS: tuple[Step, ...] = (
    *(("POST", "definitions", body, ()) for body in BROUGHT),
    ("GET", "users/brought", None, ("name", "tags", "password_hash")),
    ("GET", "queues/%2F/brought", None, ERROR),
    ("GET", "queues/%2F/bare", None, QUEUE),
    ("DELETE", "queues/%2F/bare", None, ()),
    ("DELETE", "users/brought", None, ()),
    ("DELETE", "policies/%2F/brought", None, ()),
)  # fmt: skip


def test_definitions_are_taken_and_refused_alike(brokers: dict[str, Api]) -> None:
    found = differences(brokers, IMPORT_STEPS)
    assert not found, found


def test_a_refused_import_leaves_nothing(brokers: dict[str, Api]) -> None:
    """A queue that is there with other properties was the end of an import, and not its beginning."""
    ours = brokers["ours"]
    assert ours.call("PUT", "queues/%2F/there", {"durable": True})[0] == 201
    before = ours.call("GET", "definitions")
    code, answer = ours.call("POST", "definitions", {
        "vhosts": [{"name": "brought"}], "users": [{"name": "brought", "password": "x", "tags": ""}],
        "policies": [PUT_POLICY],
        "queues": [QUEUE_ROW, QUEUE_ROW | {"name": "there", "durable": False}],
    })  # fmt: skip
    assert (code, "nothing was imported: queues[1]: inequivalent arg 'durable'" in answer["reason"]) == (400, True)
    assert ours.call("GET", "definitions") == before
    assert ours.call("DELETE", "queues/%2F/there")[0] == 204


def test_policies_of_rabbitmq_come_with_a_word_about_what_does_nothing(brokers: dict[str, Api]) -> None:
    rabbit, ours = brokers["RabbitMQ"], brokers["ours"]
    definition = {"max-in-memory-length": 5, "max-length": 9, "queue-version": 2}
    assert rabbit.call("PUT", "policies/%2F/moved", {"pattern": "^m", "definition": definition})[0] == 201
    code, answer = ours.call("POST", "definitions", rabbit.call("GET", "definitions")[1])
    ignored = [row["key"] for row in answer["ignored"] if row["row"].startswith("policies")]
    assert (code, ignored) == (200, ["max-in-memory-length", "queue-version"])
    row = ours.call("GET", "policies/%2F/moved")[1]
    assert (row["definition"], set(row["without_effect"])) == (definition, {"max-in-memory-length", "queue-version"})
    for api in brokers.values():
        assert api.call("DELETE", "policies/%2F/moved")[0] == 204


def test_definitions_go_from_one_broker_to_the_other(brokers: dict[str, Api]) -> None:
    """And back, and are the same then."""
    rabbit, ours = brokers["RabbitMQ"], brokers["ours"]
    rabbit.call("PUT", "users/moved", {"password": "secret", "tags": "management,policymaker"})
    rabbit.call("PUT", "permissions/%2F/moved", {"configure": "^m", "write": ".*", "read": ""})
    rabbit.call("PUT", "queues/%2F/moved", QUORUM)
    rabbit.call("PUT", "exchanges/%2F/moved-x", {"type": "headers", "durable": True, "arguments": {"a": 1}})
    rabbit.call("POST", "bindings/%2F/e/moved-x/q/moved", {"arguments": {"x-match": "any", "k": "v"}})
    rabbit.call("PUT", "operator-policies/%2F/moved-limit", {"pattern": "^m", "definition": {"max-length": 3}})
    rabbit.call("PUT", "policies/%2F/moved", {"pattern": "^m", "definition": {"max-length": 7}, "apply-to": "queues"})
    code, definitions = rabbit.call("GET", "definitions")
    assert code == 200
    assert ours.call("POST", "definitions", definitions) == (204, None)
    assert ours.call("GET", "whoami", None, "moved:secret")[1]["name"] == "moved"
    effective = ours.call("GET", "queues/%2F/moved")[1]["effective_policy_definition"]
    assert effective == {"max-length": 3}, "the lower of two limits"
    (row,) = ours.call("GET", "bindings/%2F/e/moved-x/q/moved")[1]
    assert row["arguments"] == {"x-match": "any", "k": "v"}
    exported = ours.call("GET", "definitions")[1]
    assert rabbit.call("POST", "definitions", exported)[0] == 204
    assert exported == ours.call("GET", "definitions")[1]
    for api in brokers.values():
        for path in (
            "users/moved",
            "queues/%2F/moved",
            "exchanges/%2F/moved-x",
            "policies/%2F/moved",
            "operator-policies/%2F/moved-limit",
        ):
            assert api.call("DELETE", path)[0] == 204
