"""The same scripted client against classic and lazy queues, of RabbitMQ and of ours, word for word.

A script of ours runs on the node that owns the queue, and on another node. All runs of a script must give one answer;
what differs on purpose is in the table at the end, which docs/internals/amqp.md explains.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pika
import pika.exceptions
import pytest

from infra import rabbitmq_cluster
from infra.local_cluster import Cluster
from tests.integration.testing.scripts import Answer, Client, Consumers, Place, answer_of, end, got, refusal, until

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.processes,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]

Script = Callable[[Client], Answer]
MODES: dict[str, dict[str, Any]] = {"classic": {}, "lazy": {"x-queue-mode": "lazy"}}


@pytest.fixture(scope="module")
def places(rabbitmq: str, cluster: Cluster) -> dict[str, Place]:
    """Where each script runs."""
    home, other = cluster.nodes[0].uri, cluster.nodes[1].uri
    found: dict[str, Place] = {}
    for mode, arguments in MODES.items():
        found[f"RabbitMQ {mode}"] = Place(home=rabbitmq, uri=rabbitmq, arguments=arguments)
        found[f"ours {mode}"] = Place(home=home, uri=home, arguments=arguments)
        found[f"ours {mode} from another node"] = Place(home=home, uri=other, arguments=arguments)
    return found


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# Publishing


def confirms(client: Client) -> Answer:
    client.declare()
    return client.publish(numbered(3)), client.counts(), client.publish([b""]), client.drain()


def mandatory_without_a_queue(client: Client) -> Answer:
    return client.publish([b"lost"], "no-such-queue")


def unroutable_without_mandatory(client: Client) -> Answer:
    channel = client.channel()
    channel.confirm_delivery()
    return channel.basic_publish("", "no-such-queue", b"lost")


def to_no_exchange(client: Client) -> Answer:
    channel = client.channel()
    channel.confirm_delivery()
    return refusal(lambda: channel.basic_publish("no-such-exchange", "key", b"lost"))


def properties_arrive(client: Client) -> Answer:
    """Every property, to the letter."""
    client.declare()
    headers = {"text": "v", "number": 5, "large": 2**40, "yes": True, "nothing": None, "deep": {"list": [1, "a"]}}
    client.publish(
        [b"body"], content_type="text/plain", content_encoding="utf-8", headers=headers, priority=3,
        correlation_id="c", reply_to="r", message_id="m", timestamp=1_700_000_000, type="t", user_id="guest",
        app_id="a",
    )  # fmt: skip
    method, properties, body = client.channel().basic_get(client.queue)
    assert method is not None
    return vars(properties), body


def large_and_empty_bodies(client: Client) -> Answer:
    client.declare()
    bodies = [b"", b"x" * 5000, b"y" * 300_000, b"", b"z" * 1_000_000]
    taken = client.publish(bodies)
    return taken, [(len(body), flag, body[:1]) for body, flag in client.bodies()]


def transient_and_persistent_keep_their_order(client: Client) -> Answer:
    client.declare()
    for number in range(6):
        client.publish([b"%d" % number], delivery_mode=1 + number % 2)
    return client.bodies()


# Getting, and what was got


def gets(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(4))
    channel = client.channel()
    return [got(channel, client.queue, auto_ack=number == 1) for number in range(5)], client.counts()


def get_from_no_queue(client: Client) -> Answer:
    return refusal(lambda: client.channel().basic_get("no-such-queue"))


def get_from_the_last_queue_declared(client: Client) -> Answer:
    """A name of no letters is the queue that the channel declared last."""
    client.declare()
    client.publish([b"0"])
    channel = client.channel()
    channel.queue_declare(client.queue, passive=True)
    return got(channel, "")


def no_name_on_a_fresh_channel(client: Client) -> Answer:
    return refusal(lambda: client.channel().basic_get("")), refusal(lambda: client.channel().queue_purge(""))


def acknowledge_several(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(6))
    channel = client.channel()
    for _ in range(5):
        got(channel, client.queue)
    channel.basic_ack(3, multiple=True)
    channel.basic_ack(5)
    channel.close()
    return client.ready(2), client.bodies()


def acknowledge_all(client: Client) -> Answer:
    """0 and multiple are all."""
    client.declare()
    client.publish(numbered(3))
    channel = client.channel()
    for _ in range(3):
        got(channel, client.queue)
    channel.basic_ack(0, multiple=True)
    channel.close()
    return client.counts(), client.bodies()


def return_several(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(6))
    channel = client.channel()
    for _ in range(5):
        got(channel, client.queue)
    channel.basic_nack(3, multiple=True, requeue=True)
    return client.ready(4), [got(channel, client.queue) for _ in range(5)]


def returned_in_disorder(client: Client) -> Answer:
    """Each message goes back to the place that it had."""
    client.declare()
    client.publish(numbered(8))
    channel = client.channel()
    for _ in range(6):
        got(channel, client.queue)
    channel.basic_reject(5, requeue=True)
    channel.basic_reject(2, requeue=True)
    channel.basic_nack(4, requeue=True)
    channel.basic_ack(1)
    return client.ready(5), client.bodies()


def returned_between_gets(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(4))
    channel = client.channel()
    seen = []
    for _ in range(3):
        message = got(channel, client.queue)
        assert message is not None
        seen.append(message)
        channel.basic_reject(message[0], requeue=True)
    return seen


def recover(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(4))
    channel = client.channel()
    for _ in range(3):
        got(channel, client.queue)
    channel.basic_ack(2)
    channel.basic_recover(requeue=True)
    return client.ready(3), client.bodies()


def discard_several(client: Client) -> Answer:
    """Without a dead letter exchange they are gone."""
    client.declare()
    client.publish(numbered(5))
    channel = client.channel()
    for _ in range(4):
        got(channel, client.queue)
    channel.basic_nack(2, multiple=True, requeue=False)
    channel.basic_reject(3, requeue=False)
    channel.close()
    return client.ready(2), client.bodies()


def unknown_delivery_tag(client: Client) -> Answer:
    client.declare()
    channel = client.channel()

    def call() -> None:
        channel.basic_ack(7)
        channel.queue_declare(client.queue, passive=True)

    return refusal(call)


def acknowledge_twice(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(1))
    channel = client.channel()
    got(channel, client.queue)

    def call() -> None:
        channel.basic_ack(1)
        channel.basic_ack(1)
        channel.queue_declare(client.queue, passive=True)

    return refusal(call)


def channel_ends_with_unacked(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(5))
    channel = client.channel()
    for _ in range(3):
        got(channel, client.queue)
    channel.basic_ack(2)
    channel.close()
    return client.ready(4), client.bodies()


def connection_ends_with_unacked(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(5))
    consumers = Consumers(client.channel(), client.queue, prefetch=3)
    consumers.add("a")
    consumers.wait(3)
    client.close()
    return client.ready(5), client.counts(), client.bodies()


def two_channels_end(client: Client) -> Answer:
    """Both return what they held; the order of the queue is that of the publishes again."""
    client.declare()
    client.publish(numbered(6))
    first, second = client.channel(), client.channel()
    for channel in (first, second, first, second):
        got(channel, client.queue)
    second.close()
    client.ready(4)
    first.close()
    return client.ready(6), client.bodies()


# Consuming


def prefetch(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(7))
    consumers = Consumers(client.channel(), client.queue, prefetch=2)
    consumers.add("a")
    first = consumers.wait(2), client.counts()
    consumers.channel.basic_ack(1)
    second = consumers.wait(3), client.counts()
    consumers.channel.basic_ack(3, multiple=True)
    return first, second, consumers.wait(5), client.counts()


def together(client: Client, count: int) -> Consumers:
    """Consumers whose channel has a limit of its own."""
    consumers = Consumers(client.channel(), client.queue)
    consumers.channel.basic_qos(prefetch_count=count, global_qos=True)
    return consumers


def prefetch_of_a_channel(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(9))
    consumers = together(client, 3)
    consumers.add("a")
    first = consumers.wait(3), client.counts()
    consumers.channel.basic_ack(1)
    second = consumers.wait(4), client.counts()
    consumers.channel.basic_nack(4, multiple=True, requeue=True)
    return first, second, [(tag, number, body) for tag, number, _flag, body in consumers.wait(7)], client.counts()


def prefetch_of_a_channel_with_several_consumers(client: Client) -> Answer:
    """How many in all, and that nobody gets more before somebody acknowledges."""
    client.declare()
    client.publish(numbered(20))
    consumers = together(client, 4)
    for tag in "abc":
        consumers.add(tag)
    counts = [len(consumers.wait(4))]
    for number in (1, 2, 3, 4, 5):
        consumers.channel.basic_ack(number)
        counts.append(len(consumers.wait(4 + number)))
    consumers.channel.close()
    return counts, client.ready(15)


def prefetch_of_a_channel_and_of_a_consumer(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(9))
    consumers = Consumers(client.channel(), client.queue, prefetch=2)
    consumers.channel.basic_qos(prefetch_count=3, global_qos=True)
    consumers.add("a")
    first = len(consumers.wait(2))
    consumers.add("b")
    return first, len(consumers.wait(3))


def prefetch_of_a_channel_and_automatic_acknowledgement(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(9))
    consumers = together(client, 2)
    consumers.add("a", auto_ack=True)
    return len(consumers.wait(9)), client.counts()


def prefetch_of_a_channel_is_taken_away(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(9))
    consumers = together(client, 2)
    for tag in "abcde":
        consumers.add(tag)
    before = len(consumers.wait(2))
    consumers.channel.basic_qos(prefetch_count=0, global_qos=True)
    return before, len(consumers.wait(9))


def prefetch_of_a_channel_is_raised_and_lowered(client: Client) -> Answer:
    """Consumers that are there heed it, too. Celery's workers raise it for each task that is to run later."""
    client.declare()
    client.publish(numbered(20))
    consumers = together(client, 2)
    consumers.add("a")
    consumers.add("b")
    counts = [len(consumers.wait(2))]
    for limit, count in ((10, 10), (12, 12), (3, 12)):
        consumers.channel.basic_qos(prefetch_count=limit, global_qos=True)
        counts.append(len(consumers.wait(count)))
    consumers.channel.basic_ack(9, multiple=True)
    counts.append(len(consumers.wait(12)))
    consumers.channel.basic_ack(11, multiple=True)
    return counts, len(consumers.wait(14))


