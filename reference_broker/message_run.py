"""A run of messages: the unit in which everything in this broker moves.

Theory of operation
-------------------
A publisher that sends a burst produces, on the wire, n times the same method frame followed by n
*contents* (content header frame and body frames). The broker never decodes a content on its way through:
it strips the method frame and keeps the contents as one slice of raw octets. Two layouts exist:

``uniform``
    every content has the same length (``stride``), the same content header frame, and exactly one body
    frame. All work on such a run is a numpy operation on an ``(n, stride)`` array of octets.
``ragged``
    anything else: bodies of several frames, empty bodies, differing sizes or properties. ``ends[i]`` is
    the end of content ``i`` within ``data``.

The channel number inside the frames is that of the publishing channel and is rewritten on delivery.
``route`` holds the exchange and the routing key of the publish as two AMQP short strings, back to back,
just as basic.deliver wants them.

Back of the envelope: encoding and decoding a run costs a fixed 1-2 us; per message it costs the copy of
the octets (0.1 us per KB) and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

_HEAD: Final = Struct(">BIIHIIQII")  # layout, count, stride, octets of route, octets of data, stamp
_BODY_SIZE: Final = Struct(">Q")
_BODY_SIZE_AT: Final = 11  # in a content header frame: behind frame type, channel, size, class and weight
_BODY_SIZE_END: Final = _BODY_SIZE_AT + _BODY_SIZE.size
UNIFORM: Final = 1
RAGGED: Final = 2

Stamp = tuple[int, int, int, int]
"""When a run was read from its publisher's socket, for the latency anatomy: which clock (0: none), ns on it, ns from
there until it was proposed to its queue, and from there until a follower sent it to the leader (0: it did not).
The durations have 32 bits; longer ones are cut off by :func:`stamped`."""

NO_STAMP: Final[Stamp] = (0, 0, 0, 0)
_NS_MAX: Final = 2**32 - 1


class DamagedRunError(ValueError):
    """The octets are not an encoded run: a bug or a damaged log, never a client's doing."""


