"""The few names that every part of the broker shares.

Two integers side by side are easily swapped, so the ones that travel together have types of their own.
Nothing here does anything: a module that needs behaviour belongs to one of the packages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""A member of the cluster, 1..n. Zero stands for "nobody"."""

GroupId = NewType("GroupId", int)
"""One Raft group: a queue's incarnation. A queue deleted and declared again gets a new one, so that the
dead incarnation's log entries are never replayed into it (Ra calls this the UID)."""

LogIndex = NewType("LogIndex", int)
Term = NewType("Term", int)

NOBODY: Final = NodeId(0)
METADATA_GROUP: Final = GroupId(0)
"""The group that replicates what queues exist. Queue groups are random non-zero 64-bit numbers."""


class EntryKind(IntEnum):
    """What a log entry holds. Raft itself looks only at NOOP and CONFIG."""

    NOOP = 0
    COMMAND = 1
    CONFIG = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """One Raft log entry: for a queue, a whole batch of commands.

    ``crc`` is the CRC-32 of ``payload``, computed once by the leader and checked by each follower on
    receipt and again by recovery: one blob, one checksum, three uses.
    """

    index: LogIndex
    term: Term
    kind: EntryKind
    crc: int
    payload: bytes


_IDENTITY: Final = Struct(">HIIH")
CHANNEL_ID_SIZE: Final = _IDENTITY.size


class ChannelId(NamedTuple):  # as a dictionary's key it is looked up some ten times per entry: tuples hash quickly
    """Who enqueues or consumes: one AMQP channel of one connection of one life of one node.

    ``incarnation`` counts the starts of the node, so a restarted node's channels never pass for those
    of its former life (reference: Ra's enqueuers are process ids, which have the same property).
    """

    node: NodeId
    incarnation: int
    connection: int
    channel: int

    def pack(self) -> bytes:
        """The 12 octets that stand for this channel in the log."""
        return _IDENTITY.pack(self.node, self.incarnation, self.connection, self.channel)

    @classmethod
    def unpack(cls, data: bytes | memoryview, offset: int = 0) -> ChannelId:
        """Read back what :meth:`pack` wrote."""
        node, incarnation, connection, channel = _IDENTITY.unpack_from(data, offset)
        return cls(NodeId(node), incarnation, connection, channel)


class ConsumerId(NamedTuple):
    """One consumer: its channel and its consumer tag."""

    channel: ChannelId
    tag: str
