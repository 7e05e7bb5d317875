"""One script, two brokers: what users may do here and in a real RabbitMQ, operation by operation.

Each user has one permission, or all, for names with one prefix. Each operation is tried by each user on the names of
each prefix. RabbitMQ gets the users from a file of definitions with the hashes that our broker makes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster, rabbitmq_cluster
from reference_broker.access import passwords
from tests.integration.testing.pika_clients import connect

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.processes,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]

PREFIXES = "cwrm"
USERS = {
    "nothing": ("", "", ""),
    "configures": ("^c-", "", ""),
    "writes": ("", "^w-", ""),
    "reads": ("", "", "^r-"),
    "mixed": ("^m-", "^m-", "^m-"),
    "default": ("^$", "^amq.default$", "^amq.default$"),
    "generated": ("^amq.gen", "", "^amq.gen"),
    "topical": (".*", ".*", ".*"),
    "impersonates": ("^m-", "^m-", "^m-"),
}
TAGS = {"impersonates": "impersonator"}
TOPIC = ("m-t", "^a[.]", "^{username}[.]")
Operation = Callable[[BlockingChannel, str], Any]


def dlx(exchange: str) -> dict[str, str]:
    return {"x-dead-letter-exchange": exchange}


OPERATIONS: dict[str, Operation] = {
    "declare a queue that exists": lambda c, p: c.queue_declare(f"{p}-q", durable=True),
    "declare a new queue": lambda c, p: c.queue_declare(f"{p}-new", durable=True) and c.queue_delete(f"{p}-new"),
    "declare a queue passively": lambda c, p: c.queue_declare(f"{p}-q", passive=True),
    "look for a queue that is not there": lambda c, p: c.queue_declare(f"{p}-none", passive=True),
    "declare a queue with a name of the server": lambda c, p: c.queue_declare("", exclusive=True) and None,
    "declare a queue with dead letters": lambda c, p: (
        c.queue_declare(f"{p}-dead", durable=True, arguments=dlx(f"{p}-x")) and c.queue_delete(f"{p}-dead")
    ),
    "declare a queue with dead letters to the default exchange": lambda c, p: (
        c.queue_declare(f"{p}-dead", durable=True, arguments=dlx("")) and c.queue_delete(f"{p}-dead")
    ),
    "delete a queue that is not there": lambda c, p: c.queue_delete(f"{p}-none"),
    "delete a queue that is not empty": lambda c, p: c.queue_delete(f"{p}-full", if_empty=True),
    "purge": lambda c, p: c.queue_purge(f"{p}-q"),
    "purge a queue that is not there": lambda c, p: c.queue_purge(f"{p}-none"),
    "get": lambda c, p: c.basic_get(f"{p}-q", auto_ack=True)[2],
    "get from a queue that is not there": lambda c, p: c.basic_get(f"{p}-none", auto_ack=True),
    "consume": lambda c, p: c.basic_consume(f"{p}-q", lambda *_: None, consumer_tag="tag"),
    "consume direct replies": lambda c, p: c.basic_consume(
        "amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True, consumer_tag="tag"
    ),
    "declare an exchange that exists": lambda c, p: c.exchange_declare(f"{p}-x", "direct", durable=True),
    "declare a new exchange": lambda c, p: c.exchange_declare(f"{p}-newx", "fanout") and c.exchange_delete(f"{p}-newx"),
    "declare an exchange passively": lambda c, p: c.exchange_declare(f"{p}-x", "direct", passive=True),
    "declare an exchange with an alternate": lambda c, p: (
        c.exchange_declare(f"{p}-alt", "direct", arguments={"alternate-exchange": f"{p}-x"})
        and c.exchange_delete(f"{p}-alt")
    ),
    "delete an exchange that is not there": lambda c, p: c.exchange_delete(f"{p}-nonex"),
    "bind a queue": lambda c, p: c.queue_bind(f"{p}-q", f"{p}-x", "k") and c.queue_unbind(f"{p}-q", f"{p}-x", "k"),
    "bind a queue to a topic exchange": lambda c, p: c.queue_bind(f"{p}-q", f"{p}-t", "topical.k"),
    "bind a queue with another key": lambda c, p: c.queue_bind(f"{p}-q", f"{p}-t", "a.k"),
    "unbind a queue": lambda c, p: c.queue_unbind(f"{p}-q", f"{p}-x", "none"),
    "bind an exchange": lambda c, p: c.exchange_bind(f"{p}-f", f"{p}-x", "k"),
    "unbind an exchange": lambda c, p: c.exchange_unbind(f"{p}-f", f"{p}-x", "k"),
    "bind a queue to an exchange of another": lambda c, p: c.queue_bind(f"{p}-q", "r-x", "k"),
    "bind a queue of another": lambda c, p: c.queue_bind("w-q", f"{p}-x", "k"),
    "publish to the default exchange": lambda c, p: publish(c, "", f"{p}-none"),
    "publish to an exchange": lambda c, p: publish(c, f"{p}-x", "none"),
    "publish to an exchange that is not there": lambda c, p: publish(c, f"{p}-nonex", "none"),
    "publish to a topic exchange": lambda c, p: publish(c, f"{p}-t", "a.b"),
    "publish with another key": lambda c, p: publish(c, f"{p}-t", "b.b"),
    "publish with a copy under another key": lambda c, p: publish(c, f"{p}-t", "a.b", {"CC": ["b.b"]}),
    "publish with a blind copy under another key": lambda c, p: publish(c, f"{p}-t", "a.b", {"BCC": ["b.b"]}),
    "publish in a transaction": lambda c, p: c.tx_select() and publish(c, f"{p}-x", "none") and c.tx_commit(),
}


def publish(
    channel: BlockingChannel, exchange: str, key: str, headers: dict[str, Any] | None = None, user: str | None = None
) -> str:
    """Publish, and see whether the channel stays."""
    channel.basic_publish(exchange, key, b"", pika.BasicProperties(headers=headers, user_id=user))
    channel.basic_qos(prefetch_count=1)
    return "published"


def definitions() -> dict[str, Any]:
    """The users as RabbitMQ's definitions."""
    salt = b"salt"
    users = [
        {"name": name, "password_hash": passwords.hashed(b"secret", salt), "hashing_algorithm": passwords.ALGORITHM,
         "tags": TAGS.get(name, "")}
        for name in (*USERS, "outside")
    ]  # fmt: skip
    permissions = [
        {"user": name, "vhost": "/", "configure": configure, "write": write, "read": read}
        for name, (configure, write, read) in USERS.items()
    ]
    exchange, write, read = TOPIC
    topic = {"user": "topical", "vhost": "/", "exchange": exchange, "write": write, "read": read}
    return {"users": users, "permissions": permissions, "topic_permissions": [topic]}