@dataclass(frozen=True, slots=True)
class MessageRun:
    """``count`` messages that were published to one route, in order.

    ``stride`` is the octets per content of a uniform run and 0 for a ragged one; ``ends`` is empty for a
    uniform run. ``data`` may be a view into a log entry: a run is never written to.
    """

    count: int
    route: bytes
    data: bytes | memoryview
    stride: int = 0
    ends: npt.NDArray[np.uint32] | None = None
    stamp: Stamp = NO_STAMP

    @classmethod
    def of(cls, route: bytes, contents: list[bytes]) -> MessageRun:
        """A ragged run of single contents, as the general parser yields them."""
        ends = np.cumsum([len(content) for content in contents], dtype=np.uint32)
        return cls(len(contents), route, b"".join(contents), 0, ends)

    def buffers(self) -> list[bytes | memoryview]:
        """The run as buffers to be joined into a log entry; :func:`decode` reads them back."""
        layout = UNIFORM if self.stride else RAGGED
        head = _HEAD.pack(layout, self.count, self.stride, len(self.route), len(self.data), *self.stamp)
        if self.ends is None:
            return [head, self.route, self.data]
        return [head, self.route, self.ends.astype(">u4").tobytes(), self.data]

    def content(self, position: int) -> bytes:
        """The raw frames of one message."""
        if self.ends is None:
            start = position * self.stride
            return bytes(self.data[start : start + self.stride])
        start = int(self.ends[position - 1]) if position else 0
        return bytes(self.data[start : int(self.ends[position])])

    def content_size(self, position: int) -> int:
        """Octets of the raw frames of one message."""
        if self.ends is None:
            return self.stride
        return int(self.ends[position]) - (int(self.ends[position - 1]) if position else 0)

    @property
    def body_size(self) -> int:
        """Octets of the body of each message of a uniform run; of a ragged one, the octets per content, about.

        Octets that are no content (too short for a header) have no body, and no body is longer than its content.
        """
        content_size = self.stride
        if not content_size:
            content_size = len(self.data) // self.count
            if self.count > 1:
                return content_size
        if content_size < _BODY_SIZE_END:
            return 0
        size = int(_BODY_SIZE.unpack_from(self.data, _BODY_SIZE_AT)[0])
        return size if size < content_size else content_size

    def body_sizes(self) -> npt.NDArray[np.int64]:
        """Octets of each message's body, shape (count,)."""
        if self.ends is None:
            return np.full(self.count, self.body_size, np.int64)
        ends = self.ends.astype(np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        sizes = np.zeros(self.count, np.int64)
        whole = np.flatnonzero((ends - starts >= _BODY_SIZE_END) & (ends <= len(self.data)))
        places = starts[whole, None] + np.arange(_BODY_SIZE_AT, _BODY_SIZE_END)
        stated = np.frombuffer(self.data, np.uint8)[places].copy().view(">u8").reshape(-1)
        sizes[whole] = np.minimum(stated, (ends - starts)[whole].astype(np.uint64)).astype(np.int64)
        return sizes

    def parts(self, count_max: int) -> Iterator[MessageRun]:
        """The same messages as runs of at most so many. Bodies are views, not copies."""
        if self.count <= count_max:
            yield self
            return
        view = memoryview(self.data)
        for first in range(0, self.count, count_max):
            count = min(count_max, self.count - first)
            if self.ends is None:
                data = view[first * self.stride : (first + count) * self.stride]
                yield replace(self, count=count, data=data)
                continue
            start = int(self.ends[first - 1]) if first else 0
            ends = self.ends[first : first + count]
            yield replace(self, count=count, data=view[start : int(ends[-1])], ends=ends - np.uint32(start))

    def rows(self, start: int, stop: int, step: int = 1) -> npt.NDArray[np.uint8]:
        """Messages ``start, start+step, ...`` below ``stop`` of a uniform run, shape (n, stride)."""
        octets = np.frombuffer(self.data, np.uint8, self.count * self.stride)
        return octets.reshape(self.count, self.stride)[start:stop:step]


RunSlice = tuple[MessageRun, int, int, int]
"""Run, start, count, step: the messages ``start, start + step, ...`` of a run, ``count`` of them."""


def encoded_size(data: bytes | memoryview, offset: int) -> int:
    """Octets that the run encoded at ``offset`` takes, without decoding it."""
    layout, count, _stride, route_size, data_size, *_stamp = _HEAD.unpack_from(data, offset)
    table = 4 * count if layout == RAGGED else 0
    return _HEAD.size + int(route_size) + table + int(data_size)


def decode(data: bytes | memoryview, offset: int) -> MessageRun:
    """Read the run that :meth:`MessageRun.buffers` put at ``offset``. Bodies are views, not copies.

    Raises :class:`DamagedRunError` when the octets cannot be a run.
    """
    if len(data) < offset + _HEAD.size:
        raise DamagedRunError(f"run at offset {offset}: its head is cut off, {len(data)} octets in all")
    layout, count, stride, route_size, data_size, clock, read, parsed, waited = _HEAD.unpack_from(data, offset)
    stamp = (clock, read, parsed, waited)
    view = memoryview(data)
    route_at = offset + _HEAD.size
    table_at = route_at + route_size
    data_at = table_at + (4 * count if layout == RAGGED else 0)
    end = data_at + data_size
    if end > len(view) or not count:
        raise DamagedRunError(f"run at offset {offset}: {count} messages up to octet {end} of {len(view)}")
    route = bytes(view[route_at:table_at])
    if layout == UNIFORM and stride and stride * count == data_size:
        return MessageRun(count, route, view[data_at:end], stride, None, stamp)
    if layout != RAGGED or stride:
        raise DamagedRunError(f"run at offset {offset}: layout {layout}, {count} x {stride} != {data_size} octets")
    ends = np.frombuffer(view, ">u4", count, table_at).astype(np.uint32)
    if ends[-1] != data_size:
        raise DamagedRunError(f"run at offset {offset}: contents end at {ends[-1]}, data at {data_size}")
    return MessageRun(count, route, view[data_at:end], 0, ends, stamp)


def stamped(run: MessageRun, clock: int, read: int, proposed: int, sent: int = 0) -> MessageRun:
    """The run with its stamp: ns of ``clock`` at which it was read, proposed, and (0: not) sent on to the leader."""
    parsed, waited = min(max(proposed - read, 0), _NS_MAX), min(max(sent - proposed, 0), _NS_MAX)
    return MessageRun(run.count, run.route, run.data, run.stride, run.ends, (clock, read, parsed, waited))
