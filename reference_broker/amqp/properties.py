"""Content properties, taken apart and put together again as raw octets.

A broker adds to the headers of a message (``x-delivery-count``, ``x-death``) and must leave everything else as the
publisher wrote it. To decode a table and encode it again would change types: a short integer would come back as a long
integer. So a content header is a row of raw properties here, and a table is a row of raw fields. Only the fields that
change are encoded.

The octets were checked when the message was published (:func:`~reference_broker.amqp.fields.check_properties`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Final

from reference_broker.amqp.fields import PROPERTY_KINDS, Walk
from reference_broker.amqp.frames import CONTENT_HEAD, FRAME_HEAD, HEADER, LONG, OVERHEAD

HEADERS: Final = 0x2000
REPLY_PROPERTY: Final = 0x0200
EXPIRATION: Final = 0x0100

_FLAGS: Final = Struct(">H")
_LONG_LONG: Final = Struct(">q")
_DELIVERY_COUNT: Final = b"x-delivery-count"

Properties = dict[int, bytes]
"""The raw octets of each property of a content header, by its flag bit."""

Fields = list[tuple[bytes, bytes]]
"""Name and raw value (type octet included) of each field of a table."""


def read_properties(payload: bytes) -> Properties:
    """The properties in the payload of a content header frame."""
    at = CONTENT_HEAD.size
    (flags,) = _FLAGS.unpack_from(payload, at)
    at += _FLAGS.size
    found: Properties = {}
    walk = Walk(payload)
    for bit, kind in PROPERTY_KINDS:
        if flags & bit:
            end = walk.property(at, kind)
            found[bit] = payload[at:end]
            at = end
    return found


def write_properties(payload: bytes, properties: Properties) -> bytes:
    """The payload of a content header frame for the same body with these properties."""
    bits = sorted(properties, reverse=True)
    flags = _FLAGS.pack(sum(bits))
    return b"".join([payload[: CONTENT_HEAD.size], flags, *(properties[bit] for bit in bits)])


def read_table(table: bytes) -> Fields:
    """The fields of a table that begins with its length."""
    return [(name[1:], value) for name, value in Walk(table).fields(0)]


def write_table(fields: Fields) -> bytes:
    """The table of these fields, beginning with its length."""
    body = b"".join([bytes((len(name),)) + name + value for name, value in fields])
    return LONG.pack(len(body)) + body


def read_array(value: bytes) -> list[bytes]:
    """The raw values of an array field; empty for a field of another type."""
    return Walk(value).items(1) if value[:1] == b"A" else []


def text(value: str) -> bytes:
    """A field of type long string."""
    octets = value.encode()
    return b"S" + LONG.pack(len(octets)) + octets


def long(value: int) -> bytes:
    """A field of type signed 64 bit integer, as RabbitMQ writes counts."""
    return b"l" + _LONG_LONG.pack(value)


def timestamp(seconds: int) -> bytes:
    """A field of type timestamp: seconds since 1970."""
    return b"T" + _LONG_LONG.pack(seconds)


def array(values: Iterable[bytes]) -> bytes:
    """A field of type array."""
    body = b"".join(values)
    return b"A" + LONG.pack(len(body)) + body


def table(fields: Fields) -> bytes:
    """A field of type table."""
    return b"F" + write_table(fields)


def set_field(fields: Fields, name: bytes, value: bytes) -> Fields:
    """The fields with one field replaced in its place, or added at the end."""
    changed = [(known, value if known == name else old) for known, old in fields]
    return changed if any(known == name for known, _ in fields) else [*changed, (name, value)]


@lru_cache(maxsize=256)
def with_delivery_count(header_frame: bytes, count: int) -> bytes:
    """The content header frame with ``x-delivery-count``: how often the message was delivered and came
    back."""
    _kind, channel, size = FRAME_HEAD.unpack_from(header_frame)
    payload = header_frame[FRAME_HEAD.size : FRAME_HEAD.size + size]
    properties = read_properties(payload)
    fields = read_table(properties[HEADERS]) if HEADERS in properties else []
    properties[HEADERS] = write_table(set_field(fields, _DELIVERY_COUNT, long(count)))
    payload = write_properties(payload, properties)
    return FRAME_HEAD.pack(HEADER, channel, len(payload)) + payload + header_frame[OVERHEAD + size - 1 :]


def header_size(content: bytes | memoryview) -> int:
    """Octets of the content header frame that a content begins with."""
    return OVERHEAD + int(LONG.unpack_from(content, 3)[0])
