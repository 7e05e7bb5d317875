"""A file system with a journal: turns operations on files into operations on a drive, and tells when they are over.

Pure, and after ext4 in its ordered mode. A write goes to the page cache and costs the drive nothing. A sync writes the
file's dirty pages. If the file has grown since its last sync, or is new, the sync needs a *commit* of the journal, too:
the journal blocks, a flush, the commit record, a flush. One commit is at work at a time. Syncs that need a commit
meanwhile wait for the next one, which begins when the current one ends and serves all waiting syncs. A sync after an
overwrite of allocated blocks needs no commit: it ends with a flush.

Every call gives the time at which the operation is over, so the host needs no callbacks: it sleeps until then (wall
clock), or answers then (virtual time). The next commit therefore gets its place in the drive's queue when the first
rider asks for it, not when it begins; an operation that is asked for in between goes behind it.

Commits and allocation are one list per file system, whatever the file: so one file that grows slows the syncs of
another, which is what background load on a shared drive does.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from reference_broker.storage.drives.model import DriveModel

PAGE: Final = 4096
CHUNK: Final = 8 << 20
"""Size of the chunks in which a file's octets lie together on the drive."""
CACHED: Final = 1 << 30
"""Octets of file content that the page cache keeps."""
_GRANULE: Final = 256 << 10
_JOURNAL_OCTETS: Final = 128 << 20
_COMMIT_BLOCKS: Final = 2 * PAGE
_RECORD: Final = PAGE
_NEVER: Final = -1


@dataclass(slots=True, eq=False)
class JournaledFile:
    """A file as the file system knows it. Made by :meth:`JournalModel.create` or :meth:`JournalModel.known`."""

    number: int
    allocated: int = 0
    """Octets that lie on the drive."""
    chunks: list[int] = field(default_factory=list)
    dirty: list[tuple[int, int]] = field(default_factory=list)
    """From where to where pages wait for a sync."""
    changed_ns: int = _NEVER
    """When the file became new or longer, if no commit has covered that yet."""


