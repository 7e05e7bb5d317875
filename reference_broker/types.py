"""The names that every part of the broker shares.

Two integers side by side are easily swapped, so integers that travel together have types of their own. This module has
no behaviour: behaviour belongs to the packages.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from struct import Struct
from typing import Final, NamedTuple, NewType

from reference_broker.records import record

NodeId = NewType("NodeId", int)
"""A member of the cluster, 1..n. Zero stands for "nobody"."""

GroupId = NewType("GroupId", int)
"""One Raft group, which carries one declared queue. A queue that was deleted and declared again gets a new group, so
that entries of the deleted queue are never replayed into the new queue (Ra calls this the UID)."""

LogIndex = NewType("LogIndex", int)
Term = NewType("Term", int)

NOBODY: Final = NodeId(0)
IN_EXCLUSIVE_USE: Final = 2**64 - 1
"""The reply to a subscription that an exclusive consumer forbids. No message id is so high."""
METADATA_GROUP: Final = GroupId(0)
"""The group that replicates the records of queues. Queue groups are random non-zero 64-bit numbers."""


class EntryKind(IntEnum):
    """The kind of a log entry. Raft itself looks only at NOOP and CONFIG."""

    NOOP = 0
    COMMAND = 1
    CONFIG = 2


@record
class Entry:
    """One Raft log entry: for a queue, a whole batch of commands.

    ``crc`` is the CRC-32 of ``payload``, computed once by the leader. Each follower checks the CRC on
    receipt, and each member again when it recovers.
    """

    index: LogIndex
    term: Term
    kind: EntryKind
    crc: int
    payload: bytes


CHANNEL_ID_FORMAT: Final = "HIIH"
"""How ``struct`` writes the fields of a channel's identity."""
_IDENTITY: Final = Struct(f">{CHANNEL_ID_FORMAT}")
CHANNEL_ID_SIZE: Final = _IDENTITY.size


class ChannelId(NamedTuple):  # as a dictionary's key it is looked up some ten times per entry: tuples hash quickly
    """The identity of one AMQP channel of one connection, in one start of one node.

    ``boot_id`` counts the starts of the node, so a channel of a restarted node is never taken for a channel from
    before (Ra's enqueuers are process ids, which have the same property).
    """

    node: NodeId
    boot_id: int
    connection: int
    channel: int

    def pack(self) -> bytes:
        """The 12 octets of this channel in the log."""
        return _IDENTITY.pack(self.node, self.boot_id, self.connection, self.channel)

    @classmethod
    def unpack(cls, data: bytes | memoryview, offset: int = 0) -> ChannelId:
        """Read back what :meth:`pack` wrote."""
        node, boot_id, connection, channel = _IDENTITY.unpack_from(data, offset)
        return cls(NodeId(node), boot_id, connection, channel)


class ConsumerId(NamedTuple):
    """One consumer: its channel and its consumer tag."""

    channel: ChannelId
    tag: str


IdRange = tuple[int, int]
"""First and last message id, both included."""

UNCOUNTED: Final = 2**32
"""The delivery count of a redelivered message of a queue that does not count deliveries: the flag without a header."""

NO_TTL: Final = -1
GET_TAG: Final = ""
"""The tag of a channel's gets in a queue. No consumer has this tag, because the core replaces an empty tag."""
COPIES: Final = -2
"""In the place of the time to live: the headers of the message name more routing keys (CC, BCC), or the message asks
for a direct reply. The code that reads the headers reads the time to live, too."""
REPLY_TO: Final = b"amq.rabbitmq.reply-to"
"""The name that stands for direct replies, in a basic.consume and in the property reply-to."""
TTL_MS_MAX: Final = 315_360_000_000
"""Ten years, the longest time to live, as in RabbitMQ."""


class Priority(IntEnum):
    """Which of a node's two sequences of commands to a group a command belongs to; the lower number goes first."""

    NORMAL = 0
    LOW = 1

    __hash__ = int.__hash__  # priorities are keys of the hot path; an enumeration's own hash is a function in Python


class Outcome(StrEnum):
    """A consumer's decision about messages."""

    SETTLE = "settle"  # basic.ack
    RETURN = "return"  # basic.nack and basic.reject with requeue
    DISCARD = "discard"  # without requeue
