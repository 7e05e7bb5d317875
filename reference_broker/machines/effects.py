"""What a queue machine asks its shell to do after a command was applied.

Every member computes every effect, because every member applies the same log; who *executes* one is written on
its type. "Local" means: the member on the node that hosts the channel; and where that node has no member
of the group, the leader does it for it. An effect may be executed twice around an election, so each is idempotent
at its
receiver: deliveries by message id, confirms by sequence number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum

from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId


@dataclass(frozen=True, slots=True)
class Span:
    """``count`` messages out of one enqueued run: positions ``start, start + step, ...``.

    ``index`` is the log entry and ``offset`` the octet within its payload at which the run is encoded
    (:mod:`reference_broker.message_run`). A span is a place, not a copy.
    """

    index: LogIndex
    offset: int
    start: int
    count: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Deliver:
    """Local. ``spans`` hold the messages with ids ``first_message_id``, +1, ... of ``consumer``, in order.

    All messages of one effect share ``delivery_count``: 0 for a first delivery, and the broker sets
    *redelivered* when it is above 0.
    """

    consumer: ConsumerId
    first_message_id: int
    spans: tuple[Span, ...]
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Confirm:
    """Local. The channel's enqueue sequence numbers ``first..last`` are committed."""

    channel: ChannelId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Local. The channel's enqueue sequence numbers ``first..last`` were refused, for the queue is full: basic.nack to
    a publisher that asked for confirms. Within one list the confirms and rejects of a channel ascend."""

    channel: ChannelId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Local. Answer to the command that carried ``correlation`` (checkout, cancel, purge, get).

    ``value`` is the command's result: for a checkout the message id its next delivery begins with (not 0 when the
    consumer goes on after a cancel), for a purge the number of messages, for a get 0 if the queue was empty and else
    1 + the messages left ready, for a cancel 0. It stands in the list where it belongs
    among the deliveries: after those dealt before a cancel, before those that follow a checkout, after that of a get.
    """

    channel: ChannelId
    correlation: int
    value: int


@dataclass(frozen=True, slots=True)
class MonitorNode:
    """Leader only. Tell the machine (``NodeDown``/``NodeUp``) when this node goes away or comes back; at once, if
    it is away already. Repeated on election and with each subscription from there."""

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
    """It came back too often."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Leader only. Route these messages to the queue's dead letter exchange, in this order.

    ``first_id`` 0: at most once, nobody waits for an answer. Else they are the queue's dead letters ``first_id``, +1,
    ...: at least once, to be answered with ``DeadLetterSettled``, and said again to each new leader until then.
    """

    first_id: int
    spans: tuple[Span, ...]
    reason: DeadLetterReason
    delivery_count: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Leader only. Propose a ``Tick`` once the leader's clock shows ``at_ms`` (milliseconds since 1970; at once if it
    does). One timer a queue: the last one set counts."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class QueueExpired:
    """Leader only. Nobody has used the queue for as long as it was declared to stay: delete it. Repeated until it is
    gone."""


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Leader only. The queue's settings are others now: see whether they are those that are wanted. What a former
    leader wished for may come late."""


Effect = Deliver | Confirm | Reject | Reply | MonitorNode | DeadLetter | SetTimer | QueueExpired | SettingsChanged


def local_effects(
    effects: Iterable[Effect], node: NodeId, is_leader: bool, member_nodes: Collection[NodeId]
) -> list[Effect]:
    """The effects that the member on ``node`` executes, in order. ``member_nodes`` are the nodes of the group.

    This one rule makes local delivery need no coordination. Every member computes the same effects from the same log.
    The member on a channel's node executes the effects for that channel; the leader executes those for channels of
    nodes without a member. So at any log position each effect has exactly one executor, and no member asks another.
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
