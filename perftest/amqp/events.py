"""The events of a connection, as the protocol core tells them to the shell.

Deliveries and confirms arrive as runs. Answers arrive as pamqp's own objects. :class:`Confirms`, :class:`Delivery` and
:class:`DeliveryRun` come with every message. They are not frozen, because building a frozen instance takes three times
as long; but they are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pamqp.base import Frame as Method

Octets = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Opened:
    """connection.open-ok: the handshake is over. ``server_properties`` come from connection.start."""

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
    """The broker closed the connection (connection.close-ok is already in the output), or it answered the close of this
    client with ``code`` 200. ``stage`` is the stage in which the connection ended."""

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
    """Publisher confirms of one kind, in the order in which they came.

    With ``multiple``, they stand for every tag up to and including ``tags[-1]``; without, for exactly ``tags``.
    """

    channel: int
    tags: npt.NDArray[np.int64] | tuple[int, ...]
    multiple: bool
    nack: bool


@dataclass(slots=True)
class Delivery:
    """One basic.deliver, or basic.get-ok, with its content in one piece (any number of body frames, any properties).

    ``stamp`` is the stamp in the header ``perftest``, None if there is no such header.
    """

    channel: int
    tag: int
    redelivered: bool
    body: bytes
    stamp: bytes | None = None


@dataclass(slots=True)
class DeliveryRun:
    """Deliveries of one shape: same consumer, same routing, same body size, consecutive delivery tags.

    ``bodies`` is a view into the receive buffer, one row per message. So is ``stamps``, with the stamps of the header
    ``perftest``; it is None if there is no such header. Copy rows that must outlive the handling of the event.
    ``redelivered`` has one 0 or 1 per row.
    """

    channel: int
    first_tag: int
    redelivered: Octets
    bodies: Octets
    stamps: Octets | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    def first(self, count: int) -> DeliveryRun:
        """The first ``count`` deliveries."""
        stamps = None if self.stamps is None else self.stamps[:count]
        return DeliveryRun(self.channel, self.first_tag, self.redelivered[:count], self.bodies[:count], stamps)


@dataclass(frozen=True, slots=True)
class GetEmpty:
    """basic.get-empty: the queue had nothing."""

    channel: int


@dataclass(frozen=True, slots=True)
class Returned:
    """basic.return of a mandatory message that no queue took. ``body`` is the body as it was sent, ``stamp`` the stamp
    as in :class:`Delivery`."""

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
