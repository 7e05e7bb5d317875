"""The commands of a queue, and how a batch of them becomes one log entry.

A log entry holds a *batch*: everything that the channels of the cluster asked of one queue while the previous
entry was being written. See docs/internals/commands.md for the octets.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_broker.message_run import MessageRun
from reference_broker.types import ChannelId, ConsumerId, NodeId

IdRange = tuple[int, int]
"""First and last message id, both included."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """``run.count`` messages with the channel's enqueue sequence numbers ``first_seq``, +1, ... (from 1, without gaps).

    ``first_seq`` 0 marks an untracked enqueue: no deduplication, no confirm.
    """

    channel: ChannelId
    first_seq: int
    run: MessageRun


@dataclass(frozen=True, slots=True)
class Checkout:
    """Subscribe. ``credit`` is the prefetch (never 0: the channel turns "unlimited" into the default of 2000).

    With ``auto_settle`` (no-ack consumers) a message counts as settled once dealt.
    """

    consumer: ConsumerId
    credit: int
    auto_settle: bool
    priority: int
    correlation: int


@dataclass(frozen=True, slots=True)
class Settle:
    """The consumer is done with these messages. Unknown ids are ignored."""

    consumer: ConsumerId
    ranges: tuple[IdRange, ...]


@dataclass(frozen=True, slots=True)
class Return:
    """Back to the queue: nack or reject with requeue. Unknown ids are ignored."""

    consumer: ConsumerId
    ranges: tuple[IdRange, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Reject without requeue: gone (dead-lettered where configured)."""

    consumer: ConsumerId
    ranges: tuple[IdRange, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """No more deliveries to this consumer. What it holds stays checked out until settled or the channel goes."""

    consumer: ConsumerId
    correlation: int


@dataclass(frozen=True, slots=True)
class ChannelDown:
    """The channel is gone for good: its consumers' messages return, its enqueuer is forgotten."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class NodeDown:
    """The node cannot be reached, which is not death: its consumers are suspected, their messages return."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class NodeUp:
    """The node is back in life ``incarnation``: channels of that life resume, those of earlier lives are gone for
    good."""

    node: NodeId
    incarnation: int


@dataclass(frozen=True, slots=True)
class Purge:
    """Drop every ready message. Checked-out ones stay."""

    channel: ChannelId
    correlation: int


Command = Enqueue | Checkout | Settle | Return | Discard | Cancel | ChannelDown | NodeDown | NodeUp | Purge