def prefetch_of_a_channel_beside_an_exclusive_consumer(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(9))
    consumers = together(client, 2)
    consumers.add("a", exclusive=True)
    before = len(consumers.wait(2))
    consumers.channel.basic_qos(prefetch_count=5, global_qos=True)
    after = len(consumers.wait(5))
    other = Consumers(client.channel(), client.queue)
    return before, after, refusal(lambda: other.add("b"))


def prefetch_of_a_channel_and_older_consumers(client: Client) -> Answer:
    """What they hold counts."""
    client.declare()
    consumers = Consumers(client.channel(), client.queue)
    consumers.add("a")
    client.publish(numbered(1))
    before = len(consumers.wait(1))
    consumers.channel.basic_qos(prefetch_count=2, global_qos=True)
    client.publish(numbered(3))
    after = len(consumers.wait(2))
    consumers.channel.basic_ack(2, multiple=True)
    return before, after, len(consumers.wait(4))


def prefetch_of_a_channel_and_gets(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(4))
    consumers = together(client, 1)
    fetched = got(consumers.channel, client.queue)
    consumers.add("a")
    first = consumers.wait(1)
    consumers.channel.basic_ack(1)
    second = len(consumers.wait(1))
    consumers.channel.basic_ack(2)
    return fetched, first, second, consumers.wait(2)


