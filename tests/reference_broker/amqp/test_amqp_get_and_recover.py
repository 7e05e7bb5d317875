"""basic.get and basic.recover on the wire, and what a message says that was delivered before."""

from __future__ import annotations

import pytest
from pamqp import body, commands, header

from reference_broker.amqp.events import Get, Publish, Settled
from reference_broker.amqp.properties import with_delivery_count
from reference_broker.message_run import MessageRun
from reference_broker.types import Outcome
from tests.reference_broker.amqp.testing import ScriptedClient, content, parse, publish

Basic = commands.Basic
Properties = commands.Basic.Properties


def run_of(payloads: list[bytes], properties: Properties | None = None) -> MessageRun:
    client = ScriptedClient()
    client.open()
    (event,) = client.raw(b"".join(publish(1, "q", payload, properties) for payload in payloads))
    assert isinstance(event, Publish)
    return event.run


def asked(client: ScriptedClient, queue: str = "q", no_ack: bool = False) -> Get:
    (event,) = client.send(1, Basic.Get(0, queue, no_ack))
    assert isinstance(event, Get)
    return event


def test_a_message_is_fetched_and_acknowledged_under_the_tag_of_its_queue() -> None:
    """Gets of two queues on one channel: an acknowledgement must find its way back to the right one."""
    client = ScriptedClient()
    client.open()
    first, second = asked(client, "a"), asked(client, "b")
    assert first.consumer_tag != second.consumer_tag
    run = run_of([b"one", b"two"])
    assert client.server.get_ok(1, first.consumer_tag, 7, (run, 1, 1, 1), 0, 5, False)
    assert client.server.get_ok(1, second.consumer_tag, 0, (run, 0, 1, 1), 2, 0, False)
    (_, one), _, (_, text), (_, two), (_, head), _ = client.heard()
    assert isinstance(one, Basic.GetOk)
    assert isinstance(two, Basic.GetOk)
    assert isinstance(text, body.ContentBody)
    assert isinstance(head, header.ContentHeader)
    assert (one.delivery_tag, one.redelivered, one.routing_key, one.message_count) == (1, False, "q", 5)
    assert (two.delivery_tag, two.redelivered, two.message_count) == (2, True, 0)
    assert text.value == b"two"
    assert head.properties.headers == {"x-delivery-count": 2}
    assert client.send(1, Basic.Ack(1)) == [Settled(1, first.consumer_tag, Outcome.SETTLE, ((7, 7),))]
    assert client.send(1, Basic.Reject(2, False)) == [Settled(1, second.consumer_tag, Outcome.DISCARD, ((0, 0),))]


@pytest.mark.parametrize(("counted", "headers"), [(True, {"x-delivery-count": 0}), (False, None)])
def test_a_fetched_message_may_say_that_it_never_came_back(counted: bool, headers: dict[str, int] | None) -> None:
    """As RabbitMQ's quorum queues have it, and its classic queues do not."""
    client = ScriptedClient()
    client.open()
    event = asked(client)
    run = run_of([b"one"])
    assert client.server.get_ok(1, event.consumer_tag, 0, (run, 0, 1, 1), 0, 0, False, counted=counted)
    (_, answer), (_, head), _ = client.heard()
    assert isinstance(answer, Basic.GetOk) and not answer.redelivered
    assert isinstance(head, header.ContentHeader)
    assert head.properties.headers == headers


def test_nothing_to_fetch_and_nothing_to_acknowledge() -> None:
    client = ScriptedClient()
    client.open()
    event = asked(client, no_ack=True)
    client.server.get_empty(1)
    assert [type(each) for _, each in client.heard()] == [Basic.GetEmpty]
    assert client.server.get_ok(1, event.consumer_tag, 0, (run_of([b"x"]), 0, 1, 1), 0, 0, True)
    assert client.server.unacked(1) == 0
    client.send(1, commands.Channel.Close(200, "", 0, 0))
    assert not client.server.get_ok(1, event.consumer_tag, 1, (run_of([b"x"]), 0, 1, 1), 0, 0, False)


@pytest.mark.parametrize("is_async", [False, True])
def test_recover_returns_all_that_the_channel_holds(is_async: bool) -> None:
    """Of every consumer, cancelled ones too, and of gets: each message once, in ranges."""
    client = ScriptedClient()
    client.open()
    for tag in "ab":
        client.consume(1, tag)
    run = run_of([b"x"] * 10)
    for tag, first in (("a", 0), ("b", 3), ("a", 4)):
        client.server.deliver(1, tag, first, [(run, 0, 4, 1)], 0)
    fetched = asked(client).consumer_tag
    client.server.get_ok(1, fetched, 9, (run, 0, 1, 1), 0, 0, False)
    client.send(1, Basic.Ack(2), Basic.Cancel("b", True))
    client.output()
    recover = b"\x01\x00\x01\x00\x00\x00\x05\x00\x3c\x00\x64\x01\xce"
    events = client.raw(recover) if is_async else client.send(1, Basic.Recover(True))
    assert {(event.consumer_tag, event.ranges) for event in events if isinstance(event, Settled)} == {
        ("a", ((0, 0), (2, 7))),
        ("b", ((3, 6),)),
        (fetched, ((9, 9),)),
    }
    assert all(isinstance(event, Settled) and event.outcome is Outcome.RETURN for event in events)
    assert client.server.unacked(1) == 0
    assert [type(each) for _, each in client.heard()] == ([] if is_async else [Basic.RecoverOk])


def test_the_count_of_deliveries_joins_the_publishers_headers() -> None:
    """And replaces one that came with the message, which was another broker's."""
    for headers, expected in (
        (None, {"x-delivery-count": 3}),
        ({"k": "v"}, {"k": "v", "x-delivery-count": 3}),
        ({"x-delivery-count": 99, "k": 1}, {"x-delivery-count": 3, "k": 1}),
    ):
        properties = Properties(headers=headers, delivery_mode=2, message_id="m")
        stored = content(5, b"", properties)
        ((channel, head),) = parse(with_delivery_count(stored, 3))
        assert isinstance(head, header.ContentHeader)
        assert channel == 5
        assert head.properties.headers == expected
        assert (head.properties.delivery_mode, head.properties.message_id) == (2, "m")
