"""What a client must never do, case by case, and the answer it gets: one close method with the right code."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest
from pamqp import body, commands

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import ChannelClosed, ConnectionClosed, Publish
from reference_broker.amqp.gate import GUEST, FixedUsers
from tests.reference_broker.amqp.testing import PROTOCOL_HEADER, ScriptedClient, method, publish, raw_frame

Basic, Queue, Exchange = commands.Basic, commands.Queue, commands.Exchange
SETTLE = struct.Struct(">BHIHHQBB")


def settle(tag: int, number: int = 80, bits: int = 0, channel: int = 1) -> bytes:
    return SETTLE.pack(1, channel, 13, 60, number, tag, bits, 0xCE)


def publish_method(payload: bytes = b"") -> bytes:
    return raw_frame(1, 1, struct.pack(">HH", 60, 40) + (payload or b"\x00\x00\x00\x01q\x00"))


def content_header(payload: bytes, class_id: int = 60, size: int = 5, weight: int = 0) -> bytes:
    return raw_frame(2, 1, struct.pack(">HHQ", class_id, weight, size) + payload)


def table(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def declare(arguments: bytes) -> bytes:
    return raw_frame(1, 1, struct.pack(">HHH", 50, 10, 0) + b"\x01q\x00" + arguments)


def nested(depth: int) -> bytes:
    octets = b""
    for _ in range(depth):
        octets = b"\x01a" + b"F" + table(octets)
    return table(octets)


PUBLISHED = publish_method()
PLAIN_HEADER = content_header(b"\x00\x00")
BODY = raw_frame(3, 1, b"hello")
CONSUME_A = method(1, Basic.Consume(0, "q", "a", False, False, False, False, {}))


@dataclass(frozen=True)
class Case:
    """``octets`` on an open channel 1 lead to a close with ``code`` that blames ``blamed`` (class, method)."""

    name: str
    octets: bytes
    code: int
    blamed: tuple[int, int] = (0, 0)
    text: str = ""


CONNECTION_CASES = [
    Case("frame_bad_end", raw_frame(1, 1, b"\x00\x3c\x00\x0a" + bytes(7), end=0), 501, text="0xce"),
    Case("frame_oversize", raw_frame(3, 1, bytes(131_073)), 501, text="larger"),
    Case("frame_length_4gib", b"\x03\x00\x01\xff\xff\xff\xff", 501, text="4294967295"),
    Case("frame_type_unknown", raw_frame(9, 1, b"abcd"), 501, text="type 9"),
    Case("method_frame_of_two_octets", raw_frame(1, 1, b"\x00\x3c"), 501),
    Case("heartbeat_on_channel_1", raw_frame(8, 1, b""), 505),
    Case("heartbeat_with_payload", raw_frame(8, 0, b"x"), 501),
    Case("content_on_channel_0", raw_frame(3, 0, b"x"), 505),
    Case("body_without_header", BODY, 505, text="expected method frame"),
    Case("header_without_method", PLAIN_HEADER, 505, text="expected method frame"),
    Case("body_where_header_due", PUBLISHED + BODY, 505, (60, 40), "expected content header"),
    Case("method_where_header_due", PUBLISHED + PUBLISHED, 505, (60, 40), "expected content header"),
    Case("method_where_body_due", PUBLISHED + PLAIN_HEADER + PUBLISHED, 505, (60, 40), "expected content body"),
    Case("ack_where_body_due", PUBLISHED + PLAIN_HEADER + settle(1), 505, (60, 40), "expected content body"),
    Case("header_where_body_due", PUBLISHED + PLAIN_HEADER + PLAIN_HEADER, 505, (60, 40), "expected content body"),
    Case("header_wrong_class", PUBLISHED + content_header(b"\x00\x00", class_id=50), 505, (60, 40), "class 50"),
    Case("header_with_weight", PUBLISHED + content_header(b"\x00\x00", weight=1), 505, (60, 40), "weight 1"),
    Case("header_of_three_octets", PUBLISHED + raw_frame(2, 1, b"\x00\x3c\x00"), 501, (60, 40), "cut short"),
    Case("body_too_long", PUBLISHED + PLAIN_HEADER + raw_frame(3, 1, b"hello!"), 501, (60, 40), "longer"),
    Case("body_after_empty_content", PUBLISHED + content_header(b"\x00\x00", size=0) + BODY, 505),
    Case("header_truncated_properties", PUBLISHED + content_header(b"\x80\x00\x20abc"), 501, (60, 40), "cut short"),
    Case(
        "header_without_its_mode", PUBLISHED + content_header(b"\x10\x00"), 501, (60, 40), "delivery-mode is cut short"
    ),
    Case("header_without_its_expiration", PUBLISHED + content_header(b"\x01\x00"), 501, (60, 40), "expiration is cut"),
    Case("header_without_its_user", PUBLISHED + content_header(b"\x00\x10"), 501, (60, 40), "user-id is cut short"),
    Case("header_with_half_a_user", PUBLISHED + content_header(b"\x00\x10\x05gue"), 501, (60, 40), "user-id is cut"),
    Case("header_without_properties", PUBLISHED + content_header(b"\x80\x00"), 501, (60, 40), "cut short"),
    Case("header_trailing_octets", PUBLISHED + content_header(b"\x00\x00JUNK"), 501, (60, 40), "4 octets after"),
    Case("header_second_flag_word", PUBLISHED + content_header(b"\x00\x01\x00\x00"), 501, (60, 40), "undefined"),
    Case(
        "header_bad_table", PUBLISHED + content_header(b"\x20\x00" + table(b"\x01aZ")), 501, (60, 40), "unknown field"
    ),
    Case("method_unknown_class", raw_frame(1, 1, struct.pack(">HH", 99, 1)), 503, (99, 1)),
    Case("method_unknown_number", raw_frame(1, 1, struct.pack(">HH", 60, 99)), 503, (60, 99)),
    Case("method_truncated", raw_frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\x20abc"), 501, (50, 10), "cut short"),
    Case("publish_truncated", publish_method(b"\x00\x00\x20abc"), 501, (60, 40), "cut short"),
    Case("method_trailing", raw_frame(1, 1, struct.pack(">HHIHBx", 60, 10, 0, 1, 0) + b"JUNK"), 501, (60, 10), "after"),
    Case("publish_trailing", publish_method(b"\x00\x00\x00\x01q\x00JUNK"), 501, (60, 40), "after"),
    Case("ack_with_trailing_octet", raw_frame(1, 1, struct.pack(">HHQB", 60, 80, 1, 0) + b"x"), 501, (60, 80)),
    Case("table_unknown_type", declare(table(b"\x01aZ")), 501, (50, 10), "unknown field type"),
    Case("table_longer_than_method", declare(struct.pack(">I", 1000)), 501, (50, 10), "cut short"),
    Case("table_string_beyond_table", declare(table(b"\x01aS\x00\x00\x01\x00x")), 501, (50, 10), "cut short"),
    Case("table_array_beyond_table", declare(table(b"\x01aA\x00\x00\x01\x00x")), 501, (50, 10), "cut short"),
    Case("table_field_without_value", declare(table(b"\x01a")), 501, (50, 10), "without a value"),
    Case("table_name_not_utf8", declare(table(b"\x01\xfft\x01")), 501, (50, 10), "UTF-8"),
    Case("table_nested_too_deep", declare(nested(101)), 501, (50, 10), "nested"),
    Case("table_nested_absurdly", declare(nested(5000)), 501, (50, 10), "nested"),
    Case("table_too_many_fields", declare(table(b"\x01aV" * 5000)), 501, (50, 10), "fields"),
    Case("table_year_beyond_python", declare(table(b"\x01aT" + b"\xff" * 8)), 501, (50, 10), "out of range"),
    Case("shortstr_not_utf8", raw_frame(1, 1, b"\x00\x3c\x00\x1e\x02\xff\xfe\x00"), 501, (60, 30), "UTF-8"),
    Case("method_from_server_side", method(1, Basic.Deliver("c", 1, False, "", "q")), 503, (60, 60)),
    Case("connection_method_from_server_side", method(0, commands.Connection.Blocked("no")), 504, (10, 60)),
    Case("connection_method_on_channel_1", method(1, commands.Connection.Open("/")), 503, (10, 40)),
    Case("channel_method_on_channel_0", method(0, Basic.Qos(0, 1, False)), 504, (60, 10)),
    Case("channel_not_open", method(7, Basic.Qos(0, 1, False)), 504, (60, 10), "expected 'channel.open'"),
    Case("content_on_channel_not_open", raw_frame(3, 7, b"x"), 505, text="not open"),
    Case("channel_open_twice", method(1, commands.Channel.Open()), 504, (20, 10), "second 'channel.open'"),
    Case("channel_flow_off", method(1, commands.Channel.Flow(False)), 540, (20, 20), "active=false"),
    Case(
        "start_ok_twice",
        method(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")),
        504,
        (10, 11),
        "unexpected method",
    ),
    Case("channel_close_ok_of_nothing", method(1, commands.Channel.CloseOk()), 503, (20, 41), "has not closed"),
    Case("channel_close_ok_never_opened", method(7, commands.Channel.CloseOk()), 504, (20, 41), "'channel.open'"),
    Case("publish_immediate", publish_method(b"\x00\x00\x00\x01q\x02"), 540, (60, 40), "immediate=true"),
    Case("qos_prefetch_size", method(1, Basic.Qos(1000, 1, False)), 540, (60, 10), "prefetch_size!=0 (1000)"),
    Case("consume_same_tag", CONSUME_A + CONSUME_A, 530, (60, 20), "attempt to reuse consumer tag 'a'"),
    Case("exchange_type", method(1, Exchange.Declare(0, "x", "moon")), 503, (40, 10), "unknown exchange type 'moon'"),
    Case("recover_no_requeue", method(1, Basic.Recover(False)), 540, (60, 110), "requeue=false"),
    Case("recover_async_no_requeue", raw_frame(1, 1, b"\x00\x3c\x00\x64\x00"), 540, (60, 100), "requeue=false"),
    Case("get_truncated", raw_frame(1, 1, b"\x00\x3c\x00\x46\x00\x00\x20q"), 501, (60, 70), "cut short"),
    Case("get_ok_from_a_client", method(1, Basic.GetEmpty()), 503, (60, 72)),
]

CHANNEL_CASES = [
    Case("tx_commit", method(1, commands.Tx.Commit()), 406, (90, 20), "channel is not transactional"),
    Case("tx_rollback", method(1, commands.Tx.Rollback()), 406, (90, 30), "channel is not transactional"),
    Case(
        "bind_no_queue", method(1, Queue.Bind(0, "", "amq.direct", "k")), 404, (50, 20), "no previously declared queue"
    ),
    Case("publish_134m", PUBLISHED + content_header(b"\x00\x00", size=134_217_729), 406, (60, 40), "134217729"),
    Case("header_huge_size", PUBLISHED + content_header(b"\x00\x00", size=2**64 - 1), 406, (60, 40), "larger than"),
    Case(
        "publish_wrong_user_id",
        publish(1, "q", b"x", Basic.Properties(user_id="root")),
        406,
        (60, 40),
        "user_id property set to 'root' but authenticated user was 'guest'",
    ),
    Case(
        "publish_bad_expiration",
        publish(1, "q", b"x", Basic.Properties(expiration="soon")),
        406,
        (60, 40),
        "invalid expiration 'soon': no_integer",
    ),
    Case(
        "publish_fractional_expiration",
        publish(1, "q", b"x", Basic.Properties(expiration="1.5")),
        406,
        (60, 40),
        "invalid expiration '1.5': {leftover_string,\".5\"}",
    ),
    Case(
        "publish_expiration_of_a_century",
        publish(1, "q", b"x", Basic.Properties(expiration="3153600000000")),
        406,
        (60, 40),
        "{value_too_large,3153600000000}",
    ),
    Case("publish_empty_expiration", PUBLISHED + content_header(b"\x01\x00\x00") + BODY, 406, (60, 40), "no_integer"),
    Case("get_no_last_queue", method(1, Basic.Get(0, "")), 404, (60, 70), "no previously"),
    Case("publish_negative_expiration", publish(1, "q", b"", Basic.Properties(expiration="-1")), 406, (60, 40)),
    Case(
        "publish_odd_delivery_mode",
        PUBLISHED + content_header(b"\x10\x00\x4d") + BODY,
        406,
        (60, 40),
        "delivery mode 77",
    ),
    Case("bad_mode_in_a_long_content", PUBLISHED + content_header(b"\x10\x00\x4d", size=200_000), 406, (60, 40)),
    Case("ack_unknown", settle(42), 406, (60, 80), "unknown delivery tag 42"),
    Case("ack_of_tag_0", settle(0), 406, (60, 80), "unknown delivery tag 0"),
    Case("ack_multiple_unknown", settle(42, bits=1), 406, (60, 80), "unknown delivery tag 42"),
    Case(
        "ack_of_a_negative_looking_tag", settle(2**64 - 1), 406, (60, 80), "unknown delivery tag 18446744073709551615"
    ),
    Case("many_acks_unknown", b"".join(settle(tag) for tag in range(1, 40)), 406, (60, 80), "unknown delivery tag 1"),
    Case(
        "acks_that_wrap_around",
        b"".join(settle(tag % 2**64) for tag in range(2**64 - 2, 2**64 + 30)),
        406,
        (60, 80),
        "unknown delivery tag 18446744073709551614",
    ),
    Case("reject_unknown", settle(3, 90, 1), 406, (60, 90), "unknown delivery tag 3"),
    Case("nack_unknown", settle(3, 120, 2), 406, (60, 120), "unknown delivery tag 3"),
    Case(
        "queue_reserved_name",
        method(1, Queue.Declare(0, "amq.mine")),
        403,
        (50, 10),
        "queue name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    Case("consume_no_last_queue", method(1, Basic.Consume(0, "", "t")), 404, (60, 20), "no previously"),
    Case("purge_no_last_queue", method(1, Queue.Purge(0, "")), 404, (50, 30), "no previously"),
    Case("delete_no_last_queue", method(1, Queue.Delete(0, "")), 404, (50, 40), "no previously"),
]


def feed(client: ScriptedClient, octets: bytes, step: int) -> None:
    for at in range(0, len(octets), step):
        client.raw(octets[at : at + step])


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["octet_by_octet", "whole"])
@pytest.mark.parametrize("case", CONNECTION_CASES, ids=lambda case: case.name)
def test_hard_error_closes_the_connection_with_its_code(case: Case, step: int) -> None:
    """A client whose connection dies without a code cannot tell its bug from a broken network."""
    client = ScriptedClient()
    client.open(channels=2)
    feed(client, case.octets, step if len(case.octets) < 2000 else 997)
    *answers, (number, close) = client.heard()
    assert all(isinstance(each, Basic.QosOk) for _, each in answers)
    assert isinstance(close, commands.Connection.Close)
    assert (number, close.reply_code, (close.class_id, close.method_id)) == (0, case.code, case.blamed)
    assert case.text in close.reply_text
    assert client.events.count(ChannelClosed(1)) == client.events.count(ChannelClosed(2)) == 1
    assert not client.server.is_open
    assert not any(isinstance(event, ConnectionClosed) for event in client.events)
    client.raw(publish(2, "q", b"too late"))
    closed = client.send(0, commands.Connection.CloseOk())
    assert [type(event) for event in closed] == [ConnectionClosed]
    assert client.output() == b""


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["octet_by_octet", "whole"])
@pytest.mark.parametrize("case", CHANNEL_CASES, ids=lambda case: case.name)
def test_soft_error_closes_its_channel_and_nothing_else(case: Case, step: int) -> None:
    """One wrong ack must not take the other channels of an application down."""
    client = ScriptedClient()
    client.open(channels=2)
    feed(client, case.octets, step)
    (number, close), *more = client.heard()
    assert isinstance(close, commands.Channel.Close)
    assert not more
    assert (number, close.reply_code, (close.class_id, close.method_id)) == (1, case.code, case.blamed)
    assert case.text in close.reply_text
    assert client.events == [ChannelClosed(1)]
    assert client.server.open_channels == (2,)
    client.send(2, Basic.Qos(0, 10, False))
    assert [type(each) for _, each in client.heard()] == [Basic.QosOk]


def test_everything_is_dropped_on_a_closing_channel_until_its_close_ok() -> None:
    """A client with a full pipeline reads the close late: what it sent meanwhile must neither count nor confuse."""
    client = ScriptedClient()
    client.open(channels=2)
    client.raw(settle(42))
    client.output()
    client.events.clear()
    client.raw(publish(1, "q", b"x") * 3 + settle(1) + raw_frame(3, 1, b"loose body") + CONSUME_A)
    client.raw(raw_frame(1, 1, struct.pack(">HH", 99, 99)))
    assert (client.output(), client.events) == (b"", [])
    client.raw(method(1, commands.Channel.CloseOk()) + method(1, commands.Channel.Open()))
    assert [type(each) for _, each in client.heard()] == [commands.Channel.OpenOk]
    client.raw(publish(1, "q", b"x"))
    assert len(client.events) == 1


def test_channel_close_crossing_ours_is_answered() -> None:
    """Both sides close at once: a client that waits for its close-ok must get it."""
    client = ScriptedClient()
    client.open()
    client.raw(settle(42) + method(1, commands.Channel.Close(200, "bye", 0, 0)))
    assert [type(each) for _, each in client.heard()] == [commands.Channel.Close, commands.Channel.CloseOk]
    assert client.events == [ChannelClosed(1)]
    client.send(1, commands.Channel.CloseOk())
    client.send(1, commands.Channel.Open())
    assert client.server.open_channels == (1,)


@pytest.mark.parametrize("closed_by", [settle(42), method(1, commands.Channel.Close(200, "bye", 0, 0))])
def test_a_close_ok_for_a_channel_that_is_closed_is_out_of_place(closed_by: bytes) -> None:
    """A client that counts its channels wrongly hears of it, as from RabbitMQ: the next one to open that channel would
    wonder more."""
    client = ScriptedClient()
    client.open()
    client.raw(closed_by)
    if isinstance(client.heard()[-1][1], commands.Channel.Close):
        client.send(1, commands.Channel.CloseOk())
    assert client.heard() == []
    client.send(1, commands.Channel.CloseOk())
    ((number, close),) = client.heard()
    assert isinstance(close, commands.Connection.Close)
    assert (number, close.reply_code, (close.class_id, close.method_id)) == (0, 504, (20, 41))


def test_connection_close_crossing_ours_is_answered() -> None:
    """As above, for the connection."""
    client = ScriptedClient()
    client.open()
    client.raw(raw_frame(9, 0, b"") + method(0, commands.Connection.Close(200, "bye", 0, 0)))
    assert [type(each) for _, each in client.heard()] == [commands.Connection.Close, commands.Connection.CloseOk]
    assert [type(event) for event in client.events] == [ChannelClosed, ConnectionClosed]


def test_client_that_never_answers_our_close_is_dropped() -> None:
    """A socket nobody closes is a descriptor lost."""
    client = ScriptedClient()
    client.open()
    client.raw(raw_frame(9, 0, b""))
    deadline = client.config.close_timeout_s
    assert client.tick(deadline - 0.1) == []
    (closed,) = client.tick(deadline)
    assert isinstance(closed, ConnectionClosed)
    assert closed.reason.startswith("501 FRAME_ERROR")


def test_channel_max_bounds_open_channels_not_their_numbers() -> None:
    """A client may number its channels as it likes, but not open more than agreed."""
    client = ScriptedClient(ConnectionConfig(channel_max=3))
    client.open(channels=2)
    client.send(65_535, commands.Channel.Open())
    assert [type(each) for _, each in client.heard()] == [commands.Channel.OpenOk]
    client.send(3, commands.Channel.Open())
    ((_, close),) = client.heard()
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 530


def test_acks_before_the_wrong_one_count() -> None:
    """The broker must not redeliver what was acknowledged before the client's mistake."""
    client = ScriptedClient()
    client.open()
    client.consume()
    run = client.raw(publish(1, "q", b"x") * 40)[0].run  # type: ignore[union-attr]
    client.server.deliver(1, "c", 100, [(run, 0, 40, 1)], 0)
    client.output()
    events = client.raw(b"".join(settle(tag) for tag in [*range(1, 31), 30, *range(31, 41)]))
    assert [getattr(event, "ranges", None) for event in events] == [((100, 129),), None]
    assert isinstance(events[1], ChannelClosed)
    ((_, close),) = client.heard()
    assert isinstance(close, commands.Channel.Close)
    assert "unknown delivery tag 30" in close.reply_text


