"""The ready messages: returned messages in message order, and behind them messages that were never delivered.

Dealing, gets, expiry and limits take messages off the head, a stretch at a time.

Returned stretches are a heap of packed octets. Octets with the message number in front have the order of the numbers,
and take a quarter of the memory of tuples: a consumer that takes a million messages and leaves gives back a million.

Invariants: ``returned_count`` and ``returned_octets`` are the sums over the heap; every message number in the heap is
below that of the backlog's head, because returned messages had left the backlog.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from struct import Struct
from typing import Final

from reference_broker.machines.commands import Labels
from reference_broker.machines.messages.backlog import Backlog
from reference_broker.machines.messages.held_ranges import HeldRange
from reference_broker.machines.messages.origins import NEVER, Origin
from reference_broker.records import record

Returned = tuple[int, int, int, int, Origin]
"""Number of the first message, count, start, step, origin. Numbers are unique, so they alone order a heap."""

Stretch = tuple[int, int, int, Origin]
"""Count, start, step, origin."""


@record(kw_only=True)
class FoundStretch:
    """Messages that a store has found: positions ``start``, +1, ... of the run at the place ``entry``, ``offset``. The
    message at position 0 of the run has the sequence number ``entry``. ``labels`` are the messages' labels, in a keyed
    queue."""

    entry: int
    offset: int
    start: int
    count: int
    expires: int
    size: int
    was_delivered: bool
    labels: Labels = ()


_PACKED: Final = Struct(">QIIIQQqIQQ")
"""Number, count, start, step, and the origin."""
_NUMBER: Final = Struct(">Q")


def _unpacked(octets: bytes) -> Returned:
    number, count, start, step, *origin = _PACKED.unpack(octets)
    return number, count, start, step, Origin(*origin)


class Ready:
    """The messages that can be delivered, oldest first."""

    __slots__ = ("_heap", "backlog", "returned_count", "returned_octets")

    def __init__(self) -> None:
        self.backlog = Backlog()
        self._heap: list[bytes] = []
        self.returned_count = 0
        self.returned_octets = 0

    def __bool__(self) -> bool:
        return bool(self.returned_count or self.backlog.count)

    @property
    def count(self) -> int:
        """Ready messages."""
        return self.backlog.count + self.returned_count

    @property
    def octets(self) -> int:
        """Octets of their bodies."""
        return self.backlog.octets + self.returned_octets

    @property
    def returned(self) -> list[Returned]:
        """All returned stretches, in no order."""
        return [*map(_unpacked, self._heap)]

    def head(self) -> Stretch:
        """The next stretch. There must be ready messages.

        Returned stretches may interleave, because they were dealt in turns. The stretch ends where the next begins.
        """
        if not self._heap:
            index, offset, start, count, expires, size = self.backlog.first()
            return count, start, 1, Origin(index, offset, self.backlog.first_number - start, 0, expires, size)
        number, count, start, step, origin = _unpacked(self._heap[0])
        if count > 1 and (following := min(self._heap[1:3], default=None)) is not None:
            count = min(count, -((number - _NUMBER.unpack_from(following)[0]) // step))
        return count, start, step, origin

    def take(self, count: int) -> None:
        """Remove the first ``count`` messages of :meth:`head`."""
        if not self._heap:
            self.backlog.take(count)
            return
        number, held, start, step, origin = _unpacked(self._heap[0])
        self.returned_count -= count
        self.returned_octets -= count * origin.size
        if count == held:
            heappop(self._heap)
        else:
            rest = _PACKED.pack(number + count * step, held - count, start + count * step, step, *origin)
            heapreplace(self._heap, rest)

    @property
    def is_before_a_block(self) -> bool:
        """Whether many records of the backlog can be taken at once (:meth:`Backlog.take_records`)."""
        return not self._heap and self.backlog.is_before_a_block

    def put_back(self, held: HeldRange, origin: Origin) -> None:
        """Put returned messages back to their place in message order."""
        self.returned_count += held.count
        self.returned_octets += held.count * origin.size
        heappush(self._heap, _PACKED.pack(held.number, held.count, held.start, held.step, *origin))

    def clear(self) -> int:
        """Remove all messages. Returns their number."""
        count = self.count
        self.backlog.clear()
        self.load_returned([])
        return count

    def load_returned(self, returned: list[Returned]) -> None:
        """Replace the returned messages. They must ascend."""
        self._heap = [_PACKED.pack(*stretch[:4], *stretch[4]) for stretch in returned]
        self.returned_count = sum(stretch[1] for stretch in returned)
        self.returned_octets = sum(stretch[1] * stretch[4].size for stretch in returned)

    def load_found(self, found: Iterable[FoundStretch], next_number: int) -> None:
        """Take over messages in order. Messages that were delivered come back as returned once."""
        self.backlog.first_number = next_number
        for each in found:
            if each.was_delivered:
                origin = Origin(each.entry, each.offset, each.entry, 1, each.expires, each.size)
                self.put_back(HeldRange(0, each.count, each.start, 1, origin), origin)
            else:
                self.backlog.push((each.entry, each.offset, each.start, each.count, each.expires, each.size))

    def expires_ever(self) -> bool:
        """Whether any message has a time to live."""
        return any(stretch[4].expires != NEVER for stretch in self.returned) or self.backlog.expires_ever()
