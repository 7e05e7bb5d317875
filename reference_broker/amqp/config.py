"""A node's settings for its AMQP clients: who may come in, limits and time-outs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reference_broker.amqp.events import FieldValue
from reference_broker.amqp.gate import GUEST, Gate
from reference_broker.amqp.product import REFERENCE, Product


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """The settings of every connection of a node. The defaults are RabbitMQ 3.10's."""

    gate: Gate = GUEST
    frame_max: int = 131_072
    """Octets of the largest frame, its eight octets of overhead included."""
    channel_max: int = 2047
    """Open channels per connection. The numbers of the channels may go up to 65,535."""
    heartbeat_s: int = 60
    """The heartbeat that connection.tune proposes; the client decides. 0: none."""
    max_message_bytes: int = 128 * 1024 * 1024
    handshake_timeout_s: float = 10.0
    refusal_delay_s: float = 3.0
    """A refused client waits this long until its socket closes. The delay slows down the guessing of passwords."""
    close_timeout_s: float = 10.0
    """The broker waits this long for connection.close-ok."""
    product: Product = REFERENCE
    cluster_name: str = "reference"
    tag_nonce: str = ""
    """A part of the consumer tags that the broker makes. No other connection has it."""
    node_properties: Mapping[str, FieldValue] = field(default_factory=dict)
    """More server properties for connection.start, such as the name of the node."""

    def __post_init__(self) -> None:
        """Refuse settings that no client could live with."""
        if not 4096 <= self.frame_max <= 16 * 1024 * 1024:
            raise ValueError(f"frame_max is {self.frame_max}: AMQP needs 4096 at least, memory 16 MiB at most")
        if not 1 <= self.channel_max <= 65_535:
            raise ValueError(f"channel_max is {self.channel_max}: use 1 to 65535")
        if not 0 <= self.heartbeat_s <= 65_535:
            raise ValueError(f"heartbeat_s is {self.heartbeat_s}: use 0 (none) to 65535")