class JournalModel:
    """A file system on one drive. All times are nanoseconds of the host's clock; calls should come in their order."""

    def __init__(self, drive: DriveModel, *, cached: int = CACHED) -> None:
        self.drive = drive
        self.allocated = 0
        """Octets of all files."""
        self.commits = 0
        self._files = 0
        self._cache = _PageCache(cached)
        self._free_chunks: list[int] = []
        self._next_chunk = _JOURNAL_OCTETS
        self._journal_at = 0
        self._began_ns = _NEVER
        self._ended_ns = 0
        self._changed_ns = _NEVER

    # Files

    def create(self, now_ns: int) -> JournaledFile:
        """A new, empty file. Its name is durable after :meth:`sync_dir`."""
        self.change_names(now_ns)
        return JournaledFile(self._number(), changed_ns=now_ns)

    def known(self, octets: int) -> JournaledFile:
        """A file of this many octets that was there before the model began: on the drive, and not in memory."""
        file = JournaledFile(self._number())
        self._allocate(file, octets)
        return file

    def remove(self, now_ns: int, file: JournaledFile) -> None:
        """The file's chunks are free again; what was dirty is never written."""
        self.change_names(now_ns)
        self._cache.forget(file)
        self._free_chunks += file.chunks
        self.allocated -= file.allocated
        file.chunks, file.dirty, file.allocated = [], [], 0

    def change_names(self, now_ns: int) -> None:
        """A name was created, renamed or removed; durable after :meth:`sync_dir`."""
        self._changed_ns = now_ns

    def grows_by(self, file: JournaledFile, offset: int, octets: int) -> int:
        """Octets that a write would allocate."""
        return max(0, _up(offset + octets) - file.allocated)

    def write(self, now_ns: int, file: JournaledFile, offset: int, octets: int) -> None:
        """Write into the page cache: costs the drive nothing until the sync."""
        start, end = offset - offset % PAGE, _up(offset + octets)
        if end > file.allocated:
            file.changed_ns = now_ns
            self._allocate(file, end)
        dirty = file.dirty
        if dirty and dirty[-1][0] <= start <= dirty[-1][1]:
            dirty[-1] = (dirty[-1][0], max(end, dirty[-1][1]))
        else:
            dirty.append((start, end))
        self._cache.add(file, start, end)

    # Operations with an end

    def datasync(self, now_ns: int, file: JournaledFile) -> int:
        """When everything written to the file is durable."""
        over_ns = now_ns
        for start, end in _merged(file.dirty):
            over_ns = max(over_ns, self._to_drive(now_ns, file, start, end, write=True))
        wrote, file.dirty = bool(file.dirty), []
        changed_ns, file.changed_ns = file.changed_ns, _NEVER
        if changed_ns == _NEVER:
            return self.drive.flush(over_ns)
        covered_ns = max(now_ns, self._committed(changed_ns, over_ns))
        return self.drive.flush(over_ns) if wrote and covered_ns < over_ns else covered_ns

    def sync_dir(self, now_ns: int) -> int:
        """When all names that were changed are durable. Without a change since the last commit, at once."""
        return max(now_ns, self._committed(self._changed_ns, now_ns)) if self._changed_ns != _NEVER else now_ns

    def read(self, now_ns: int, file: JournaledFile, offset: int, octets: int) -> int:
        """When these octets are read: at once if the page cache has them."""
        start, end = offset - offset % PAGE, min(_up(offset + octets), file.allocated)
        if end <= start or self._cache.has(file, start, end):
            return now_ns
        self._cache.add(file, start, end)
        return self._to_drive(now_ns, file, start, end, write=False)

    # Underneath

    def _number(self) -> int:
        self._files += 1
        return self._files

    def _committed(self, changed_ns: int, ready_ns: int) -> int:
        """When a commit covers a change; a commit covers what was changed before it began."""
        if changed_ns > self._began_ns:
            self._commit(max(ready_ns, self._ended_ns))
        if self._changed_ns <= self._began_ns:
            self._changed_ns = _NEVER
        return self._ended_ns

    def _commit(self, now_ns: int) -> None:
        self.commits += 1
        self._began_ns = now_ns
        for octets in (_COMMIT_BLOCKS, _RECORD):
            now_ns = self.drive.flush(self.drive.submit(now_ns, self._journal_at, octets, True))
            self._journal_at += octets
        self._journal_at %= _JOURNAL_OCTETS
        self._ended_ns = now_ns

    def _to_drive(self, now_ns: int, file: JournaledFile, start: int, end: int, *, write: bool) -> int:
        over_ns = now_ns
        while start < end:
            stop = min(end, (start // CHUNK + 1) * CHUNK)
            address = file.chunks[start // CHUNK] + start % CHUNK
            over_ns = max(over_ns, self.drive.submit(now_ns, address, stop - start, write))
            start = stop
        return over_ns

    def _allocate(self, file: JournaledFile, octets: int) -> None:
        end = _up(octets)
        self.allocated += end - file.allocated
        file.allocated = end
        while len(file.chunks) * CHUNK < end:
            file.chunks.append(self._free_chunks.pop() if self._free_chunks else self._fresh())

    def _fresh(self) -> int:
        chunk = self._next_chunk
        self._next_chunk += CHUNK
        if self._next_chunk + CHUNK > self.drive.profile.size_octets:
            self._next_chunk = _JOURNAL_OCTETS
        return chunk


class _PageCache:
    """The parts of files that are in memory; the least recently used part goes first."""

    def __init__(self, octets: int) -> None:
        self._most = octets // _GRANULE
        self._held: OrderedDict[tuple[int, int], None] = OrderedDict()

    def add(self, file: JournaledFile, start: int, end: int) -> None:
        """These octets were written or read."""
        held = self._held
        for part in range(start // _GRANULE, -(-end // _GRANULE)):
            held[file.number, part] = None
            held.move_to_end((file.number, part))
        while len(held) > self._most:
            held.popitem(last=False)

    def has(self, file: JournaledFile, start: int, end: int) -> bool:
        """Whether all of it is in memory."""
        return all((file.number, part) in self._held for part in range(start // _GRANULE, -(-end // _GRANULE)))

    def forget(self, file: JournaledFile) -> None:
        """The file is gone."""
        for part in range(-(-file.allocated // _GRANULE)):
            self._held.pop((file.number, part), None)


def _up(octets: int) -> int:
    return -(-octets // PAGE) * PAGE


def _merged(dirty: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(dirty) < 2:
        return dirty
    merged: list[tuple[int, int]] = []
    for start, end in sorted(dirty):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
