"""Publishes and acknowledgements, read as runs: without a Python call per message.

Theory of operation
-------------------
A publisher repeats itself: the octets before the body (method frame, content header frame, head of the body frame:
the *prefix*) are the same from message to message, and so is the length of the whole, the *stride*.
:class:`PublishReader` remembers the last prefix. A buffer that starts with it is looked at as an ``(n, stride)`` array:
n messages are checked by one comparison of the prefix columns and the end octets, and cut out by one copy. Where
properties vary, the octets of the method frame still find the route in a dict, and the content header is checked field
by field; no method is decoded twice. basic.ack, basic.nack and basic.reject are frames of 21 octets, so
:class:`SettleReader` looks at a buffer of them as an array, too.

A reader leaves a frame to the general path if it cannot account for every octet of the frame. A fast path accepts, it
never refuses (except for properties, which both paths check alike, and for unknown delivery tags).

:class:`RunBuilder` gathers the readers' messages: one event for as many messages as possible. A run of publishes ends
at another route, another time to live, an acknowledgement, or its size limit. Acknowledgements of one channel and one
outcome are joined in the same way. Both kinds of events keep the order of the wire.

Invariants: the events do not depend on how the octets were cut into reads, except for where one run ends and the next
begins. A reader consumes whole messages or nothing. When the publish reader waits for more octets (``need``), it waits
for the end of a frame whose head is there, never for a frame that the client may not send.

Back of the envelope: a recv of 256 KiB holds 230 messages of 1 KB; two numpy calls and one copy are 30 us, 0.13 us a
message. Below ``NUMPY_FROM`` messages, slices are quicker: 0.3 us a message and 2 us for the event.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.amqp.channel import Channel, Route
from reference_broker.amqp.errors import ReplyCode, SoftError
from reference_broker.amqp.events import Publish, Settled
from reference_broker.amqp.fields import check_properties
from reference_broker.amqp.frames import (
    BASIC_CLASS,
    BODY,
    CONTENT_HEAD,
    FRAME_END,
    FRAME_HEAD,
    HEADER,
    LONG,
    METHOD,
    OVERHEAD,
)
from reference_broker.amqp.state import ConnectionState
from reference_broker.amqp.unacked import Taken, joined
from reference_broker.message_run import MessageRun
from reference_broker.types import NO_TTL, IdRange, Outcome

ROUTES_MAX: Final = 1024
RUN_MESSAGES_MAX: Final = 1024
RUN_OCTETS_MAX: Final = 1 << 20
NUMPY_FROM: Final = 16
"""Number of messages below which slices are quicker than numpy's fixed cost."""

_PROPERTIES_AT: Final = FRAME_HEAD.size + CONTENT_HEAD.size
_HEADER_FRAME: Final = Struct(">BHIHHQ")
_CONTENT_MIN: Final = _HEADER_FRAME.size + 2 + 1 + OVERHEAD + 1
_PUBLISH_FRAME_MAX: Final = 8 + 4 + 2 + 256 + 256 + 1
_HEADER_PAYLOAD_MIN: Final = CONTENT_HEAD.size + 2

_SETTLE: Final = Struct(">BHIHHQBB")
_SETTLE_OCTETS: Final = _SETTLE.size
_SETTLE_PREFIX_OCTETS: Final = 11
_METHOD_NUMBERS: Final = {
    b"\x00\x00\x00\x0d\x00\x3c\x00\x50": 80,
    b"\x00\x00\x00\x0d\x00\x3c\x00\x5a": 90,
    b"\x00\x00\x00\x0d\x00\x3c\x00\x78": 120,
}
"""The method number of basic.ack, basic.reject and basic.nack, by the octets of length, class and method."""
_ACK: Final = 80
_REJECT: Final = 90