def used_up_prefetch_of_a_channel_and_automatic_acknowledgement(client: Client) -> Answer:
    """The consumer that never acknowledges waits, too."""
    client.declare()
    other = f"{client.queue}-other"
    client.declare(other)
    consumers = together(client, 1)
    consumers.add("a")
    client.publish(numbered(1))
    counts = [len(consumers.wait(1))]
    consumers.channel.basic_consume(other, consumers.delivered, consumer_tag="b", auto_ack=True)
    client.publish(numbered(3), other)
    counts.append(len(consumers.wait(1)))
    consumers.channel.basic_ack(1)
    counts.append(len(consumers.wait(4)))
    client.publish(numbered(1))
    return counts, len(consumers.wait(5))


def recovered_with_a_prefetch_of_a_channel(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(3))
    consumers = together(client, 2)
    consumers.add("a")
    consumers.wait(2)
    consumers.channel.basic_recover(requeue=True)
    return [(number, flag, body) for _tag, number, flag, body in consumers.wait(4)]


def limits_of_channels(client: Client) -> Answer:
    """Acknowledged one by one or together, in a transaction or not, from one queue or two, beside gets."""
    answers: list[Answer] = []
    for number, (limit, multiple, in_tx, queues) in enumerate(product((1, 2), (False, True), (True, False), (1, 2))):
        names = [f"{client.queue}-{number}-{each}" for each in range(queues)]
        for name in names:
            client.declare(name)
        consumers = together(client, limit)
        channel = consumers.channel
        for name in names:
            channel.basic_consume(name, consumers.delivered)
            client.publish(numbered(2 * limit + queues + 1), name)
        if in_tx:
            channel.tx_select()
        counts = [len(consumers.wait(limit))]
        gets = [channel.basic_get(name)[0].delivery_tag for name in names]
        for tag in (limit,) if multiple else range(1, limit + 1):
            channel.basic_ack(tag, multiple=multiple)
        if in_tx:
            counts.append(len(consumers.wait(limit)))
            channel.tx_rollback()
            counts.append(len(consumers.wait(limit)))
            channel.basic_ack(limit, multiple=True)
            channel.tx_commit()
        counts.append(len(consumers.wait(2 * limit)))
        for tag in gets:
            channel.basic_ack(tag)
        if in_tx:
            channel.tx_commit()
        counts.append(len(consumers.wait(2 * limit)))
        answers.append(counts)
        channel.close()
    return answers


def a_cancelled_consumer_of_a_channel_with_a_prefetch(client: Client) -> Answer:
    """What it has not got is there for others."""
    client.declare()
    client.publish(numbered(6))
    consumers = together(client, 2)
    consumers.add("a")
    consumers.add("b")
    consumers.wait(2)
    consumers.channel.basic_cancel("b")
    consumers.channel.basic_ack(2, multiple=True)
    counts = len(consumers.wait(4))
    consumers.channel.basic_cancel("a")
    return counts, client.ready(2)


