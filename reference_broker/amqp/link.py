"""What the parts of one connection share: its settings, what was negotiated, and the two ways out.

Events go to the broker, octets to the client. Both are lists that only ever grow until their owner empties them, so
whatever order things are appended in is the order they happen in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pamqp import base

from reference_broker.amqp.events import Event, FieldValue
from reference_broker.amqp.frames import method_frame

Octets = bytes | memoryview
"""A buffer to write. Views spare the copy of a freshly built run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """What a node offers to its clients. The defaults are RabbitMQ 3.10's."""

    users: Mapping[str, str]
    """Password by user name."""
    vhosts: frozenset[str] = frozenset({"/"})
    frame_max: int = 131_072
    """Octets of the largest frame, its eight octets of overhead included."""
    channel_max: int = 2047
    """Open channels per connection; the numbers themselves may be anything up to 65,535."""
    heartbeat_s: int = 60
    """What tune proposes; the client decides. 0: none."""
    max_message_bytes: int = 128 * 1024 * 1024
    handshake_timeout_s: float = 10.0
    refusal_delay_s: float = 3.0
    """How long a refused client waits for its socket to close: slows down the guessing of passwords."""
    close_timeout_s: float = 10.0
    """How long to wait for connection.close-ok."""
    product: str = "reference_broker"
    version: str = "0.1.0"
    platform: str = "Python"
    cluster_name: str = "reference"
    node_properties: Mapping[str, FieldValue] = field(default_factory=dict)
    """More server properties for connection.start, such as the node's name."""

    def __post_init__(self) -> None:
        """Refuse settings that no client could live with."""
        if not 4096 <= self.frame_max <= 16 * 1024 * 1024:
            raise ValueError(f"frame_max is {self.frame_max}: AMQP needs 4096 at least, memory 16 MiB at most")
        if not 1 <= self.channel_max <= 65_535:
            raise ValueError(f"channel_max is {self.channel_max}: use 1 to 65535")
        if not 0 <= self.heartbeat_s <= 65_535:
            raise ValueError(f"heartbeat_s is {self.heartbeat_s}: use 0 (none) to 65535")


class Link:
    """The state that channels and fast path share with their connection."""

    __slots__ = (
        "capabilities",
        "client_properties",
        "config",
        "events",
        "frame_max",
        "output",
        "payload_max",
        "user",
        "vhost",
    )

    def __init__(self, config: ConnectionConfig) -> None:
        self.config = config
        self.events: list[Event] = []
        self.output: list[Octets] = []
        self.user = ""
        self.vhost = ""
        self.client_properties: dict[str, FieldValue] = {}
        self.capabilities: frozenset[str] = frozenset()
        self.limit_frames(config.frame_max)

    def limit_frames(self, frame_max: int) -> None:
        """Agree on the largest frame, both ways."""
        self.frame_max = frame_max
        self.payload_max = frame_max - 8

    def send(self, channel: int, method: base.Frame) -> None:
        """Queue one method for the client."""
        self.output.append(method_frame(channel, method))