class PublishReader:
    """Reads whole publishes off the front of a buffer."""

    __slots__ = (
        "_columns",
        "_content_at",
        "_last_header",
        "_last_ttl_ms",
        "_method",
        "_prefix",
        "_route",
        "_routes",
        "_run_header",
        "_run_ttl_ms",
        "_runs",
        "_state",
        "_stride",
        "need",
    )

    def __init__(self, state: ConnectionState, runs: RunBuilder) -> None:
        self._state = state
        self._runs = runs
        self._routes: dict[bytes, Route] = {}
        self.need = 0
        """After :meth:`take` took nothing: the octets that must be there before it makes sense to try again, 0 if the
        general path must look at the octets."""
        self.forget()

    def forget(self) -> None:
        """Forget all routes, because a channel was closed."""
        self._routes.clear()
        self._route: Route | None = None
        self._prefix = self._method = b""
        # the last header that was checked, and the header in the remembered prefix; and the times to live in them
        self._last_header = self._run_header = b""
        self._last_ttl_ms = self._run_ttl_ms = NO_TTL
        self._columns: npt.NDArray[np.uint8] | None = None
        self._content_at = self._stride = 0

    def learn(self, method_frame: bytes, route: Route) -> None:
        """Remember where a method frame leads."""
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[method_frame] = route

    def route(self, method_frame: bytes) -> Route | None:
        """The route of a method frame, if it was learned."""
        return self._routes.get(method_frame)

    def take(self, buffer: bytes, at: int) -> int:
        """Consume publishes from ``at`` on. Returns the position after them, ``at`` itself if there was none.

        Raises SoftError and HardError for properties that are not acceptable.
        """
        self.need = 0
        route = self._route
        if route is not None and buffer.startswith(self._prefix, at) and route.channel.takes_runs:
            return self._take_uniform(buffer, at, route)
        if route is not None and buffer.startswith(self._method, at) and route.channel.takes_runs:
            reached = self._take_varied(buffer, at, route)
            if reached > at:
                return reached
        return self._take_known(buffer, at)

    def _take_uniform(self, buffer: bytes, at: int, route: Route) -> int:
        """The buffer goes on with the prefix of the previous message."""
        stride = self._stride
        available = (len(buffer) - at) // stride
        if not available:
            self.need = stride
            return at
        content = at + self._content_at
        if available == 1:
            if buffer[at + stride - 1] != FRAME_END:
                return at
            self._runs.add_publish(route, buffer[content : at + stride], 1, self._run_header, self._run_ttl_ms)
            return at + stride
        limit = min(available, self._runs.room(route, stride - self._content_at))
        if limit >= NUMPY_FROM and buffer.startswith(self._prefix, at + (NUMPY_FROM - 1) * stride):
            count, piece = self._cut_rows(buffer, at, limit)
        else:  # few messages are left, or the run is short: looking at all rows each time would be quadratic
            count, piece = self._cut_slices(buffer, at, min(limit, NUMPY_FROM))
        if count:
            self._runs.add_publish(route, piece, count, self._run_header, self._run_ttl_ms)
        return at + count * stride

    def _cut_slices(self, buffer: bytes, at: int, limit: int) -> tuple[int, bytes]:
        prefix, stride, skip = self._prefix, self._stride, self._content_at
        pieces = []
        for start in range(at, at + limit * stride, stride):
            if not buffer.startswith(prefix, start) or buffer[start + stride - 1] != FRAME_END:
                break
            pieces.append(buffer[start + skip : start + stride])
        return len(pieces), b"".join(pieces)

    def _cut_rows(self, buffer: bytes, at: int, limit: int) -> tuple[int, bytes]:
        if self._columns is None:
            self._columns = np.frombuffer(self._prefix, np.uint8)
        rows = np.frombuffer(buffer, np.uint8, limit * self._stride, at).reshape(limit, self._stride)
        equal = (rows[:, : len(self._prefix)] == self._columns).all(axis=1)
        equal &= rows[:, -1] == FRAME_END
        count = limit if equal.all() else int(equal.argmin())
        return count, rows[:count, self._content_at :].tobytes()

    def _take_varied(self, buffer: bytes, at: int, route: Route) -> int:
        """Consume whole messages with the method frame of the previous message and one time to live, whose content
        headers differ. Stops at the first message of another kind."""
        size, method, number = len(buffer), self._method, route.channel.number
        payload_max = self._state.payload_max
        body_max = min(payload_max, self._state.config.max_message_bytes)
        pieces: list[bytes] = []
        accepted, ttl_ms = self._last_header, self._last_ttl_ms
        try:
            for _ in range(self._runs.room(route, _CONTENT_MIN)):
                content = at + len(method)
                if size - content < _CONTENT_MIN or not buffer.startswith(method, at):
                    break
                kind, channel, length, class_id, weight, body_size = _HEADER_FRAME.unpack_from(buffer, content)
                body = content + OVERHEAD + length
                end = body + OVERHEAD + body_size
                if (
                    end > size
                    or (kind, channel, class_id, weight) != (HEADER, number, BASIC_CLASS, 0)
                    or not _HEADER_PAYLOAD_MIN <= length <= payload_max
                    or not 0 < body_size <= body_max
                    or FRAME_HEAD.unpack_from(buffer, body) != (BODY, number, body_size)
                    or buffer[body - 1] != FRAME_END
                    or buffer[end - 1] != FRAME_END
                    or (header := buffer[content:body]) == accepted  # the messages are uniform after all
                ):
                    break
                found_ms = check_properties(buffer, content + _PROPERTIES_AT, body - 1, self._state.user_id)
                if found_ms != ttl_ms:
                    if pieces:
                        break
                    ttl_ms = found_ms
                accepted = header
                pieces.append(buffer[content:end])
                at = end
        finally:  # the messages before a refused message were accepted
            if pieces:
                self._runs.add_varied(route, pieces, accepted, ttl_ms)
                self._last_header, self._last_ttl_ms = accepted, ttl_ms
        return at

    def _take_known(self, buffer: bytes, at: int) -> int:
        """Consume one message whose method frame is known and whose content has one body frame or none."""
        size = len(buffer)
        if size - at < FRAME_HEAD.size or buffer[at] != METHOD:
            return at
        content = at + OVERHEAD + LONG.unpack_from(buffer, at + 3)[0]
        if content > size or content - at > _PUBLISH_FRAME_MAX:
            return at
        route = self._routes.get(buffer[at:content])
        if route is None or not route.channel.takes_runs:
            return at
        header_end, body_size = self._header(buffer, at, content, route.channel.number)
        if not header_end:
            return at
        header = buffer[content:header_end]
        if header != self._last_header:
            self._last_ttl_ms = check_properties(header, _PROPERTIES_AT, len(header) - 1, self._state.user_id)
            self._last_header = header
        if body_size:
            return self._with_body(buffer, at, content, header_end, body_size, route)
        self._runs.add_publish(route, header, 1, None, self._last_ttl_ms)
        return header_end

    def _header(self, buffer: bytes, at: int, content: int, number: int) -> tuple[int, int]:
        """The end of the content header frame, and the body size in it; 0, 0 if the frame is not whole or not valid."""
        size = len(buffer)
        if size - content < FRAME_HEAD.size:
            self.need = content - at + FRAME_HEAD.size
            return 0, 0
        kind, channel, length = FRAME_HEAD.unpack_from(buffer, content)
        if kind != HEADER or channel != number or not _HEADER_PAYLOAD_MIN <= length <= self._state.payload_max:
            return 0, 0
        end = content + OVERHEAD + length
        if end > size:
            self.need = end - at
            return 0, 0
        class_id, weight, body_size = CONTENT_HEAD.unpack_from(buffer, content + FRAME_HEAD.size)
        limit = min(self._state.payload_max, self._state.config.max_message_bytes)
        if buffer[end - 1] != FRAME_END or class_id != BASIC_CLASS or weight or body_size > limit:
            return 0, 0
        return end, body_size

    def _with_body(self, buffer: bytes, at: int, content: int, header_end: int, body_size: int, route: Route) -> int:
        size = len(buffer)
        body = header_end + FRAME_HEAD.size
        if body > size:
            self.need = body - at
            return at
        kind, channel, length = FRAME_HEAD.unpack_from(buffer, header_end)
        if kind != BODY or channel != route.channel.number or length != body_size:
            return at
        end = body + body_size + 1
        if end > size:
            self.need = end - at
            return at
        if buffer[end - 1] != FRAME_END:
            return at
        self._remember(route, buffer[at:body], content - at, end - at)
        self._runs.add_publish(route, buffer[content:end], 1, self._last_header, self._last_ttl_ms)
        return end

    def _remember(self, route: Route, prefix: bytes, content_at: int, stride: int) -> None:
        self._route, self._prefix = route, prefix
        self._run_header, self._run_ttl_ms = self._last_header, self._last_ttl_ms
        self._method = prefix[:content_at]
        self._content_at, self._stride, self._columns = content_at, stride, None


