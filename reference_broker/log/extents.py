"""Where the entries of one group are on disk. Pure.

Theory of operation
-------------------
A group's entries lie in few files, in order, so their places are kept as *extents*: a run of consecutive
indexes in one file, with one array element per entry (25 octets). Extents never overlap and ascend.
Three operations change them, and recovery uses the same three on the rows it reads back, so memory and disk
cannot disagree: :meth:`Extents.add`, :meth:`Extents.truncate_from`, :meth:`Extents.clear`.

Invariants: a file that an extent names is needed (I11); ``add`` of an index at or below the last index first drops the
entries at and above that index, as the log does.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

Ranges = Sequence[tuple[int, int]]
"""Ascending, disjoint ranges of indexes, both ends included."""


class Place(NamedTuple):
    """The place of a payload, and the numbers that identify it."""

    file: int
    offset: int
    size: int
    crc: int
    term: int
    kind: int


class Extent:
    """Entries ``first``, ``first + 1``, ... of one group in one file."""

    __slots__ = ("crcs", "file", "first", "kinds", "offsets", "sizes", "terms")

    def __init__(self, file: int, first: int) -> None:
        self.file = file
        self.first = first
        self.offsets = array("Q")
        self.sizes = array("I")
        self.crcs = array("I")
        self.terms = array("Q")
        self.kinds = bytearray()

    @property
    def last(self) -> int:
        """The last index; below ``first`` if empty."""
        return self.first + len(self.offsets) - 1

    def cut(self, index: int) -> None:
        """Drop ``index`` and everything above."""
        size = max(0, index - self.first)
        for column in (self.offsets, self.sizes, self.crcs, self.terms):
            del column[size:]
        del self.kinds[size:]

    def part(self, first: int, last: int) -> Extent:
        """A copy of ``first..last``, which lie in this extent."""
        part = Extent(self.file, first)
        start, end = first - self.first, last - self.first + 1
        part.offsets, part.sizes = self.offsets[start:end], self.sizes[start:end]
        part.crcs, part.terms = self.crcs[start:end], self.terms[start:end]
        part.kinds = self.kinds[start:end]
        return part

    def place(self, index: int) -> Place:
        """The place of ``index``, which lies in this extent."""
        at = index - self.first
        return Place(self.file, self.offsets[at], self.sizes[at], self.crcs[at], self.terms[at], self.kinds[at])


class Extents:
    """All places of one group's entries."""

    __slots__ = ("_extents",)

    def __init__(self) -> None:
        self._extents: list[Extent] = []

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._extents)

    @property
    def last(self) -> int:
        """The highest index; 0 if there is none."""
        return self._extents[-1].last if self._extents else 0

    def add(self, index: int, place: Place) -> None:
        """Note that ``index`` is at ``place``. Earlier places at or above the index are forgotten."""
        extents = self._extents
        tail = extents[-1] if extents else None
        if tail is None or tail.file != place.file or index != tail.first + len(tail.offsets):  # most follow the last
            if tail is not None and index <= tail.last:
                self.truncate_from(index)
                tail = extents[-1] if extents else None
            if tail is None or tail.file != place.file or index != tail.last + 1:
                tail = Extent(place.file, index)
                extents.append(tail)
        tail.offsets.append(place.offset)
        tail.sizes.append(place.size)
        tail.crcs.append(place.crc)
        tail.terms.append(place.term)
        tail.kinds.append(place.kind)

    def truncate_from(self, index: int) -> None:
        """Forget ``index`` and everything above."""
        while self._extents and self._extents[-1].first >= index:
            self._extents.pop()
        if self._extents and self._extents[-1].last >= index:
            self._extents[-1].cut(index)

    def clear(self) -> None:
        """Forget everything."""
        self._extents.clear()

    def find(self, index: int) -> Place | None:
        """The place of ``index``; None if it is not here."""
        at = bisect_right(self._extents, index, key=_first) - 1
        if at < 0 or index > self._extents[at].last:
            return None
        return self._extents[at].place(index)

    def keep(self, floor: int, *wanted: Ranges) -> None:
        """Drop the extents that hold neither an index above ``floor`` nor one of ``wanted``."""
        self._extents = [
            extent
            for extent in self._extents
            if extent.last > floor or any(intersects(ranges, extent.first, extent.last) for ranges in wanted)
        ]

    def add_run(self, run: Extent) -> None:
        """Note where a run of entries is. Earlier places at or above its first index are forgotten."""
        if run.first <= self.last:
            self.truncate_from(run.first)
        self._extents.append(run)

    def inside(self, files: Container[int]) -> list[Extent]:
        """The extents in these files, in order."""
        return [extent for extent in self._extents if extent.file in files]

    def move(self, files: Container[int], moved: Sequence[Extent], end: int) -> None:
        """Entries up to ``end`` that lie in ``files`` were copied: ``moved`` says where they are now.

        Entries that were not copied are forgotten, and entries that the log dropped since the copy stay dropped.
        """
        extents: list[Extent] = []
        for extent in self._extents:
            if extent.file not in files or extent.first > end:
                extents.append(extent)
                continue
            extents += _overlaps(moved, extent.first, extent.last)
            if extent.last > end:
                extents.append(extent.part(end + 1, extent.last))
        self._extents = extents

    def octets(self, above: int, files: Container[int] | None = None) -> int:
        """Octets of payload of the entries above ``above``, in all files or these."""
        return sum(
            sum(extent.sizes if extent.first > above else extent.sizes[above + 1 - extent.first :])
            for extent in self._extents
            if extent.last > above and (files is None or extent.file in files)
        )

    def octets_within(self, ranges: Ranges, files: Container[int] | None = None) -> int:
        """Octets of payload of the entries in ``ranges``, in all files or these."""
        return sum(
            sum(extent.sizes[first - extent.first : last - extent.first + 1])
            for extent in self._extents
            if files is None or extent.file in files
            for first, last in clipped(ranges, extent.first, extent.last)
        )

    def files(self) -> set[int]:
        """The files that hold an entry."""
        return {extent.file for extent in self._extents}

    def missing(self, first: int, last: int) -> int:
        """The lowest index of ``first..last`` that is not here; 0 if all are."""
        at = max(0, bisect_right(self._extents, first, key=_first) - 1)
        for extent in self._extents[at:]:
            if first > last or extent.first > first:
                break
            first = max(first, extent.last + 1)
        return first if first <= last else 0

    def terms(self, above: int) -> list[tuple[int, int]]:
        """The terms of the entries above ``above``, as (first index of the term, term)."""
        runs: list[tuple[int, int]] = []
        for extent in self._extents:
            for index in range(max(extent.first, above + 1), extent.last + 1):
                term = extent.terms[index - extent.first]
                if not runs or runs[-1][1] != term:
                    runs.append((index, term))
        return runs

    def special(self, above: int, common: int) -> list[int]:
        """The indexes above ``above`` of the entries whose kind is not ``common``."""
        strip = bytes([common])
        return [
            extent.first + at
            for extent in self._extents
            if extent.last > above and extent.kinds.translate(None, strip)
            for at in range(max(0, above + 1 - extent.first), len(extent.kinds))
            if extent.kinds[at] != common
        ]


