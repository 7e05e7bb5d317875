"""A queue of very many small records: plain tuples at both ends, packed octets between them.

A queue of messages holds one or two records while its consumers keep up, and may hold millions while they do not. So
whatever lies behind the head is frozen into strings of packed records: a fifth of the memory, nothing for the garbage
collector to walk, and a snapshot joins them as they are. Freezing and thawing cost 0.3 us a record, once each; what
leaves in masses is never thawed, but looked at as columns (:meth:`Records.take_while`).

Invariants: the tail is only non-empty past the frozen blocks, the blocks only past the head; so an empty head is an
empty queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import starmap
from struct import Struct
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

Columns = npt.NDArray[np.void]
"""Records as a structured array: one field a column."""

R = TypeVar("R", bound=tuple[int, ...])


class Records(Generic[R]):
    """First in, first out, over tuples of integers. ``layout`` packs one, ``columns`` reads many."""

    __slots__ = ("_blocks", "_columns", "_head", "_layout", "_tail")

    block_records: ClassVar[int] = 1024
    """How many are frozen together."""

    def __init__(self, layout: Struct, columns: np.dtype[Any]) -> None:
        assert columns.itemsize == layout.size
        self._layout = layout
        self._columns = columns
        self._head: deque[R] = deque()
        self._blocks: deque[bytes] = deque()
        self._tail: list[R] = []

    def __bool__(self) -> bool:
        return bool(self._head)

    def __len__(self) -> int:
        return len(self._head) + sum(map(len, self._blocks)) // self._layout.size + len(self._tail)

    def __iter__(self) -> Iterator[R]:
        return self._thawed(self.dump())

    # One at a time

    def append(self, record: R) -> None:
        """Add one at the tail."""
        if self._tail or self._blocks or len(self._head) >= self.block_records:
            self._append_behind(record)
        else:
            self._head.append(record)

    def _append_behind(self, record: R) -> None:
        self._tail.append(record)
        size = self.block_records
        if len(self._tail) >= size:  # above it, if the last block was thawed
            self._blocks.append(self._frozen(self._tail[:size]))
            del self._tail[:size]

    def first(self) -> R:
        """The one at the head of a queue that is not empty."""
        return self._head[0]

    def replace_first(self, record: R) -> None:
        """Put another one in the place of the first."""
        self._head[0] = record

    def drop_first(self) -> None:
        """Remove the first."""
        self._head.popleft()
        if not self._head:
            self._refill()

    def _refill(self) -> None:
        if self._blocks:
            self._head.extend(self._thawed(self._blocks.popleft()))
        elif self._tail:
            self._head.extend(self._tail)
            self._tail.clear()

    # Many at a time

    @property
    def is_before_a_block(self) -> bool:
        """Whether the first is the last of its kind, and frozen ones follow: the time to take masses."""
        return len(self._head) == 1 and bool(self._blocks)

    def take_while(self, take: Callable[[Columns], int]) -> None:
        """Remove records off the head: ``take`` is shown those that lie together, and says how many of them, the first
        ones, it takes. If all, it is shown the next."""
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
            self._blocks.append(self._frozen(self._tail))
            self._tail.clear()
        step = self.block_records
        self._blocks.extend(records[at : at + step].tobytes() for at in range(0, len(records), step))
        if not self._head:
            self._refill()

    def clear(self) -> None:
        """Remove all."""
        self._head.clear()
        self._blocks.clear()
        self._tail.clear()

    def pieces(self) -> Iterator[Columns]:
        """All, in order, in pieces none of which is empty."""
        for octets in (self._frozen(self._head), *self._blocks, self._frozen(self._tail)):
            if octets:
                yield np.frombuffer(octets, self._columns)

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """One field of all."""
        return np.frombuffer(self.dump(), self._columns)[name].astype(np.int64)

    def dump(self) -> bytes:
        """All, packed: the same records give the same octets, whatever is frozen at the time."""
        return b"".join((self._frozen(self._head), *self._blocks, self._frozen(self._tail)))

    def load(self, octets: bytes) -> Self:
        """Take over what :meth:`dump` gave. Returns this queue."""
        self.clear()
        if octets:
            self.extend(np.frombuffer(octets, self._columns))
        return self

    def _frozen(self, records: Iterable[R]) -> bytes:
        return b"".join(starmap(self._layout.pack, records))

    def _thawed(self, octets: bytes) -> Iterator[Any]:
        return self._layout.iter_unpack(octets)


def leading(chosen: npt.NDArray[np.bool_]) -> int:
    """How many are true before the first that is not."""
    return len(chosen) if chosen.all() else int(chosen.argmin())