def without_a_prefetch(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(20))
    consumers = Consumers(client.channel(), client.queue)
    consumers.add("a")
    return consumers.wait(20), client.counts()


def automatic_acknowledgement(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(5))
    consumers = Consumers(client.channel(), client.queue, prefetch=2)
    consumers.add("a", auto_ack=True)
    seen = consumers.wait(5)
    consumers.channel.close()
    return seen, client.counts(), client.bodies()


def consumers_in_turn(client: Client) -> Answer:
    client.declare()
    consumers = Consumers(client.channel(), client.queue, prefetch=2)
    for tag in "abc":
        consumers.add(tag)
    client.publish(numbered(9))
    return sorted(consumers.wait(6)), client.counts()


def a_consumer_behind_another(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(5))
    consumers = Consumers(client.channel(), client.queue, prefetch=2)
    consumers.add("a")
    consumers.wait(2)
    consumers.add("b")
    return consumers.wait(4)


def returned_to_its_only_consumer(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(3))
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a")
    consumers.wait(1)
    consumers.channel.basic_reject(1, requeue=True)
    consumers.wait(2)
    consumers.channel.basic_ack(2)
    return consumers.wait(3)


def a_dead_consumers_messages_go_to_another(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(5))
    first = Consumers(client.channel(), client.queue, prefetch=3)
    first.add("a")
    first.wait(3)
    second = Consumers(client.channel(), client.queue, prefetch=10)
    second.add("b")
    second.wait(2)
    first.channel.close()
    return second.wait(5)


def unacked_over_a_cancel(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(4))
    consumers = Consumers(client.channel(), client.queue, prefetch=2)
    consumers.add("a")
    consumers.wait(2)
    consumers.channel.basic_cancel("a")
    left = client.counts()
    consumers.channel.basic_ack(1)
    consumers.channel.close()
    return left, client.ready(3), client.bodies()


def a_tag_in_use(client: Client) -> Answer:
    client.declare()
    channel = client.channel()
    channel.basic_consume(client.queue, lambda *_: None, consumer_tag="a")
    method = pika.spec.Basic.Consume(queue=client.queue, consumer_tag="a")
    return refusal(lambda: channel._impl._send_method(method) or channel.queue_declare(client.queue, passive=True))


def consume_from_no_queue(client: Client) -> Answer:
    return refusal(lambda: client.channel().basic_consume("no-such-queue", lambda *_: None))


def cancel_of_no_consumer(client: Client) -> Answer:
    return refusal(lambda: client.channel().basic_cancel("nobody"))


def priorities_of_consumers(client: Client) -> Answer:
    client.declare()
    low = Consumers(client.channel(), client.queue, prefetch=2)
    low.add("low", arguments={"x-priority": -5})
    high = Consumers(client.channel(), client.queue, prefetch=2)
    high.add("high", arguments={"x-priority": 5})
    client.publish(numbered(5))
    first = high.wait(2), low.wait(2)
    high.channel.basic_ack(2, multiple=True)
    return first, high.wait(3), low.wait(2)


def priority_of_another_type(client: Client) -> Answer:
    client.declare()
    return refusal(
        lambda: client.channel().basic_consume(client.queue, lambda *_: None, arguments={"x-priority": "high"})
    )


def one_active_after_the_other(client: Client) -> Answer:
    client.declare(single_active_consumer=True)
    first = Consumers(client.channel(), client.queue, prefetch=2)
    first.add("a")
    second = Consumers(client.channel(), client.queue, prefetch=2)
    second.add("b")
    counted = client.counts()
    client.publish(numbered(6))
    seen = first.wait(2), second.wait(0)
    first.channel.basic_ack(1)
    more = first.wait(3), second.wait(0)
    end(first.channel)
    return counted, seen, more, second.wait(2), client.counts()


def get_beside_the_active_one(client: Client) -> Answer:
    client.declare(single_active_consumer=True)
    client.publish(numbered(3))
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a")
    consumers.wait(1)
    return got(client.channel(), client.queue)


def exclusive_consumer(client: Client) -> Answer:
    """Alone until it goes; a get is no consumer."""
    client.declare()
    client.publish(numbered(3))
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a", exclusive=True)
    seen = consumers.wait(1)
    refused = [
        refusal(lambda flag=flag: client.channel().basic_consume(client.queue, lambda *_: None, exclusive=flag))  # type: ignore[misc]
        for flag in (False, True)
    ]
    fetched = got(client.channel(), client.queue)
    consumers.channel.basic_cancel("a")
    after = Consumers(client.channel(), client.queue, prefetch=1)
    after.add("b")
    return seen, refused, fetched, after.wait(1)


def exclusive_beside_another(client: Client) -> Answer:
    client.declare()
    Consumers(client.channel(), client.queue).add("a")
    return refusal(lambda: client.channel().basic_consume(client.queue, lambda *_: None, exclusive=True))


