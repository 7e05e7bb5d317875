"""Moves needed entries out of WAL files that are to go, and keeps the segments small.

Theory of operation
-------------------
A closed WAL file is copied group by group. Needed entries are entries above the snapshot, live entries, and entries of
a snapshot that is being sent. The writer finds them anew before each segment, so an entry that was settled since the
file was closed is not copied, and a queue whose consumers keep up has no segments. A segment is whole and synced before
the table points into it; entries that the log dropped in the meantime stay dropped.

Segments are never changed. A segment without needed entries is removed. Adjacent segments with few needed entries are
copied into one segment, which stands behind them in the order of numbers; then they are removed, oldest first. So at
any moment the existing files, replayed in order, give the same log.

Everything here runs in the housekeeping thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import Final

from reference_broker.log.extents import Extent, clipped, merged
from reference_broker.log.housekeeping import Part, removable, to_compact
from reference_broker.log.memtable import Table
from reference_broker.log.segment_codec import Segment, chain_last, describe, file_of
from reference_broker.log.segments import ENTRIES_MAX, STEP
from reference_broker.log.state import Group, LogState
from reference_broker.storage.files import File

_END: Final = 1 << 64


class SegmentWriter:
    """Writes, compacts and removes segments."""

    def __init__(self, state: LogState, segment_bytes: int) -> None:
        self._state = state
        self._files = state.segment_files
        self._segment_bytes = segment_bytes
        self.gone: list[tuple[Group, Segment]] = []
        """Segments to which no table points any more. The inventory must be written before they are removed."""

    # Out of the WAL

    def flush(self, number: int) -> None:
        """Copy the needed entries of WAL file ``number``. Afterwards no table refers to the file."""
        with self._state.lock:
            groups = list(self._state.groups.values())
        copied = sum(self._flush_group(group, number) for group in groups)
        self._state.wal_files[number].copied += copied

    def _flush_group(self, group: Group, number: int) -> int:
        """Returns the number of copied entries."""
        copied = 0
        while True:
            with self._state.lock:
                if group.deleted:
                    return copied
                runs = self._next_runs(group.table, number)
                truncates = _truncates(group, group.segments)
                if not runs and not truncates:
                    group.table.disk.move((number,), (), _END)
                    return copied
            last = runs[-1].last if runs else 0
            segment = self._write(group, self._following(group), truncates, runs, (number,), last)
            self._state.counters.segment_bytes += segment.octets
            self._state.counters.segment_entries += segment.entries
            copied += segment.entries

    def settle(self) -> None:
        """Before a WAL file goes, note in the segments which of their entries its rows truncated, overwrote or
        reset."""
        with self._state.lock:
            stale = [
                (group, truncates)
                for group in (*self._state.groups.values(), *sorted(self._state.leaving, key=lambda each: each.id))
                if group.segments and (truncates := _truncates(group, group.segments))
            ]
        for group, truncates in stale:
            self._write(group, self._following(group), truncates, (), (), 0)

    def _numbers(self, group: Group) -> list[int]:
        """The numbers of the group's segments whose files are there."""
        return [segment.number for segment in group.segments] + [
            segment.number for of, segment in self.gone if of is group
        ]

    def _following(self, group: Group) -> int:
        """The number of the next new segment."""
        return (max(self._numbers(group), default=0) // STEP + 1) * STEP

    def _next_runs(self, table: Table, number: int) -> list[Extent]:
        """The needed entries of a WAL file that go into the next segment."""
        runs: list[Extent] = []
        octets, entries = self._segment_bytes, ENTRIES_MAX
        for run in needed(table, table.disk.inside((number,))):
            sums = list(accumulate(run.sizes))
            fitting = min(bisect_right(sums, octets), entries)
            if fitting < len(sums):
                fitting = max(fitting, not runs)
                return runs + ([run.part(run.first, run.first + fitting - 1)] if fitting else [])
            runs.append(run)
            octets -= sums[-1]
            entries -= fitting
        return runs

    def _write(
        self, group: Group, number: int, truncates: int, runs: Sequence[Extent], files: Sequence[int], end: int
    ) -> Segment:
        """Make one segment of ``runs``, which lie in ``files``, and let the table point into it up to ``end``."""
        with ExitStack() as opened:

            def source(file: int) -> tuple[File, str]:
                path = self._state.path_of(group, file)
                if file > 0:
                    return self._state.wal_files[file].file, path
                segment = self._files.open(group.id, -file)
                opened.callback(segment.close)
                return segment, path

            moved = self._files.write(group.id, number, group.log_uid, truncates, runs, source)
        self._state.synced("segment", self._files.sync_ns)
        segment = describe(number, truncates, moved)
        with self._state.lock:
            group.table.disk.move(files, moved, end)
            group.segments = sorted([*group.segments, segment])
            if not group.deleted:
                self._state.segmented.add(group)
        self._state.counters.segments_written += 1
        return segment

    # Keeping them small

    def sweep(self, groups: Iterable[Group]) -> list[Group]:
        """Remove segments without needed entries, and rewrite one run of poor segments per group.

        Returns the groups for which there may be more to do.
        """
        return [group for group in groups if group.segments and self._sweep_group(group)]

    def _sweep_group(self, group: Group) -> bool:
        with self._state.lock:
            if group.deleted:
                return False
            chain = [_part(group.table, segment) for segment in group.segments]
            gone = removable(chain)
            for segment in gone:
                group.table.disk.move((file_of(segment.number),), (), _END)
        self._let_go(group, gone)
        run = to_compact([part for part in chain if part.segment not in gone], self._segment_bytes)
        return bool(run) and self._compact(group, [part.segment for part in run])

    def _compact(self, group: Group, old: list[Segment]) -> bool:
        """Copy the needed entries of adjacent segments into one segment that takes their place."""
        number = old[-1].number + 1
        files = [file_of(segment.number) for segment in old]
        if number in self._numbers(group):
            return False
        with self._state.lock:
            if group.deleted:
                return False
            runs = list(needed(group.table, group.table.disk.inside(files)))
            truncates = _truncates(group, [segment for segment in group.segments if segment < old[0]])
            if not runs and not truncates:
                group.table.disk.move(files, (), _END)
        if runs or truncates:
            segment = self._write(group, number, truncates, runs, files, _END)
            self._state.counters.segment_compactions += 1
            self._state.counters.segment_compacted_bytes += segment.octets
        self._let_go(group, old)
        return True

    def _let_go(self, group: Group, gone: Sequence[Segment]) -> None:
        """Forget segments to which the table does not point any more."""
        self.gone += [(group, segment) for segment in gone]
        with self._state.lock:
            group.segments = [kept for kept in group.segments if kept not in gone]
            if not group.segments:
                self._state.segmented.discard(group)

    def remove_gone(self) -> None:
        """Remove the files of segments that were let go, oldest first."""
        gone, self.gone = self.gone, []
        for group, segment in gone:
            if not group.deleted:
                self._files.remove(group.id, segment.number)


def needed(table: Table, extents: Iterable[Extent]) -> Iterator[Extent]:
    """The parts of the extents that can be asked for. Call with the lock held.

    While a reset is not on disk, a start would need the entries before the reset, so all of them stay.
    """
    wanted = [(0, _END)] if table.resets else merged(table.live, table.pinned, [(table.floor + 1, _END)])
    for extent in extents:
        for first, last in clipped(wanted, extent.first, extent.last):
            yield extent.part(first, last)


def _part(table: Table, segment: Segment) -> Part:
    runs = list(needed(table, table.disk.inside((file_of(segment.number),))))
    return Part(segment, sum(len(run.sizes) for run in runs), sum(sum(run.sizes) for run in runs))


def _truncates(group: Group, older: Sequence[Segment]) -> int:
    """The index from which on the next segment must drop entries of the segments ``older``; 0 if it need not.

    The older segments may hold entries behind the last entry that is still part of the log. A row in a WAL file
    truncated or reset these entries, and that file may go now.
    """
    files = [file_of(segment.number) for segment in older]
    first = max((extent.last for extent in group.table.disk.inside(files)), default=0) + 1
    return first if chain_last(older) >= first else 0
