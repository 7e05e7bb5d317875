"""The effects of commands: what a queue machine asks its node to do.

Every member applies the same log, so every member computes every effect. The type of an effect says which member
*executes* the effect. "Local" means the member on the channel's node, or the leader if that node has no member of the
group. An effect may be executed twice around an election. So receivers ignore repetitions: deliveries by message id,
confirms by sequence number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum

from reference_broker.records import record
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId


@record
class Span:
    """``count`` messages out of one enqueued run: positions ``start, start + step, ...``.

    ``index`` is the log entry and ``offset`` the octet within its payload at which the run is encoded
    (:mod:`reference_broker.message_run`). A span names messages and copies nothing.
    """

    index: LogIndex
    offset: int
    start: int
    count: int
    step: int = 1


@record
class Deliver:
    """Local. ``spans`` hold the messages with ids ``first_message_id``, +1, ... of ``consumer``, in order.

    All messages of one effect share ``delivery_count``: 0 for a first delivery. Above 0, the broker sets *redelivered*.
    """

    consumer: ConsumerId
    first_message_id: int
    spans: tuple[Span, ...]
    delivery_count: int


@record
class Confirm:
    """Local. The channel's enqueue sequence numbers ``first..last`` are committed."""

    channel: ChannelId
    first: int
    last: int


@record
class Reject:
    """Local. The full queue refused the channel's enqueue sequence numbers ``first..last``. A publisher with confirms
    gets a basic.nack. Within one list the confirms and rejects of a channel ascend."""

    channel: ChannelId
    first: int
    last: int


@record
class Reply:
    """Local. Answer to the command that carried ``correlation`` (checkout, cancel, purge, get).

    ``value`` is the command's result. For a checkout: the message id that its next delivery begins with (not 0 if the
    consumer goes on after a cancel), or :data:`~reference_broker.types.IN_EXCLUSIVE_USE`. For a purge: the number of
    messages. For a get: 0 if the queue was empty, else 1 + the messages left ready. For a cancel: 0. The reply of a
    checkout precedes the deliveries that follow it. The reply of a cancel or a get comes after the deliveries made
    before it.
    """

    channel: ChannelId
    correlation: int
    value: int


@record
class MonitorNode:
    """Leader only. Tell the machine (``NodeDown``/``NodeUp``) when this node goes away or comes back; at once, if the
    node is away already. Repeated on each election and each subscription from the node."""

    node: NodeId


class DeadLetterReason(IntEnum):
    """Why a message is dead; in lower case the ``reason`` of an x-death header. Written to snapshots."""

    REJECTED = 1
    """Discarded by a consumer."""
    EXPIRED = 2
    """Its time to live is over."""
    MAXLEN = 3
    """The queue was full."""
    DELIVERY_LIMIT = 4
    """It was returned too often."""


@record
class DeadLetter:
    """Leader only. Route these messages to the queue's dead letter exchange, in this order.

    ``first_id`` 0: at most once, and the queue has forgotten the messages. Else at least once: the messages are the
    queue's dead letters ``first_id``, +1, ... The queue waits for ``DeadLetterSettled`` and repeats the effect to each
    new leader until then. ``is_repeat``: an earlier leader had these letters, so they may have arrived.
    """

    first_id: int
    spans: tuple[Span, ...]
    reason: DeadLetterReason
    delivery_count: int
    is_repeat: bool = False


@record
class SetTimer:
    """Leader only. Propose a ``Tick`` once the leader's clock shows ``at_ms`` (milliseconds since 1970), at once if
    the time has passed. A queue has one timer: a new time replaces the old one."""

    at_ms: int


@record
class QueueExpired:
    """Leader only. Delete the queue: it was unused for its ``x-expires``, which is ``unused_ms``. Repeated until the
    queue is gone."""

    unused_ms: int


@record
class SettingsChanged:
    """Leader only. The queue's settings have changed: compare them with the wanted settings. A change that a former
    leader proposed may be applied late."""


Effect = Deliver | Confirm | Reject | Reply | MonitorNode | DeadLetter | SetTimer | QueueExpired | SettingsChanged


def local_effects(
    effects: Iterable[Effect], node: NodeId, is_leader: bool, member_nodes: Collection[NodeId]
) -> list[Effect]:
    """The effects that the member on ``node`` executes, in order. ``member_nodes`` are the nodes of the group.

    This rule makes local delivery work without coordination. The member on a channel's node executes the effects for
    that channel. The leader executes the effects for channels of nodes without a member. So at any log position each
    effect has exactly one executor, and no member asks another.
    """
    return [effect for effect in effects if _executes(effect, node, is_leader, member_nodes)]


def _executes(effect: Effect, node: NodeId, is_leader: bool, member_nodes: Collection[NodeId]) -> bool:
    match effect:
        case Deliver():
            host = effect.consumer.channel.node
        case Confirm() | Reject() | Reply():
            host = effect.channel.node
        case MonitorNode() | DeadLetter() | SetTimer() | QueueExpired() | SettingsChanged():
            return is_leader
    return host == node or (is_leader and host not in member_nodes)
