"""Publishes and acknowledgements gathered into runs: one event for as many of them as possible.

A run of publishes ends at another route, another time to live, an acknowledgement, or its size limit. Acknowledgements
of one channel and one outcome are joined in the same way. Both kinds of events keep the order of the wire.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.amqp.channel import Channel, Route
from reference_broker.amqp.events import Outcome, Publish, Settled
from reference_broker.amqp.state import ConnectionState
from reference_broker.amqp.unacked import Taken, joined
from reference_broker.machines.commands import NO_TTL, IdRange
from reference_broker.message_run import MessageRun

RUN_MESSAGES_MAX: Final = 1024
RUN_OCTETS_MAX: Final = 1 << 20
NUMPY_FROM: Final = 16
"""Below this number of messages, slices are quicker than numpy's fixed cost."""


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
