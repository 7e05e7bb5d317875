"""One script, two brokers: what exchanges and bindings answer here and in a real RabbitMQ, and where messages go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import rabbitmq_cluster
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.processes,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]

Answer = Any
Script = Callable[[BlockingChannel], Answer]
QUEUES = ("one", "two", "three")
EXCHANGES = ("x", "y", "z")


@pytest.fixture(scope="module")
def brokers(rabbitmq: str, cluster: Cluster) -> tuple[str, str]:
    """URIs of our cluster and of RabbitMQ."""
    return cluster.nodes[0].uri, rabbitmq


def answer(uri: str, script: Script) -> Answer:
    """What the script got, or what it was closed with. Three queues are there before it, and nothing after it."""
    connection = connect(uri)
    try:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        return script(channel)
    except pika.exceptions.ChannelClosedByBroker as closed:
        return "channel", closed.reply_code, closed.reply_text
    except pika.exceptions.ConnectionClosedByBroker as closed:
        return "connection", closed.reply_code, closed.reply_text
    finally:
        if connection.is_open:
            connection.close()
        with connect(uri) as other:
            for queue in QUEUES:
                other.channel().queue_delete(queue)
            for exchange in EXCHANGES:
                other.channel().exchange_delete(exchange)


def calls(*each: tuple[str, dict[str, Any]]) -> Script:
    """Call methods of the channel, one after the other."""

    def script(channel: BlockingChannel) -> Answer:
        channel.confirm_delivery()
        for name, arguments in each:
            getattr(channel, name)(**arguments)
        return "ok"

    return script


def declare(exchange: str = "x", exchange_type: str = "direct", **more: Any) -> tuple[str, dict[str, Any]]:
    return "exchange_declare", {"exchange": exchange, "exchange_type": exchange_type, **more}


def bind(queue: str, exchange: str, routing_key: str | None = "k", **more: Any) -> tuple[str, dict[str, Any]]:
    return "queue_bind", {"queue": queue, "exchange": exchange, "routing_key": routing_key, **more}


def unbind(queue: str, exchange: str, routing_key: str = "k", **more: Any) -> tuple[str, dict[str, Any]]:
    return "queue_unbind", {"queue": queue, "exchange": exchange, "routing_key": routing_key, **more}


def link(destination: str, source: str, routing_key: str = "k", **more: Any) -> tuple[str, dict[str, Any]]:
    return "exchange_bind", {"destination": destination, "source": source, "routing_key": routing_key, **more}


def delete(exchange: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "exchange_delete", {"exchange": exchange, **more}


def send(exchange: str, routing_key: str = "k", **properties: Any) -> tuple[str, dict[str, Any]]:
    properties_ = pika.BasicProperties(**properties)
    return "basic_publish", {
        "exchange": exchange, "routing_key": routing_key, "body": b"m", "properties": properties_,
    }  # fmt: skip


REQUESTS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "declared twice": (declare(), declare()),
    "default": (declare(""),),
    "default, passive": (declare("", passive=True),),
    "predeclared": (declare("amq.topic", "topic", durable=True),),
    "predeclared, transient": (declare("amq.topic", "topic"),),
    "reserved": (declare("amq.x"),),
    "reserved, passive": (declare("amq.x", passive=True),),
    "no such type": (declare(exchange_type="moon"),),
    "no type": (declare(exchange_type=""),),
    "passive, missing": (declare(passive=True),),
    "passive, another type": (declare(), declare(exchange_type="fanout", passive=True)),
    "another type": (declare(), declare(exchange_type="fanout")),
    "another durability": (declare(), declare(durable=True)),
    "another auto-delete": (declare(auto_delete=True), declare()),
    "internal or not": (declare(internal=True), declare()),
    "another alternate": (
        declare(arguments={"alternate-exchange": "y"}),
        declare(arguments={"alternate-exchange": "z"}),
    ),
    "no alternate any more": (declare(arguments={"alternate-exchange": "y"}), declare()),
    "an alternate now": (declare(), declare(arguments={"alternate-exchange": "y"})),
    "an alternate of another type now": (declare(), declare(arguments={"alternate-exchange": 1})),
    "alternate is a number": (declare(arguments={"alternate-exchange": 1}),),
    "alternate is a flag": (declare(arguments={"alternate-exchange": True}),),
    "another argument": (declare(arguments={"a": 1}), declare(arguments={"a": 2})),
    "delete": (declare(), delete("x"), declare(exchange_type="topic")),
    "delete, missing": (delete("x"),),
    "delete, predeclared": (delete("amq.direct"),),
    "delete, reserved": (delete("amq.none"),),
    "delete, default": (delete(""),),
    "delete, in use": (declare(), bind("one", "x"), delete("x", if_unused=True)),
    "delete, a destination": (declare(), link("x", "amq.fanout"), delete("x", if_unused=True)),
    "delete, unused": (declare(), bind("one", "x"), unbind("one", "x"), delete("x", if_unused=True)),
    "bind, missing exchange": (bind("one", "x"),),
    "bind, missing queue": (bind("none", "amq.direct"),),
    "bind, both missing": (bind("none", "x"),),
    "bind, default": (bind("one", ""),),
    "unbind, default": (unbind("one", ""),),
    "unbind, missing exchange": (unbind("one", "x"),),
    "unbind, missing queue": (unbind("none", "amq.direct"),),
    "unbind, missing binding": (unbind("one", "amq.direct", "other"),),
    "link, missing source": (declare(), link("x", "y")),
    "link, missing destination": (declare(), link("y", "x")),
    "link, both missing": (link("y", "x"),),
    "link, default": (link("", "amq.direct"),),
    "link from the default": (link("amq.direct", ""),),
    "auto-delete goes": (declare(auto_delete=True), bind("one", "x"), unbind("one", "x"), declare(passive=True)),
    "auto-delete stays": (declare(auto_delete=True), unbind("one", "x"), declare(passive=True)),
    "auto-delete goes with its queue": (
        declare(auto_delete=True), bind("one", "x"), ("queue_delete", {"queue": "one"}), declare(passive=True),
    ),
    "auto-delete is a destination": (
        declare(auto_delete=True), link("x", "amq.fanout"),
        ("exchange_unbind", {"destination": "x", "source": "amq.fanout", "routing_key": "k"}), declare(passive=True),
    ),
    "auto-delete goes with its exchange": (
        declare(auto_delete=True), declare("y"), link("y", "x"), delete("y"), declare(passive=True),
    ),
    **{
        f"x-match {match}": (bind("one", "amq.match", "", arguments={"x-match": match, "a": 1}),)
        for match in ("all", "any", "all-with-x", "any-with-x", "some", 1, True)
    },
    "publish, missing": (send("x"),),
    "publish, internal": (declare(internal=True), send("x")),
    "publish, CC is text": (send("", "one", headers={"CC": "two"}),),
    "publish, BCC is a number": (send("amq.fanout", "one", headers={"BCC": 1}),),
}  # fmt: skip


@pytest.mark.parametrize("case", REQUESTS)
def test_requests(brokers: tuple[str, str], case: str) -> None:
    """An application that was written for RabbitMQ must fail here in the same words, or not at all."""
    ours, theirs = (answer(uri, calls(*REQUESTS[case])) for uri in brokers)
    assert ours == theirs


def routed(setup: tuple[tuple[str, dict[str, Any]], ...], *messages: tuple[str, dict[str, Any]]) -> Script:
    """After the setup, publish; what is in each queue then, or that the message came back."""

    def script(channel: BlockingChannel) -> Answer:
        calls(*setup)(channel)
        found: list[Answer] = []
        for name, arguments in messages:
            try:
                getattr(channel, name)(**arguments, mandatory=True)
            except pika.exceptions.UnroutableError:
                found.append("returned")
            found.append([taken(channel, queue) for queue in QUEUES])
        return found

    return script


def taken(channel: BlockingChannel, queue: str) -> list[Answer]:
    """Everything in a queue: how it was published, and its headers."""
    found = []
    while (message := channel.basic_get(queue, auto_ack=True))[0] is not None:
        method, properties, _body = message
        found.append((method.exchange, method.routing_key, properties.headers))
    return found


def bound(*pairs: tuple[str, str], exchange: str = "amq.topic") -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple(bind(queue, exchange, key) for queue, key in pairs)


def buried(*each_headers: dict[str, Any], **arguments: Any) -> Script:
    """Messages with these headers die in a queue, and are in others then, with their history."""

    def script(channel: BlockingChannel) -> Answer:
        dying = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
        for copies in each_headers:
            (_name, sent) = send("", dying, headers=copies)
            channel.basic_publish(**sent)
            while (tag := channel.basic_get(dying)[0]) is None:
                pass
            channel.basic_reject(tag.delivery_tag, requeue=False)
        channel.queue_delete(dying)
        found = [taken(channel, queue) for queue in QUEUES]
        for _exchange, _key, headers in (each for queue in found for each in queue):
            for death in headers.get("x-death", ()):
                del death["time"]
        return json.dumps(found, sort_keys=True, default=str).replace(dying, "dying")

    return script


COPIES = {"CC": ["two", "none"]}
TOPIC_KEYS = ("", "a", "a.b", "a.b.c", ".", "a.", ".a", "a..b", "#", "*", "b.a.b")
HEADERS: tuple[dict[str, Any], ...] = (
    {}, {"a": 1}, {"a": 1, "b": "c"}, {"a": 2, "b": "c"}, {"a": "1"}, {"b": "c", "x-z": 1}, {"x-z": 1}, {"a": True},
    {"a": None}, {"a": 2**40},
)  # fmt: skip
ROUTES: dict[str, Script] = {
    **{
        f"topic {' '.join(patterns)}": routed(
            bound(*zip(QUEUES, patterns, strict=True)), *(send("amq.topic", key) for key in TOPIC_KEYS)
        )
        for patterns in (("#", "*", ""), ("a.#", "#.b", "*.#"), ("#.#", "#.*.#", "a.*.c"), ("a.#.b.#", "*.*", "."))
    },
    **{
        f"headers {match}": routed(
            tuple(
                bind(queue, "amq.headers", "", arguments={**wanted, **({"x-match": match} if match else {})})
                for queue, wanted in zip(QUEUES, ({"a": 1, "b": "c"}, {"a": None}, {"x-z": 1}), strict=True)
            ),
            *(send("amq.headers", headers=headers) for headers in HEADERS),
        )
        for match in (None, "all", "any", "all-with-x", "any-with-x")
    },
    "direct": routed(bound(("one", "k"), ("two", "k"), ("three", "l"), exchange="amq.direct"), send("amq.direct")),
    "the key of the last queue": routed(
        (bind("", "amq.direct", ""),), send("amq.direct", "three"), send("amq.direct", "")
    ),
    "a key for the last queue": routed((bind("", "amq.direct", "k"),), send("amq.direct", "three"), send("amq.direct")),
    "copies": routed(
        bound(("one", "a"), ("two", "b.*"), ("three", "c")),
        *(send("amq.topic", "a", headers={"CC": ["b.x"], "BCC": ["c"], "k": each}) for each in (1, "v")),
        send("amq.topic", "none", headers={"CC": ["none"]}),
    ),
    "copies by the default exchange": routed((), send("", "one", headers={"CC": ["two", "none", 1], "BCC": ["one"]})),
    "only blind copies": routed((), send("", "none", headers={"BCC": ["two"]})),
    "alternate": routed(
        (
            declare("y", "fanout"), declare("x", arguments={"alternate-exchange": "y"}),
            bind("one", "x"), bind("two", "y"),
        ),
        send("x"), send("x", "other"), send("x", "other", headers={"CC": ["k"]}),
    ),
    "alternate is the default": routed(
        (declare("x", arguments={"alternate-exchange": ""}),), send("x", "one"), send("x", "none")
    ),
    "alternate is missing": routed((declare("x", arguments={"alternate-exchange": "none"}),), send("x", "one")),
    "alternates in a circle": routed(
        (declare("x", arguments={"alternate-exchange": "y"}), declare("y", arguments={"alternate-exchange": "x"})),
        send("x", "one"),
    ),
    "alternate of a linked exchange": routed(
        (
            declare("x", "fanout"), declare("y", arguments={"alternate-exchange": "z"}), declare("z", "fanout"),
            link("y", "x"), bind("one", "y", "other"), bind("two", "z"), bind("three", "x"),
        ),
        send("x"),
    ),
    "a circle": routed(
        (
            declare("x", "fanout"), declare("y", "fanout"), link("y", "x"), link("x", "y"),
            bind("one", "x"), bind("one", "y"),
        ),
        send("x"), send("y"),
    ),
    "buried under a key": buried(
        COPIES, {}, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "three"}
    ),
    "buried under their own keys": buried(COPIES, **{"x-dead-letter-exchange": ""}),
    "through an internal exchange": routed(
        (declare("x", internal=True), link("x", "amq.fanout"), bind("one", "x")), send("amq.fanout")
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROUTES)
def test_routes(brokers: tuple[str, str], case: str) -> None:
    """The same bindings send the same messages to the same queues."""
    ours, theirs = (answer(uri, ROUTES[case]) for uri in brokers)
    assert ours == theirs