class SettleReader:
    """Reads basic.ack, basic.nack and basic.reject off the front of a buffer."""

    __slots__ = ("_channels", "_runs")

    def __init__(self, channels: Mapping[int, Channel], runs: RunBuilder) -> None:
        self._channels = channels
        self._runs = runs

    def take(self, buffer: bytes, at: int) -> int:
        """Consume acknowledgements from ``at`` on. Returns the position after them, ``at`` itself if there was none.

        Raises SoftError 406 for a delivery tag that is not unacknowledged on its channel; the tags before it count.
        """
        method = _METHOD_NUMBERS.get(buffer[at + 3 : at + _SETTLE_PREFIX_OCTETS])
        if method is None or len(buffer) - at < _SETTLE_OCTETS:
            return at
        kind, number, _length, _class, _method, tag, bits, end = _SETTLE.unpack_from(buffer, at)
        channel = self._channels.get(number)
        if kind != METHOD or end != FRAME_END or channel is None or not channel.takes_runs:
            return at
        if method != _REJECT and bits & 1:
            self._settle_multiple(channel, tag, method, bits)
            return at + _SETTLE_OCTETS
        far = at + _SETTLE_OCTETS * (NUMPY_FROM - 1)
        if buffer[far : far + _SETTLE_PREFIX_OCTETS] == buffer[at : at + _SETTLE_PREFIX_OCTETS]:
            return self._take_rows(buffer, at, channel, method, bits)
        self._settle(channel, tag, tag, method, bits)
        return at + _SETTLE_OCTETS

    def _take_rows(self, buffer: bytes, at: int, channel: Channel, method: int, bits: int) -> int:
        """Consume many frames that differ in their delivery tags alone."""
        limit = (len(buffer) - at) // _SETTLE_OCTETS
        rows = np.frombuffer(buffer, np.uint8, limit * _SETTLE_OCTETS, at).reshape(limit, _SETTLE_OCTETS)
        equal = (rows[:, :_SETTLE_PREFIX_OCTETS] == rows[0, :_SETTLE_PREFIX_OCTETS]).all(axis=1)
        equal &= (rows[:, -2] == bits) & (rows[:, -1] == FRAME_END)
        count = limit if equal.all() else int(equal.argmin())
        tags = rows[:count, _SETTLE_PREFIX_OCTETS:-2].copy().view(">u8").ravel().astype(np.uint64)
        # Neighbours are compared, not subtracted: a client may well send 2**64 - 1 and then 0.
        breaks = np.flatnonzero((tags[1:] != tags[:-1] + np.uint64(1)) | (tags[1:] == 0)).tolist()
        for first, last in zip([0, *(b + 1 for b in breaks)], [*breaks, count - 1], strict=True):
            self._settle(channel, int(tags[first]), int(tags[last]), method, bits)
        return at + count * _SETTLE_OCTETS

    def _settle(self, channel: Channel, first: int, last: int, method: int, bits: int) -> None:
        taken, missing = channel.unacked.take(first, last)
        self._runs.add_settled(channel, _outcome(method, bits), taken)
        if missing is not None:
            raise _unknown_tag(missing, method)

    def _settle_multiple(self, channel: Channel, tag: int, method: int, bits: int) -> None:
        """Settle every tag up to this one. Tag 0 stands for all tags; any other tag must itself be unacknowledged."""
        if tag and not channel.unacked.holds(tag):
            raise _unknown_tag(tag, method)
        taken = channel.unacked.take_up_to(tag) if tag else channel.unacked.take_all()
        self._runs.add_settled(channel, _outcome(method, bits), taken)