def exclusive_consumer_ends_with_its_channel(client: Client) -> Answer:
    client.declare()
    channel = client.channel()
    channel.basic_consume(client.queue, lambda *_: None, exclusive=True, consumer_tag="a")
    channel.close()
    until(lambda: client.counts()[1] == 0)
    return refusal(lambda: client.channel().basic_consume(client.queue, lambda *_: None, exclusive=True))


def exclusive_beside_single_active(client: Client) -> Answer:
    client.declare(single_active_consumer=True)
    return refusal(lambda: client.channel().basic_consume(client.queue, lambda *_: None, exclusive=True))


# Purging and deleting


def purge(client: Client) -> Answer:
    """What consumers hold stays, and may come back."""
    client.declare()
    client.publish(numbered(6))
    channel = client.channel()
    for _ in range(2):
        got(channel, client.queue)
    purged = channel.queue_purge(client.queue).method.message_count
    again = client.channel().queue_purge(client.queue).method.message_count
    channel.basic_nack(2, multiple=True, requeue=True)
    return purged, again, client.ready(2), client.bodies()


def purge_of_no_queue(client: Client) -> Answer:
    return refusal(lambda: client.channel().queue_purge("no-such-queue"))


def delete(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(6))
    channel = client.channel()
    got(channel, client.queue)
    deleted = client.channel().queue_delete(client.queue).method.message_count
    return (
        deleted,
        refusal(client.counts),
        client.publish([b"late"]),
        client.channel().queue_delete(client.queue).method.message_count,
    )


def delete_if_empty(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(1))
    refused = refusal(lambda: client.channel().queue_delete(client.queue, if_empty=True))
    channel = client.channel()
    got(channel, client.queue)
    return refused, client.channel().queue_delete(client.queue, if_empty=True).method.message_count


def delete_if_unused(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(3))
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a")
    refused = refusal(lambda: client.channel().queue_delete(client.queue, if_unused=True))
    consumers.channel.basic_cancel("a")
    return refused, client.channel().queue_delete(client.queue, if_unused=True).method.message_count


def delete_under_consumers(client: Client) -> Answer:
    """The consumers are told."""
    client.declare()
    client.publish(numbered(3))
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    for tag in "ab":
        consumers.add(tag)
    consumers.wait(2)
    deleted = client.channel().queue_delete(client.queue).method.message_count
    cancelled = consumers.wait_cancelled(2)
    consumers.channel.basic_ack(2, multiple=True)
    return deleted, cancelled, refusal(lambda: consumers.channel.queue_declare(client.queue, passive=True))


# Times to live


def expired_at_the_head(client: Client) -> Answer:
    client.declare_dying()
    client.publish(numbered(2), expiration="30")
    return client.ready(2, client.dead), client.counts(), client.drain(client.dead)


def expired_by_the_queue(client: Client) -> Answer:
    client.declare_dying(message_ttl=30)
    client.publish(numbered(2), expiration="3600000", headers={"k": "v"})
    return client.ready(2, client.dead), client.counts(), client.drain(client.dead)


def expired_by_the_shorter(client: Client) -> Answer:
    client.declare_dying(message_ttl=3_600_000)
    client.publish(numbered(1), expiration="30")
    return client.ready(1, client.dead), client.drain(client.dead)


def late_behind_a_longer_life(client: Client) -> Answer:
    """A message expires at the head; until then it counts."""
    client.declare_dying()
    client.publish([b"long"])
    client.publish([b"short"], expiration="1")
    other = f"{client.queue}-other"
    client.declare(other, dead_letter_exchange="", dead_letter_routing_key=client.dead)
    client.publish([b"clock"], other, expiration="200")
    passed = client.ready(1, client.dead)
    waiting = client.counts()
    first = got(client.channel(), client.queue)
    return passed, waiting, first, client.ready(2, client.dead), client.bodies(client.dead)


def no_time_to_live(client: Client) -> Answer:
    """Delivered at once or never."""
    client.declare_dying()
    client.publish([b"never"], expiration="0")
    client.ready(1, client.dead)
    consumers = Consumers(client.channel(), client.queue)
    consumers.add("a")
    client.publish([b"at once"], expiration="0")
    return consumers.wait(1), client.bodies(client.dead)


def a_held_message_does_not_expire(client: Client) -> Answer:
    """And expires at once when it comes back."""
    client.declare_dying()
    client.publish([b"held", b"waits"], expiration="300")
    channel = client.channel()
    held = got(channel, client.queue)
    client.ready(1, client.dead)
    before = client.bodies(client.dead)
    channel.basic_nack(1, requeue=True)
    return held, before, client.ready(1, client.dead), client.drain(client.dead)


def queue_expires(client: Client) -> Answer:
    client.declare(expires=300)
    client.publish([b"goes"])
    until(lambda: client.publish([b"gone?"])[0] != "taken")
    return client.publish([b"gone"]), refusal(client.counts)


