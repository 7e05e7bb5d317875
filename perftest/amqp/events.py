"""What the protocol core tells the shell. Runs arrive as runs; everything cold arrives as pamqp's own objects.

The three that come with every message (:class:`Confirms`, :class:`Delivery`, :class:`DeliveryRun`) are not frozen only
because building a frozen instance costs three times as much; nobody changes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pamqp.base import Frame as Method

Octets = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Opened:
    """connection.open-ok: the handshake is over. ``server_properties`` are those of connection.start."""

    server_properties: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """A synchronous answer (``*-ok``) on a channel."""

    channel: int
    method: Method


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """The broker closed the channel (channel.close-ok is already in the output)."""

    channel: int
    code: int
    text: str
    method: str


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The broker closed the connection (connection.close-ok is already in the output), or answered our own close:
    then ``code`` is 200. ``stage`` names the handshake step that was refused, if it was still going on."""

    code: int
    text: str
    method: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Blocked:
    """connection.blocked: the broker will not read publishes until :class:`Unblocked`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """connection.unblocked."""


@dataclass(frozen=True, slots=True)
class ConsumerCancelled:
    """basic.cancel from the broker: the queue is gone or moved."""

    channel: int
    consumer_tag: str


@dataclass(slots=True)
class Confirms:
    """Publisher confirms of one kind, in the order they came.

    ``multiple``: everything up to and including ``tags[-1]``; else exactly ``tags``.
    """

    channel: int
    tags: npt.NDArray[np.int64] | tuple[int, ...]
    multiple: bool
    nack: bool


@dataclass(slots=True)
class Delivery:
    """One basic.deliver, or basic.get-ok, with its content in one piece (any number of body frames, any properties).

    ``stamp`` is that of the header ``perftest``, None where there is none.
    """

    channel: int
    tag: int
    redelivered: bool
    body: bytes
    stamp: bytes | None = None


@dataclass(slots=True)
class DeliveryRun:
    """Deliveries of one shape: same consumer, same routing, same body size, consecutive delivery tags.

    ``bodies`` is a view, one row per message, into the receive buffer: copy what must outlive the handling of the
    event; so is ``stamps``, those of the header ``perftest`` (None where there is none). ``redelivered`` has one 0 or 1
    per row.
    """

    channel: int
    first_tag: int
    redelivered: Octets
    bodies: Octets
    stamps: Octets | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    def first(self, count: int) -> DeliveryRun:
        """The first ``count`` of them."""
        stamps = None if self.stamps is None else self.stamps[:count]
        return DeliveryRun(self.channel, self.first_tag, self.redelivered[:count], self.bodies[:count], stamps)


@dataclass(frozen=True, slots=True)
class GetEmpty:
    """basic.get-empty: the queue had nothing."""

    channel: int


@dataclass(frozen=True, slots=True)
class Returned:
    """basic.return of a mandatory message that no queue took. ``body`` as it was sent, ``stamp`` as in
    :class:`Delivery`."""

    channel: int
    code: int
    text: str
    body: bytes
    stamp: bytes | None = None


Event = (
    Opened
    | Reply
    | ChannelEnded
    | ConnectionEnded
    | Blocked
    | Unblocked
    | ConsumerCancelled
    | Confirms
    | Delivery
    | DeliveryRun
    | GetEmpty
    | Returned
)
