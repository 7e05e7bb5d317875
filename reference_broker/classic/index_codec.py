"""The records of an index segment: one record of 32 octets for each message of a queue. Pure.

A segment covers :data:`SEGMENT_MESSAGES` consecutive sequence numbers of its queue. The record of sequence number ``s``
has slot ``s % SEGMENT_MESSAGES``, and segment ``s // SEGMENT_MESSAGES`` has it. A slot of zeros was never written.

The state is the only octet that changes, and the check does not cover it. So a torn write of states leaves each record
valid, with its old state or its new state.

Back of the envelope: the records of a run of 500 messages take 20 us, whatever the bodies are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

SEGMENT_MESSAGES: Final = 4096
RECORD: Final = np.dtype(
    [("state", "u1"), ("flags", "u1"), ("position", ">u2"), ("file", ">u4"), ("offset", ">u8"), ("expires", ">u8"),
     ("part_check", ">u4"), ("check", ">u4")]
)  # fmt: skip
"""State and flags; the position of the message in its part; the shared file of the part (0: the queue's own message
file beside this index segment); the offset of the part there; the time in ms at which the message expires; the CRC of
the part; the check of this record."""
RECORD_SIZE: Final = RECORD.itemsize
STORED: Final = 1
GONE: Final = 2
PERSISTENT: Final = 1

Records = npt.NDArray[Any]
"""An array of :data:`RECORD`."""
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)


def segment_of(seq: int) -> int:
    """The number of the segment that has the record of a sequence number."""
    return seq // SEGMENT_MESSAGES


def offset_of(seq: int) -> int:
    """Where the record of a sequence number is in its segment."""
    return seq % SEGMENT_MESSAGES * RECORD_SIZE


def records_of(seq: int, count: int, place: tuple[int, int], part_check: int, expires: int, flags: int) -> Records:
    """The records of a part: ``count`` messages with the sequence numbers ``seq``, +1, ... at ``place`` (shared file or
    0, and offset)."""
    records = np.zeros(count, RECORD)
    records["state"] = STORED
    records["flags"] = flags
    records["position"] = np.arange(count)
    records["file"], records["offset"] = place
    records["expires"] = expires
    records["part_check"] = part_check
    records["check"] = checks(records, seq)
    return records


def checks(records: Records, seq: int) -> npt.NDArray[np.uint64]:
    """The check of each record, when the first has the sequence number ``seq``: 32 bits of a multiplicative hash."""
    mixed = np.arange(seq, seq + len(records), dtype=np.uint64) * _FACTOR
    for name in ("flags", "position", "file", "offset", "expires", "part_check"):
        mixed = (mixed ^ records[name].astype(np.uint64)) * _FACTOR
        mixed ^= mixed >> np.uint64(29)
    return mixed & np.uint64(0xFFFFFFFF)


def may_be_made_again(records: Records, seq: int) -> npt.NDArray[np.bool_]:
    """Which records a start may make again from their parts, when the first has the sequence number ``seq``: those that
    were never written, and damaged ones of messages that are there.

    Everything else of a damaged record may be wrong, but a message that was acknowledged must not come back. So a
    record whose state is neither 0 nor :data:`STORED` stays as it is.
    """
    octets = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), RECORD_SIZE)
    is_damaged: npt.NDArray[np.bool_] = (records["state"] == STORED) & (records["check"] != checks(records, seq))
    never_written = np.logical_not(octets.any(axis=1))
    return is_damaged | never_written


def live_records(octets: bytes, segment: int) -> tuple[npt.NDArray[np.int64], Records]:
    """The sequence numbers and the records of the persistent messages that a segment says are there."""
    records = np.frombuffer(octets, RECORD, min(len(octets) // RECORD_SIZE, SEGMENT_MESSAGES))
    first = segment * SEGMENT_MESSAGES
    is_live = (records["state"] == STORED) & (records["flags"] & PERSISTENT != 0)
    is_live &= records["check"] == checks(records, first)
    at = np.flatnonzero(is_live)
    return at + first, records[at]
