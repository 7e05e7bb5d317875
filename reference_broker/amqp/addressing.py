"""The address in a message itself: its headers, and the further routing keys of its CC and BCC headers.

A run is looked at in *stretches*: neighbours whose content headers have the same properties. A uniform run is one
stretch. So a publisher that repeats itself costs one look per run. A publisher that varies its headers costs one look
per message.

This follows RabbitMQ 3.10 (rabbit_basic.erl): CC and BCC are arrays of long strings, other items are ignored, and a
message is delivered without its BCC header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

import numpy as np

from reference_broker.amqp.errors import BASIC_PUBLISH, ReplyCode, SoftError
from reference_broker.amqp.frames import CONTENT_HEAD, FRAME_HEAD, HEADER
from reference_broker.amqp.properties import (
    EXPIRATION,
    HEADERS,
    REPLY_PROPERTY,
    Fields,
    Properties,
    header_size,
    read_array,
    read_properties,
    read_table,
    write_properties,
    write_table,
)
from reference_broker.message_run import MessageRun
from reference_broker.routing.records import Arguments, in_order
from reference_broker.types import NO_TTL, REPLY_TO

_COPIES: Final = b"CC"
_BLIND_COPIES: Final = b"BCC"
_PROPERTIES_AT: Final = FRAME_HEAD.size + CONTENT_HEAD.size
_KNOWN_HEADERS: Final = 1024
_TEXT_AT: Final = 5
_TYPE_NAMES: Final = {
    b"S": "longstr", b"I": "signedint", b"D": "decimal", b"T": "timestamp", b"F": "table", b"b": "byte", b"d": "double",
    b"f": "float", b"l": "long", b"s": "short", b"t": "bool", b"x": "binary", b"V": "void", b"B": "unsignedbyte",
    b"u": "unsignedshort", b"i": "unsignedint", b"L": "long",
}  # fmt: skip
"""RabbitMQ's names of the types of fields."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address in the properties of a content."""

    headers: Arguments
    copies: tuple[str, ...]
    """The routing keys of CC and BCC."""
    ttl_ms: int
    has_blind_copies: bool
    wrong: str
    """The name and type of a CC or BCC header that is no array; empty if all is well."""
    wants_reply: bool
    """Whether the answer shall go straight to the channel that publishes."""

    def check(self) -> None:
        """Raises SoftError 406, in RabbitMQ's words, if CC or BCC is no array."""
        if self.wrong:
            text = f"invalid message: {{unacceptable_type_in_header,{self.wrong}}}"
            raise SoftError(ReplyCode.PRECONDITION_FAILED, text, BASIC_PUBLISH)


def stretches(run: MessageRun) -> Iterator[tuple[int, MessageRun, Address]]:
    """The run in stretches: the position of the first message, the stretch as a run, the address of its messages."""
    if run.ends is None:
        yield 0, run, _address(_properties(run.data, 0))
        return
    begins = [0, *run.ends[:-1].tolist()]
    start = 0
    for properties, group in groupby(_properties(run.data, begin) for begin in begins):
        count = sum(1 for _ in group)
        yield start, _part(run, start, count), _address(properties)
        start += count


def _properties(data: bytes | memoryview, begin: int) -> bytes:
    """The octets of flags and properties of the content that begins there."""
    return bytes(data[begin + _PROPERTIES_AT : begin + header_size(data[begin : begin + _PROPERTIES_AT]) - 1])


def _part(run: MessageRun, start: int, count: int) -> MessageRun:
    """Some neighbours of a ragged run, as a run. Bodies are views, not copies."""
    if count == run.count or run.ends is None:
        return run
    begin = int(run.ends[start - 1]) if start else 0
    ends = run.ends[start : start + count]
    data = memoryview(run.data)[begin : int(ends[-1])]
    return MessageRun(count, run.route, data, 0, ends - np.uint32(begin), run.stamp)


@lru_cache(_KNOWN_HEADERS)
def _address(octets: bytes) -> Address:
    properties = read_properties(bytes(CONTENT_HEAD.size) + octets)
    fields = read_table(properties[HEADERS]) if HEADERS in properties else []
    named = dict(reversed(fields))
    copies: list[str] = []
    wrong = ""
    for name in (_COPIES, _BLIND_COPIES):
        value = named.get(name)
        if value is not None and value[:1] != b"A":
            wrong = wrong or f'"{name.decode()}",{_TYPE_NAMES.get(value[:1], "unknown")}'
        elif value is not None:
            copies += [item[_TEXT_AT:].decode("utf-8", "replace") for item in read_array(value) if item[:1] == b"S"]
    wants_reply = properties.get(REPLY_PROPERTY, b"")[1:] == REPLY_TO
    expiration = properties.get(EXPIRATION)
    ttl_ms = NO_TTL if expiration is None else int(expiration[1:])
    return Address(in_order(fields), tuple(copies), ttl_ms, _BLIND_COPIES in named, wrong, wants_reply)


def address_of(content: bytes) -> Address:
    """The address of a content (raw frames)."""
    return _address(_properties(content, 0))


def without_blind_copies(run: MessageRun) -> MessageRun:
    """The messages without their BCC headers."""
    return MessageRun.of(run.route, [_without(run.content(position), _BLIND_COPIES) for position in range(run.count)])


def with_reply_to(run: MessageRun, queue: str) -> MessageRun:
    """The messages with this queue as the address of their answers."""
    value = bytes((len(queue),)) + queue.encode()
    contents = [_changed(run.content(position), {REPLY_PROPERTY: value}) for position in range(run.count)]
    return MessageRun.of(run.route, contents)


def without_copies(content: bytes) -> bytes:
    """The content without its CC header."""
    return _without(content, _COPIES)


def _without(content: bytes, name: bytes) -> bytes:
    fields: Fields = read_table(read_properties(content[FRAME_HEAD.size : header_size(content) - 1])[HEADERS])
    return _changed(content, {HEADERS: write_table([field for field in fields if field[0] != name])})


def _changed(content: bytes, changes: Properties) -> bytes:
    """The content with these properties in place of its own."""
    size = header_size(content)
    _kind, channel, _octets = FRAME_HEAD.unpack_from(content)
    payload = content[FRAME_HEAD.size : size - 1]
    payload = write_properties(payload, read_properties(payload) | changes)
    return FRAME_HEAD.pack(HEADER, channel, len(payload)) + payload + b"\xce" + content[size:]
