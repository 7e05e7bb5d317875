"""One script, two brokers: what a quorum queue answers here and in a real RabbitMQ, word for word.

Where we differ on purpose the table says so, with the reason; everything else must be equal.
"""

from __future__ import annotations

import time
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

QUORUM = {"x-queue-type": "quorum"}
Answer = Any
Script = Callable[[BlockingChannel, str], Answer]
DEADLINE_S = 20
TOO_LONG_MS = 315_360_000_001


@pytest.fixture(scope="module")
def brokers(rabbitmq: str, cluster: Cluster) -> tuple[str, str]:
    """URIs of our cluster and of RabbitMQ."""
    return cluster.nodes[0].uri, rabbitmq


def answer(uri: str, queue: str, script: Script) -> Answer:
    """What the script got, or what it was closed with."""
    connection = connect(uri)
    try:
        return script(connection.channel(), queue)
    except pika.exceptions.ChannelClosedByBroker as closed:
        return "channel", closed.reply_code, closed.reply_text
    except pika.exceptions.ConnectionClosedByBroker as closed:
        return "connection", closed.reply_code, closed.reply_text
    finally:
        if connection.is_open:
            connection.close()
        with connect(uri) as other:
            for name in (queue, f"{queue}-dead"):
                other.channel().queue_delete(name)


def declaring(*declarations: dict[str, Any], kind: dict[str, Any] = QUORUM) -> Script:
    """Declare, one after the other; the answer to the last."""

    def script(channel: BlockingChannel, queue: str) -> Answer:
        for declaration in declarations:
            flags = {key: value for key, value in declaration.items() if not key.startswith("x-")}
            arguments = {key: value for key, value in declaration.items() if key.startswith("x-")}
            channel.queue_declare(queue, **{"durable": True, **flags, "arguments": {**kind, **arguments}})
        return "ok"

    return script


DECLARATIONS: list[tuple[dict[str, Any], ...]] = [
    ({},),
    ({"exclusive": True},),
    ({"auto_delete": True},),
    ({"durable": False},),
    ({"durable": False, "exclusive": True, "auto_delete": True},),
    ({"x-max-priority": 5},),
    ({"x-queue-mode": "lazy"},),
    ({"x-queue-version": 2},),
    ({"x-of-an-application": 1},),
    ({"x-queue-type": "moon"},),
    ({"x-queue-type": 1},),
    *(({key: value},) for key in ("x-expires", "x-message-ttl") for value in (-1, 0, "1", True, 10_000, TOO_LONG_MS)),
    *(({key: value},) for key in ("x-max-length", "x-max-length-bytes") for value in (-1, 0, "5", True, 2**40)),
    *(({"x-overflow": value},) for value in ("drop-head", "reject-publish", "explode", 1)),
    *(({"x-delivery-limit": value},) for value in (-1, 0, 5)),
    *(({"x-dead-letter-exchange": value},) for value in ("", "missing", 1)),
    ({"x-dead-letter-routing-key": "k"},),
    ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 3},),
    ({"x-dead-letter-exchange": "", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},),
    *(({"x-dead-letter-strategy": value},) for value in ("at-most-once", "never", 1)),
    *(({"x-single-active-consumer": value},) for value in (True, "true", 1)),
    *(({"x-queue-leader-locator": value},) for value in ("client-local", "balanced", "moon", 1)),
    *(({"x-quorum-initial-group-size": value},) for value in (1, 0, -1, "3")),
    *(({"x-max-in-memory-length": value},) for value in (5, -5)),
    ({"x-max-in-memory-bytes": "s"},),
    ({"x-delivery-limit": 3}, {"x-delivery-limit": 3}),
    ({"x-delivery-limit": 3}, {}),
    ({}, {"x-delivery-limit": 3}),
    ({"x-delivery-limit": 3}, {"x-delivery-limit": 4}),
    ({"x-dead-letter-exchange": "a"}, {"x-dead-letter-exchange": "b"}),
    ({"x-single-active-consumer": True}, {}),
    ({}, {"x-single-active-consumer": False}),
    ({}, {"x-max-length": "str"}),
    ({}, {"x-expires": 60_000, "x-max-length": 5}),
    ({}, {"x-max-length": 5, "x-overflow": "drop-head"}),
    ({}, {"x-queue-type": "classic"}),
    ({}, {"x-queue-type": "moon"}),
    ({}, {"durable": False}),
    ({}, {"exclusive": True}),
    ({}, {"auto_delete": True}),
    ({}, {"x-max-priority": 5}),
]  # fmt: skip


