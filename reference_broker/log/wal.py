"""The files of the WAL: the current file, the file that stands ready, and the files that wait to be used again.

Theory of operation
-------------------
The writer (:mod:`~reference_broker.log.group_commit`) owns the current file and appends batches to it; it never
creates, renames or removes a file. The housekeeping thread makes the next file ready while the current one fills
(:meth:`WalFiles.prepare`), so a roll-over exchanges one reference. If the next file is late, the current file grows
beyond its size, which is slower and never wrong.

A dead file is renamed to ``.spare`` and becomes a next file by a new header and a rename; its old batches do
not have the mark of the new number. Each step is synced before the next, so that a crash leaves either name and never a
file whose header and name differ.

Invariants: one batch is in flight at a time; after an error nothing is written any more (the owner stops).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final

from reference_broker.log.counters import Counters
from reference_broker.log.high_water import HighWater
from reference_broker.log.wal_codec import (
    FIRST_BATCH,
    HEAD_SIZE,
    NOTED,
    ROW_SIZE,
    SECTOR,
    WAL_MAGIC,
    encode_batch_head,
    encode_file_header,
    mark_of,
)
from reference_broker.storage.files import Buffer, File, Files

SUFFIX: Final = ".wal"
SPARE: Final = ".spare"
TEMPORARY: Final = ".tmp"
_RECENT: Final = 8
"""Approximate number of batches that weigh in :attr:`Wal.recent_ns`."""
_UNKNOWN_NS: Final = 1_000_000_000


def file_name(number: int, suffix: str = SUFFIX) -> str:
    """``00000001.wal``: names sort by number."""
    return f"{number:08d}{suffix}"


@dataclass(slots=True, eq=False)
class WalFile:
    """One WAL file that is open. ``size`` is its due size; ``entries`` is the number of its log entries, and ``copied``
    the number of these that went into segments."""

    number: int
    file: File
    size: int
    mark: bytes
    path: str
    entries: int = 0
    copied: int = 0


class WalFiles:
    """Makes, recycles and removes the files in ``directory``. Used by one thread at a time."""

    def __init__(self, files: Files, directory: str, store: bytes, counters: Counters, recycle: int) -> None:
        self._files = files
        self.directory = directory
        self._store = store
        self._counters = counters
        self._recycle = recycle
        self._spares = [name for name in files.names(directory) if name.endswith(SPARE)]

    def path(self, name: str) -> str:
        """The path of a file of this WAL."""
        return f"{self.directory}/{name}"

    def opened(self, number: int, file: File) -> WalFile:
        """An existing file."""
        return WalFile(number, file, file.size(), mark_of(self._store, number), self.path(file_name(number)))

    def prepare(self, number: int, size: int) -> WalFile:
        """Make file ``number`` ready to be written: recycled if there is a spare, else new and full of zeros."""
        if self._spares:
            name = self._spares.pop()
            file = self._files.open(self.path(name))
            size = file.size()
            self._counters.wal_files_recycled += 1
        else:
            name = file_name(number, TEMPORARY)
            file = self._files.create(self.path(name), size)
        file.write([encode_file_header(WAL_MAGIC, number, self._store, NOTED, size)], 0)
        file.datasync()
        self._files.rename(self.path(name), self.path(file_name(number)))
        self._files.sync_dir(self.directory)
        return self.opened(number, file)

    def accept(self, short: WalFile) -> None:
        """Write the present length of a file that lost its end into the file's header, so that the loss counts once."""
        short.file.write([encode_file_header(WAL_MAGIC, short.number, self._store, NOTED, short.size)], 0)
        short.file.datasync()

    def retire(self, dead: WalFile, size: int) -> None:
        """Put a dead file among the spares, or remove it if there are enough or it is not of about ``size``."""
        name = file_name(dead.number)
        if len(self._spares) < self._recycle and size <= dead.file.size() <= 2 * size:
            spare = file_name(dead.number, SPARE)
            self._files.rename(self.path(name), self.path(spare))
            self._spares.insert(0, spare)
        else:
            self._files.remove(self.path(name))
        dead.file.close()
        self._files.sync_dir(self.directory)


class Wal:
    """Appends batches to the current file. Only the writer uses it, except for :meth:`offer`."""

    def __init__(
        self,
        current: WalFile,
        next_batch: int,
        counters: Counters,
        high_water: HighWater,
        *,
        sync: bool,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.current = current
        self.offset = FIRST_BATCH
        self._next_batch = next_batch
        self._counters = counters
        self._high_water = high_water
        self._sync = sync
        self._clock = clock
        self._next_file: WalFile | None = None
        self.times = (0, 0, 0)
        """When the write of the last batch began and ended, and when its sync ended, in ns of the clock."""
        self.recent_ns = _UNKNOWN_NS
        """The time that a batch took lately: a running mean."""

    def offer(self, file: WalFile) -> None:
        """The next file is ready. One reference, stored at once: needs no lock."""
        self._next_file = file

    @property
    def last_batch(self) -> int:
        """Number of the last batch written, in this file or an earlier one; 0 if there is none."""
        return self._next_batch - 1

    def roll_if_full(self, rows: int, octets: int) -> bool:
        """Go on to the next file, if it is ready, when a batch does not fit. True if that happened.

        An empty file takes any batch, however large.
        """
        fits = self.offset + HEAD_SIZE + rows * ROW_SIZE + octets <= self.current.size
        if fits or self.offset == FIRST_BATCH or self._next_file is None:
            return False
        self.current, self._next_file = self._next_file, None
        self.offset = FIRST_BATCH
        self._counters.wal_rolls += 1
        return True

    def append(self, rows: list[bytes], payloads: Sequence[Buffer], octets: int) -> int:
        """Write one batch and sync it. Returns the offset of its first payload."""
        counters = self._counters
        start = self._clock()
        head = encode_batch_head(self.current.mark, self._next_batch, rows, octets)
        self.current.file.write([head, *payloads], self.offset)
        written = self._clock()
        if self._sync:
            self.current.file.datasync()
            counters.wal_syncs += 1
        synced = self._clock()
        self._high_water.batch_synced(self._next_batch, self.current.number)
        counters.sync_ns_total += synced - written
        counters.write_ns_total += written - start
        self.times = (start, written, synced)
        self.recent_ns += (synced - start - self.recent_ns) // _RECENT
        counters.wal_writes += 1
        counters.wal_bytes += len(head) + octets
        payload = self.offset + HEAD_SIZE + len(rows) * ROW_SIZE
        self._next_batch += 1
        self.offset = (payload + octets + SECTOR - 1) & -SECTOR  # the next sector
        return payload
