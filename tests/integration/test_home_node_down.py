"""What clients of the other nodes hear of classic queues whose node is down: in RabbitMQ, and here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster, rabbitmq_cluster
from tests.integration.testing.scripts import Answer, Client, Consumers, Place, client, refusal, until

pytestmark = [pytest.mark.slow, pytest.mark.processes]

DOWN = ("channel", 404, "NOT_FOUND - home node 'HOME' of durable queue 'kept' in vhost '/' is down or inaccessible")
GONE = ("channel", 404, "NOT_FOUND - no queue 'gone' in vhost '/'")
RABBITMQ: dict[str, Answer] = {
    "cancelled": ["a"],
    "kept mandatory": ["returned 312 NO_ROUTE kept"],
    "kept publish": "taken",
    **{f"kept {what}": DOWN for what in ("passive", "get", "consume", "purge", "delete", "declare")},
    "gone mandatory": ["returned 312 NO_ROUTE gone"],
    "gone publish": "taken",
    **{f"gone {what}": GONE for what in ("passive", "get", "consume", "purge")},
    "gone delete": "ok",
    "gone declare": "ok",
    "again": (["taken"], (1, 0)),
    "back": ([b"0", b"1"], [b"again"]),
}
OURS = {**RABBITMQ, "kept publish": "refused"}
"""A message that nobody keeps and nobody hears of is not confirmed here."""


def asked(queue: str, *, durable: bool) -> dict[str, Callable[[BlockingChannel], object]]:
    """What a client may want of a queue; the declaration comes last, as it may make the queue anew."""
    return {
        "passive": lambda channel: channel.queue_declare(queue, passive=True),
        "get": lambda channel: channel.basic_get(queue),
        "consume": lambda channel: channel.basic_consume(queue, lambda *_: None),
        "purge": lambda channel: channel.queue_purge(queue),
        "delete": lambda channel: channel.queue_delete(queue),
        "declare": lambda channel: channel.queue_declare(queue, durable=durable),
    }


def published(channel: BlockingChannel, queue: str) -> str:
    """A publish that is not mandatory."""
    channel.confirm_delivery()
    try:
        channel.basic_publish("", queue, b"lost?")
    except pika.exceptions.NackError:
        return "refused"
    return "taken"


def heard(made: Client, stop: Callable[[], object], start: Callable[[], object]) -> dict[str, Answer]:
    """What a client of another node hears while the home of two queues is down, and afterwards."""
    made.declare("kept")
    made.declare("gone", durable=False)
    made.publish([b"0", b"1"], "kept")
    consumers = Consumers(made.channel(), "kept", prefetch=1)
    consumers.add("a")
    consumers.wait(1)
    stop()
    seen: dict[str, Any] = {"cancelled": consumers.wait_cancelled(1)}
    for queue in ("kept", "gone"):
        # On the way there a queue is refused in other words for a moment.
        until(lambda queue=queue: anonymous(refusal(lambda: made.counts(queue))) in (DOWN, GONE))  # type: ignore[misc]
        seen[f"{queue} mandatory"] = made.publish([b"x"], queue)
        seen[f"{queue} publish"] = published(made.channel(), queue)
        for what, ask in asked(queue, durable=queue == "kept").items():
            seen[f"{queue} {what}"] = refusal(lambda ask=ask: ask(made.channel()))  # type: ignore[misc]
    seen["again"] = made.publish([b"again"], "gone"), made.counts("gone")
    start()
    until(lambda: refusal(lambda: made.counts("kept")) == "ok")
    seen["back"] = tuple([body for body, _again in made.bodies(queue)] for queue in ("kept", "gone"))
    return {key: anonymous(value) for key, value in seen.items()}


def anonymous(value: Answer) -> Answer:
    """The answer without the name of the node."""
    if isinstance(value, tuple) and value[0] == "channel":
        return (*value[:2], re.sub(r"home node '[^']*'", "home node 'HOME'", value[2]))
    return value


def test_a_home_that_is_killed(tmp_path: Path) -> None:
    """Durable queues wait for their node. The names of the others are free, and stay taken when the node is back."""
    with local_cluster.temporary(tmp_path) as cluster:
        home, other = cluster.nodes[:2]
        with client(Place(home=home.uri, uri=other.uri, arguments={}), "kept") as made:
            stop = lambda: local_cluster.kill(cluster, home.name)  # noqa: E731
            assert heard(made, stop, lambda: local_cluster.start_node(cluster, home.name)) == OURS


@pytest.mark.rabbitmq
@pytest.mark.skipif(
    not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
)
def test_a_home_that_stops_in_rabbitmq(tmp_path: Path) -> None:
    """If this changes, so must the table of differences in docs/internals/amqp.md."""
    with rabbitmq_cluster.running(tmp_path, nodes=2) as cluster:
        home, other = cluster.uris
        with client(Place(home=home, uri=other, arguments={}), "kept") as made:
            assert heard(made, lambda: cluster.control("stop_app"), lambda: cluster.control("start_app")) == RABBITMQ
