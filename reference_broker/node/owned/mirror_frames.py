"""The frames of mirrored queues between nodes.

====  =========================================================================================================
RING  a batch on its way round the ring: queue, view, number, then the operations
NOTE  a few octets of the protocol below: queue, kind, three numbers
COPY  publishes, directly from their node to a mirror: as PROPOSE
FILL  messages for a mirror that is being synchronised: queue, number of the copy, then the operations
====  =========================================================================================================
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from reference_broker.types import GroupId

_RING: Final = Struct(">QQQ")
_NOTE: Final = Struct(">QBQQQ")
_FILL: Final = Struct(">QQ")


class RingNote(IntEnum):
    """The meaning of a note, and of its numbers."""

    SUBSCRIBE = 1
    """To the left neighbour: view, number of the last batch that is here."""
    ACK = 2
    """Once round the ring: view, number of the last batch that everybody has."""
    CONFIRM = 3
    """To the master: number of the copy, number of the last batch that it confirms."""
    JOIN = 4
    """To the master: the copy of this number is here, and empty."""
    WELCOME = 5
    """To a new mirror: number of the copy, of the last batch that it has, and of the next message."""
    FILLED = 6
    """To the master: the copy of this number has taken the messages of the last FILL."""


def pack_ring(group: GroupId, view: int, number: int) -> bytes:
    """The head of a RING."""
    return _RING.pack(group, view, number)


def unpack_ring(body: memoryview) -> tuple[GroupId, int, int, bytes]:
    """Group, view, number and operations. Raises ValueError if the frame is cut off."""
    if len(body) < _RING.size:
        raise ValueError(f"a batch of the ring of {len(body)} octets")
    group, view, number = _RING.unpack_from(body)
    return GroupId(group), view, number, bytes(body[_RING.size :])


def pack_note(group: GroupId, kind: RingNote, *numbers: int) -> bytes:
    """A NOTE with up to three numbers."""
    return _NOTE.pack(group, kind, *numbers, *[0] * (3 - len(numbers)))


def unpack_note(body: memoryview) -> tuple[GroupId, RingNote, tuple[int, int, int]]:
    """Group, kind and numbers. Raises ValueError for anything else."""
    if len(body) != _NOTE.size:
        raise ValueError(f"a note of {len(body)} octets where {_NOTE.size} belong")
    group, kind, first, second, third = _NOTE.unpack(body)
    return GroupId(group), RingNote(kind), (first, second, third)


def pack_fill(group: GroupId, since: int) -> bytes:
    """The head of a FILL."""
    return _FILL.pack(group, since)


def unpack_fill(body: memoryview) -> tuple[GroupId, int, bytes]:
    """Group, number of the copy and operations. Raises ValueError if the frame is cut off."""
    if len(body) < _FILL.size:
        raise ValueError(f"messages for a mirror of {len(body)} octets")
    group, since = _FILL.unpack_from(body)
    return GroupId(group), since, bytes(body[_FILL.size :])
