"""The logs of all groups as their owner sees them: the newest entries in memory, older entries by their place on disk.
Pure.

Theory of operation
-------------------
A group has two states. The *log* has every append, truncation and reset of the owner at once. The *disk*
(:class:`~reference_broker.log.extents.Extents`) has the operations that the WAL has synced: the same ones in the same
order, a while later. An entry may leave memory only when log and disk agree on it.

The check is cheap, because the WAL writes in order. When the WAL reports an entry as written, and the log still has the
same object at its index, all lower entries of the log are written, too. ``synced`` is the highest such index; a
truncation lowers it.

The octets in memory are bounded over all groups, and the oldest entry is dropped first. An entry that is not on disk
yet cannot be dropped. The owner sees ``backlog_bytes`` and bounds these entries.

Invariants
* the entries in memory ascend in dict order;
* every index above the snapshot up to ``last`` is in memory or has a place on disk (I12);
* every live index below the snapshot is in memory or has a place on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from reference_broker.log.errors import AppendGapError, EntryGoneError
from reference_broker.log.extents import Extents, Place, Ranges, clipped, contains, intersects
from reference_broker.types import Entry, GroupId

ENTRY_OVERHEAD: Final = 256
"""Octets of an entry besides its payload: the object, its integers, its place in two containers."""
_STALE_MIN: Final = 1024


@dataclass(slots=True, eq=False)
class Table:
    """The log of one group.

    ``floor`` and ``floor_term`` are the snapshot's last index and term (0, 0: none). ``live`` are the indexes up to
    ``floor`` that must stay readable. ``kept`` has the places of the live entries that came with an installed snapshot,
    up to ``kept_floor``. ``pinned`` are the ranges that a snapshot under way to another node still needs. ``floor`` and
    ``live`` become ``asked_floor`` and ``asked_live`` once the owner's newest snapshot is on disk.
    """

    group: GroupId
    floor: int = 0
    floor_term: int = 0
    last: int = 0
    synced: int = 0
    live: Ranges = ()
    asked_floor: int = 0
    asked_live: Ranges = ()
    pinned: Ranges = ()
    kept: Extents = field(default_factory=Extents)
    kept_floor: int = 0
    memory: dict[int, Entry] = field(default_factory=dict)
    disk: Extents = field(default_factory=Extents)
    unneeded: int = 0
    """Payloads below this index are not asked for often: they leave memory as soon as they are on disk."""
    resets: int = 0
    """Resets that are not on disk yet. Until then a restart would need what stands before them."""
    _lowest: int = 0
    """The start of the next search for unneeded payloads: none is in memory below."""

    def holds(self, index: int) -> bool:
        """Whether the entry can be read."""
        return self.floor < index <= self.last or (index <= self.floor and contains(self.live, index))

    def place(self, index: int) -> Place | None:
        """The place of a readable or pinned entry on disk."""
        return self.kept.find(index) if index <= self.kept_floor else self.disk.find(index)

    def check_append(self, entries: Sequence[Entry]) -> None:
        """Raise :class:`AppendGapError` unless the entries continue (or overwrite) the log (I9)."""
        first = entries[0].index
        consecutive = len(entries) == 1 or all(entry.index == first + at for at, entry in enumerate(entries))
        if not consecutive or not self.asked_floor < first <= self.last + 1:
            raise AppendGapError(self.group, first, self.asked_floor, self.last)

    def start_at(self, floor: int, floor_term: int, live: Ranges) -> None:
        """The log is empty behind a snapshot: after a restart or a reset. Memory must have been forgotten."""
        self.floor, self.floor_term, self.live = floor, floor_term, live
        self.asked_floor, self.asked_live = floor, live
        self.last = self.synced = floor
        self._lowest = floor + 1

    def prune(self) -> None:
        """Forget the places of entries that cannot be asked for any more."""
        if not self.resets:
            self.disk.keep(self.floor, list(clipped(self.live, self.kept_floor + 1, self.floor)), self.pinned)
        if not intersects(self.live, 1, self.kept_floor) and not intersects(self.pinned, 1, self.kept_floor):
            self.kept.clear()
            self.kept_floor = 0


class Memory:
    """The entries of all tables that are in memory, and the budget for them."""

    __slots__ = ("_order", "budget", "bytes", "entries")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._order: deque[tuple[Table, int]] = deque()
        self.bytes = 0
        self.entries = 0

    def append(self, table: Table, entries: Sequence[Entry]) -> None:
        """Put entries, which :meth:`Table.check_append` accepted, at their indexes, in the place of earlier entries."""
        first = entries[0].index
        if first <= table.last:
            self.truncate(table, first)
        memory, order = table.memory, self._order
        for entry in entries:
            memory[entry.index] = entry
            order.append((table, entry.index))
            self.bytes += len(entry.payload) + ENTRY_OVERHEAD
        self.entries += len(entries)
        table.last = entries[-1].index
        if self.bytes > self.budget or len(order) > 2 * self.entries + _STALE_MIN:
            self.shrink()

    def truncate(self, table: Table, index: int) -> None:
        """Drop ``index`` and everything above from the log."""
        for dropped in range(index, table.last + 1):
            self._drop(table, dropped)
        table.last = min(table.last, index - 1)
        table.synced = min(table.synced, index - 1)
        table._lowest = min(table._lowest, index)

    def written(self, table: Table, entry: Entry) -> None:
        """``entry`` and all earlier entries of this table are on disk."""
        if table.memory.get(entry.index) is entry:
            table.synced = max(table.synced, entry.index)
            if table._lowest < table.unneeded and table._lowest <= table.synced:
                self._drop_unneeded(table)

    def drop_payloads(self, table: Table, below: int) -> None:
        """Entries below ``below`` need not be in memory."""
        table.unneeded = max(table.unneeded, below)
        self._drop_unneeded(table)

    def _drop_unneeded(self, table: Table) -> None:
        end = min(table.unneeded, table.synced + 1)
        for index in range(max(table._lowest, 1), end):
            self._drop(table, index)
        table._lowest = max(table._lowest, end)

    def forget_dead(self, table: Table) -> None:
        """Drop the entries that a new snapshot made unreadable."""
        dead = []
        for index in table.memory:
            if index > table.floor:
                break
            if not contains(table.live, index):
                dead.append(index)
        for index in dead:
            self._drop(table, index)

    def forget(self, table: Table) -> None:
        """Drop all entries of a table: it was reset or deleted."""
        for index in list(table.memory):
            self._drop(table, index)

    def shrink(self) -> None:
        """Drop the oldest entries that are on disk until the budget is met."""
        order = self._order
        while self.bytes > self.budget and order:
            table, index = order[0]
            if index in table.memory:
                if index > table.synced:
                    return
                self._drop(table, index)
            order.popleft()
        if len(order) > 2 * self.entries + _STALE_MIN:
            self._order = deque(item for item in order if item[1] in item[0].memory)

    def _drop(self, table: Table, index: int) -> None:
        entry = table.memory.pop(index, None)
        if entry is not None:
            self.bytes -= len(entry.payload) + ENTRY_OVERHEAD
            self.entries -= 1


def check_readable(table: Table, index: int) -> None:
    """Raise :class:`EntryGoneError` if the entry is not, or no longer, part of the log."""
    if not table.holds(index):
        raise EntryGoneError(table.group, index)


def check_still_live(table: Table, first: int, last: int) -> None:
    """Raise :class:`EntryGoneError` if one of ``first..last``, all below the snapshot asked for last, is not live."""
    for start, end in table.asked_live:
        if start <= first <= end:
            first = end + 1
        if first > last:
            return
    raise EntryGoneError(table.group, first)


def size_of(table: Table, index: int) -> int:
    """Octets of an entry. Raises :class:`EntryGoneError` if it is nowhere."""
    place = table.place(index)
    if place is None:
        raise EntryGoneError(table.group, index)
    return place.size
