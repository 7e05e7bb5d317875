"""The messages that were never delivered: a queue of *records* that point into the log.

Theory of operation
-------------------
A record ``(index, offset, start, count, expires, size)`` stands for the rest of one enqueued run, or for a stretch of
it whose bodies have the same size. Messages enter at the tail and leave at the head, a purge takes all, and a full
queue that refuses messages takes its latest off the tail again; so their message numbers have no holes: one number,
that of the head, gives all.

A queue whose consumers keep up holds one or two records, a stalled one may hold millions (publishers that wait
for each confirm make runs of one). Both ends are therefore plain tuples, and whatever lies between them is frozen into
strings of packed records: 32 octets a record instead of 200, nothing for the garbage collector to walk, and a
snapshot joins them as they are. Freezing and thawing cost 0.3 us a record, once each.

Invariants: ``count`` is the sum of the counts of the records, ``octets`` that of count x size; indexes never decrease
from head to tail; the tail is only non-empty past the frozen blocks, the blocks only past the head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import starmap
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker.machines.origins import NEVER

Record = tuple[int, int, int, int, int, int]
"""Log index, offset of the run in the entry, position of the first message, number of messages, when they expire,
octets of each body."""

RECORD: Final = Struct(">QIIIQI")
_COLUMNS: Final = np.dtype(
    [("index", ">u8"), ("offset", ">u4"), ("start", ">u4"), ("count", ">u4"), ("expires", ">u8"), ("size", ">u4")]
)
SIZE_MAX: Final = 2**32 - 1
BLOCK_RECORDS: Final = 1024


class Backlog:
    """First in, first out, over runs."""

    __slots__ = ("_blocks", "_head", "_tail", "count", "first_number", "octets")

    def __init__(self) -> None:
        self._head: deque[Record] = deque()
        self._blocks: deque[bytes] = deque()
        self._tail: list[Record] = []
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
        if not self._tail and not self._blocks and len(self._head) < BLOCK_RECORDS:
            self._head.append(record)
            return
        self._tail.append(record)
        if len(self._tail) >= BLOCK_RECORDS:  # above it, if the last block was thawed
            self._blocks.append(_pack(self._tail[:BLOCK_RECORDS]))
            del self._tail[:BLOCK_RECORDS]

    def peek(self) -> Record:
        """The record at the head of a backlog that is not empty."""
        return self._head[0]

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

    def peek_tail(self) -> Record:
        """The record at the tail of a backlog that is not empty."""
        return self._end()[-1]

    def take_tail(self, count: int) -> None:
        """Remove the last ``count`` messages of the record at the tail. Their numbers are given again."""
        end = self._end()
        index, offset, start, held, expires, size = end.pop()
        assert count <= held
        self.count -= count
        self.octets -= count * size
        if count < held:
            end.append((index, offset, start, held - count, expires, size))

    def _end(self) -> list[Record] | deque[Record]:
        """Whichever part holds the last record, thawed."""
        if not self._tail and self._blocks:
            self._tail.extend(RECORD.iter_unpack(self._blocks.pop()))
        return self._tail or self._head

    def _refill(self) -> None:
        if self._blocks:
            self._head.extend(RECORD.iter_unpack(self._blocks.popleft()))
        elif self._tail:
            self._head.extend(self._tail)
            self._tail.clear()

    def clear(self) -> None:
        """Remove everything. Numbers go on where they were."""
        self._head.clear()
        self._blocks.clear()
        self._tail.clear()
        self.first_number += self.count
        self.count = 0
        self.octets = 0

    def indexes(self) -> npt.NDArray[np.int64]:
        """The log index of each record, ascending."""
        return np.frombuffer(self.dump(), _COLUMNS)["index"].astype(np.int64)

    def expires_ever(self) -> bool:
        """Whether any message has a time to live."""
        return bool((np.frombuffer(self.dump(), _COLUMNS)["expires"] != NEVER).any())

    def dump(self) -> bytes:
        """All records, packed: the same records give the same octets, whatever is frozen at the time."""
        return b"".join((_pack(self._head), *self._blocks, _pack(self._tail)))

    @classmethod
    def load(cls, first_number: int, records: bytes) -> Backlog:
        """The backlog whose :meth:`dump` was ``records``."""
        backlog = cls()
        backlog.first_number = first_number
        columns = np.frombuffer(records, _COLUMNS)
        counts = columns["count"].astype(np.int64)
        backlog.count = int(counts.sum())
        backlog.octets = int((counts * columns["size"].astype(np.int64)).sum())
        block = BLOCK_RECORDS * RECORD.size
        backlog._blocks.extend(records[at : at + block] for at in range(0, len(records), block))
        backlog._refill()
        return backlog

    def __iter__(self) -> Iterator[Record]:
        return RECORD.iter_unpack(self.dump())


def _pack(records: deque[Record] | list[Record]) -> bytes:
    return b"".join(starmap(RECORD.pack, records))
