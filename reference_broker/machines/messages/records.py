"""A queue of very many small records: plain tuples at both ends, packed octets between them.

A queue of messages holds one or two records while its consumers keep up, and may hold millions otherwise. So records
behind the head are *frozen* into blocks of packed octets. Blocks take a fifth of the memory, the garbage collector does
not walk them, and a snapshot joins them as they are. Freezing and thawing cost 0.3 us per record, once each. Records
that leave in masses are never thawed, but read as columns (:meth:`Records.take_while`).

Invariants: if there are blocks, the head is not empty; if the tail is not empty, neither is the head. So an empty head
means an empty queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import starmap
from struct import Struct
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from reference_broker.idle import NOTHING

Columns = npt.NDArray[np.void]
"""Records as a structured array, with one column per field."""

R = TypeVar("R", bound=tuple[int, ...])


class Records(Generic[R]):
    """A first-in first-out queue of tuples of integers. ``layout`` packs one record, ``columns`` reads many."""

    __slots__ = ("_blocks", "_columns", "_head", "_layout", "_tail")

    block_records: ClassVar[int] = 1024
    """The number of records in a block."""

    def __init__(self, layout: Struct, columns: np.dtype[Any]) -> None:
        assert columns.itemsize == layout.size
        self._layout = layout
        self._columns = columns
        self._head: deque[R] = NOTHING
        self._blocks: deque[bytes] = NOTHING
        self._tail: list[R] = []

    def __bool__(self) -> bool:
        return bool(self._head)

    def __len__(self) -> int:
        return len(self._head) + sum(map(len, self._blocks)) // self._layout.size + len(self._tail)

    def __iter__(self) -> Iterator[R]:
        return self._thawed(self.dump())

    # One at a time

    def append(self, record: R) -> None:
        """Add a record at the tail."""
        if self._tail or self._blocks or len(self._head) >= self.block_records:
            self._append_behind(record)
        elif self._head is NOTHING:
            self._head = deque((record,))
        else:
            self._head.append(record)

    def _append_behind(self, record: R) -> None:
        self._tail.append(record)
        size = self.block_records
        if len(self._tail) >= size:  # above it, if the last block was thawed
            self._freeze([self._frozen(self._tail[:size])])
            del self._tail[:size]

    def _freeze(self, blocks: Iterable[bytes]) -> None:
        """Add blocks behind the others."""
        if self._blocks is NOTHING:
            self._blocks = deque()
        self._blocks.extend(blocks)

    def first(self) -> R:
        """The record at the head. The queue must not be empty."""
        return self._head[0]

    def replace_first(self, record: R) -> None:
        """Replace the record at the head."""
        self._head[0] = record

    def drop_first(self) -> None:
        """Remove the record at the head."""
        self._head.popleft()
        if not self._head:
            self._refill()

    def _refill(self) -> None:
        if self._blocks:
            self._head = deque(self._thawed(self._blocks.popleft()))
        elif self._tail:
            self._head = deque(self._tail)
            self._tail.clear()

    # Many at a time

    @property
    def is_before_a_block(self) -> bool:
        """Whether a block follows the first record: the time to take records in masses."""
        return len(self._head) == 1 and bool(self._blocks)

    def take_while(self, take: Callable[[Columns], int]) -> None:
        """Remove records off the head. ``take`` gets a block of records and returns the number of the first ones to
        remove. If it removes all, it gets the next block."""
        octets = self._frozen(self._head)
        self._head.clear()
        while octets:
            rest = octets[take(np.frombuffer(octets, self._columns)) * self._layout.size :]
            if rest:
                self._head.extend(self._thawed(rest))
                return
            octets = self._blocks.popleft() if self._blocks else b""
        self._refill()

    def extend(self, records: Columns) -> None:
        """Add many at the tail, frozen as they are."""
        if self._tail:
            self._freeze([self._frozen(self._tail)])
            self._tail.clear()
        step = self.block_records
        self._freeze(records[at : at + step].tobytes() for at in range(0, len(records), step))
        if not self._head:
            self._refill()

    def clear(self) -> None:
        """Remove all records."""
        self._head = self._blocks = NOTHING
        self._tail.clear()

    def pieces(self) -> Iterator[Columns]:
        """All records, in order, in pieces. No piece is empty."""
        for octets in (self._frozen(self._head), *self._blocks, self._frozen(self._tail)):
            if octets:
                yield np.frombuffer(octets, self._columns)

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """One field of all records."""
        return np.frombuffer(self.dump(), self._columns)[name].astype(np.int64)

    def dump(self) -> bytes:
        """All records, packed. The same records give the same octets, whichever of them are frozen."""
        return b"".join((self._frozen(self._head), *self._blocks, self._frozen(self._tail)))

    def load(self, octets: bytes) -> Self:
        """Take over the records of a :meth:`dump`. Returns this queue."""
        self.clear()
        if octets:
            self.extend(np.frombuffer(octets, self._columns))
        return self

    def _frozen(self, records: Iterable[R]) -> bytes:
        return b"".join(starmap(self._layout.pack, records))

    def _thawed(self, octets: bytes) -> Iterator[Any]:
        return self._layout.iter_unpack(octets)


def leading(chosen: npt.NDArray[np.bool_]) -> int:
    """The number of leading true values."""
    return len(chosen) if chosen.all() else int(chosen.argmin())