@pytest.mark.parametrize("declarations", DECLARATIONS, ids=lambda each: " then ".join(map(str, each)))
def test_declarations(
    brokers: tuple[str, str], declarations: tuple[dict[str, Any], ...], request: pytest.FixtureRequest
) -> None:
    """An application that was configured for RabbitMQ must fail here in the words its people know, or not at all."""
    queue = f"declared-{DECLARATIONS.index(declarations)}"
    ours, theirs = (answer(uri, queue, declaring(*declarations)) for uri in brokers)
    assert ours == theirs


CLASSIC_DECLARATIONS: list[tuple[dict[str, Any], ...]] = [
    ({},),
    ({"x-queue-type": "classic"},),
    ({"durable": False},),
    ({"exclusive": True},),
    ({"auto_delete": True},),
    ({"durable": False, "exclusive": True, "auto_delete": True},),
    *(({"x-max-priority": value},) for value in (0, 1, 10, 255, 256, -1, "5")),
    *(({"x-queue-mode": value},) for value in ("lazy", "default", "eager", 1)),
    *(({"x-queue-version": value},) for value in (1, 2, 3, "2")),
    *(({key: value},) for key in ("x-expires", "x-message-ttl") for value in (-1, 0, "1", 10_000, TOO_LONG_MS)),
    *(({key: value},) for key in ("x-max-length", "x-max-length-bytes") for value in (-1, 0, "5", 2**40)),
    *(({"x-overflow": value},) for value in ("drop-head", "reject-publish", "reject-publish-dlx", "explode", 1)),
    *(({"x-dead-letter-exchange": value},) for value in ("", "missing", 1)),
    ({"x-dead-letter-routing-key": "k"},),
    *(({"x-single-active-consumer": value},) for value in (True, "true", 1)),
    ({"x-delivery-limit": 5},),
    ({"x-dead-letter-strategy": "at-most-once"},),
    ({"x-quorum-initial-group-size": 3},),
    ({"x-max-in-memory-length": 5},),
    ({"x-of-an-application": 1},),
    ({}, {}),
    ({}, {"x-queue-type": "classic"}),
    ({}, {"x-queue-type": "quorum"}),
    ({"x-queue-type": "classic"}, {}),
    ({"x-queue-type": "classic"}, {"x-queue-type": "quorum"}),
    ({}, {"durable": False}),
    ({"durable": False}, {}),
    ({}, {"exclusive": True}),
    ({"exclusive": True}, {}),
    ({"exclusive": True}, {"exclusive": True}),
    ({"exclusive": True}, {"passive": True}),
    ({}, {"auto_delete": True}),
    ({"auto_delete": True}, {}),
    ({"x-max-priority": 5}, {}),
    ({"x-max-priority": 5}, {"x-max-priority": 6}),
    ({"x-queue-mode": "lazy"}, {}),
    ({}, {"x-queue-mode": "default"}),
    ({}, {"x-queue-version": 2}),
    ({"x-max-length": 5, "durable": False}, {"x-max-length": 6}),
]  # fmt: skip


@pytest.mark.parametrize("declarations", CLASSIC_DECLARATIONS, ids=lambda each: " then ".join(map(str, each)))
def test_declarations_of_classic_queues(
    brokers: tuple[str, str], declarations: tuple[dict[str, Any], ...], request: pytest.FixtureRequest
) -> None:
    """A plain declaration, as most applications make it, must do here what it does there."""
    queue = f"classic-{CLASSIC_DECLARATIONS.index(declarations)}"
    ours, theirs = (answer(uri, queue, declaring(*declarations, kind={})) for uri in brokers)
    assert ours == theirs


def publish(channel: BlockingChannel, queue: str, count: int = 1, **properties: Any) -> None:
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2, **properties))


