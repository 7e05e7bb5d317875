"""The segment files of all groups: which exist, how one is written, and the few that are open for reading.

A segment is written under a temporary name, synced, renamed, and the directory synced: a file that is called
``.segment`` is whole. Only then does the table point into it, and only after that may a WAL file go (I11).

The housekeeping thread writes and removes segments; the owner's thread reads them. The owner has its own open files.
One of them may be removed meanwhile: the payload's CRC and a second look at the table tell.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from reference_broker.checksum import crc32
from reference_broker.log.errors import DamagedLogError
from reference_broker.log.extents import Extent
from reference_broker.log.segment_codec import data_offset, encode, placed
from reference_broker.storage.files import File, Files, sync_ns
from reference_broker.types import GroupId

SUFFIX: Final = ".segment"
TEMPORARY: Final = ".tmp"
STEP: Final = 1000
"""Distance between the numbers of two new segments. The result of a compaction gets a number between the replaced
segments and the next one."""
OPEN_MAX: Final = 32
"""Number of segments that are open for reading at a time. A queue is read from its head on: one or two files each."""
COPY_BYTES: Final = 4 << 20
"""Octets that are read and written at a time: system calls and checksums of that size leave the interpreter to
others."""
ENTRIES_MAX: Final = 65_536
"""Largest number of entries of a segment: 1.6 MB of index."""


class SegmentFiles:
    """Reads and writes segment files below ``directory``."""

    def __init__(self, files: Files, directory: str, store: bytes, clock: Callable[[], int]) -> None:
        self._files = files
        self.directory = directory
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self.sync_ns = 0
        """Duration of the last segment's sync."""
        self._open: OrderedDict[tuple[GroupId, int], File] = OrderedDict()

    def group_directory(self, group: GroupId) -> str:
        """The directory of a group's segments."""
        return f"{self.directory}/{group:016x}"

    def path(self, group: GroupId, number: int, suffix: str = SUFFIX) -> str:
        """The path of a segment."""
        return f"{self.group_directory(group)}/{number:010d}{suffix}"

    # Reading, in the owner's thread

    def opened(self, group: GroupId, number: int) -> File:
        """A segment that is open for reading. The one that was not read for longest is closed instead."""
        key = (group, number)
        with self._lock:
            file = self._open.get(key)
            if file is None:
                file = self._open[key] = self._files.open(self.path(group, number))
            self._open.move_to_end(key)
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)[1].close()
        return file

    def forget(self, group: GroupId, number: int) -> None:
        """Close a segment that was opened; harmless if it was not."""
        with self._lock:
            file = self._open.pop((group, number), None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def open(self, group: GroupId, number: int) -> File:
        """A segment, opened for the caller alone."""
        return self._files.open(self.path(group, number))

    # Writing and removing, in the housekeeping thread

    def write(
        self,
        group: GroupId,
        number: int,
        log_uid: int,
        truncates: int,
        runs: Sequence[Extent],
        source: Callable[[int], tuple[File, str]],
    ) -> list[Extent]:
        """Copy entries into a new segment. Returns where they are, once they are safe there.

        ``source`` gives the open file, and the path, behind the file number of an extent.
        Raises :class:`DamagedLogError` if a source returns other octets than were written.
        """
        directory = self.group_directory(group)
        self._files.make_dir(directory)
        moved = placed(number, runs)
        temporary = self.path(group, number, TEMPORARY)
        file = self._files.create(temporary)
        try:
            offset = data_offset(len(runs), sum(len(run.sizes) for run in runs))
            for buffers in _pieces(runs, source):
                file.write(buffers, offset)
                offset += sum(map(len, buffers))
            file.write([encode(self._store, group, number, log_uid, truncates, moved)], 0)
            self.sync_ns = sync_ns(file, self._clock)
        finally:
            file.close()
        self._files.rename(temporary, self.path(group, number))
        self._files.sync_dir(directory)
        return moved

    def remove(self, group: GroupId, number: int) -> None:
        """Remove a segment; when this returns it will not come back."""
        self.forget(group, number)
        self._files.remove(self.path(group, number))
        self._files.sync_dir(self.group_directory(group))

    def remove_group(self, group: GroupId) -> None:
        """Remove a group's segments. Its directory need not exist."""
        with self._lock:
            stale = [self._open.pop(key) for key in list(self._open) if key[0] == group]
        for file in stale:
            file.close()
        remove_directory(self._files, self.directory, f"{group:016x}")


def remove_directory(files: Files, parent: str, name: str) -> None:
    """Remove a directory of files, if it is there."""
    directory = f"{parent}/{name}"
    names = files.names(directory)
    if not names and name not in files.names(parent):
        return
    for inner in names:
        files.remove(f"{directory}/{inner}")
    files.remove_dir(directory)
    files.sync_dir(parent)


def _pieces(runs: Sequence[Extent], source: Callable[[int], tuple[File, str]]) -> Iterator[list[memoryview]]:
    """The payloads of all runs in order, checked, in lists of about :data:`COPY_BYTES`."""
    buffers: list[memoryview] = []
    size = 0
    for run in runs:
        file, path = source(run.file)
        for start, end in _stretches(run):
            buffers.append(_read_checked(file, path, run, start, end))
            size += len(buffers[-1])
            if size >= COPY_BYTES:
                yield buffers
                buffers, size = [], 0
    if buffers:
        yield buffers


def _stretches(run: Extent) -> Iterator[tuple[int, int]]:
    """The entries of a run that lie back to back in its file, as positions from and to, each stretch about
    :data:`COPY_BYTES` at most."""
    offsets, sizes = run.offsets, run.sizes
    start, origin = 0, offsets[0]
    following = origin
    for at, offset in enumerate(offsets):
        if offset != following or offset - origin >= COPY_BYTES:
            yield start, at
            start, origin = at, offset
        following = offset + sizes[at]
    yield start, len(offsets)


def _read_checked(file: File, path: str, run: Extent, start: int, end: int) -> memoryview:
    origin = run.offsets[start]
    octets = memoryview(file.read(origin, run.offsets[end - 1] + run.sizes[end - 1] - origin))
    at = 0
    for position in range(start, end):
        size = run.sizes[position]
        if crc32(octets[at : at + size]) != run.crcs[position] or at + size > len(octets):
            raise DamagedLogError(path, origin + at, "an entry fails its check")
        at += size
    return octets
