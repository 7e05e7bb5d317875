"""Frames for a client: one buffer for a run of basic.deliver, or of basic.return.

Theory of operation
-------------------
In a uniform run, the octets before the body are the same in each delivery, except for the delivery tag. Method frame,
content header frame and head of the body frame make one *template*. The subscription keeps the template for as long as
route and properties stay the same. A run of n messages is then an array of n templates: the tags are written over their
eight columns, and the bodies are copied beside them, with one numpy assignment each. Ragged runs, and runs below
``NUMPY_FROM`` messages, are a join of slices.

The stored frames have the channel number of the publisher; it is replaced by the number of the consumer's channel. A
body frame larger than the client's ``frame_max`` is cut up. This is rare enough to be done content by content.

Back of the envelope: 0.2 us a message of 1 KB, nearly all of it the copy of the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.amqp.channel import Subscription
from reference_broker.amqp.frames import (
    CHANNEL_NUMBER,
    FRAME_HEAD,
    LONG,
    METHOD,
    OVERHEAD,
    largest_frame,
    reframe,
    renumber,
    short_string,
)
from reference_broker.amqp.properties import header_size, with_delivery_count
from reference_broker.amqp.state import Octets
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.types import UNCOUNTED

NUMPY_FROM: Final = 8

_TAG: Final = Struct(">Q")
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_RETURN: Final = b"\x00\x3c\x00\x32"
_GET_OK: Final = b"\x00\x3c\x00\x47"


@dataclass(slots=True)
class _Template:
    """The octets before the body: those before the delivery tag, and those after it."""

    route: bytes
    delivery_count: int
    stored_prefix: bytes
    head: bytes
    tail: bytes
    row: npt.NDArray[np.uint8]


def deliver(
    subscription: Subscription,
    channel: int,
    first_tag: int,
    messages: RunSlice,
    delivery_count: int,
    frame_max: int,
) -> Octets:
    """The frames that deliver ``messages`` under the delivery tags ``first_tag``, +1, ... . A ``frame_max`` of 0 means
    no limit."""
    run, start, count, step = messages
    if run.stride:
        prefix_octets = OVERHEAD + int(LONG.unpack_from(run.data, 3)[0]) + FRAME_HEAD.size
        if not frame_max or run.stride - prefix_octets + OVERHEAD - 1 <= frame_max:
            template = _template(subscription, channel, run, prefix_octets, delivery_count)
            return _uniform(template, run, first_tag, start, count, step, prefix_octets)
    head, tail = _method(subscription.tag, channel, run.route, delivery_count > 0)
    parts: list[Octets] = []
    for number, content in enumerate(contents(run, channel, frame_max, start, count, step)):
        parts += [head, _TAG.pack(first_tag + number), tail]
        if delivery_count:
            parts += _counted(content, delivery_count)
        else:
            parts.append(content)
    return b"".join(parts)


def _method(consumer_tag: str, channel: int, route: bytes, redelivered: bool) -> tuple[bytes, bytes]:
    """basic.deliver before and after its delivery tag."""
    tag = short_string(consumer_tag)
    size = len(_DELIVER) + len(tag) + _TAG.size + 1 + len(route)
    head = FRAME_HEAD.pack(METHOD, channel, size) + _DELIVER + tag
    return head, bytes((redelivered,)) + route + b"\xce"


def _counted(content: Octets, delivery_count: int, *, also_zero: bool = False) -> list[Octets]:
    """A content, in parts. A count above 0 is written into its headers, unless it is :data:`UNCOUNTED`; ``also_zero``
    a count of 0, too."""
    if delivery_count == UNCOUNTED or (not delivery_count and not also_zero):
        return [content]
    size = header_size(content)
    return [with_delivery_count(bytes(content[:size]), delivery_count), content[size:]]


def _template(
    subscription: Subscription, channel: int, run: MessageRun, prefix_octets: int, delivery_count: int
) -> _Template:
    stored = bytes(run.data[:prefix_octets])
    kept = subscription.template
    if (
        isinstance(kept, _Template)
        and kept.stored_prefix == stored
        and kept.route == run.route
        and kept.delivery_count == delivery_count
    ):
        return kept
    prefix = bytearray(b"".join(_counted(stored, delivery_count)))
    CHANNEL_NUMBER.pack_into(prefix, 1, channel)
    CHANNEL_NUMBER.pack_into(prefix, len(prefix) - FRAME_HEAD.size + 1, channel)
    head, tail = _method(subscription.tag, channel, run.route, delivery_count > 0)
    tail += prefix
    row = np.frombuffer(head + bytes(_TAG.size) + tail, np.uint8)
    subscription.template = made = _Template(run.route, delivery_count, stored, head, tail, row)
    return made


def _uniform(
    template: _Template, run: MessageRun, first_tag: int, start: int, count: int, step: int, prefix_octets: int
) -> Octets:
    if count < NUMPY_FROM:
        data, stride, parts = run.data, run.stride, []
        at = start * stride
        for tag in range(first_tag, first_tag + count):
            parts += [template.head, _TAG.pack(tag), template.tail, data[at + prefix_octets : at + stride]]
            at += step * stride
        return b"".join(parts)
    width = len(template.row)
    out = np.empty((count, width + run.stride - prefix_octets), np.uint8)
    out[:, :width] = template.row
    tag_at = len(template.head)
    tags = np.arange(first_tag, first_tag + count, dtype=np.uint64).astype(">u8")
    out[:, tag_at : tag_at + _TAG.size] = tags.view(np.uint8).reshape(count, _TAG.size)
    out[:, width:] = run.rows(start, start + (count - 1) * step + 1, step)[:, prefix_octets:]
    return out.reshape(-1).data


def contents(run: MessageRun, channel: int, frame_max: int, start: int, count: int, step: int) -> list[Octets]:
    """Some contents of a run, as frames for a channel of a client with this ``frame_max``."""
    ends = _ends(run)
    positions = range(start, start + (count - 1) * step + 1, step)
    data = memoryview(run.data)
    parts: list[Octets] = [data[ends[position] : ends[position + 1]] for position in positions]
    if frame_max:
        parts = [_fit(part, channel, frame_max) for part in parts]
    (stored,) = CHANNEL_NUMBER.unpack_from(data, 1)
    if stored != channel:
        parts = [_for_channel(part, channel) for part in parts]
    return parts


def _ends(run: MessageRun) -> list[int]:
    """0, then the end of each content."""
    if run.ends is None:
        return list(range(0, (run.count + 1) * run.stride, run.stride))
    return [0, *run.ends.tolist()]


def _fit(content: Octets, channel: int, frame_max: int) -> Octets:
    """The content in frames of at most ``frame_max`` octets. A content shorter than that has no longer frame."""
    if len(content) > frame_max and largest_frame(content) > frame_max:
        return reframe(content, channel, frame_max)
    return content


def _for_channel(content: Octets, channel: int) -> Octets:
    copy = bytearray(content)
    renumber(copy, channel)
    return bytes(copy)


def got(
    channel: int, tag: int, message: RunSlice, delivery_count: int, left: int, frame_max: int, *, counted: bool = False
) -> bytes:
    """basic.get-ok and its message; ``left`` other messages are ready. With ``counted``, the headers have a
    ``delivery_count`` of 0, too: RabbitMQ writes it so into what is fetched from a quorum queue, though not into first
    deliveries to consumers."""
    run, start, _count, _step = message
    redelivered = bytes((delivery_count > 0,))
    payload = b"".join([_GET_OK, _TAG.pack(tag), redelivered, run.route, LONG.pack(left)])
    method = FRAME_HEAD.pack(METHOD, channel, len(payload)) + payload + b"\xce"
    (content,) = contents(run, channel, frame_max, start, 1, 1)
    return b"".join([method, *_counted(content, delivery_count, also_zero=counted)])


def marked_redelivered(buffers: Sequence[Octets]) -> bytes:
    """Whole frames, with the redelivered flag set in each delivery. This goes frame by frame, for it is rare: the
    deliveries were made as first deliveries, and another client may have the messages by now."""
    octets = bytearray(b"".join(buffers))
    at = 0
    while at < len(octets):
        arguments = at + FRAME_HEAD.size + len(_DELIVER)
        method = octets[at + FRAME_HEAD.size : arguments] if octets[at] == METHOD else b""
        if method == _DELIVER:
            octets[arguments + 1 + octets[arguments] + _TAG.size] = 1
        elif method == _GET_OK:
            octets[arguments + _TAG.size] = 1
        at += OVERHEAD + int(LONG.unpack_from(octets, at + 3)[0])
    return bytes(octets)


def returned(
    channel: int, code: int, text: str, exchange: str, routing_key: str, run: MessageRun, frame_max: int
) -> bytes:
    """basic.return with its content, for every message of a run."""
    payload = b"".join(
        [_RETURN, CHANNEL_NUMBER.pack(code), short_string(text), short_string(exchange), short_string(routing_key)]
    )
    method = FRAME_HEAD.pack(METHOD, channel, len(payload)) + payload + b"\xce"
    parts: list[Octets] = []
    for content in contents(run, channel, frame_max, 0, run.count, 1):
        parts += [method, content]
    return b"".join(parts)
