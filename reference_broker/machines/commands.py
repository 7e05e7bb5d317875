"""The commands of a queue, and how a batch of them becomes one log entry.

A log entry holds a *batch*: everything that the channels of the cluster asked of one queue while the previous
entry was being written. See docs/internals/commands.md for the octets.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_broker.machines.config import FifoConfig
from reference_broker.message_run import MessageRun
from reference_broker.types import NO_TTL, ChannelId, ConsumerId, IdRange, NodeId


@dataclass(frozen=True, slots=True)
class Enqueue:
    """``run.count`` messages with the channel's enqueue sequence numbers ``first_seq``, +1, ... (from 1, without gaps).

    ``first_seq`` 0 marks an untracked enqueue: no deduplication, no confirm. ``ttl_ms`` is the messages' own time to
    live (0 to :data:`TTL_MS_MAX`, or :data:`NO_TTL`), as their publisher set it in ``expiration``: messages that differ
    in it come in different runs.
    """

    channel: ChannelId
    first_seq: int
    run: MessageRun
    ttl_ms: int = NO_TTL


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
    """The node is back, with ``boot_id``: channels of that start resume, channels of earlier starts are gone for
    good."""

    node: NodeId
    boot_id: int


@dataclass(frozen=True, slots=True)
class Purge:
    """Drop every ready message. Checked-out ones stay."""

    channel: ChannelId
    correlation: int


@dataclass(frozen=True, slots=True)
class Get:
    """basic.get: one ready message now, or none. Refused (as if empty) by a queue with a single active consumer.

    The message is dealt to ``consumer``, an identity that the channel keeps for its gets: not one that it subscribes
    with. Settle, return and discard name it under that identity.
    """

    consumer: ConsumerId
    auto_settle: bool
    correlation: int


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """The queue's settings from here on: a policy was set, changed or cleared."""

    config: FifoConfig


@dataclass(frozen=True, slots=True)
class Tick:
    """The leader's clock has passed a time that ``SetTimer`` named: expire what is due."""


@dataclass(frozen=True, slots=True)
class DeadLetterSettled:
    """Dead letters with these ids are confirmed by where they were routed to. Unknown ids are ignored."""

    ranges: tuple[IdRange, ...]


Command = (
    Enqueue
    | Checkout
    | Settle
    | Return
    | Discard
    | Cancel
    | ChannelDown
    | NodeDown
    | NodeUp
    | Purge
    | Get
    | UpdateConfig
    | Tick
    | DeadLetterSettled
)