def get(channel: BlockingChannel, queue: str, **options: Any) -> tuple[Any, ...]:
    """The next message, waited for: what is told about it, headers and body. When a message died nobody can know
    beforehand."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue, **options)
        if method is not None:
            headers = dict(properties.headers or {})
            for death in headers.get("x-death", []):
                assert death.pop("time") is not None
            told = (method.delivery_tag, method.redelivered, method.exchange, method.routing_key, method.message_count)
            return (*told, headers, properties.expiration, body)
    raise AssertionError("no message came")


def to_dead(queue: str, **more: Any) -> dict[str, Any]:
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{queue}-dead"}
    return {**letters, **{f"x-{key.replace('_', '-')}": value for key, value in more.items()}}


def declare(channel: BlockingChannel, queue: str, **arguments: Any) -> None:
    channel.queue_declare(queue, durable=True, arguments={**QUORUM, **arguments})


def gets(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    publish(channel, queue, 3)
    return get(channel, queue), get(channel, queue, auto_ack=True), get(channel, queue), channel.basic_get(queue)


def get_of_nothing(channel: BlockingChannel, queue: str) -> Answer:
    return channel.basic_get(queue)


def get_under_single_active_consumer(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **{"x-single-active-consumer": True})
    return channel.basic_get(queue)


def recover(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    publish(channel, queue, 2)
    before = get(channel, queue), get(channel, queue)
    channel.basic_recover(requeue=True)
    return before, get(channel, queue), get(channel, queue)


def recover_without_requeue(channel: BlockingChannel, queue: str) -> Answer:
    return channel.basic_recover(requeue=False)


def deliveries_are_counted(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    publish(channel, queue, headers={"k": "v"})
    return [returned(channel, queue) for _ in range(4)]


def returned(channel: BlockingChannel, queue: str) -> Answer:
    message = get(channel, queue)
    channel.basic_nack(message[0], requeue=True)
    return message


def dead_by_rejection(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **to_dead(queue))
    declare(channel, f"{queue}-dead")
    publish(channel, queue, headers={"k": "v"})
    channel.basic_reject(get(channel, queue)[0], requeue=False)
    return get(channel, f"{queue}-dead")


def dead_by_delivery_limit(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **to_dead(queue, delivery_limit=1))
    declare(channel, f"{queue}-dead")
    publish(channel, queue)
    return returned(channel, queue), returned(channel, queue), get(channel, f"{queue}-dead")


def dead_by_expiration(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **to_dead(queue))
    declare(channel, f"{queue}-dead")
    publish(channel, queue, expiration="50")
    return get(channel, f"{queue}-dead")


def dead_by_queue_ttl(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **to_dead(queue, message_ttl=50))
    declare(channel, f"{queue}-dead")
    publish(channel, queue, expiration="3600000")
    return get(channel, f"{queue}-dead")


def dead_by_length(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **to_dead(queue, max_length=1))
    declare(channel, f"{queue}-dead")
    publish(channel, queue, 2)
    return get(channel, f"{queue}-dead")


def dead_again_and_again(channel: BlockingChannel, queue: str) -> Answer:
    """Rejected, waiting in the other queue, back by expiry: what retry loops are made of."""
    declare(channel, queue, **to_dead(queue))
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": 20}
    declare(channel, f"{queue}-dead", **back)
    publish(channel, queue)
    lives = []
    for _ in range(3):
        lives.append(get(channel, queue))
        channel.basic_reject(lives[-1][0], requeue=False)
    return lives


def bad_expiration(text: str) -> Script:
    def script(channel: BlockingChannel, queue: str) -> Answer:
        declare(channel, queue)
        return publish(channel, queue, expiration=text)

    script.__name__ = f"expiration_{text!r}"
    return script


def bad_priority(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    return channel.basic_consume(queue, lambda *_: None, arguments={"x-priority": "high"})


def global_qos(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    return channel.basic_consume(queue, lambda *_: None)


def prefetch_size(channel: BlockingChannel, queue: str) -> Answer:
    return channel.basic_qos(prefetch_size=1000)


def forged_user(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    return publish(channel, queue, user_id="root")


def consuming(channel: BlockingChannel, queue: str, *tags: str, **arguments: Any) -> list[tuple[Any, ...]]:
    """Consumers with a prefetch of 2; the list grows by what they get: tag, number of the delivery, flag, body."""
    got: list[tuple[Any, ...]] = []

    def callback(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        got.append((method.consumer_tag, method.delivery_tag, method.redelivered, body))

    channel.basic_qos(prefetch_count=2)
    for tag in tags:
        channel.basic_consume(queue, callback, consumer_tag=tag, **arguments)
    return got


def until(channel: BlockingChannel, got: list[tuple[Any, ...]], count: int) -> Answer:
    """What they have got once it is so much."""
    deadline = time.monotonic() + DEADLINE_S
    while len(got) < count and time.monotonic() < deadline:
        channel.connection.process_data_events(0.05)  # type: ignore[attr-defined]
    return sorted(got)


def one_active_after_the_other(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **{"x-single-active-consumer": True})
    got = consuming(channel, queue, "a", "b")
    publish(channel, queue, 5)
    first = until(channel, got, 2)
    channel.basic_ack(1)
    second = until(channel, got, 3)
    channel.basic_cancel("a")
    return first, second, until(channel, got, 5)


def priorities_of_consumers(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    got = consuming(channel, queue, "low")
    more = consuming(channel, queue, "high", arguments={"x-priority": 5})
    publish(channel, queue, 3)
    return until(channel, more, 2), until(channel, got, 1)


def dropped_at_the_head(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **{"x-max-length": 2})
    publish(channel, queue, 5)
    return get(channel, queue), get(channel, queue), channel.basic_get(queue)


def unacked_over_a_cancel(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    got = consuming(channel, queue, "a")
    publish(channel, queue, 3)
    first = until(channel, got, 2)
    channel.basic_cancel("a")
    left = get(channel, queue)
    channel.basic_ack(1)
    return first, left, channel.basic_get(queue)


BEHAVIOURS: list[Script] = [
    one_active_after_the_other, priorities_of_consumers, dropped_at_the_head, unacked_over_a_cancel,
    gets, get_of_nothing, get_under_single_active_consumer, recover, recover_without_requeue, deliveries_are_counted,
    dead_by_rejection, dead_by_delivery_limit, dead_by_expiration, dead_by_queue_ttl, dead_by_length,
    dead_again_and_again, bad_priority, global_qos, prefetch_size, forged_user,
    *map(bad_expiration, ("soon", "-1", "", "1.5", "1abc", "315360000001", "+5", "315360000000")),
]  # fmt: skip


@pytest.mark.parametrize("script", BEHAVIOURS, ids=lambda script: script.__name__)
def test_behaviours(brokers: tuple[str, str], script: Script) -> None:
    """The same messages, headers, flags, counts and refusals."""
    queue = f"behaviour-{BEHAVIOURS.index(script)}"
    ours, theirs = (answer(uri, queue, script) for uri in brokers)
    assert ours == theirs


REFUSED = "PRECONDITION_FAILED - invalid arg '{}' for queue '{}' in vhost '/': {}"
OURS: list[tuple[str, Script, Answer]] = [
    (
        "RabbitMQ takes it for a quorum queue and does not do it",
        declaring({"x-overflow": "reject-publish-dlx"}),
        ("channel", 406, REFUSED.format("x-overflow", "ours-0", "invalid_overflow")),
    ),
    (
        "RabbitMQ takes any type and ignores it",
        declaring({"x-delivery-limit": "no"}),
        ("channel", 406, REFUSED.format("x-delivery-limit", "ours-1", '"expected integer, got longstr"')),
    ),
]


@pytest.mark.parametrize(("why", "script", "expected"), OURS, ids=[why for why, _, _ in OURS])
def test_where_we_are_stricter(brokers: tuple[str, str], why: str, script: Script, expected: Answer) -> None:
    """A setting that is taken and not kept is a promise broken in production."""
    number = [each[0] for each in OURS].index(why)
    assert answer(brokers[0], f"ours-{number}", script) == expected
    assert answer(brokers[1], f"ours-{number}", script) == "ok"


def taken_until_refused(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **{"x-max-length": 2, "x-overflow": "reject-publish"})
    for count in range(6):
        try:
            publish(channel, queue)
        except pika.exceptions.NackError:
            return count
    return 6


def next_after_a_requeue(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    publish(channel, queue, 3)
    channel.basic_nack(get(channel, queue)[0], requeue=True)
    return get(channel, queue)[-1]


def consumers_counted(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue, **{"x-single-active-consumer": True})
    consuming(channel, queue, "a", "b")
    return channel.queue_declare(queue, passive=True).method.consumer_count


def exclusive_consumer(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    return channel.basic_consume(queue, lambda *_: None, exclusive=True, consumer_tag="t")


def deleted_if_unused(channel: BlockingChannel, queue: str) -> Answer:
    declare(channel, queue)
    publish(channel, queue)
    return channel.queue_delete(queue, if_unused=True).method.message_count


ALONE = "PRECONDITION_FAILED - exclusive consumers are not supported by quorum queues; use x-single-active-consumer"
UNUSED = (
    "NOT_IMPLEMENTED - cannot delete queue 'differs-4' in vhost '/'. queue.delete operations with if-unused flag set"
    " are not supported by quorum queues"
)
DIFFERENT: list[tuple[Script, Answer, Answer]] = [
    (taken_until_refused, 2, 3),
    (next_after_a_requeue, b"0", b"1"),
    (consumers_counted, 2, 1),
    (exclusive_consumer, ("channel", 406, ALONE), "t"),
    (deleted_if_unused, 1, ("connection", 540, UNUSED)),
]


@pytest.mark.parametrize(("script", "ours", "theirs"), DIFFERENT, ids=[script.__name__ for script, *_ in DIFFERENT])
def test_where_we_differ(brokers: tuple[str, str], script: Script, ours: Answer, theirs: Answer) -> None:
    """docs/internals/amqp.md says so; if one of the two changes, that page is wrong."""
    queue = f"differs-{[each[0] for each in DIFFERENT].index(script)}"
    assert tuple(answer(uri, queue, script) for uri in brokers) == (ours, theirs)