def _unknown_tag(tag: int, method: int) -> SoftError:
    return SoftError(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}", (BASIC_CLASS, method))


def _outcome(method: int, bits: int) -> Outcome:
    if method == _ACK:
        return Outcome.SETTLE
    requeue = bits & 1 if method == _REJECT else bits & 2
    return Outcome.RETURN if requeue else Outcome.DISCARD


class RunBuilder:
    """Turns consecutive publishes to one route, and consecutive acknowledgements of one kind, into events."""

    __slots__ = (
        "_counts",
        "_header",
        "_messages",
        "_octets",
        "_outcome",
        "_pieces",
        "_route",
        "_settled",
        "_settling",
        "_state",
        "_ttl_ms",
    )

    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        self._ttl_ms = NO_TTL
        self._route: Route | None = None
        self._pieces: list[bytes] = []
        self._counts: list[int] = []
        self._messages = 0
        self._octets = 0
        self._header: bytes | None = None
        self._settling: Channel | None = None
        self._outcome = Outcome.SETTLE
        self._settled: dict[str, list[IdRange]] = {}

    def add_publish(self, route: Route, piece: bytes, count: int, header: bytes | None, ttl_ms: int) -> None:
        """``piece`` holds ``count`` contents of equal length; ``header`` is the content header frame they share if
        each has exactly one body frame, else None."""
        self._begin(route, count, len(piece), header, ttl_ms)
        self._pieces.append(piece)
        self._counts.append(count)

    def add_varied(self, route: Route, pieces: list[bytes], header: bytes, ttl_ms: int) -> None:
        """Each piece is one content with one body frame and its own header. ``header`` is the header of the last."""
        self._begin(route, len(pieces), sum(map(len, pieces)), header if len(pieces) == 1 else None, ttl_ms)
        self._pieces += pieces
        self._counts += [1] * len(pieces)

    def _begin(self, route: Route, count: int, octets: int, header: bytes | None, ttl_ms: int) -> None:
        """Make room for ``count`` messages: end the run at hand unless the messages belong to it and fit in."""
        if self._settling is not None:
            self._flush_settled()
        self._messages += count
        self._octets += octets
        if (
            self._route is not route
            or self._ttl_ms != ttl_ms
            or self._messages > RUN_MESSAGES_MAX
            or self._octets > RUN_OCTETS_MAX
        ):
            if self._route is not None:
                self._messages -= count
                self._flush_publish()
            self._route, self._header, self._ttl_ms = route, header, ttl_ms
            self._messages, self._octets = count, octets
        elif self._header != header:
            self._header = None

    def room(self, route: Route, octets: int) -> int:
        """Messages of ``octets`` octets that the run of ``route`` can still take. A full run gives way to a new run."""
        if self._route is route:
            left = min(RUN_MESSAGES_MAX - self._messages, (RUN_OCTETS_MAX - self._octets) // octets)
            if left > 0:
                return left
        return min(RUN_MESSAGES_MAX, max(RUN_OCTETS_MAX // octets, 1))

    def add_settled(self, channel: Channel, outcome: Outcome, taken: list[Taken]) -> None:
        """A client has settled, returned or discarded messages, as ``outcome`` says."""
        if self._route is not None:
            self._flush_publish()
        if self._settling is not channel or self._outcome is not outcome:
            self._flush_settled()
            self._settling, self._outcome = channel, outcome
        for tag, first, last in taken:
            ranges = self._settled.get(tag)
            if ranges is None:
                self._settled[tag] = [(first, last)]
            elif ranges[-1][1] + 1 == first:
                ranges[-1] = (ranges[-1][0], last)
            else:
                ranges.append((first, last))

    def flush(self) -> None:
        """Emit the run at hand: before anything else happens on the connection, and at the end of a read."""
        if self._route is not None:
            self._flush_publish()
        if self._settling is not None:
            self._flush_settled()

    def _flush_publish(self) -> None:
        route = self._route
        if route is None:
            return
        channel, count = route.channel, self._messages
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        if self._header is not None:
            run = MessageRun(count, route.octets, data, len(data) // count)
        else:
            run = MessageRun(count, route.octets, data, 0, self._ends())
        seq = channel.confirms.published(count) if channel.confirms is not None else 0
        self._state.events.append(
            Publish(channel.number, route.exchange, route.routing_key, route.mandatory, seq, run, self._ttl_ms)
        )
        self._route = None
        self._pieces, self._counts = [], []
        self._messages = self._octets = 0

    def _ends(self) -> npt.NDArray[np.uint32]:
        """The end of each content of a ragged run."""
        strides = [len(piece) // count for piece, count in zip(self._pieces, self._counts, strict=True)]
        return np.cumsum(np.repeat(strides, self._counts), dtype=np.uint32)

    def _flush_settled(self) -> None:
        channel, self._settling = self._settling, None
        if channel is None:
            return
        for tag, ranges in self._settled.items():
            in_order = tuple(ranges) if len(ranges) == 1 else joined(ranges)
            self._state.events.append(Settled(channel.number, tag, self._outcome, in_order))
        self._settled = {}
