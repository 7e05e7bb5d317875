"""The content header of a message, with properties by PerfTest's names, and the place of the stamp in it.

The encoder is written by hand, because a stamp in a header is patched in place. Besides, brokers and clients agree
better on tables whose integers have 32 or 64 bits and whose floats are doubles.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from perftest.amqp.fastpath import STAMP_MARK, STAMP_OCTETS

Value = str | int | float | bool

BODY_SIZE_AT: Final = 11
"""Offset of the body's size (u64) in a header frame."""

_NAMES: Final = (
    "contentType",
    "contentEncoding",
    "headers",
    "deliveryMode",
    "priority",
    "correlationId",
    "replyTo",
    "expiration",
    "messageId",
    "timestamp",
    "type",
    "userId",
    "appId",
    "clusterId",
)
"""In the order of their flags, the highest bit first; any other name is a header."""

_INT32: Final = range(-(1 << 31), 1 << 31)


def header_frame(channel: int, *, body_size: int, properties: Mapping[str, Value], stamped: bool = False) -> bytes:
    """A whole content header frame. With ``stamped`` it has a header ``perftest`` of zero octets in place of a stamp;
    :func:`stamp_offset` finds them. Raises ValueError for a value that its property cannot hold."""
    headers = {name: value for name, value in properties.items() if name not in _NAMES}
    flags, octets = 0, b""
    for bit, name in zip(range(15, 0, -1), _NAMES, strict=False):
        if name == "headers" and (headers or stamped):
            flags, octets = flags | 1 << bit, octets + _table(headers, stamped=stamped)
        elif name in properties and name != "headers":
            flags, octets = flags | 1 << bit, octets + _property(name, properties[name])
    payload = struct.pack(">HHQH", 60, 0, body_size, flags) + octets
    return struct.pack(">BHI", 2, channel, len(payload)) + payload + b"\xce"


def stamp_offset(frame: bytes) -> int:
    """The offset of the stamp in a ``stamped`` header frame. The stamp is the last header."""
    return frame.index(STAMP_MARK + bytes(STAMP_OCTETS)) + len(STAMP_MARK)


def _property(name: str, value: Value) -> bytes:
    try:
        if name in ("deliveryMode", "priority"):
            return struct.pack(">B", int(value))
        if name == "timestamp":
            return struct.pack(">Q", value if isinstance(value, int) else _seconds(str(value)))
        return short_string(str(value))
    except (struct.error, ValueError) as error:
        raise ValueError(f"the property {name} cannot be {value!r}") from error


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def short_string(text: str) -> bytes:
    """AMQP's short string; raises ValueError for more than 255 octets."""
    octets = text.encode()
    if len(octets) > 255:
        raise ValueError("longer than 255 octets")
    return bytes([len(octets)]) + octets


def _table(headers: Mapping[str, Value], *, stamped: bool) -> bytes:
    octets = b"".join(short_string(name) + _field(value) for name, value in headers.items())
    if stamped:
        octets += STAMP_MARK + bytes(STAMP_OCTETS)
    return struct.pack(">I", len(octets)) + octets


def _field(value: Value) -> bytes:
    """A value with its type: ``t`` boolean, ``I`` and ``l`` integers, ``d`` double, ``S`` long string."""
    if isinstance(value, bool):
        return b"t" + bytes([value])
    if isinstance(value, int):
        return b"I" + struct.pack(">i", value) if value in _INT32 else b"l" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    octets = value.encode()
    return b"S" + struct.pack(">I", len(octets)) + octets