def set_up(cluster: local_cluster.Cluster) -> None:
    """The same users in our cluster, by the requests of operators."""
    wanted = definitions()
    for user in wanted["users"]:
        password = {"password": "secret"} if user["name"] == "mixed" else {"password_hash": user["password_hash"]}
        named = {"name": user["name"], "tags": user["tags"].split()}
        local_cluster.change(cluster, {"op": "add-user", **named, **password})
    for permission in wanted["permissions"]:
        local_cluster.change(cluster, {"op": "set-permissions", **permission})
    for permission in wanted["topic_permissions"]:
        local_cluster.change(cluster, {"op": "set-topic-permissions", **permission})


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URIs of RabbitMQ, and of two nodes of our cluster."""
    folder: Path = tmp_path_factory.mktemp("rabbitmq")
    file = folder / "definitions.json"
    file.write_text(json.dumps(definitions()))
    with (
        rabbitmq_cluster.running(folder, nodes=1) as rabbitmq,
        local_cluster.temporary(tmp_path_factory.mktemp("ours")) as ours,
    ):
        rabbitmq.control("import_definitions", str(file))
        set_up(ours)
        uris = {"RabbitMQ": rabbitmq.uris[0], "ours": ours.nodes[0].uri, "another node": ours.nodes[1].uri}
        prepare(uris["RabbitMQ"])
        prepare(uris["ours"])
        yield uris


def prepare(uri: str) -> None:
    """As guest, who may do everything: what the operations are about."""
    connection = connect(uri)
    channel = connection.channel()
    channel.confirm_delivery()
    for prefix in PREFIXES:
        for name, kind in (("x", "direct"), ("t", "topic"), ("f", "fanout")):
            channel.exchange_declare(f"{prefix}-{name}", kind, durable=True)
        for name in ("q", "full"):
            channel.queue_declare(f"{prefix}-{name}", durable=True)
        channel.basic_publish("", f"{prefix}-full", b"stays")
    connection.close()


def told(answer: Any) -> Any:
    """An answer without what differs from broker to broker."""
    method = getattr(answer, "method", answer)
    return getattr(method, "NAME", None) or (method if isinstance(method, str | bytes | type(None)) else "done")


def outcome(connection: pika.BlockingConnection, operation: Operation, prefix: str) -> Any:
    """What comes of an operation on a fresh channel."""
    channel = connection.channel()
    try:
        return told(operation(channel, prefix))
    except pika.exceptions.ChannelClosedByBroker as closed:
        return closed.reply_code, re.sub(r"amq\.gen-[\w-]*", "amq.gen-", closed.reply_text)
    finally:
        with suppress(pika.exceptions.AMQPError):
            channel.close()


@pytest.mark.parametrize("user", USERS)
def test_each_user_may_do_what_rabbitmq_lets_it_do(brokers: dict[str, str], user: str) -> None:
    answers: dict[str, dict[tuple[str, str], Any]] = {}
    for broker, uri in brokers.items():
        connection = connect(uri, user=user)
        answers[broker] = {
            (name, prefix): outcome(connection, operation, prefix)
            for name, operation in OPERATIONS.items()
            for prefix in PREFIXES
        }
        connection.close()
    assert answers["ours"] == answers["RabbitMQ"]
    assert answers["another node"] == answers["RabbitMQ"]
    if user not in ("nothing", "default", "generated"):
        refused = sum(answer[0] == 403 for answer in answers["ours"].values() if isinstance(answer, tuple))
        assert 0 < refused < len(answers["ours"])


@pytest.mark.parametrize("user", ["mixed", *TAGS])
def test_who_may_publish_in_the_name_of_another(brokers: dict[str, str], user: str) -> None:
    found = []
    for uri in brokers.values():
        connection = connect(uri, user=user)
        found.append(outcome(connection, lambda channel, _: publish(channel, "m-x", "none", user="nobody"), ""))
        connection.close()
    assert found[1:] == [found[0]] * 2
    assert (found[0] == "published") == (user in TAGS)


LOGINS = [
    ("mixed", "secret", "/"), ("mixed", "wrong", "/"), ("mixed", "", "/"), ("no-such-user", "secret", "/"),
    ("outside", "secret", "/"), ("mixed", "secret", "no-such-vhost"), ("", "", "/"),
]  # fmt: skip


@pytest.mark.parametrize(("user", "password", "vhost"), LOGINS)
def test_logins(brokers: dict[str, str], user: str, password: str, vhost: str) -> None:
    found = []
    for uri in brokers.values():
        try:
            connect(uri, vhost=vhost, user=user, password=password).close()
            found.append(("open", ""))
        except pika.exceptions.ConnectionClosedByBroker as closed:
            found.append((str(closed.reply_code), closed.reply_text))
        except pika.exceptions.AMQPConnectionError as error:
            found.append((type(error).__name__, str(error)))
    assert found[1:] == [found[0]] * 2