def test_announced_length_allocates_nothing() -> None:
    """A hundred clients that each announce 128 MiB must not cost 12.5 GiB."""
    client = ScriptedClient()
    client.open()
    client.raw(PUBLISHED + content_header(b"\x00\x00", size=128 * 1024 * 1024))
    partial = client.server._channels[1].content
    assert partial is not None
    assert sum(map(len, partial.frames)) < 100


@pytest.mark.parametrize("count", [1, 3], ids=["one message", "a run"])
def test_a_frame_may_be_larger_by_its_overhead(count: int) -> None:
    """AmqpStorm cuts bodies at frame_max octets, and RabbitMQ takes these frames. A consumer gets smaller ones."""
    client = ScriptedClient(ConnectionConfig(frame_max=4096))
    client.open()
    client.consume(tag="c")
    payload = bytes(range(256)) * 40
    events = client.raw(publish(1, "q", payload, step=4096) * count)
    runs = [event.run for event in events if isinstance(event, Publish)]
    assert sum(run.count for run in runs) == count
    client.heard()
    client.server.deliver(1, "c", 1, [(run, 0, run.count, 1) for run in runs], 0)
    frames = [each for _, each in client.heard() if isinstance(each, body.ContentBody)]
    assert b"".join(each.value or b"" for each in frames) == payload * count
    assert max(len(each.value or b"") for each in frames) == 4088
    client.raw(publish(1, "q", payload, step=4097))
    ((_, closed),) = client.heard()
    assert isinstance(closed, commands.Connection.Close) and closed.reply_code == ReplyCode.FRAME_ERROR


