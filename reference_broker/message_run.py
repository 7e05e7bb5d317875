"""A run of messages: the unit in which messages move through this broker.

Theory of operation
-------------------
A burst of n publishes is, on the wire, n times a method frame with a *content* (content header frame and body frames).
The broker never decodes a content: it strips the method frames and keeps the contents as one slice of raw octets. Two
layouts exist:

``uniform``
    all contents have the same length (``stride``), the same content header frame, and exactly one body frame. All work
    on such a run is a numpy operation on an ``(n, stride)`` array of octets.
``ragged``
    all other runs: bodies of several frames, empty bodies, differing sizes or properties. ``ends[i]`` is the end of
    content ``i`` within ``data``.

The frames contain the number of the publishing channel, which delivery rewrites. ``route`` holds the exchange and the
routing key as two AMQP short strings, back to back, as in basic.deliver.

Back of the envelope: encoding or decoding a run costs a fixed 1-2 us. Per message it costs only the copy of the octets
(0.1 us per KB).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.records import record

_HEAD: Final = Struct(">BIIHIIQII")  # layout, count, stride, octets of route, octets of data, stamp
_BODY_SIZE: Final = Struct(">Q")
_BODY_SIZE_AT: Final = 11  # in a content header frame: behind frame type, channel, size, class and weight
_BODY_SIZE_END: Final = _BODY_SIZE_AT + _BODY_SIZE.size
UNIFORM: Final = 1
RAGGED: Final = 2

Stamp = tuple[int, int, int, int]
"""Times of a run for the latency anatomy: the clock (0: none); the ns on that clock at which the run was read from its
publisher's socket; the ns from then until the run was proposed to its queue; the ns from then until a follower sent it
to the leader (0: no follower did). The durations have 32 bits; :func:`stamped` cuts off longer durations."""

NO_STAMP: Final[Stamp] = (0, 0, 0, 0)
_NS_MAX: Final = 2**32 - 1


class DamagedRunError(ValueError):
    """The octets are not an encoded run. The cause is a bug or a damaged log, never a client."""


@record
class MessageRun:
    """``count`` messages that were published to one route, in order.

    ``stride`` is the octets per content of a uniform run, and 0 for a ragged run. ``ends`` is None for a uniform run.
    ``data`` may be a view into a log entry: a run is never changed.
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
        """Octets of each body of a uniform run; for a ragged run, about the octets per content.

        A content that is too short for a header has no body, and no body is longer than its content.
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
        """The same messages as runs of at most ``count_max`` messages. Bodies are views, not copies."""
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


def without_first(slices: list[RunSlice], count: int) -> list[RunSlice]:
    """The slices without their first ``count`` messages."""
    rest: list[RunSlice] = []
    for run, start, length, step in slices:
        if count >= length:
            count -= length
            continue
        rest.append((run, start + count * step, length - count, step))
        count = 0
    return rest


def encoded_size(data: bytes | memoryview, offset: int) -> int:
    """The size in octets of the run encoded at ``offset``, without decoding the run."""
    layout, count, _stride, route_size, data_size, *_stamp = _HEAD.unpack_from(data, offset)
    table = 4 * count if layout == RAGGED else 0
    return _HEAD.size + int(route_size) + table + int(data_size)


def decode(data: bytes | memoryview, offset: int) -> MessageRun:
    """Read the run that :meth:`MessageRun.buffers` put at ``offset``. Bodies are views, not copies.

    Raises :class:`DamagedRunError` when the octets cannot be a run.
    """
    return decode_to_end(data, offset)[0]


def decode_to_end(data: bytes | memoryview, offset: int) -> tuple[MessageRun, int]:
    """As :func:`decode`, and the offset behind the run."""
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
        return MessageRun(count, route, view[data_at:end], stride, None, stamp), end
    if layout != RAGGED or stride:
        raise DamagedRunError(f"run at offset {offset}: layout {layout}, {count} x {stride} != {data_size} octets")
    ends = np.frombuffer(view, ">u4", count, table_at).astype(np.uint32)
    if ends[-1] != data_size:
        raise DamagedRunError(f"run at offset {offset}: contents end at {ends[-1]}, data at {data_size}")
    return MessageRun(count, route, view[data_at:end], 0, ends, stamp), end


def stamped(run: MessageRun, clock: int, read: int, proposed: int, sent: int = 0) -> MessageRun:
    """The run with its stamp: ns of ``clock`` at which it was read, proposed, and sent to the leader (0: not sent)."""
    parsed, waited = min(max(proposed - read, 0), _NS_MAX), min(max(sent - proposed, 0), _NS_MAX)
    return MessageRun(run.count, run.route, run.data, run.stride, run.ends, (clock, read, parsed, waited))
