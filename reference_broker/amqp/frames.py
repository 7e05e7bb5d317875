"""Framing: octets become frames, and contents are cut or renumbered for the client that gets them.

A frame is ``type:1 channel:2 size:4 payload:size 0xCE`` (AMQP 0-9-1, 2.3.5). A content stays the raw octets of its
header frame and its body frames. Its octets change only if it goes to a channel of another number (:func:`renumber`),
or to a client with a smaller ``frame_max`` (:func:`reframe`).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from pamqp import base, commands, frame

from reference_broker.amqp.errors import HardError, ReplyCode

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
OVERHEAD: Final = 8  # type, channel, size and end octet
FRAME_MIN_SIZE: Final = 4096
BASIC_CLASS: Final = 60

FRAME_HEAD: Final = Struct(">BHI")
CONTENT_HEAD: Final = Struct(">HHQ")  # class, weight, body size
CHANNEL_NUMBER: Final = Struct(">H")
LONG: Final = Struct(">I")

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = FRAME_HEAD.pack(HEARTBEAT, 0, 0) + b"\xce"
_END: Final = b"\xce"

Frame = tuple[int, int, bytes, int]
"""Type, channel, payload, and the position after it."""


def octets_needed(data: bytes, at: int, payload_max: int) -> int:
    """Octets of the frame at ``at``, or 7 while its length has not come yet.

    Raises HardError 501 as soon as an impossible length or type can be seen, before any of the payload is there.
    """
    if len(data) - at < FRAME_HEAD.size:
        return FRAME_HEAD.size
    kind, _channel, size = FRAME_HEAD.unpack_from(data, at)
    if size > payload_max:
        raise HardError(ReplyCode.FRAME_ERROR, f"frame of {size} octets is larger than the agreed {payload_max}")
    if kind not in (METHOD, HEADER, BODY, HEARTBEAT):
        raise HardError(ReplyCode.FRAME_ERROR, f"frame type {kind} is unknown")
    return int(size) + OVERHEAD


def read_frame(data: bytes, at: int, size: int) -> Frame:
    """The frame of ``size`` octets, end octet included, at ``at``. Raises HardError 501 for a wrong end octet."""
    kind, channel, _payload = FRAME_HEAD.unpack_from(data, at)
    end = at + size
    if data[end - 1] != FRAME_END:
        raise HardError(ReplyCode.FRAME_ERROR, f"frame ends with octet {data[end - 1]:#04x} instead of 0xce")
    return kind, channel, data[at + FRAME_HEAD.size : end - 1], end


def method_frame(channel: int, method: base.Frame) -> bytes:
    """One method as a frame, for the cold paths: it takes 10 us and more."""
    return frame.marshal(method, channel)


class QueueDeclareOk(commands.Queue.DeclareOk):
    """queue.declare-ok for any name: an encoder does not decide which names are fit for a queue."""

    def validate(self) -> None:
        """Accept."""


def short_string(text: str) -> bytes:
    """An AMQP short string. The text fits: it came from a short string or was checked before."""
    octets = text.encode()
    return bytes((len(octets),)) + octets


def body_frames(content: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Start and end of the payload of each body frame in a content."""
    at = OVERHEAD + int(LONG.unpack_from(content, 3)[0])
    while at < len(content):
        start = at + FRAME_HEAD.size
        end = start + int(LONG.unpack_from(content, at + 3)[0])
        yield start, end
        at = end + 1


def renumber(content: bytearray, channel: int) -> None:
    """Write ``channel`` into every frame of one or more whole contents."""
    at = 0
    while at < len(content):
        CHANNEL_NUMBER.pack_into(content, at + 1, channel)
        at += OVERHEAD + LONG.unpack_from(content, at + 3)[0]


def reframe(content: bytes | memoryview, channel: int, frame_max: int) -> bytes:
    """The same content for another channel, in as few body frames as ``frame_max`` allows (0: no limit)."""
    header_size = OVERHEAD + int(LONG.unpack_from(content, 3)[0])
    header = bytearray(content[:header_size])
    CHANNEL_NUMBER.pack_into(header, 1, channel)
    body = b"".join([content[start:end] for start, end in body_frames(content)])
    return b"".join([header, *split_body(body, channel, frame_max)])


def split_body(body: bytes, channel: int, frame_max: int) -> list[bytes]:
    """Body frames of at most ``frame_max`` octets each (0: no limit); none for an empty body."""
    step = frame_max - OVERHEAD if frame_max else max(len(body), 1)
    parts = []
    for start in range(0, len(body), step):
        payload = body[start : start + step]
        parts += [FRAME_HEAD.pack(BODY, channel, len(payload)), payload, _END]
    return parts


def largest_frame(content: bytes | memoryview) -> int:
    """Octets of the largest body frame in one or more contents laid end to end."""
    at, largest = 0, 0
    while at < len(content):
        size = OVERHEAD + int(LONG.unpack_from(content, at + 3)[0])
        if content[at] == BODY:
            largest = max(largest, size)
        at += size
    return largest
