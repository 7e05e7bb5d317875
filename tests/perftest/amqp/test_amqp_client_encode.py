"""Bulk octets must be the very octets of the general encoder."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from pamqp import body, commands, frame, header

from perftest.amqp.content import header_frame
from perftest.amqp.encode import AckEncoder, Documents, DocumentTemplate, Envelope, PublishTemplate, Template
from perftest.engine.accounting import stamp


def template(size: int, *, rows_max: int = 64, frame_max: int = 131072) -> PublishTemplate:
    envelope = Envelope(channel=7, routing_key="a queue", mandatory=True, properties={"deliveryMode": 2})
    filler = stamp.filler(size - stamp.SIZE)
    return PublishTemplate(envelope, source=0xABCD0001, filler=filler, frame_max=frame_max, rows_max=rows_max)


def by_pamqp(size: int, sequence: int, intended: int, sent: int, frame_max: int = 131072) -> bytes:
    octets = struct.pack(">IQQQ", 0xABCD0001, sequence, intended, sent) + stamp.filler(size - stamp.SIZE)
    properties = commands.Basic.Properties(delivery_mode=2)
    pieces = [octets[at : at + frame_max - 8] for at in range(0, size, frame_max - 8)]
    return b"".join(
        [
            frame.marshal(commands.Basic.Publish(exchange="", routing_key="a queue", mandatory=True), 7),
            frame.marshal(header.ContentHeader(body_size=size, properties=properties), 7),
            *(frame.marshal(body.ContentBody(piece), 7) for piece in pieces),
        ]
    )


@pytest.mark.parametrize("size", [28, 29, 1000, 5000, 300_000])
def test_a_burst_is_what_pamqp_would_send(size: int) -> None:
    made = template(size, frame_max=4096)
    count = min(made.burst_max, 9)
    intended = np.arange(1000, 1000 + count, dtype=np.int64)
    burst = made.burst(17, count, intended_ns=intended, sent_ns=5000)
    assert burst == b"".join(by_pamqp(size, 17 + i, 1000 + i, 5000, 4096) for i in range(count))
    assert made.single(3, intended_ns=4, sent_ns=5) == by_pamqp(size, 3, 4, 5, 4096)


def test_a_burst_of_chosen_sequences_keeps_them() -> None:
    """After a lost connection exactly the unconfirmed ones go out again."""
    burst = template(100).burst(np.array([3, 9, 4]), 3, intended_ns=None, sent_ns=8)
    assert burst == b"".join(by_pamqp(100, sequence, 8, 8) for sequence in (3, 9, 4))


def test_bursts_are_bounded_by_window_and_octets() -> None:
    assert template(1000, rows_max=5).burst_max == 5
    assert 200 <= template(1000, rows_max=1 << 30).burst_max <= 260
    assert template(1_000_000).burst_max == 1


@pytest.mark.parametrize("tags", [range(1, 2), range(5, 305), range(10, 100, 10)])
@pytest.mark.parametrize("multiple", [False, True])
def test_acks_are_what_pamqp_would_send(tags: range, multiple: bool) -> None:
    expected = b"".join(frame.marshal(commands.Basic.Ack(tag, multiple), 3) for tag in tags)
    assert AckEncoder(3).many(tags, multiple=multiple) == expected


@pytest.mark.parametrize("tags", [range(1, 2), range(5, 105)])
@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("requeue", [False, True])
def test_nacks_are_what_pamqp_would_send(tags: range, multiple: bool, requeue: bool) -> None:
    expected = b"".join(frame.marshal(commands.Basic.Nack(tag, multiple, requeue), 3) for tag in tags)
    assert AckEncoder(3, nack=True, requeue=requeue).many(tags, multiple=multiple) == expected


class NumberedKeys:
    """A key that says its number."""

    length = 6

    def of(self, sequences: np.ndarray) -> np.ndarray:
        return np.frombuffer(b"".join(b"%06d" % n for n in sequences.tolist()), np.uint8).reshape(-1, 6)


PROPERTIES: dict[str, str | int | float | bool] = {
    "deliveryMode": 2,
    "contentType": "text/plain",
    "contentEncoding": "identity",
    "priority": 5,
    "correlationId": "c",
    "replyTo": "r",
    "expiration": "60000",
    "messageId": "m",
    "timestamp": "2007-12-03T10:15:30+01:00",
    "type": "t",
    "userId": "guest",
    "appId": "a",
    "small": -3,
    "large": 1 << 40,
    "half": 0.1,
    "yes": True,
    "text": "né",
}
ENVELOPE = Envelope(channel=3, exchange="ex", mandatory=True, properties=PROPERTIES, keys=NumberedKeys())


def parsed(octets: bytes) -> list[tuple[commands.Basic.Publish, header.ContentHeader, bytes]]:
    """Messages, read by pamqp."""
    found: list[list[object]] = []
    while octets:
        taken, channel, value = frame.unmarshal(octets)
        assert channel == 3
        octets = octets[taken:]
        if isinstance(value, commands.Basic.Publish):
            found.append([value, None, b""])
        elif isinstance(value, header.ContentHeader):
            found[-1][1] = value
        else:
            found[-1][2] += value.value  # type: ignore[union-attr, operator]
    return [tuple(each) for each in found]  # type: ignore[misc]


def templates(frame_max: int = 4096) -> dict[str, Template]:
    documents = Documents([b"", b"one", b"x" * 9000])
    return {
        "own": PublishTemplate(ENVELOPE, source=7, filler=stamp.filler(100), frame_max=frame_max),
        "documents": DocumentTemplate(ENVELOPE, source=7, documents=documents, frame_max=frame_max),
    }


@pytest.mark.parametrize("kind", ["own", "documents"])
def test_properties_keys_and_stamps_arrive_as_they_were_meant(kind: str) -> None:
    made = templates()[kind]
    intended = np.arange(10, 17)
    octets = made.burst(40, 7, intended_ns=intended, sent_ns=99)
    singly = b"".join(made.single(40 + i, intended_ns=10 + i, sent_ns=99) for i in range(7))
    assert octets == singly == made.burst(np.arange(40, 47), 7, intended_ns=intended, sent_ns=99)
    sizes = 0
    for number, (method, head, content) in enumerate(parsed(octets), start=40):
        assert (method.exchange, method.routing_key, method.mandatory) == ("ex", f"{number:06d}", True)
        properties = head.properties
        headers = dict(properties.headers or {})
        mark = headers.pop("perftest", None) if kind == "documents" else content[: stamp.SIZE]
        mark = mark.encode() if isinstance(mark, str) else mark
        assert stamp.STAMP.unpack(mark) == (7, number, number - 30, 99)  # type: ignore[arg-type]
        assert headers == {"small": -3, "large": 1 << 40, "half": 0.1, "yes": True, "text": "né"}
        assert (properties.delivery_mode, properties.priority, properties.content_type) == (2, 5, "text/plain")
        assert (properties.message_type, properties.user_id, properties.app_id) == ("t", "guest", "a")
        assert (properties.correlation_id, properties.reply_to, properties.expiration) == ("c", "r", "60000")
        assert (properties.message_id, properties.content_encoding) == ("m", "identity")
        assert properties.timestamp is not None and properties.timestamp.timestamp() == 1196673330
        assert head.body_size == len(content)
        if kind == "documents":
            assert content == (b"", b"one", b"x" * 9000)[number % 3]
        sizes += len(content)
    assert made.body_octets(40, 7) == sizes


def test_a_table_grows_only_as_bursts_ask_for_it() -> None:
    """Five thousand publishers that send one message at a time must not hold a table of 256 KiB each."""
    made = template(1000, rows_max=1 << 30)
    rows = [len(made._table._rows)]
    for count in (1, 3, 40, 200):
        made.burst(0, count, intended_ns=None, sent_ns=0)
        rows.append(len(made._table._rows))
    assert rows[0] == rows[2] <= 8
    assert rows[-1] >= 200


@pytest.mark.parametrize("name", ["priority", "timestamp", "userId"])
def test_a_property_that_cannot_be_written_is_named(name: str) -> None:
    bad: dict[str, str | int | float | bool] = {"priority": 256, "timestamp": "noon", "userId": "u" * 256}
    with pytest.raises(ValueError, match=name):
        header_frame(1, body_size=0, properties={name: bad[name]})


def test_a_cluster_id_is_written_although_it_is_deprecated() -> None:
    octets = header_frame(1, body_size=0, properties={"clusterId": "c"})
    assert octets[19:21] == struct.pack(">H", 1 << 2)
    assert octets.endswith(b"\x01c\xce")
