"""Deliveries as runs: many basic.deliver of one shape, checked and cut by numpy instead of parsed one by one.

Theory of operation. A broker that serves one consumer sends the same octets over and over; only the delivery tag, the
redelivered bit and the body change. So the first delivery is parsed properly (:func:`learn`) and gives a
:class:`Shape`: where those fields lie and how far it is to the next delivery. From then on a buffer is looked at as
rows of one stride. Every octet of every row that is not tag, bit or body is compared with the shape, and the tags
must be consecutive; the run ends at the first row that differs. What is left goes through the general path, so
nothing is ever believed on the strength of the stride alone.

Invariants: a run and the general path give the same deliveries for the same octets (a property test says so); a shape
describes a delivery whose body is exactly one body frame; a row is only read when all its octets have come.

Cost for 1 KB bodies, all rows of a 256 KiB buffer: about 0.15 µs a message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from perftest.amqp.events import Delivery, DeliveryRun, Octets

FRAME_END: Final = 0xCE
DELIVER_IDS: Final = b"\x00\x3c\x00\x3c"
_FRAME_HEAD: Final = struct.Struct(">BHI")
_TAG: Final = struct.Struct(">Q")
_FEW: Final = 3
"""Up to this many rows the interpreter is quicker than starting numpy up."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The octets all deliveries of a consumer share, and where the others lie (offsets from the start of a row)."""

    channel: int
    head: bytes
    tag_at: int
    middle: bytes
    body_at: int
    stride: int
    template: Octets

    @property
    def redelivered_at(self) -> int:
        """Offset of the octet with the redelivered bit; what follows it up to the body is ``middle``."""
        return self.tag_at + _TAG.size


def learn(buffer: bytearray, start: int, end: int) -> Shape | None:
    """The shape of the delivery at ``start``, or None when it is not all there or not of one body frame."""
    cut = _measure(buffer, start, end)
    if cut is None:
        return None
    tag_at, body_at, stride = cut
    row = bytes(buffer[start : start + body_at])
    return Shape(
        channel=int.from_bytes(row[1:3], "big"),
        head=row[:tag_at],
        tag_at=tag_at,
        middle=row[tag_at + 9 :],
        body_at=body_at,
        stride=stride,
        template=np.frombuffer(row, np.uint8),
    )


def _measure(buffer: bytearray, start: int, end: int) -> tuple[int, int, int] | None:
    """(offset of the tag, offset of the body, octets of the whole delivery), or None."""
    if end - start < 12:
        return None
    kind, channel, size = _FRAME_HEAD.unpack_from(buffer, start)
    header_at = start + 7 + size + 1
    tag_at = 12 + buffer[start + 11]
    if kind != 1 or end < header_at + 22 or tag_at + 9 > 7 + size or buffer[header_at - 1] != FRAME_END:
        return None
    kind, header_channel, size = _FRAME_HEAD.unpack_from(buffer, header_at)
    body_frame_at = header_at + 7 + size + 1
    if kind != 2 or header_channel != channel or size < 14 or end < body_frame_at + 7:
        return None
    body_size = _TAG.unpack_from(buffer, header_at + 11)[0]
    kind, body_channel, size = _FRAME_HEAD.unpack_from(buffer, body_frame_at)
    stop = body_frame_at + 7 + size + 1
    if kind != 3 or body_channel != channel or size != body_size or end < stop:
        return None
    if buffer[body_frame_at - 1] != FRAME_END or buffer[stop - 1] != FRAME_END:
        return None
    return tag_at, body_frame_at + 7 - start, stop - start


def cut_run(shape: Shape, buffer: bytearray, start: int, end: int) -> tuple[int, list[Delivery | DeliveryRun]]:
    """The deliveries of this shape that stand at ``start``: how many octets they take, and the events.

    0 octets when the first row is not of this shape or not all there.
    """
    rows = (end - start) // shape.stride
    if rows > _FEW:
        return _cut_many(shape, buffer, start, rows)
    events: list[Delivery | DeliveryRun] = []
    at = start
    for _ in range(rows):
        if not _row_fits(shape, buffer, at):
            break
        events.append(_single(shape, buffer, at))
        at += shape.stride
    return at - start, events


def awaits_rest(shape: Shape, buffer: bytearray, start: int, end: int) -> bool:
    """True when what stands at ``start`` is the beginning of one more delivery of this shape, cut off by the end.

    Every octet that has come is compared, lengths and body size among them, so the rest is certain to follow: a
    complete delivery of another size is never waited on.
    """
    if not shape.tag_at <= end - start < shape.stride or not buffer.startswith(shape.head, start):
        return False
    middle_at = start + shape.tag_at + 9
    return shape.middle.startswith(buffer[middle_at : min(end, start + shape.body_at)])


def _row_fits(shape: Shape, buffer: bytearray, at: int) -> bool:
    return (
        buffer.startswith(shape.head, at)
        and buffer.startswith(shape.middle, at + shape.tag_at + 9)
        and buffer[at + shape.stride - 1] == FRAME_END
    )


def _single(shape: Shape, buffer: bytearray, at: int) -> Delivery:
    tag = _TAG.unpack_from(buffer, at + shape.tag_at)[0]
    body = bytes(buffer[at + shape.body_at : at + shape.stride - 1])
    return Delivery(shape.channel, tag, bool(buffer[at + shape.tag_at + 8] & 1), body)


def _cut_many(shape: Shape, buffer: bytearray, start: int, rows: int) -> tuple[int, list[Delivery | DeliveryRun]]:
    table = np.frombuffer(buffer, np.uint8, rows * shape.stride, start).reshape(rows, shape.stride)
    same = table[:, : shape.body_at] == shape.template
    same[:, shape.tag_at : shape.tag_at + 9] = True
    good = rows
    if not same.all() or not (table[:, -1] == FRAME_END).all():
        fits = same.all(axis=1) & (table[:, -1] == FRAME_END)
        good = int(np.argmin(fits))
        if not good:
            return 0, []
    tags = table[:good, shape.tag_at : shape.tag_at + 8].copy().view(">u8").ravel().astype(np.int64)
    good = _consecutive(tags)
    run = DeliveryRun(
        shape.channel,
        int(tags[0]),
        table[:good, shape.redelivered_at] & np.uint8(1),
        table[:good, shape.body_at : -1],
    )
    return good * shape.stride, [run]


def _consecutive(tags: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """How many tags from the first on go up by exactly one."""
    steps = tags[1:] - tags[:-1] == 1
    return len(tags) if steps.all() else int(np.argmin(steps)) + 1