def a_consumer_keeps_a_queue(client: Client) -> Answer:
    client.declare(expires=200)
    consumers = Consumers(client.channel(), client.queue)
    consumers.add("a")
    other = f"{client.queue}-other"
    client.declare(client.dead)
    client.declare(other, dead_letter_exchange="", dead_letter_routing_key=client.dead)
    client.publish([b"clock"], other, expiration="1000")
    client.ready(1, client.dead)
    kept = client.publish([b"kept"]), consumers.wait(1)
    consumers.channel.close()
    until(lambda: client.publish([b"gone?"])[0] != "taken")
    return kept, refusal(client.counts)


# Full queues


def dropped_at_the_head(client: Client) -> Answer:
    client.declare_dying(max_length=3)
    taken = client.publish(numbered(5))
    return taken, client.bodies(), client.ready(2, client.dead), client.drain(client.dead)


def dropped_by_octets(client: Client) -> Answer:
    client.declare_dying(max_length_bytes=10)
    taken = client.publish([b"aaaa", b"bbbb", b"cccccc", b"d" * 11, b"e"])
    return taken, client.bodies(), client.ready(4, client.dead), client.bodies(client.dead)


def held_messages_do_not_count(client: Client) -> Answer:
    client.declare(max_length=2)
    client.publish(numbered(2))
    channel = client.channel()
    got(channel, client.queue)
    client.publish(numbered(2, first=2))
    channel.basic_nack(1, requeue=True)
    return client.ready(2), client.bodies()


def refused_when_full(client: Client) -> Answer:
    """Takes again as soon as there is room for one."""
    client.declare(max_length=5, overflow="reject-publish")
    outcomes = [client.publish(numbered(7))]
    client.channel().basic_get(client.queue, auto_ack=True)
    outcomes.append(client.publish(numbered(2, first=7)))
    return outcomes, client.counts(), client.bodies()


def refused_by_octets(client: Client) -> Answer:
    client.declare(max_length_bytes=10, overflow="reject-publish")
    return client.publish([b"aaaa", b"bbbb", b"cccccc", b"dd", b"e", b""]), client.bodies()


def refused_with_nothing_held(client: Client) -> Answer:
    """A full queue with a consumer that has no credit."""
    client.declare(max_length=1, overflow="reject-publish")
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a")
    outcomes = client.publish(numbered(3))
    consumers.channel.basic_ack(consumers.wait(1)[0][1])
    consumers.wait(2)
    return outcomes, client.publish(numbered(2, first=3)), consumers.wait(2)


def refused_to_the_dead(client: Client) -> Answer:
    client.declare_dying(max_length=2, overflow="reject-publish-dlx")
    outcomes = client.publish(numbered(4), headers={"k": "v"})
    return outcomes, client.ready(2, client.dead), client.bodies(), client.drain(client.dead)


def refused_to_nobody(client: Client) -> Answer:
    client.declare(max_length=2, overflow="reject-publish-dlx")
    return client.publish(numbered(4)), client.bodies()


def a_length_of_nothing(client: Client) -> Answer:
    client.declare_dying(max_length=0)
    taken = client.publish(numbered(2))
    return taken, client.ready(2, client.dead), client.counts()


# Dead letters


def dead_by_rejection(client: Client) -> Answer:
    client.declare_dying()
    client.publish(numbered(3), headers={"k": "v"})
    channel = client.channel()
    for _ in range(3):
        got(channel, client.queue)
    channel.basic_nack(2, multiple=True, requeue=False)
    channel.basic_reject(3, requeue=False)
    return client.ready(3, client.dead), client.drain(client.dead)


def dead_without_a_key_of_its_own(client: Client) -> Answer:
    """To the queue of the message's own key: the queue where it died, so the letter is dropped unless rejected."""
    client.declare(dead_letter_exchange="", message_ttl=3_600_000)
    client.publish(numbered(1), expiration="1")
    client.ready(0)
    client.publish([b"rejected"])
    channel = client.channel()
    got(channel, client.queue)
    channel.basic_reject(1, requeue=False)
    client.ready(1)
    return client.drain()


def dead_to_nowhere(client: Client) -> Answer:
    client.declare(dead_letter_exchange="", dead_letter_routing_key="no-such-queue")
    client.publish(numbered(1))
    channel = client.channel()
    got(channel, client.queue)
    channel.basic_reject(1, requeue=False)
    return client.counts()


def dead_again_and_again(client: Client) -> Answer:
    """Rejected, waiting in the other queue, back by expiry: what retry loops are made of."""
    client.declare(client.dead, dead_letter_exchange="", dead_letter_routing_key=client.queue, message_ttl=20)
    client.declare(dead_letter_exchange="", dead_letter_routing_key=client.dead)
    client.publish([b"0"], expiration="3600000")
    lives, channel = [], client.channel()
    for _ in range(3):
        client.ready(1)
        message = got(channel, client.queue)
        assert message is not None
        lives.append(message)
        channel.basic_reject(message[0], requeue=False)
    return lives


# Priorities of messages