def _first(extent: Extent) -> int:
    return extent.first


def _overlaps(runs: Sequence[Extent], first: int, last: int) -> Iterator[Extent]:
    """The parts of ascending runs that lie in ``first..last``."""
    at = max(0, bisect_right(runs, first, key=_first) - 1)
    for run in runs[at:]:
        if run.first > last:
            return
        if run.last >= first:
            inside = first <= run.first and run.last <= last
            yield run if inside else run.part(max(first, run.first), min(last, run.last))


def clipped(ranges: Ranges, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The parts of the ranges that lie in ``first..last``."""
    for start, end in ranges[bisect_left(ranges, first, key=_end) :]:
        if start > last:
            return
        yield max(start, first), min(end, last)


def merged(*many: Ranges) -> list[tuple[int, int]]:
    """All indexes that lie in any of the ranges, as ascending, disjoint, not adjacent ranges."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(pair for ranges in many for pair in ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def contains(ranges: Ranges, index: int) -> bool:
    """Whether an index lies in one of the ranges."""
    at = bisect_right(ranges, index, key=_start) - 1
    return at >= 0 and index <= ranges[at][1]


def intersects(ranges: Ranges, first: int, last: int) -> bool:
    """Whether any index of ``first..last`` lies in one of the ranges."""
    at = bisect_left(ranges, first, key=_end)
    return at < len(ranges) and ranges[at][0] <= last


def _start(pair: tuple[int, int]) -> int:
    return pair[0]


def _end(pair: tuple[int, int]) -> int:
    return pair[1]


def checked(ranges: Ranges, highest: int) -> tuple[tuple[int, int], ...]:
    """The ranges as a tuple, adjacent ones joined.

    Raises :class:`ValueError` if they do not ascend, overlap, or reach above ``highest``.
    """
    joined: list[tuple[int, int]] = []
    end = 0
    for first, last in ranges:
        if not end < first <= last <= highest:
            raise ValueError(f"range {first}..{last}: ranges must ascend, not overlap, and end at or below {highest}")
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
        end = last
    return tuple(joined)
