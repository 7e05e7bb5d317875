"""The messages that were never delivered: a queue of *records* that point into the log.

Theory of operation
-------------------
A record ``(index, offset, start, count, expires, size)`` stands for the rest of one enqueued run, or for a stretch of
the run whose bodies have the same size. Messages enter at the tail and leave at the head. A purge takes all messages. A
full queue that refuses messages takes the newest messages off the tail again. So the message numbers have no holes, and
the number of the head gives all others.

A queue whose consumers keep up holds one or two records. A stalled queue may hold millions, because publishers that
wait for each confirm make runs of one. A record takes 32 octets (:mod:`~reference_broker.machines.messages.records`).

Invariants: ``count`` is the sum of the records' counts, ``octets`` the sum of count x size; log indexes never decrease
from head to tail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.idle import NOTHING
from reference_broker.machines.messages.origins import NEVER
from reference_broker.machines.messages.records import Columns, Records

Record = tuple[int, int, int, int, int, int]
"""Log index, offset of the run in the entry, position of the first message, number of messages, time at which they
expire, octets of each body."""

RECORD: Final = Struct(">QIIIQI")
_COLUMNS: Final = np.dtype(
    [("entry", ">u8"), ("offset", ">u4"), ("start", ">u4"), ("count", ">u4"), ("expires", ">u8"), ("size", ">u4")]
)
SIZE_MAX: Final = 2**32 - 1


class Backlog(Records[Record]):
    """A first-in first-out queue of runs."""

    __slots__ = ("count", "first_number", "octets")

    def __init__(self) -> None:
        super().__init__(RECORD, _COLUMNS)
        self.count = 0
        """Messages in the backlog."""
        self.octets = 0
        """Octets of their bodies."""
        self.first_number = 0
        """Message number of the head; ``first_number + count`` is the number of the next message enqueued."""

    def push(self, record: Record) -> None:
        """Append the messages of a record."""
        self.count += record[3]
        self.octets += record[3] * record[5]
        if self._tail or self._blocks or len(self._head) >= self.block_records:
            self._append_behind(record)
        elif self._head is NOTHING:
            self._head = deque((record,))
        else:
            self._head.append(record)

    def take(self, count: int) -> None:
        """Remove the first ``count`` messages of the record at the head."""
        index, offset, start, held, expires, size = self._head[0]
        assert count <= held
        self.count -= count
        self.octets -= count * size
        self.first_number += count
        if count < held:
            self._head[0] = (index, offset, start + count, held - count, expires, size)
            return
        self._head.popleft()
        if not self._head:
            self._refill()

    def take_records(self, chosen: Callable[[Columns], int]) -> list[tuple[int, Columns]]:
        """Remove whole records off the head. ``chosen`` gives the number of shown records to remove. Returns the
        removed records in pieces, each with the message number of its first message."""
        gone: list[tuple[int, Columns]] = []

        def take(records: Columns) -> int:
            taken = records[: chosen(records)]
            gone.append((self.first_number, taken))
            counts = counts_of(taken)
            self.count -= (count := int(counts.sum()))
            self.octets -= int((counts * taken["size"]).sum())
            self.first_number += count
            return len(taken)

        self.take_while(take)
        return gone

    @property
    def tail_count(self) -> int:
        """Number of newest messages that were not taken."""
        return self.count

    def peek_tail(self) -> Record:
        """The record at the tail. The backlog must not be empty."""
        return self._end()[-1]

    def take_tail(self, count: int) -> None:
        """Remove the last ``count`` messages of the record at the tail. Later messages get their numbers."""
        end = self._end()
        index, offset, start, held, expires, size = end.pop()
        assert count <= held
        self.count -= count
        self.octets -= count * size
        if count < held:
            end.append((index, offset, start, held - count, expires, size))

    def _end(self) -> list[Record] | deque[Record]:
        """The part that holds the last record, thawed."""
        if not self._tail and self._blocks:
            self._tail.extend(self._thawed(self._blocks.pop()))
        return self._tail or self._head

    def clear(self) -> None:
        """Remove all messages. Message numbers go on where they were."""
        super().clear()
        self.first_number += self.count
        self.count = 0
        self.octets = 0

    def expires_ever(self) -> bool:
        """Whether any message has a time to live."""
        return any(bool((records["expires"] != NEVER).any()) for records in self.pieces())

    @classmethod
    def loaded(cls, first_number: int, octets: bytes) -> Backlog:
        """The backlog whose :meth:`dump` was ``octets``."""
        backlog = cls().load(octets)
        backlog.first_number = first_number
        for records in backlog.pieces():
            counts = counts_of(records)
            backlog.count += int(counts.sum())
            backlog.octets += int((counts * records["size"]).sum())
        return backlog


def counts_of(records: Columns) -> npt.NDArray[np.int64]:
    """The number of messages of each record."""
    return records["count"].astype(np.int64)