def by_priority(client: Client) -> Answer:
    client.declare(max_priority=5)
    for number, priority in enumerate((0, 5, 3, 9, None, 3, 1)):
        client.publish([b"%d" % number], **({} if priority is None else {"priority": priority}))
    return client.drain()


def returned_by_priority(client: Client) -> Answer:
    client.declare(max_priority=5)
    for number, priority in enumerate((1, 4, 4, 2)):
        client.publish([b"%d" % number], priority=priority)
    channel = client.channel()
    for _ in range(3):
        got(channel, client.queue)
    client.publish([b"late"], priority=4)
    channel.basic_nack(3, multiple=True, requeue=True)
    return client.ready(5), client.bodies()


def priorities_with_a_consumer(client: Client) -> Answer:
    """A consumer that holds a message of low priority gets the highest next."""
    client.declare(max_priority=10)
    client.publish([b"first"], priority=1)
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a")
    consumers.wait(1)
    for number, priority in enumerate((2, 9, 5)):
        client.publish([b"%d" % number], priority=priority)
    for count in range(1, 4):
        consumers.channel.basic_ack(consumers.wait(count)[-1][1])
    return consumers.wait(4)


def a_full_queue_with_priorities(client: Client) -> Answer:
    client.declare_dying(max_priority=5, max_length=2)
    for number, priority in enumerate((1, 5, 3)):
        client.publish([b"%d" % number], priority=priority)
    return client.ready(1, client.dead), client.bodies(client.dead), client.bodies()


def purge_of_priorities(client: Client) -> Answer:
    client.declare(max_priority=5)
    for number, priority in enumerate((1, 5, 3)):
        client.publish([b"%d" % number], priority=priority)
    return client.channel().queue_purge(client.queue).method.message_count, client.counts()


# Queues that end by themselves


def exclusive_queue(client: Client) -> Answer:
    """Others are refused, and the queue ends with its connection."""
    channel = client.channel()
    channel.queue_declare(client.queue, exclusive=True)
    client.publish(numbered(2))
    stranger = client.connect()
    refused = [
        refusal(lambda ask=ask: ask(stranger.channel()))  # type: ignore[misc]
        for ask in (
            lambda other: other.queue_declare(client.queue, passive=True),
            lambda other: other.queue_declare(client.queue, exclusive=True),
            lambda other: other.basic_get(client.queue),
            lambda other: other.basic_consume(client.queue, lambda *_: None),
            lambda other: other.queue_purge(client.queue),
            lambda other: other.queue_delete(client.queue),
        )
    ]
    other = stranger.channel()
    other.confirm_delivery()
    other.basic_publish("", client.queue, b"from others", mandatory=True)
    seen = client.bodies()
    client.close()
    until(lambda: refusal(client.counts)[1:2] == (404,))
    return refused, seen, refusal(client.counts)


def server_named(client: Client) -> Answer:
    channel = client.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    client.publish([b"0"], name)
    return name.startswith("amq.gen-"), len(name), got(channel, "", auto_ack=True)[-1]  # type: ignore[index]


def auto_delete_with_its_last_consumer(client: Client) -> Answer:
    client.channel().queue_declare(client.queue, auto_delete=True)
    client.publish(numbered(3))
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a")
    consumers.add("b")
    consumers.wait(2)
    consumers.channel.basic_cancel("a")
    kept = client.counts()
    consumers.channel.basic_cancel("b")
    until(lambda: refusal(client.counts) != "ok")
    return kept, refusal(client.counts), client.publish([b"late"])


def auto_delete_with_its_consumers_channel(client: Client) -> Answer:
    client.channel().queue_declare(client.queue, auto_delete=True)
    consumers = Consumers(client.channel(), client.queue)
    consumers.add("a")
    consumers.channel.close()
    until(lambda: refusal(client.counts) != "ok")
    return refusal(client.counts)


def auto_delete_without_a_consumer(client: Client) -> Answer:
    """A get is no consumer, so the queue stays."""
    client.channel().queue_declare(client.queue, auto_delete=True)
    client.publish(numbered(2))
    channel = client.channel()
    got(channel, client.queue)
    channel.close()
    return client.ready(2), client.counts()