def test_a_message_in_tiny_frames_is_stored_in_large_ones() -> None:
    """Framing of eight octets for each octet of body would be stored three times and sent to every consumer."""
    client = ScriptedClient(ConnectionConfig(frame_max=4096))
    client.open()
    payload = bytes(range(256)) * 20
    (event,) = client.raw(publish(1, "q", payload, step=1))
    stored = event.run.content(0)  # type: ignore[union-attr]
    assert len(stored) < len(payload) + 100
    assert stored[22:].count(b"\xce\x03\x00\x01") <= 2


@pytest.mark.parametrize(
    "octets", [b"GET / HTTP/1.1\r\n", b"AMQP\x00\x01\x00\x00", b"AMQX", b"\x16\x03\x01\x02\x00", b"X"]
)
def test_wrong_protocol_gets_our_header_and_the_door(octets: bytes) -> None:
    """A client of AMQP 1.0 learns from the header which protocol would have worked."""
    client = ScriptedClient()
    (closed,) = client.raw(octets)
    assert isinstance(closed, ConnectionClosed)
    assert client.output() == PROTOCOL_HEADER
    assert client.raw(octets) == []


def test_reply_text_cannot_forge_log_lines_nor_overflow() -> None:
    """Names come from clients and end up in logs and in short strings of 255 octets."""
    client = ScriptedClient()
    client.open()
    client.raw(method(1, Queue.Declare(0, "amq.x")).replace(b"amq.x", b"amq.\t"))
    ((_, close),) = client.heard()
    assert isinstance(close, commands.Channel.Close)
    assert "queue name 'amq.\\x09' contains" in close.reply_text
    client.send(1, commands.Channel.CloseOk())
    client.send(1, commands.Channel.Open())
    client.output()
    client.send(1, Queue.Declare(0, "amq." + "x" * 240))
    ((_, close),) = client.heard()
    assert isinstance(close, commands.Channel.Close)
    assert len(close.reply_text.encode()) <= 255


def test_a_user_may_stand_for_others_with_the_tag_for_it() -> None:
    """A gateway publishes for its users."""
    gate = Impersonator({"guest": "guest"})
    for allowed, expected in ((gate, Publish), (GUEST, ChannelClosed)):
        client = ScriptedClient(ConnectionConfig(gate=allowed))
        client.open()
        (event,) = client.raw(publish(1, "q", b"x", Basic.Properties(user_id="root")))
        assert isinstance(event, expected)


class Impersonator(FixedUsers):
    """A gate for users with the tag."""

    def may_impersonate(self, user: str) -> bool:
        return True


def test_the_contents_used_here_are_what_they_claim() -> None:
    """A table of broken octets proves nothing if the unbroken ones were refused too."""
    client = ScriptedClient()
    client.open()
    client.raw(PUBLISHED + PLAIN_HEADER + BODY)
    client.raw(PUBLISHED + content_header(b"\x00\x00", size=0))
    client.raw(declare(nested(99)))
    client.raw(raw_frame(1, 1, b"\x00\x3c\x00\x1e\x02\xc3\xa9\x00"))
    assert client.server.open_channels == (1,)
    assert [type(event).__name__ for event in client.events] == ["Publish", "Publish", "QueueDeclare"]
