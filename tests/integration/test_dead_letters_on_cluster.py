"""Dead letters on three real nodes: where they arrive, that none is lost, and that none goes round for ever.

What the headers say is compared with a real RabbitMQ in ``test_same_answers_as_rabbitmq.py``.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
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

AT_LEAST_ONCE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
DEADLINE_S = 30


def declare(channel: BlockingChannel, queue: str, **arguments: Any) -> None:
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", **arguments})


def to(queue: str, **more: Any) -> dict[str, Any]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, **more}


def publish(channel: BlockingChannel, queue: str, count: int) -> None:
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))


def reject_all(channel: BlockingChannel, queue: str, count: int) -> None:
    """Take ``count`` messages and want none of them."""
    for taken, (method, _, _) in enumerate(channel.consume(queue, inactivity_timeout=DEADLINE_S), 1):
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
        if taken == count:
            break
    channel.cancel()


def drained(channel: BlockingChannel, queue: str, wanted: int) -> set[bytes]:
    """Fetch until ``wanted`` different bodies have come."""
    bodies: set[bytes] = set()
    until(lambda: len(bodies | fetch(channel, queue, bodies)) >= wanted)
    return bodies


def fetch(channel: BlockingChannel, queue: str, into: set[bytes]) -> set[bytes]:
    method, _, body = channel.basic_get(queue, auto_ack=True)
    while method is not None:
        into.add(body)
        method, _, body = channel.basic_get(queue, auto_ack=True)
    return into


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, f"nothing happened for {DEADLINE_S} seconds"


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def deleted_if_empty(connection: pika.BlockingConnection, queue: str) -> bool:
    try:
        connection.channel().queue_delete(queue, if_empty=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        assert "not empty" in error.reply_text
        return False
    return True


@pytest.mark.slow
def test_at_least_once_loses_nothing_when_the_leader_dies(tmp_path: Path) -> None:
    """kill -9 of the node that carries the letters, while it carries them: a payment that failed must not vanish."""
    with local_cluster.temporary(tmp_path) as cluster:
        with connect(cluster.nodes[0]) as connection:
            channel = connection.channel()
            declare(channel, "dead")
            declare(channel, "q", **to("dead", **AT_LEAST_ONCE))
            publish(channel, "q", 300)
        roles = {
            queue["role"]: status
            for status in local_cluster.status(cluster)
            for queue in status["queues"]
            if queue["name"] == "q"
        }
        leader, survivor = roles["leader"], roles["follower"]
        node = next(node for node in cluster.nodes if node.name == survivor["name"])
        with connect(node) as connection:
            channel = connection.channel()
            reject_all(channel, "q", 200)
            os.kill(leader["pid"], signal.SIGKILL)
            reject_all(channel, "q", 100)
            assert drained(channel, "dead", 300) == {b"%d" % number for number in range(300)}
            assert ready(channel, "q") == 0


def test_at_least_once_waits_for_a_queue_that_is_not_there_yet(cluster: Cluster) -> None:
    """A deployment that creates the dead letter queue last must not cost messages."""
    with connect(cluster.nodes[1]) as connection:
        channel = connection.channel()
        declare(channel, "early", **to("late", **AT_LEAST_ONCE))
        publish(channel, "early", 5)
        reject_all(channel, "early", 5)
        declare(channel, "late")
        assert drained(channel, "late", 5) == {b"%d" % number for number in range(5)}


def test_a_queue_with_letters_under_way_is_not_empty(cluster: Cluster) -> None:
    """They are the only copies: deleted with ``if-empty``, the queue would take them along."""
    with connect(cluster.nodes[1]) as connection:
        channel = connection.channel()
        declare(channel, "holds", **to("nowhere-yet", **AT_LEAST_ONCE))
        publish(channel, "holds", 2)
        reject_all(channel, "holds", 2)
        publish(channel, "holds", 1)  # its confirm tells that the rejections before it are committed
        fetch(channel, "holds", set())
        assert ready(channel, "holds") == 0 and not deleted_if_empty(connection, "holds")
        declare(channel, "nowhere-yet")
        assert drained(channel, "nowhere-yet", 2) == {b"0", b"1"}
        until(lambda: deleted_if_empty(connection, "holds"))


def test_at_least_once_waits_for_room_in_a_full_queue(cluster: Cluster) -> None:
    """A dead letter queue that refuses publishers refuses dead letters, too: they stay where they are."""
    with connect(cluster.nodes[2]) as connection:
        channel = connection.channel()
        declare(channel, "small", **{"x-max-length": 2, "x-overflow": "reject-publish"})
        declare(channel, "many", **to("small", **AT_LEAST_ONCE))
        publish(channel, "many", 6)
        reject_all(channel, "many", 6)
        assert drained(channel, "small", 6) == {b"%d" % number for number in range(6)}


def test_letters_for_an_exchange_that_does_not_exist_are_dropped(cluster: Cluster) -> None:
    """As in RabbitMQ; the node's log says so, once."""
    with connect(cluster.nodes[0]) as connection:
        channel = connection.channel()
        declare(channel, "astray", **{"x-dead-letter-exchange": "no-such-exchange"})
        publish(channel, "astray", 3)
        reject_all(channel, "astray", 3)
        publish(channel, "astray", 1)
        reject_all(channel, "astray", 1)
        assert ready(channel, "astray") == 0
    logs = "".join(Path(node.log_file).read_text() for node in cluster.nodes)
    assert logs.count("queue 'astray': dead letters for exchange 'no-such-exchange'") == 1


def test_a_circle_without_rejection_ends(cluster: Cluster) -> None:
    """Two queues that expire into each other would keep their messages, and our processors, busy for ever."""
    with connect(cluster.nodes[0]) as connection:
        channel = connection.channel()
        declare(channel, "there", **to("back", **{"x-message-ttl": 20}))
        declare(channel, "back", **to("there", **{"x-message-ttl": 20}))
        declare(channel, "itself", **to("itself", **{"x-message-ttl": 20}))
        publish(channel, "there", 5)
        publish(channel, "itself", 5)
        deadline = time.monotonic() + DEADLINE_S
        empty = 0
        while empty < 20:  # for ten times as long as a message stays in one of them
            connection.process_data_events(time_limit=0.01)
            counts = [ready(channel, queue) for queue in ("there", "back", "itself")]
            empty = empty + 1 if counts == [0, 0, 0] else 0
            assert time.monotonic() < deadline, f"they still go round: {counts}"
