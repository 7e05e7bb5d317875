"""The ready messages of a queue whose messages have priorities: one
:class:`~reference_broker.machines.messages.ready.Ready` per priority in use.

The *head* of the queue is the head of the highest priority that has messages. So messages of a higher priority are
delivered first, and as in RabbitMQ they are also the first to be dropped by a full queue, and a message of a lower
priority does not expire before it reaches the head. Within a priority everything is as without priorities.

The priority of a run is the second number of its place (``offset``), so a message that comes back finds its priority by
its origin. To the rest of the machine this class is both the ready messages and their backlog: messages enter by
:meth:`push`, and the newest messages belong to the run that entered last.

Invariants: ``count`` and ``octets`` are the sums over the levels; ``_order`` has the priorities of the levels that have
messages, highest first.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from operator import neg
from typing import Final, Self

from reference_broker.machines.messages.backlog import Record
from reference_broker.machines.messages.held_ranges import HeldRange
from reference_broker.machines.messages.origins import Origin
from reference_broker.machines.messages.ready import FoundStretch, Ready, Returned, Stretch
from reference_broker.machines.messages.records import Columns


class PriorityReady:
    """The messages that can be delivered, highest priority first, and oldest first within a priority."""

    __slots__ = ("_first_number", "_last_pushed", "_levels", "_order")

    returned_count: Final = 0
    """Messages outside of :attr:`backlog`."""
    first_number: Final = 0
    """Below the numbers of all messages: a queue with priorities never forgets that it has times to live."""

    def __init__(self) -> None:
        self._levels: dict[int, Ready] = {}
        self._order: list[int] = []
        self._first_number = 0
        """The message number with which a new level begins."""
        self._last_pushed = 0
        """The priority of the newest messages."""

    def __bool__(self) -> bool:
        return bool(self._order)

    @property
    def backlog(self) -> Self:
        """The entrance of messages: this object."""
        return self

    @property
    def count(self) -> int:
        """Ready messages."""
        return sum([level.count for level in self._levels.values()])

    @property
    def octets(self) -> int:
        """Octets of their bodies."""
        return sum([level.octets for level in self._levels.values()])

    @property
    def returned(self) -> list[Returned]:
        """All returned messages."""
        return [stretch for level in self._levels.values() for stretch in level.returned]

    def push(self, record: Record) -> None:
        """Append the messages of a record to those of its priority."""
        self._last_pushed = record[1]
        self._level(record[1]).backlog.push(record)

    def put_back(self, held: HeldRange, origin: Origin) -> None:
        """Put returned messages back to their place among those of their priority."""
        self._level(origin.offset).put_back(held, origin)

    def _level(self, priority: int) -> Ready:
        """The level of a priority, which gets messages now."""
        if (level := self._levels.get(priority)) is None:
            level = self._levels[priority] = Ready()
            level.backlog.first_number = self._first_number
        if not level:
            insort(self._order, priority, key=neg)
        return level

    def _left(self, priority: int) -> None:
        """Messages of this priority have left."""
        if not self._levels[priority]:
            self._order.remove(priority)

    def head(self) -> Stretch:
        """The next stretch. There must be ready messages."""
        return self._levels[self._order[0]].head()

    def take(self, count: int) -> None:
        """Remove the first ``count`` messages of :meth:`head`."""
        priority = self._order[0]
        self._levels[priority].take(count)
        self._left(priority)

    @property
    def tail_count(self) -> int:
        """Number of newest messages that were not taken."""
        level = self._levels.get(self._last_pushed)
        return level.backlog.count if level is not None else 0

    def peek_tail(self) -> Record:
        """The newest record. There must be a message of :attr:`tail_count`."""
        return self._levels[self._last_pushed].backlog.peek_tail()

    def take_tail(self, count: int) -> None:
        """Remove the last ``count`` messages of the newest record."""
        self._levels[self._last_pushed].backlog.take_tail(count)
        self._left(self._last_pushed)

    @property
    def is_before_a_block(self) -> bool:
        """Whether many records at the head can be taken at once (:meth:`take_records`)."""
        return bool(self._order) and self._levels[self._order[0]].is_before_a_block

    def take_records(self, chosen: Callable[[Columns], int]) -> list[tuple[int, Columns]]:
        """Remove whole records off the head, all of one priority. ``chosen`` is as for a backlog."""
        priority = self._order[0]
        gone = self._levels[priority].backlog.take_records(chosen)
        self._left(priority)
        return gone

    def clear(self) -> int:
        """Remove all messages. Returns their number."""
        self._order.clear()
        return sum([level.clear() for level in self._levels.values()])

    def load_found(self, found: Iterable[FoundStretch], next_number: int) -> None:
        """Take over messages that a store has found."""
        self._first_number = next_number
        for stretch in found:
            self._level(stretch.offset).load_found((stretch,), next_number)

    def expires_ever(self) -> bool:
        """Whether any message has a time to live."""
        return any(level.expires_ever() for level in self._levels.values())

    def pieces(self) -> Iterator[Columns]:
        """All records that were never delivered, in pieces."""
        for level in self._levels.values():
            yield from level.backlog.pieces()
