"""What goes out in bulk: publishes from a patched template, acknowledgements from a patched row.

Theory of operation. All messages of a publisher differ in their stamp only. So the octets of ``rows`` complete
publishes (method, header and body frames) stand ready in one table; a burst copies nothing but the stamps into it and
takes the octets out in one piece. A body larger than a frame is cut into several frames inside the row: the stamp is in
the first one, so the same code serves any size.

Invariant: what :class:`PublishTemplate` builds is octet for octet what pamqp builds for the same messages.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
from pamqp import body, commands, frame, header

FRAME_OVERHEAD: Final = 8
BURST_OCTETS: Final = 256 * 1024
"""A burst is at most this much: what a socket buffer takes at once, and small against any cache."""

_STAMP: Final = np.dtype([("source", ">u4"), ("sequence", ">u8"), ("intended", ">u8"), ("sent", ">u8")])

Nanoseconds = npt.NDArray[np.int64]


class PublishTemplate:
    """Complete publishes to one exchange and routing key; ``burst_max`` of them fit into one burst.

    ``filler`` is what follows the stamp in each body; the body size is the stamp's size and its length. ``rows_max``
    bounds the table for publishers that may never send more at once (thousands of them must fit into memory).
    """

    def __init__(
        self,
        *,
        channel: int,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        persistent: bool,
        source: int,
        filler: bytes,
        frame_max: int,
        rows_max: int,
    ) -> None:
        self.body_size = _STAMP.itemsize + len(filler)
        head = self._head(channel, exchange, routing_key, mandatory, persistent)
        row = head + _body_frames(channel, bytes(_STAMP.itemsize) + filler, frame_max - FRAME_OVERHEAD)
        stamp_at = len(head) + 7
        self.stride = len(row)
        self.burst_max = max(1, min(rows_max, BURST_OCTETS // self.stride))
        self._table = np.frombuffer(row * self.burst_max, np.uint8).reshape(self.burst_max, self.stride).copy()
        stamps = self._table[:, stamp_at : stamp_at + _STAMP.itemsize]
        stamps[:, :4] = np.frombuffer(struct.pack(">I", source), np.uint8)
        self._times = stamps[:, 4:]
        self._offsets = np.arange(self.burst_max, dtype=np.int64)
        self._row = bytearray(row)
        struct.pack_into(">I", self._row, stamp_at, source)
        self._stamp_at = stamp_at + 4

    def _head(self, channel: int, exchange: str, routing_key: str, mandatory: bool, persistent: bool) -> bytes:
        method = commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        properties = commands.Basic.Properties(delivery_mode=2 if persistent else 1)
        content = header.ContentHeader(body_size=self.body_size, properties=properties)
        return frame.marshal(method, channel) + frame.marshal(content, channel)

    def single(self, sequence: int, *, intended_ns: int, sent_ns: int) -> bytes:
        """One publish."""
        struct.pack_into(">QQQ", self._row, self._stamp_at, sequence, intended_ns, sent_ns)
        return bytes(self._row)

    def burst(
        self, sequences: int | Nanoseconds, count: int, *, intended_ns: Nanoseconds | None, sent_ns: int
    ) -> bytes:
        """``count`` publishes (at most ``burst_max``) in one piece.

        ``sequences`` is the first of consecutive ones, or one for each. Without ``intended_ns`` (closed loop) the
        intended time is the sent time.
        """
        times = np.empty((count, 3), ">u8")
        times[:, 0] = self._offsets[:count] + sequences if isinstance(sequences, int) else sequences
        times[:, 1] = sent_ns if intended_ns is None else intended_ns
        times[:, 2] = sent_ns
        self._times[:count] = times.view(np.uint8)
        return self._table[:count].tobytes()


def _body_frames(channel: int, octets: bytes, payload_max: int) -> bytes:
    pieces = (octets[at : at + payload_max] for at in range(0, len(octets), payload_max))
    return b"".join(frame.marshal(body.ContentBody(piece), channel) for piece in pieces)


class AckEncoder:
    """basic.ack frames of one channel; or basic.nack, which differ in their method and one more bit: ``requeue``."""

    def __init__(self, channel: int, *, nack: bool = False, requeue: bool = False) -> None:
        self._head = struct.pack(">BHIHH", 1, channel, 13, 60, 120 if nack else 80)
        self._bits = 2 if nack and requeue else 0
        row = self._head + bytes(9) + b"\xce"
        self._row = np.frombuffer(row, np.uint8)
        self._table = np.tile(self._row, (64, 1))

    def one(self, tag: int, *, multiple: bool) -> bytes:
        """A single frame."""
        return self._head + struct.pack(">QBB", tag, multiple | self._bits, 0xCE)

    def many(self, tags: range, *, multiple: bool) -> bytes:
        """A frame for each tag, in one piece."""
        count = len(tags)
        if count == 1:
            return self.one(tags[0], multiple=multiple)
        if count > len(self._table):
            self._table = np.tile(self._row, (count, 1))
        table = self._table[:count]
        wanted = np.arange(tags.start, tags.stop, tags.step, dtype=np.int64).astype(">u8")
        table[:, 11:19] = wanted.view(np.uint8).reshape(count, 8)
        table[:, 19] = multiple | self._bits
        return table.tobytes()
