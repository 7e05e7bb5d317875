"""Exchanges on a cluster of three real processes, spoken to by pika: declared on one node, used on every other."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes

KINDS = ("quorum", "classic")
CASES: dict[str, tuple[str, list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any], Collection[int]]]]] = {
    "direct": ("direct", [("a", {}), ("b", {})], [("a", {}, {0}), ("b", {}, {1}), ("c", {}, set())]),
    "fanout": ("fanout", [("a", {}), ("b", {})], [("c", {}, {0, 1})]),
    "topic": (
        "topic",
        [("stock.#", {}), ("*.usd", {})],
        [("stock.usd", {}, {0, 1}), ("x.usd", {}, {1}), ("y", {}, ())],
    ),
    "headers": (
        "headers",
        [("", {"x-match": "all", "a": 1, "b": "c"}), ("", {"x-match": "any", "a": 1, "d": True})],
        [("", {"a": 1, "b": "c"}, {0, 1}), ("", {"d": True}, {1}), ("", {"a": 2}, set())],
    ),
}  # fmt: skip


def taken(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Everything in a queue, in order."""
    found: list[bytes] = []
    while (message := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(message[2])
    return found


def publish(channel: BlockingChannel, exchange: str, key: str, body: bytes, headers: dict[str, Any]) -> bool:
    """Publish a mandatory message; whether a queue has it."""
    try:
        channel.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers), mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_each_type_of_exchange_on_every_node(cluster: Cluster, case: str, kind: str) -> None:
    """From its answer on, publishes on every node go by a binding; and no longer when it is gone."""
    type_, bindings, messages = CASES[case]
    exchange, queues = f"x-{case}-{kind}", [f"{case}-{kind}-{number}" for number in range(len(bindings))]
    with connect(cluster.nodes[0]) as here, connect(cluster.nodes[1]) as there, connect(cluster.nodes[2]) as third:
        declaring, channels = here.channel(), [each.channel() for each in (here, there, third)]
        for channel in channels:
            channel.confirm_delivery()
        declaring.exchange_declare(exchange, type_, durable=True)
        for queue, (key, arguments) in zip(queues, bindings, strict=True):
            declaring.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
            declaring.queue_bind(queue, exchange, key, arguments)
        expected: list[list[bytes]] = [[] for _ in queues]
        for number, (key, headers, to) in enumerate(messages):
            for node, channel in enumerate(channels):
                body = b"%d from %d" % (number, node)
                assert publish(channel, exchange, key, body, headers) == bool(to)
                for at in to:
                    expected[at].append(body)
        assert [taken(channels[1], queue) for queue in queues] == expected
        declaring.queue_unbind(queues[0], exchange, *bindings[0])
        alone = [(key, headers) for key, headers, to in messages if to == {0}]
        for key, headers in alone:
            assert not any(publish(channel, exchange, key, b"", headers) for channel in channels)
        declaring.exchange_delete(exchange)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange"):
            publish(channels[2], exchange, "", b"", {})


def test_a_chain_of_exchanges_and_an_alternate(cluster: Cluster) -> None:
    """Exchange to exchange over the nodes; what nothing matches goes to the alternate exchange."""
    with connect(cluster.nodes[0]) as here, connect(cluster.nodes[2]) as there:
        channel, publishing = here.channel(), there.channel()
        publishing.confirm_delivery()
        channel.exchange_declare("rest", "fanout", internal=True)
        channel.exchange_declare("first", "topic", arguments={"alternate-exchange": "rest"})
        channel.exchange_declare("second", "direct")
        channel.exchange_bind("second", "first", "k.#")
        for queue, exchange, key in (
            ("chained", "second", "k.1"),
            ("chained", "first", "*.1"),
            ("unmatched", "rest", ""),
        ):
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(queue, exchange, key)
        for key in ("k.1", "other", "k.2"):
            publish(publishing, "first", key, key.encode(), {})
        assert (taken(channel, "chained"), taken(channel, "unmatched")) == ([b"k.1"], [b"other"])
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="cannot publish to internal exchange 'rest'"):
            publish(publishing, "rest", "", b"", {})


@pytest.mark.slow
def test_a_restart_keeps_exchanges_and_bindings(tmp_path: Path, base_port: int) -> None:
    """Recovery: each node finds them in its own log or snapshot; those of a queue that ended with its node are gone."""
    cluster = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    try:
        with connect(cluster.nodes[0]) as connection:
            channel = connection.channel()
            channel.exchange_declare("kept", "topic", durable=True)
            channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_declare("transient", arguments={"x-queue-type": "classic"})
            for queue in ("q", "transient"):
                channel.queue_bind(queue, "kept", "a.*")
    finally:
        local_cluster.stop(cluster)
    cluster = local_cluster.start(tmp_path / "cluster", base_port=base_port)
    try:
        with connect(cluster.nodes[1]) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.exchange_declare("kept", passive=True)
            assert publish(channel, "kept", "a.b", b"after", {})
            assert taken(channel, "q") == [b"after"]
            channel.queue_declare("transient", arguments={"x-queue-type": "classic"})
            assert not publish(channel, "kept", "no.route", b"", {})
            publish(channel, "kept", "a.b", b"again", {})
            assert taken(channel, "transient") == []
    finally:
        local_cluster.stop(cluster)
