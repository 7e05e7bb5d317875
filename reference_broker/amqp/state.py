"""The state that the parts of one connection share: what was negotiated, the events for the broker, the output.

Events go to the broker, octets go to the client. Both lists only grow until the connection empties them, so they keep
the order in which things happened.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pamqp import base

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.events import Event, FieldValue
from reference_broker.amqp.frames import FRAME_MIN_SIZE, method_frame

Octets = bytes | memoryview
"""A buffer to write. A view spares the copy of a freshly built run."""


class Phase(Enum):
    """The progress of a connection."""

    HEADER = auto()
    STARTING = auto()
    TUNING = auto()
    OPENING = auto()
    RUNNING = auto()
    LEAVING = auto()
    CLOSING = auto()
    REFUSING = auto()
    CLOSED = auto()


OVER: Final = frozenset({Phase.LEAVING, Phase.CLOSING, Phase.REFUSING, Phase.CLOSED})
"""The phases in which no method of the client has an effect any more."""


class ConnectionState:
    """The state that the channels and readers of a connection share with it."""

    __slots__ = (
        "_tags",
        "capabilities",
        "channel_max",
        "client_properties",
        "config",
        "events",
        "frame_max",
        "heartbeat_s",
        "output",
        "payload_max",
        "user",
        "user_id",
        "vhost",
    )

    def __init__(self, config: ConnectionConfig) -> None:
        self.config = config
        self.events: list[Event] = []
        self.output: list[Octets] = []
        self.user = ""
        """The user who logged in; empty before that."""
        self.user_id: str | None = ""
        """The user id that messages may carry; None: any."""
        self.vhost = ""
        """The virtual host; empty before connection.open."""
        self.client_properties: dict[str, FieldValue] = {}
        self.capabilities: frozenset[str] = frozenset()
        """The capabilities that the client has announced."""
        self._tags = 0
        self.channel_max = config.channel_max
        self.heartbeat_s = 0
        """The heartbeat that was agreed on; 0: none."""
        self.limit_frames(FRAME_MIN_SIZE)  # until the client has chosen: an unknown client gets no larger frames

    def limit_frames(self, frame_max: int) -> None:
        """Agree on the octets of the largest frame, for both directions. As in RabbitMQ, a client's frame may be larger
        by its overhead: some clients count the payload alone."""
        self.frame_max = self.payload_max = frame_max

    def new_tag(self) -> str:
        """A consumer tag that no other consumer of the connection has: clients know consumers by their tags alone."""
        self._tags += 1
        return f"amq.ctag-{self.config.tag_nonce}-{self._tags}"

    def send(self, channel: int, method: base.Frame) -> None:
        """Queue one method for the client."""
        self.output.append(method_frame(channel, method))
