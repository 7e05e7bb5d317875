"""The commands of a queue, and how a batch of them becomes one log entry.

A log entry holds a *batch*: the commands that gathered for one queue while the previous entry was being written.
docs/internals/commands.md draws the octets.
"""

from __future__ import annotations

from typing import Final

from reference_broker.machines.config import NO_LIMIT, FifoConfig
from reference_broker.message_run import MessageRun
from reference_broker.records import record
from reference_broker.types import NO_TTL, ChannelId, ConsumerId, IdRange, NodeId


@record
class Label:
    """The facts about a message that a keyed queue needs.

    ``key`` None: a message without a key. ``delay_ms`` is its wait after the enqueue, ``retry_ms`` its wait after each
    return (-1: the queue's).
    """

    key: bytes | None = None
    delay_ms: int = 0
    retry_ms: int = NO_LIMIT


NO_LABEL: Final = Label()
Labels = tuple[tuple[int, Label], ...]
"""Labels of a run, in order: the number of messages, and their label."""


@record
class Enqueue:
    """``run.count`` messages with the channel's enqueue sequence numbers ``first_seq``, +1, ... (from 1, without gaps).

    ``first_seq`` 0 marks an untracked enqueue: no deduplication, no confirm. ``ttl_ms`` is the time to live that the
    publisher set in ``expiration`` (0 to :data:`TTL_MS_MAX`, or :data:`NO_TTL`). Messages with different times to live
    come in different runs. ``labels`` are the messages' labels; only keyed queues have labels.
    """

    channel: ChannelId
    first_seq: int
    run: MessageRun
    ttl_ms: int = NO_TTL
    labels: Labels = ()


@record
class Checkout:
    """Subscribe. ``credit`` is the prefetch (never 0: the channel turns "unlimited" into the default of 2000).

    With ``auto_settle`` (no-ack consumers) a message is settled when it is dealt. ``exclusive``: refuse, unless the
    consumer is the only one, and refuse all others from then on.
    """

    consumer: ConsumerId
    credit: int
    auto_settle: bool
    priority: int
    correlation: int
    exclusive: bool = False


@record
class Settle:
    """The consumer is done with these messages. Unknown ids are ignored."""

    consumer: ConsumerId
    ranges: tuple[IdRange, ...]


@record
class Return:
    """Put messages back into the queue: nack or reject with requeue. Unknown ids are ignored."""

    consumer: ConsumerId
    ranges: tuple[IdRange, ...]


@record
class Discard:
    """Drop messages, or dead-letter them where configured: nack or reject without requeue."""

    consumer: ConsumerId
    ranges: tuple[IdRange, ...]


@record
class Cancel:
    """Stop deliveries to this consumer. The consumer holds its messages until it settles them or its channel ends."""

    consumer: ConsumerId
    correlation: int


@record
class ChannelDown:
    """The channel is gone for good: its consumers' messages return, its sequence numbers are forgotten."""

    channel: ChannelId


@record
class NodeDown:
    """The node cannot be reached, but may be alive: its consumers are suspected, and their messages return."""

    node: NodeId


@record
class NodeUp:
    """The node is back, with ``boot_id``: channels of that start resume, channels of earlier starts are gone."""

    node: NodeId
    boot_id: int


@record
class Purge:
    """Drop every ready message. Messages that consumers hold stay."""

    channel: ChannelId
    correlation: int


@record
class Get:
    """basic.get: one ready message now, or none. Refused (as if empty) by a queue with a single active consumer.

    The message is dealt to ``consumer``, an identity that the channel uses only for gets. Settle, return and discard
    name the message under that identity.
    """

    consumer: ConsumerId
    auto_settle: bool
    correlation: int


@record
class GetCheckedOut:
    """Deliver the consumer's messages once more, from message id ``first_id`` on: its node left these deliveries out
    because the client did not read. (rabbit_fifo has the same command, for deliveries that were lost.)"""

    consumer: ConsumerId
    first_id: int
    correlation: int


@record
class UpdateConfig:
    """Change the queue's settings: a policy was set, changed or cleared."""

    config: FifoConfig


@record
class Tick:
    """The leader's clock has passed a time that ``SetTimer`` named: expire due messages."""


@record
class DeadLetterSettled:
    """The target queue has confirmed the dead letters with these ids. Unknown ids are ignored."""

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
    | GetCheckedOut
    | UpdateConfig
    | Tick
    | DeadLetterSettled
)