SCRIPTS: list[Script] = [
    confirms, mandatory_without_a_queue, unroutable_without_mandatory, to_no_exchange, properties_arrive,
    large_and_empty_bodies, transient_and_persistent_keep_their_order,
    gets, get_from_no_queue, get_from_the_last_queue_declared, no_name_on_a_fresh_channel, acknowledge_several,
    acknowledge_all, return_several, returned_in_disorder, returned_between_gets, recover, discard_several,
    unknown_delivery_tag, acknowledge_twice, channel_ends_with_unacked, connection_ends_with_unacked, two_channels_end,
    prefetch, prefetch_of_a_channel, prefetch_of_a_channel_with_several_consumers,
    prefetch_of_a_channel_and_of_a_consumer, prefetch_of_a_channel_and_automatic_acknowledgement,
    prefetch_of_a_channel_is_taken_away, prefetch_of_a_channel_is_raised_and_lowered,
    prefetch_of_a_channel_beside_an_exclusive_consumer, prefetch_of_a_channel_and_older_consumers,
    prefetch_of_a_channel_and_gets, recovered_with_a_prefetch_of_a_channel,
    used_up_prefetch_of_a_channel_and_automatic_acknowledgement, limits_of_channels,
    a_cancelled_consumer_of_a_channel_with_a_prefetch, without_a_prefetch,
    automatic_acknowledgement, consumers_in_turn, a_consumer_behind_another,
    returned_to_its_only_consumer, a_dead_consumers_messages_go_to_another, unacked_over_a_cancel,
    a_tag_in_use, consume_from_no_queue, cancel_of_no_consumer, priorities_of_consumers,
    priority_of_another_type, one_active_after_the_other, get_beside_the_active_one,
    exclusive_consumer, exclusive_beside_another, exclusive_consumer_ends_with_its_channel,
    exclusive_beside_single_active,
    purge, purge_of_no_queue, delete, delete_if_empty, delete_if_unused, delete_under_consumers,
    expired_at_the_head, expired_by_the_queue, expired_by_the_shorter, late_behind_a_longer_life, no_time_to_live,
    a_held_message_does_not_expire, queue_expires, a_consumer_keeps_a_queue,
    dropped_at_the_head, dropped_by_octets, held_messages_do_not_count, refused_when_full, refused_by_octets,
    refused_with_nothing_held, refused_to_the_dead, refused_to_nobody, a_length_of_nothing,
    dead_by_rejection, dead_without_a_key_of_its_own, dead_to_nowhere, dead_again_and_again,
    by_priority, returned_by_priority, priorities_with_a_consumer, a_full_queue_with_priorities, purge_of_priorities,
    exclusive_queue, server_named, auto_delete_with_its_last_consumer, auto_delete_with_its_consumers_channel,
    auto_delete_without_a_consumer,
]  # fmt: skip


def without(value: Answer, key: str) -> Answer:
    """The answer without a field of any table in it."""
    if isinstance(value, dict):
        return {name: without(each, key) for name, each in value.items() if name != key}
    if isinstance(value, list | tuple):
        return type(value)(without(each, key) for each in value)
    return value


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_one_script_one_answer(places: dict[str, Place], script: Script) -> None:
    """An application that was written for RabbitMQ sees no difference, whatever the mode and the node."""
    answers = {
        where: answer_of(place, f"{script.__name__}-{number}", script)
        for number, (where, place) in enumerate(places.items())
    }
    expected = answers["RabbitMQ classic"]
    forgetful = without(expected, "original-expiration")  # a lazy queue of RabbitMQ leaves this field out
    assert answers == {**dict.fromkeys(answers, expected), "RabbitMQ lazy": forgetful}


# Where they differ


def a_tag_again_with_its_messages_unacked(client: Client) -> Answer:
    client.declare()
    client.publish(numbered(4))
    consumers = Consumers(client.channel(), client.queue, prefetch=1)
    consumers.add("a")
    consumers.wait(1)
    consumers.channel.basic_cancel("a")
    consumers.add("a")
    consumers.fence()
    first = [body for *_told, body in consumers.got]
    consumers.channel.basic_ack(1)
    return first, [body for *_told, body in consumers.wait(2)]


def the_next_active_one_after_a_cancel(client: Client) -> Answer:
    client.declare(single_active_consumer=True)
    first = Consumers(client.channel(), client.queue, prefetch=1)
    first.add("a")
    second = Consumers(client.channel(), client.queue, prefetch=1)
    second.add("b")
    client.publish(numbered(2))
    first.wait(1)
    first.channel.basic_cancel("a")
    second.fence()
    return len(second.got)


def no_length_beside_an_idle_consumer(client: Client) -> Answer:
    client.declare(max_length=0, overflow="reject-publish")
    consumers = Consumers(client.channel(), client.queue)
    consumers.add("a")
    return client.publish([b"0"])


DIFFERENT: list[tuple[Script, Answer, Answer]] = [
    (a_tag_again_with_its_messages_unacked, ([b"0", b"1"], [b"0", b"1", b"2"]), ([b"0"], [b"0", b"1"])),
    (the_next_active_one_after_a_cancel, 0, 1),
    (no_length_beside_an_idle_consumer, ["refused"], ["taken"]),
]


@pytest.mark.parametrize(("script", "theirs", "ours"), DIFFERENT, ids=[script.__name__ for script, *_ in DIFFERENT])
def test_where_classic_queues_differ(places: dict[str, Place], script: Script, theirs: Answer, ours: Answer) -> None:
    """docs/internals/amqp.md says so; if one of the two changes, that page is wrong."""
    answers = {
        where: answer_of(place, f"{script.__name__}-{number}", script)
        for number, (where, place) in enumerate(places.items())
    }
    assert answers == {where: theirs if where.startswith("RabbitMQ") else ours for where in answers}
