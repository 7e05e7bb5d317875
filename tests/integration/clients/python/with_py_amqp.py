"""What an application does with py-amqp, the client under kombu. Prints a line for each scenario that went well."""

import sys
import time
from urllib.parse import urlsplit

import amqp
from amqp.exceptions import NotFound, PreconditionFailed

QUORUM = {"x-queue-type": "quorum"}
PATIENCE_S = 30


def connected():
    address = urlsplit(sys.argv[1])
    return amqp.Connection(
        host=f"{address.hostname}:{address.port}",
        userid=address.username,
        password=address.password,
        confirm_publish=True,
        connect_timeout=PATIENCE_S,
        read_timeout=PATIENCE_S,
    )


def got(channel, queue):
    """The next message, which may still be on its way."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = channel.basic_get(queue)
        if message is not None:
            return message
    raise AssertionError(f"no message in {queue}")


def confirmed_messages_pass_through_bound_exchanges(channel, name):
    channel.exchange_declare(f"{name}.first", "headers", durable=True, auto_delete=False)
    channel.exchange_declare(f"{name}.second", "direct", durable=True, auto_delete=False)
    channel.exchange_bind(f"{name}.second", f"{name}.first", "", arguments={"x-match": "all", "kind": "order"})
    channel.queue_declare(name, durable=True, auto_delete=False, arguments=QUORUM)
    channel.queue_bind(name, f"{name}.second", "key")
    for kind in ("order", "other"):
        message = amqp.Message(kind, application_headers={"kind": kind}, delivery_mode=2, priority=3)
        channel.basic_publish_confirm(message, f"{name}.first", "key")
    message = got(channel, name)
    assert (message.body, message.delivery_info["exchange"], message.properties["priority"]) == (
        "order",
        f"{name}.first",
        3,
    )
    channel.basic_ack(message.delivery_tag)
    assert channel.basic_get(name) is None
    channel.exchange_unbind(f"{name}.second", f"{name}.first", "", arguments={"x-match": "all", "kind": "order"})
    channel.exchange_delete(f"{name}.first")


def a_consumer_gets_what_it_did_not_acknowledge_after_its_channel(channel, name):
    channel.queue_declare(name, durable=True, auto_delete=False, arguments=QUORUM)
    for number in range(3):
        channel.basic_publish_confirm(amqp.Message(str(number)), "", name)
    held = []
    reader = channel.connection.channel()
    reader.basic_qos(0, 2, False)
    reader.basic_consume(name, callback=held.append)
    while len(held) < 2:
        channel.connection.drain_events(timeout=PATIENCE_S)
    assert [message.body for message in held] == ["0", "1"]
    reader.close()
    again = [got(channel, name) for _ in range(3)]
    # The queue hears of the closed channel by itself, so what was never delivered may come first.
    came = sorted((message.body, message.delivery_info["redelivered"]) for message in again)
    assert came == [("0", True), ("1", True), ("2", False)]
    channel.basic_ack(again[-1].delivery_tag, multiple=True)


def other_declarations_of_a_name_are_refused(channel, name):
    channel.exchange_declare(name, "direct", durable=True, auto_delete=False)
    for wrong, declare in (
        (PreconditionFailed, lambda on: on.exchange_declare(name, "fanout", durable=True, auto_delete=False)),
        (NotFound, lambda on: on.exchange_declare(f"{name}.missing", "direct", passive=True)),
        (NotFound, lambda on: on.queue_bind(f"{name}.missing", name, "key")),
    ):
        other = channel.connection.channel()
        try:
            declare(other)
        except wrong:
            continue
        raise AssertionError(f"no {wrong.__name__}")


SCENARIOS = (
    confirmed_messages_pass_through_bound_exchanges,
    a_consumer_gets_what_it_did_not_acknowledge_after_its_channel,
    other_declarations_of_a_name_are_refused,
)

for scenario in SCENARIOS:
    with connected() as connection:
        scenario(connection.channel(), f"py-amqp.{scenario.__name__}")
    print("ok", scenario.__name__, flush=True)
