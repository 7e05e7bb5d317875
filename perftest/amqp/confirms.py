"""Publisher confirms as runs. basic.ack and basic.nack are 21 octets each, so a buffer of them is a table.

Brokers send them in any mixture: one ``multiple`` for hundreds, or hundreds of single ones, nacks between. Neighbours
of one kind (same channel, same method, same flags) become one event; order between kinds is kept.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from perftest.amqp.events import Confirms

FRAME_SIZE: Final = 21
ACK_IDS: Final = b"\x00\x3c\x00\x50"
NACK_IDS: Final = b"\x00\x3c\x00\x78"
_FRAME: Final = struct.Struct(">BHI4sQBB")
_FEW: Final = 3
_FIXED: Final = np.array([*range(11), 19, 20])
"""Columns that neighbours of one kind share: all but the tag."""


def cut_run(buffer: bytearray, start: int, end: int) -> tuple[int, Confirms | None]:
    """The confirms of one kind that stand at ``start``: octets taken, and the event. 0 and None: not all there, or not
    a well-formed frame, which the general path will judge."""
    if end - start < FRAME_SIZE:
        return 0, None
    kind, channel, size, ids, tag, flags, last = _FRAME.unpack_from(buffer, start)
    if kind != 1 or size != 13 or last != 0xCE or ids not in (ACK_IDS, NACK_IDS):
        return 0, None
    multiple, nack = bool(flags & 1), ids == NACK_IDS
    frames = (end - start) // FRAME_SIZE
    if frames <= _FEW:
        return FRAME_SIZE, Confirms(channel, (tag,), multiple, nack)
    table = np.frombuffer(buffer, np.uint8, frames * FRAME_SIZE, start).reshape(frames, FRAME_SIZE)
    fixed = table[:, _FIXED]
    same = (fixed == fixed[0]).all(axis=1)
    count = frames if same.all() else int(np.argmin(same))
    if count == 1:
        return FRAME_SIZE, Confirms(channel, (tag,), multiple, nack)
    tags = table[:count, 11:19].copy().view(">u8").ravel().astype(np.int64)
    return count * FRAME_SIZE, Confirms(channel, np.sort(tags) if multiple else tags, multiple, nack)
