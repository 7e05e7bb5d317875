"""The write-ahead log of a node, which all its quorum queues share, and the segments into which it is emptied.

The log takes whatever came while it was busy, 4096 entries at most, as one batch: one write, one sync. Then it tells
each queue of its batch. A full file goes to the segment writer, which writes what no snapshot has made superfluous into
files of the queues, and deletes the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from perftest.rabbitmq_model.files import JournaledAppends
from perftest.rabbitmq_model.processes import Notice

BATCH_ENTRIES: Final = 4096
FILE_OCTETS: Final = 536_870_912
"""Octets of a full file: what RabbitMQ sets (raft.wal_max_size_bytes)."""
RECORD_OCTETS: Final = 28
"""Octets of the head of a record."""


@dataclass(slots=True)
class LogWriter:
    """One member of a quorum queue, as the log of its node knows the member. ``written`` hears of synced entries."""

    written: Callable[[int], None]
    snapshot: int = 0
    """The last index that a snapshot covers."""
    segment: JournaledAppends | None = None


@dataclass(slots=True)
class LogEntries:
    """Entries of one member that end with index ``last``; ``octets`` of all of them."""

    member: LogWriter
    last: int
    count: int
    octets: int

    def split(self, count: int) -> tuple[LogEntries, LogEntries]:
        """The first entries, and the others."""
        octets = self.octets * count // self.count
        rest = self.count - count
        return (
            LogEntries(self.member, self.last - rest, count, octets),
            LogEntries(self.member, self.last, rest, self.octets - octets),
        )


@dataclass(slots=True)
class _Table:
    """The entries of one member in one file of the log."""

    last: int = 0
    count: int = 0
    octets: int = 0


@dataclass(slots=True)
class _LogFile:
    file: JournaledAppends
    octets_max: int
    tables: dict[int, tuple[LogWriter, _Table]] = field(default_factory=dict)


class ModelledLog:
    """The log and the segment writer of one node.

    ``new_file`` makes a file on the drive of a role: ``wal`` or ``segment``. ``first_octets`` is the size at which the
    first file is full: RabbitMQ draws it, so that nodes do not empty their logs at the same time.
    """

    def __init__(self, new_file: Callable[[str], JournaledAppends], first_octets: int) -> None:
        self.batches = 0
        self.octets = 0
        self.segment_octets = 0
        self.segments_written = 0
        self.files_emptied = 0
        self._new_file = new_file
        self._file = _LogFile(new_file("wal"), first_octets)
        self._line: deque[_LogFile] = deque()

    def write(self, batch: list[LogEntries], then: Callable[[], None]) -> None:
        """Write and sync a batch, tell its members, and go on with ``then``."""
        if self._file.file.octets > self._file.octets_max:
            self._roll()
        octets = sum(each.octets + RECORD_OCTETS * each.count for each in batch)
        self.batches += 1
        self.octets += octets
        file = self._file
        file.file.append_and_sync(octets, lambda: self._written(file, batch, then))

    def _written(self, file: _LogFile, batch: list[LogEntries], then: Callable[[], None]) -> None:
        last: dict[int, LogEntries] = {}
        for each in batch:
            last[id(each.member)] = each
            _, table = file.tables.setdefault(id(each.member), (each.member, _Table()))
            table.last = each.last
            table.count += each.count
            table.octets += each.octets
        for each in last.values():
            each.member.written(each.last)
        then()

    # Segments

    def _roll(self) -> None:
        self._line.append(self._file)
        self._file = _LogFile(self._new_file("wal"), FILE_OCTETS)
        if len(self._line) == 1:
            self._empty(self._line[0], list(self._line[0].tables.values()))

    def _empty(self, full: _LogFile, tables: list[tuple[LogWriter, _Table]]) -> None:
        """Write the tables one after the other, and then the next file's."""
        while tables:
            member, table = tables.pop()
            if (live := min(table.count, table.last - member.snapshot)) > 0:
                octets = table.octets * live // table.count
                self.segment_octets += octets
                self.segments_written += 1
                member.segment = member.segment or self._new_file("segment")
                member.segment.append_and_sync(octets, lambda: self._empty(full, tables))
                return
        full.file.remove()
        self.files_emptied += 1
        self._line.popleft()
        if self._line:
            self._empty(self._line[0], list(self._line[0].tables.values()))


class WrittenNotice(Notice):
    """The log has synced the entries of a member up to an index."""

    def __init__(self, last: int) -> None:
        self.last = last
