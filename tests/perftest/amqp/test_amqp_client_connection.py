"""The client's protocol core: fast path and general path must tell the same story, whatever the cut of the octets."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header, heartbeat
from pamqp.commands import Basic

from perftest.amqp.connection import ClientConnection, HandshakeStage
from perftest.amqp.errors import BrokerProtocolError
from perftest.amqp.events import (
    Blocked,
    ChannelEnded,
    Confirms,
    ConnectionEnded,
    ConsumerCancelled,
    Delivery,
    DeliveryRun,
    Event,
    GetEmpty,
    Opened,
    Reply,
    Returned,
    Unblocked,
)
from perftest.amqp.methods import encode, method_name
from perftest.amqp.uri import AmqpUri

START = frame.marshal(commands.Connection.Start(0, 9, {"product": "x"}, "AMQPLAIN PLAIN", "en_US"), 0)
TUNE = frame.marshal(commands.Connection.Tune(2047, 131072, 10), 0)
OPEN_OK = frame.marshal(commands.Connection.OpenOk(), 0)


def running() -> ClientConnection:
    """A connection after its handshake."""
    connection = ClientConnection(AmqpUri(), name="test")
    assert connection.receive(START + TUNE + OPEN_OK) == [Opened({"product": "x"})]
    connection.take_output()
    return connection


def content(channel: int, octets: bytes, properties: Basic.Properties | None = None, piece: int = 131064) -> bytes:
    head = header.ContentHeader(body_size=len(octets), properties=properties or Basic.Properties(delivery_mode=2))
    pieces = [octets[at : at + piece] for at in range(0, len(octets), piece)]
    return frame.marshal(head, channel) + b"".join(frame.marshal(body.ContentBody(p), channel) for p in pieces)


def deliver(
    channel: int, tag: int, octets: bytes, *, redelivered: bool = False, key: str = "q", **more: object
) -> bytes:
    method = Basic.Deliver("ctag", tag, redelivered, "", key)
    return frame.marshal(method, channel) + content(channel, octets, **more)  # type: ignore[arg-type]


def stamped(channel: int, tag: int, octets: bytes, stamp: bytes, **more: object) -> bytes:
    """A delivery with a stamp in a header; pamqp encodes text only."""
    place = "?" * len(stamp)
    properties = Basic.Properties(headers={"a": 1, "perftest": place, "z": "end"})
    return deliver(channel, tag, octets, properties=properties, **more).replace(place.encode(), stamp)  # type: ignore[arg-type]


def flatten(events: list[Event]) -> list[object]:
    """Runs as single deliveries and confirms as (kind, tag), so that two ways of telling can be compared."""
    flat: list[object] = []
    for event in events:
        if isinstance(event, DeliveryRun):
            for index, row in enumerate(event.bodies):
                again = bool(event.redelivered[index])
                stamp = None if event.stamps is None else event.stamps[index].tobytes()
                flat.append(Delivery(event.channel, event.first_tag + index, again, row.tobytes(), stamp))
        elif isinstance(event, Confirms) and not event.multiple:
            flat += [(event.channel, event.nack, int(tag)) for tag in event.tags]
        elif isinstance(event, Confirms):
            flat.append((event.channel, event.nack, "to", int(event.tags[-1])))
        else:
            flat.append(event)
    return flat


def test_the_handshake_logs_in_and_opens_the_virtual_host() -> None:
    connection = ClientConnection(AmqpUri(user="me", password="sesame", vhost="v"), name="test")
    assert connection.take_output() == b"AMQP\0\0\x09\x01"
    assert connection.receive(START) == []
    _, channel, start_ok = frame.unmarshal(connection.take_output())
    assert isinstance(start_ok, commands.Connection.StartOk)
    assert (channel, start_ok.mechanism, start_ok.response) == (0, "PLAIN", "\0me\0sesame")
    capabilities = start_ok.client_properties["capabilities"]
    assert isinstance(capabilities, dict) and capabilities["authentication_failure_close"] is True
    assert connection.receive(TUNE) == []
    output = connection.take_output()
    taken, _, tune_ok = frame.unmarshal(output)
    assert isinstance(tune_ok, commands.Connection.TuneOk)
    assert (tune_ok.channel_max, tune_ok.frame_max, tune_ok.heartbeat) == (2047, 131072, 10)
    _, _, opened = frame.unmarshal(output[taken:])
    assert isinstance(opened, commands.Connection.Open) and opened.virtual_host == "v"
    assert connection.receive(OPEN_OK) == [Opened({"product": "x"})]


@pytest.mark.parametrize(
    ("handshake", "stage"), [(START, "tune"), (START + TUNE, "open"), (START + TUNE + OPEN_OK, "running")]
)
def test_a_refusal_says_at_which_stage_it_came(handshake: bytes, stage: str) -> None:
    """So that a wrong password and a wrong virtual host can be told apart."""
    connection = ClientConnection(AmqpUri(), name="test")
    connection.receive(handshake)
    connection.take_output()
    close = frame.marshal(commands.Connection.Close(403, "no", 50, 10), 0)
    assert connection.receive(close) == [ConnectionEnded(403, "no", "queue.declare", stage)]
    assert connection.take_output() == encode(0, commands.Connection.CloseOk())
    assert connection.stage is HandshakeStage.CLOSED


def test_cold_methods_become_events() -> None:
    connection = running()
    stream = b"".join(
        [
            frame.marshal(commands.Channel.OpenOk(), 1),
            frame.marshal(heartbeat.Heartbeat(), 0),
            frame.marshal(commands.Connection.Blocked("disk"), 0),
            frame.marshal(commands.Connection.Unblocked(), 0),
            frame.marshal(Basic.Cancel("ctag", True), 1),
            frame.marshal(Basic.GetEmpty(), 1),
            frame.marshal(Basic.GetOk(7, True, "", "q", 3), 1) + content(1, b"polled"),
            frame.marshal(commands.Channel.Close(406, "no", 50, 10), 1),
        ]
    )
    first, *others = connection.receive(stream)
    assert isinstance(first, Reply) and isinstance(first.method, commands.Channel.OpenOk)
    assert others == [
        Blocked("disk"),
        Unblocked(),
        ConsumerCancelled(1, "ctag"),
        GetEmpty(1),
        Delivery(1, 7, True, b"polled"),
        ChannelEnded(1, 406, "no", "queue.declare"),
    ]
    assert connection.take_output() == encode(1, commands.Channel.CloseOk())


def test_a_run_of_deliveries_is_one_event() -> None:
    """If runs fell apart, the generator would be ten times slower and nobody would see why."""
    stream = b"".join(deliver(1, tag, bytes([tag]) * 100) for tag in range(1, 51))
    events = running().receive(stream)
    assert [type(event) for event in events] == [DeliveryRun]
    assert flatten(events) == [Delivery(1, tag, False, bytes([tag]) * 100) for tag in range(1, 51)]


def test_stamps_in_headers_do_not_break_a_run() -> None:
    """They differ from message to message, as tags do."""
    stamps = [bytes([number, 200, *range(26)]) for number in range(50)]
    stream = b"".join(stamped(1, tag, b"{}", stamps[tag - 1]) for tag in range(1, 51))
    events = running().receive(stream)
    assert [type(event) for event in events] == [DeliveryRun]
    assert flatten(events) == [Delivery(1, tag, False, b"{}", stamps[tag - 1]) for tag in range(1, 51)]


@pytest.mark.parametrize("value", ["short", "x" * 29, 5, bytearray(28)])
def test_a_header_that_is_no_stamp_is_none(value: object) -> None:
    headers = {"perftest": value}
    stream = deliver(1, 1, b"x", properties=Basic.Properties(headers=headers)) * 2  # type: ignore[arg-type]
    general = deliver(1, 1, b"xyz", properties=Basic.Properties(headers=headers), piece=2)  # type: ignore[arg-type]
    assert [event.stamp for event in running().receive(stream) if isinstance(event, Delivery)] == [None, None]
    assert [event.stamp for event in running().receive(general) if isinstance(event, Delivery)] == [None]


def test_a_shorter_last_message_is_not_waited_on() -> None:
    """A lone small delivery after large ones is complete: it must not lie in the buffer until more comes."""
    connection = running()
    connection.receive(b"".join(deliver(1, tag, bytes(1000)) for tag in range(1, 10)))
    assert flatten(connection.receive(deliver(1, 10, b"small"))) == [Delivery(1, 10, False, b"small")]


def test_returned_messages_keep_their_body() -> None:
    method = frame.marshal(Basic.Return(312, "NO_ROUTE", "", "q"), 1)
    assert running().receive(method + content(1, b"abc")) == [Returned(1, 312, "NO_ROUTE", b"abc")]


CONFIRM = st.tuples(st.just("confirm"), st.booleans(), st.booleans(), st.integers(1, 40))
DELIVER = st.tuples(
    st.just("deliver"),
    st.integers(1, 2),
    st.sampled_from([0, 1, 5, 100]),
    st.booleans(),
    st.integers(1, 30),
    st.sampled_from([b"", b"", b"t", b"\xff"]),
)
OTHER = st.tuples(st.just("other"), st.integers(0, 3))


def stream_of(parts: list[tuple[object, ...]]) -> tuple[bytes, list[object]]:
    """Octets made by pamqp, and what they mean."""
    octets: list[bytes] = []
    meaning: list[object] = []
    tags = {1: 0, 2: 0}
    confirmed = 0
    for part in parts:
        match part:
            case ("confirm", bool(multiple), bool(nack), int(count)):
                for _ in range(count):
                    confirmed += 1
                    method = Basic.Nack(confirmed, multiple, False) if nack else Basic.Ack(confirmed, multiple)
                    octets.append(frame.marshal(method, 3))
                    if not multiple:
                        meaning.append((3, nack, confirmed))
                if multiple:
                    meaning.append((3, nack, "to", confirmed))
            case ("deliver", int(channel), int(size), bool(again), int(count), bytes(mark)):
                for _ in range(count):
                    tags[channel] += 1
                    sent = random.Random(tags[channel]).randbytes(size)
                    stamp = mark + b"%27d" % tags[channel] if mark else None  # UTF-8, or not
                    if stamp is None:
                        octets.append(deliver(channel, tags[channel], sent, redelivered=again, piece=60))
                    else:
                        octets.append(stamped(channel, tags[channel], sent, stamp, redelivered=again, piece=60))
                    meaning.append(Delivery(channel, tags[channel], again, sent, stamp))
            case ("other", int(which)):
                octets.append(frame.marshal([commands.Connection.Unblocked(), heartbeat.Heartbeat()][which % 2], 0))
                if which % 2 == 0:
                    meaning.append(Unblocked())
    return b"".join(octets), meaning


def merge_multiples(flat: list[object]) -> list[object]:
    """Of neighbouring confirms with ``multiple`` the last one says it all."""
    kept: list[object] = []
    for item in flat:
        if kept and isinstance(item, tuple) and isinstance(kept[-1], tuple):
            before = kept[-1]
            if len(item) == len(before) == 4 and item[:3] == before[:3]:
                kept.pop()
        kept.append(item)
    return kept


@given(parts=st.lists(st.one_of(CONFIRM, DELIVER, OTHER), max_size=12), cuts=st.randoms(use_true_random=False))
def test_any_cut_of_any_stream_gives_the_same_events(parts: list[tuple[object, ...]], cuts: random.Random) -> None:
    """The fast path may never see something else than what is there, nor hold something back that is complete."""
    octets, meaning = stream_of(parts)
    connection = running()
    seen: list[object] = []
    at = 0
    while at < len(octets):
        step = cuts.choice([1, 7, 21, 150, 2000, 100000])
        seen += flatten(connection.receive(octets[at : at + step]))
        at += step
    assert merge_multiples(seen) == merge_multiples(meaning)


@given(position=st.integers(0, 4000), value=st.integers(0, 255))
def test_a_flipped_octet_is_never_a_crash(position: int, value: int) -> None:
    """Whatever a broker sends, the client ends with an error of its own kind, or takes it as data."""
    octets, _ = stream_of([("deliver", 1, 100, False, 20, b""), ("confirm", False, False, 10)])
    position %= len(octets)
    broken = octets[:position] + bytes([value]) + octets[position + 1 :]
    connection = running()
    try:
        connection.receive(broken)
    except BrokerProtocolError as error:
        assert str(error)


@pytest.mark.parametrize(
    "octets",
    [
        b"AMQP\0\0\x09\x01",
        struct.pack(">BHIB", 1, 0, 200_000, 0),
        struct.pack(">BHI", 9, 0, 4) + b"abcd\xce",
        struct.pack(">BHI", 1, 0, 4) + b"abcd\xce",
        frame.marshal(commands.Connection.OpenOk(), 0)[:-1] + b"\0",
        content(1, b"x"),
        frame.marshal(Basic.Deliver("c", 1, False, "", "q"), 1) + frame.marshal(body.ContentBody(b"x"), 1),
        frame.marshal(Basic.Deliver("c", 1, False, "", "q"), 1) + frame.marshal(Basic.QosOk(), 1),
        frame.marshal(commands.Channel.CloseOk(), 1),
        frame.marshal(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0),
    ],
)
def test_what_breaks_the_protocol_is_said_to_break_it(octets: bytes) -> None:
    with pytest.raises(BrokerProtocolError):
        running().receive(octets)


def test_a_broker_without_plain_is_refused_with_its_mechanisms() -> None:
    start = frame.marshal(commands.Connection.Start(0, 9, {}, "EXTERNAL", "en_US"), 0)
    with pytest.raises(BrokerProtocolError, match="EXTERNAL"):
        ClientConnection(AmqpUri(), name="test").receive(start)


def test_what_comes_on_a_channel_we_close_is_dropped() -> None:
    connection = running()
    connection.channel_closing(1)
    stream = (
        deliver(1, 1, b"late") + frame.marshal(Basic.Ack(5, True), 1) + frame.marshal(commands.Channel.CloseOk(), 1)
    )
    (event,) = connection.receive(stream)
    assert isinstance(event, Reply) and isinstance(event.method, commands.Channel.CloseOk)


def test_methods_are_named_as_in_the_specification() -> None:
    assert [method_name(*ids) for ids in ((0, 0), (50, 10), (10, 41), (99, 7))] == [
        "",
        "queue.declare",
        "connection.open-ok",
        "method 99.7",
    ]


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (b"AMQP\0\1\0\0", "protocol header"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46\x00", "amqps://"),
        (b"220 mail.example ESMTP", "32 32 30 20"),
    ],
)
def test_a_port_of_another_protocol_is_recognized(octets: bytes, says: str) -> None:
    with pytest.raises(BrokerProtocolError, match=says):
        ClientConnection(AmqpUri(), name="test").receive(octets)


def test_channels_whose_deliveries_take_turns_are_read_in_runs_all_the_same() -> None:
    """Each has a shape of its own: looking at one channel must not forget the other's."""
    connection = running()
    turns = [(channel, turn) for turn in range(3) for channel in (1, 2)]
    octets = b"".join(deliver(channel, turn * 4 + i + 1, b"x" * 40) for channel, turn in turns for i in range(4))
    events = connection.receive(octets)
    assert [type(event).__name__ for event in events] == ["DeliveryRun"] * 6
    assert [(event.channel, event.first_tag) for event in events if isinstance(event, DeliveryRun)] == [
        (channel, turn * 4 + 1) for channel, turn in turns
    ]
