"""The octets of the simulated clients, written and read without any code of the broker.

The module knows only the methods that these clients send and may get. Any other method is a violation.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from pamqp import base, commands, encode, frame
from pamqp.common import FieldValue

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_HEAD: Final = Struct(">BHI")
_DELIVER: Final = Struct(">QB")
_ACK: Final = Struct(">QB")
_SIZE: Final = Struct(">HHQ")
_END: Final = b"\xce"
_HEADERS: Final = 0x2000
_DELIVERY_MODE: Final = 0x1000
_PRIORITY: Final = 0x0800
_EXPIRATION: Final = 0x0100

Method = tuple[int, int]
DELIVER: Final = (60, 60)
ACK: Final = (60, 80)
NACK: Final = (60, 120)


def method(channel: int, *methods: base.Frame) -> bytes:
    """Any methods as octets, through pamqp."""
    return b"".join(frame.marshal(each, channel) for each in methods)


def publish(
    channel: int,
    queue: str,
    body: bytes,
    ttl_ms: int | None = None,
    *,
    persistent: bool = True,
    priority: int = 0,
    mandatory: bool = False,
    exchange: str = "",
    headers: dict[str, FieldValue] | None = None,
) -> bytes:
    """A message to an exchange, with a time to live if one is given. ``queue`` is the routing key."""
    key, name = queue.encode(), exchange.encode()
    head = b"\x00\x3c\x00\x28\x00\x00" + bytes((len(name),)) + name + bytes((len(key),)) + key + bytes((mandatory,))
    flags, values = _DELIVERY_MODE, bytes((1 + persistent,))
    if headers:
        flags, values = flags | _HEADERS, encode.field_table(headers) + values
    if priority:
        flags, values = flags | _PRIORITY, values + bytes((priority,))
    if ttl_ms is not None:
        text = str(ttl_ms).encode()
        flags, values = flags | _EXPIRATION, values + bytes((len(text),)) + text
    properties = flags.to_bytes(2, "big") + values
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
    return (
        _HEAD.pack(1, channel, len(head)) + head + _END
        + _HEAD.pack(2, channel, len(header)) + header + _END
        + _HEAD.pack(3, channel, len(body)) + body + _END
    )  # fmt: skip


def ack(channel: int, tag: int, multiple: bool) -> bytes:
    """basic.ack"""
    return _HEAD.pack(1, channel, 13) + b"\x00\x3c\x00\x50" + _ACK.pack(tag, multiple) + _END


def nack(channel: int, tag: int, multiple: bool, requeue: bool) -> bytes:
    """basic.nack"""
    return _HEAD.pack(1, channel, 13) + b"\x00\x3c\x00\x78" + _ACK.pack(tag, multiple | requeue << 1) + _END


def consume(channel: int, queue: str, tag: str, prefetch: int, *, no_ack: bool = False, priority: int = 0) -> bytes:
    """basic.qos and basic.consume"""
    arguments: dict[str, FieldValue] = {"x-priority": priority} if priority else {}
    return method(
        channel,
        commands.Basic.Qos(0, prefetch, False),
        commands.Basic.Consume(0, queue, tag, False, no_ack, False, False, arguments),
    )


def start_ok() -> bytes:
    """connection.start-ok of a client that knows confirms and cancel notices."""
    capabilities: dict[str, FieldValue] = {
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
    }
    return method(0, commands.Connection.StartOk({"capabilities": capabilities}, "PLAIN", "\0guest\0guest", "en_US"))


class SimFrameReader:
    """Cuts the octets of the broker into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def frames(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Kind, channel and payload of each whole frame. Raises ValueError for a frame without its end octet."""
        data, at = self._rest + data, 0
        while len(data) - at >= _HEAD.size:
            kind, channel, size = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + size
            if end >= len(data):
                break
            if data[end] != _END[0]:
                raise ValueError(f"frame of kind {kind} without its end")
            yield kind, channel, data[at + _HEAD.size : end]
            at = end + 1
        self._rest = data[at:]


def deliver(payload: bytes) -> tuple[str, int, bool]:
    """Consumer tag, delivery tag and redelivered flag of a basic.deliver."""
    size = payload[4]
    tag, redelivered = _DELIVER.unpack_from(payload, 5 + size)
    return payload[5 : 5 + size].decode(), tag, bool(redelivered)


def tag_and_bits(payload: bytes) -> tuple[int, int]:
    """Delivery tag and bits of a basic.ack or basic.nack."""
    tag, bits = _ACK.unpack_from(payload, 4)
    return tag, bits


def body_size(payload: bytes) -> int:
    """The body size in a content header."""
    return int(_SIZE.unpack_from(payload)[2])


def other(kind: int, channel: int, payload: bytes) -> base.Frame:
    """Any other method, decoded by pamqp."""
    _, _, value = frame.unmarshal(_HEAD.pack(kind, channel, len(payload)) + payload + _END)
    assert isinstance(value, base.Frame)
    return value
