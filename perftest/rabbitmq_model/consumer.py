"""A consumer of a queue, and what it knows of its channel and its queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from perftest.rabbitmq_model.node import ModelledNode
from perftest.rabbitmq_model.processes import ErlangProcess

SOFT_LIMIT: Final = 32
"""Number of commands under way to a quorum queue from which on a channel is slow (quorum_commands_soft_limit)."""


class ChannelEnd(Protocol):
    """The channel of a client, as queues know it: its number, its process, and the node of that."""

    number: int
    node: ModelledNode
    process: ErlangProcess


class ModelledQueue(Protocol):
    """A queue as channels know it."""

    name: str
    node: ModelledNode
    limits_commands: bool
    """Whether a channel with :data:`SOFT_LIMIT` commands under way to the queue is slow."""

    def tell(self, item: Any, sender: ModelledNode) -> None:
        """Send something to the queue."""


@dataclass(slots=True, eq=False)
class Subscriber:
    """A consumer of one queue. ``prefetch`` 0: any number of messages."""

    channel: ChannelEnd
    tag: str
    queue: ModelledQueue
    prefetch: int
    no_ack: bool
    unacked: int = 0
    commands: int = 0
    """Commands with acknowledgements that are not applied yet."""
    unsent: int = 0
    """Acknowledgements that wait until fewer commands are under way."""

    @property
    def room(self) -> int:
        """Messages that the consumer may get now."""
        if self.no_ack or not self.prefetch:
            return 1 << 30
        return max(0, self.prefetch - self.unacked)
