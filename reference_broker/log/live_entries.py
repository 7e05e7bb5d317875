"""The live entries of a group, read piece by piece for a snapshot that is sent or rewritten.

Theory of operation
-------------------
A snapshot's stream is cut into chunks, and an entry may be much larger than a chunk. So such an entry is read in
pieces, each piece once, and is never in memory as a whole. A piece from disk is believed if the entry is still at the
same place afterwards: a file is removed or used again only after no place names the file. Damage of the drive shows
with the last piece: the CRC of the pieces differs from the CRC of the entry.

The lock is held for some hundred look-ups at most, however many entries are live.
"""

from __future__ import annotations

from typing import Final

from reference_broker.checksum import crc32
from reference_broker.log.errors import DamagedLogError, EntryGoneError
from reference_broker.log.extents import Place
from reference_broker.log.state import READS, Group, LogState
from reference_broker.types import Entry

PLACES_AT_ONCE: Final = 256


class LiveEntries:
    """The live entries of one group. They must stay readable: they are pinned, or belong to the newest snapshot."""

    __slots__ = ("_checked", "_group", "_state")

    def __init__(self, state: LogState, group: Group) -> None:
        self._state = state
        self._group = group
        self._checked: dict[int, tuple[int, int]] = {}
        """Partly read entries: the octets read, and their CRC."""

    def places(self, first: int, last: int) -> list[Place]:
        """The places of entries, from ``first`` on, up to ``last`` or some hundred. Raises :class:`EntryGoneError`."""
        table, found = self._group.table, []
        with self._state.lock:
            for index in range(first, min(last, first + PLACES_AT_ONCE - 1) + 1):
                place = table.place(index)
                if place is None:
                    raise EntryGoneError(self._group.id, index)
                found.append(place)
        return found

    def entry(self, index: int) -> Entry:
        """A whole entry. Errors as :meth:`read`."""
        return self._state.read(self._group, index)

    def read(self, index: int, offset: int, size: int) -> bytes:
        """Octets ``offset..offset + size`` of an entry's payload.

        Raises :class:`EntryGoneError` if the entry is gone, and :class:`DamagedLogError` if the disk returns other
        octets than were written.
        """
        failures = 0
        while True:
            entry, place, file = self._state.find(self._group, index)
            if entry is not None:
                return entry.payload[offset : offset + size]
            if place is None:
                raise EntryGoneError(self._group.id, index)
            octets = self._state.read_at(self._group, file, place, offset, size)
            with self._state.lock:
                is_there = self._group.table.place(index) == place
            is_whole = len(octets) == size
            if is_there and is_whole and self._passes(index, place, offset, octets):
                return octets
            failures += is_there
            if failures == READS or (is_there and is_whole):
                raise DamagedLogError(
                    self._state.path_of(self._group, place.file), place.offset, "an entry fails its check"
                )

    def _passes(self, index: int, place: Place, offset: int, octets: bytes) -> bool:
        """Whether the pieces read so far can be the entry's: False if the last piece shows that the CRC differs. Two
        receivers read at their own pace, so a piece may come twice."""
        end = offset + len(octets)
        done, crc = self._checked.get(index, (0, 0))
        if offset <= done < end:
            done, crc = end, crc32(memoryview(octets)[done - offset :], crc)
        if done < place.size:
            self._checked[index] = (done, crc)
            return True
        self._checked.pop(index, None)
        return crc == place.crc
