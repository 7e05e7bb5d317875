"""Questions of a client, answers of the broker, and who hears what."""

from __future__ import annotations

import pytest
from pamqp import base, commands

from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import (
    Cancel,
    ChannelClosed,
    ConnectionClosed,
    Consume,
    Publish,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from tests.reference_broker.amqp.test_amqp_bad_input import settle
from tests.reference_broker.amqp.testing import ScriptedClient, method, publish, raw_frame

Basic, Queue = commands.Basic, commands.Queue


def opened(*capabilities: str, channels: int = 1) -> ScriptedClient:
    client = ScriptedClient()
    client.open(channels=channels, capabilities=capabilities)
    return client


def names(client: ScriptedClient) -> list[tuple[int, str]]:
    return [(number, each.name) for number, each in client.heard()]


def fields(method: object) -> dict[str, object]:
    assert isinstance(method, base.Frame)
    return dict(method)


def test_queue_declare() -> None:
    """Every argument reaches the broker as it was sent, and the answer the client."""
    client = opened()
    arguments = {"x-queue-type": "quorum", "x-max-length": 5, "nested": {"a": [1, None, True]}}
    (event,) = client.send(1, Queue.Declare(0, "q", False, True, False, False, False, arguments))
    assert event == QueueDeclare(1, "q", False, True, False, False, False, arguments)
    client.server.queue_declare_ok(1, "q", 3, 2)
    ((_, answer),) = client.heard()
    assert fields(answer) == {"queue": "q", "message_count": 3, "consumer_count": 2}


def test_any_name_a_client_chose_can_be_answered() -> None:
    """RabbitMQ allows blanks and umlauts in queue names, so clients use them."""
    client = opened()
    name = "späte Aufträge (2)\u3000!"
    octets = b"\x00\x32\x00\x0a\x00\x00" + bytes([len(name.encode())]) + name.encode() + b"\x02\x00\x00\x00\x00"
    (event,) = client.raw(b"\x01\x00\x01" + len(octets).to_bytes(4, "big") + octets + b"\xce")
    assert isinstance(event, QueueDeclare)
    assert event.queue == name
    client.server.queue_declare_ok(1, name, 0, 0)
    ((_, answer),) = client.heard()
    assert fields(answer)["queue"] == name


def test_nowait_asks_for_no_answer() -> None:
    """An answer nobody waits for is taken by the client for the answer to its next question."""
    client = opened()
    client.send(1, Queue.Declare(0, "a", nowait=True), Queue.Declare(0, "b"), Queue.Purge(0, "a", nowait=True))
    client.send(1, Queue.Delete(0, "a", nowait=True), commands.Confirm.Select(nowait=True))
    client.send(1, Basic.Consume(0, "b", "c", nowait=True))
    server = client.server
    server.queue_declare_ok(1, "b", 0, 0)
    server.queue_declare_ok(1, "b", 0, 0)
    server.queue_purge_ok(1, 0)
    server.queue_delete_ok(1, 0)
    server.consume_ok(1, "c")
    ((_, answer),) = client.heard()
    assert fields(answer)["queue"] == "b"
    assert client.send(1, Basic.Cancel("c", nowait=True)) == [Cancel(1, "c", True)]
    server.cancel_ok(1, "c")
    assert client.heard() == []


def test_purge_and_delete() -> None:
    """Counts come back, flags go in."""
    client = opened()
    assert client.send(1, Queue.Purge(0, "q")) == [QueuePurge(1, "q", False)]
    client.server.queue_purge_ok(1, 17)
    assert client.send(1, Queue.Delete(0, "q", True, False)) == [QueueDelete(1, "q", True, False, False)]
    client.server.queue_delete_ok(1, 4)
    assert [fields(answer) for _, answer in client.heard()] == [{"message_count": 17}, {"message_count": 4}]


def test_no_name_means_the_queue_last_declared_here() -> None:
    """The idiom for server-named queues: declare, then consume without knowing the name."""
    client = opened(channels=2)
    (declared,) = client.send(1, Queue.Declare(0, ""))
    assert isinstance(declared, QueueDeclare)
    assert declared.queue == ""
    client.server.queue_declare_ok(1, "amq.gen-1", 0, 0)
    (consume,) = client.send(1, Basic.Consume(0, "", "c"))
    (passive,) = client.send(1, Queue.Declare(0, "", passive=True))
    assert isinstance(consume, Consume)
    assert isinstance(passive, QueueDeclare)
    assert (consume.queue, passive.queue) == ("amq.gen-1", "amq.gen-1")
    client.send(2, Queue.Purge(0, ""))
    assert client.events[-1] == ChannelClosed(2), "another channel declared nothing"


def test_consume_and_cancel() -> None:
    """Prefetch is the channel's at the time of basic.consume, and later changes do not touch it."""
    client = opened()
    client.send(1, Basic.Qos(0, 10, False))
    (event,) = client.send(1, Basic.Consume(0, "q", "c", False, True, True, False, {"x-priority": 5}))
    assert event == Consume(1, "q", "c", True, True, False, 10, {"x-priority": 5})
    client.server.consume_ok(1, "c")
    client.send(1, Basic.Qos(0, 0, False))
    (second,) = client.send(1, Basic.Consume(0, "q", ""))
    assert isinstance(second, Consume)
    assert second.prefetch == 0
    assert second.consumer_tag.startswith("amq.ctag-")
    client.server.consume_ok(1, second.consumer_tag)
    assert client.send(1, Basic.Cancel("c")) == [Cancel(1, "c", False)]
    client.server.cancel_ok(1, "c")
    assert names(client) == [
        (1, "Basic.QosOk"),
        (1, "Basic.ConsumeOk"),
        (1, "Basic.QosOk"),
        (1, "Basic.ConsumeOk"),
        (1, "Basic.CancelOk"),
    ]


def test_generated_tags_differ_on_all_channels() -> None:
    """Java's recovery knows the consumers of a connection by their tags alone, and lost all but one of each tag."""
    client = opened(channels=2)
    events = [event for channel in (1, 1, 2, 2) for event in client.send(channel, Basic.Consume(0, "q", ""))]
    assert len({event.consumer_tag for event in events if isinstance(event, Consume)}) == 4


def test_cancel_of_nobody_succeeds() -> None:
    """As in RabbitMQ: the wish is fulfilled. It must not wait for a broker that knows nothing of it."""
    client = opened()
    assert client.send(1, Basic.Cancel("nobody")) == []
    assert names(client) == [(1, "Basic.CancelOk")]


def test_a_tag_may_be_used_again_right_after_its_cancel() -> None:
    """A client that pipelines cancel and consume has broken no rule."""
    for nowait, expected in [
        (True, [(1, "Basic.ConsumeOk")]),
        (False, [(1, "Basic.CancelOk"), (1, "Basic.ConsumeOk")]),
    ]:
        client = opened()
        client.consume(tag="c")
        (event,) = client.server.receive(method(1, Basic.Cancel("c", nowait=nowait), Basic.Consume(0, "q", "c")), 0.0)
        assert event == Cancel(1, "c", nowait)
        client.server.hold(1)
        assert client.server.go_on() == []
        client.server.cancel_ok(1, "c")
        client.server.release(1)
        assert [type(event) for event in client.server.go_on()] == [Consume]
        client.server.consume_ok(1, "c")
        assert names(client) == expected
    (event,) = client.send(1, Basic.Cancel("c"))
    assert event == Cancel(1, "c", False)


def test_broker_cancels_only_towards_clients_that_understand() -> None:
    """A queue was deleted: basic.cancel to a client that never announced it would be a protocol error there."""
    for capabilities, expected in [(("consumer_cancel_notify",), [(1, "Basic.Cancel")]), ((), [])]:
        client = opened(*capabilities)
        client.consume(tag="c")
        client.server.cancelled_by_broker(1, "c")
        client.server.cancelled_by_broker(1, "c")
        assert names(client) == expected
        client.send(1, Basic.CancelOk("c"))
        client.consume(tag="c")


def test_broker_cancel_meets_the_clients_own() -> None:
    """The client waits for cancel-ok, or for nothing, whoever was first."""
    for nowait, expected in [(False, [(1, "Basic.CancelOk")]), (True, [])]:
        client = opened("consumer_cancel_notify")
        client.consume(tag="c")
        client.send(1, Basic.Cancel("c", nowait))
        client.server.cancelled_by_broker(1, "c")
        client.server.cancel_ok(1, "c")
        assert names(client) == expected


def test_blocked_is_told_to_who_understands() -> None:
    """Clients show the reason of a memory or disk alarm."""
    for capabilities, expected in [
        (("connection.blocked",), [(0, "Connection.Blocked"), (0, "Connection.Unblocked")]),
        ((), []),
    ]:
        client = opened(*capabilities)
        client.server.blocked("low on disk")
        client.server.unblocked()
        assert names(client) == expected


def test_broker_refuses_a_question() -> None:
    """channel_error names code, text and method, and ends the channel with its last confirms told."""
    client = opened(channels=2)
    client.send(1, commands.Confirm.Select())
    client.raw(publish(1, "q", b"x") * 3)
    client.server.confirm(1, 1, 3)
    client.send(1, Queue.Declare(0, "missing", passive=True))
    client.output()
    events = client.server.channel_error(1, 404, "no queue 'missing' in vhost '/'", "queue.declare")
    assert events == [ChannelClosed(1)]
    (_, confirm), (number, close) = client.heard()
    assert fields(confirm) == {"delivery_tag": 3, "multiple": True}
    assert (number, fields(close)) == (
        1,
        {
            "reply_code": 404,
            "reply_text": "NOT_FOUND - no queue 'missing' in vhost '/'",
            "class_id": 50,
            "method_id": 10,
        },
    )
    assert client.server.channel_error(1, 404, "again", "queue.declare") == []
    server = client.server
    for late in (
        lambda: server.queue_declare_ok(1, "q", 0, 0),
        lambda: server.queue_declare_ok(2, "q", 0, 0),
        lambda: server.consume_ok(1, "c"),
        lambda: server.confirm(1, 1, 3),
        lambda: server.reject(9, 1, 3),
        server.flush_confirms,
    ):
        late()
    assert client.output() == b"", "answers that come too late fall silent"


def test_node_stops() -> None:
    """Clients are told to reconnect elsewhere."""
    client = opened(channels=2)
    assert client.server.connection_error(320, "node stops") == [ChannelClosed(1), ChannelClosed(2)]
    assert client.server.connection_error(320, "again") == []
    ((_, close),) = client.heard()
    assert fields(close)["reply_text"] == "CONNECTION_FORCED - node stops"


def test_node_stops_in_the_middle_of_a_frame() -> None:
    """The client's answer is found behind, or instead of, what it had begun to send."""
    client = opened()
    client.raw(b"\x03\x00\x01\x00\x01\x00\x00begun")
    client.server.connection_error(320, "node stops")
    (closed,) = client.send(0, commands.Connection.CloseOk())
    assert closed == ConnectionClosed("320 CONNECTION_FORCED - node stops")


def test_confirms_of_several_channels() -> None:
    """One flush serves all channels, each with its own numbers."""
    client = opened(channels=3)
    for channel in (1, 3):
        client.send(channel, commands.Confirm.Select())
        client.raw(publish(channel, "q", b"x") * 4)
    client.output()
    server: ServerConnection = client.server
    server.confirm(1, 1, 4)
    server.confirm(2, 1, 4)
    server.reject(3, 1, 1)
    server.confirm(3, 2, 2)
    assert client.output() == b""
    server.flush_confirms()
    said = [(number, each.name, *fields(each).values()) for number, each in client.heard()]
    assert said == [
        (1, "Basic.Ack", 4, True),
        (3, "Basic.Ack", 2, False),
        (3, "Basic.Nack", 1, False, False),
    ]
    assert (server.unconfirmed(1), server.unconfirmed(3), server.unconfirmed(2)) == (0, 2, 0)


def test_mandatory_reaches_the_broker() -> None:
    """The flag decides whether an unroutable message comes back or vanishes."""
    client = opened()
    events = client.raw(publish(1, "q", b"x") + publish(1, "q", b"x", mandatory=True))
    assert [event.mandatory for event in events if isinstance(event, Publish)] == [False, True]


CLOSES = {
    "channel": (settle(42), commands.Channel.Close),
    "channel, by a content header": (
        publish(1, "q", b"x", Basic.Properties(expiration="soon")),
        commands.Channel.Close,
    ),
    "connection": (raw_frame(9, 1, b"nonsense"), commands.Connection.Close),
    "client": (method(0, commands.Connection.Close(200, "bye", 0, 0)), commands.Connection.CloseOk),
}


@pytest.mark.parametrize("name", CLOSES)
def test_a_message_is_returned_before_the_close_that_was_read_with_it(name: str) -> None:
    """Nothing follows a close: a publisher would never hear of a message that nobody got."""
    octets, close = CLOSES[name]
    client = ScriptedClient()
    client.open()
    events = client.server.receive(publish(1, "nowhere", b"m", mandatory=True) + octets, 0.0)
    (published,) = (event for event in events if isinstance(event, Publish))
    client.server.returned(1, 312, "NO_ROUTE", "", "nowhere", published.run)
    while client.server.has_more:
        client.server.go_on()
    kinds = [type(heard) for _channel, heard in client.heard()]
    assert kinds[0] is Basic.Return and kinds[-1] is close
