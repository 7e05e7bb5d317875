"""The shared store: large messages of all queues of a node, in append-only files of 16 MiB.

Each message that is still in a queue is one *reference* to the file that holds it. A file goes when nothing refers to
it and the store writes to a later file. Files are never rewritten.

The writer's thread changes this object. The owner reads parts through :meth:`SharedStore.file`, and only parts that it
has not given up, so no file goes that it reads.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

from reference_broker.classic.counters import Counters
from reference_broker.storage.files import Buffer, File, Files, sync_ns

SHARED_FILE_BYTES: Final = 16 << 20
_SUFFIX: Final = ".rdq"


class SharedStore:
    """The files of one node's large messages."""

    def __init__(self, files: Files, directory: str, counters: Counters, file_bytes: int = SHARED_FILE_BYTES) -> None:
        self._files, self._directory, self._counters, self._file_bytes = files, directory, counters, file_bytes
        files.make_dir(directory)
        self._open: dict[int, File] = {}
        self.references: Counter[int] = Counter()
        for name in files.names(directory):
            if name.endswith(_SUFFIX):
                self._open[int(name.removesuffix(_SUFFIX), 16)] = files.open(f"{directory}/{name}")
        self._current = max(self._open, default=0)
        """After a start nothing is appended to files that were there before: their ends may be torn."""
        self._end = file_bytes
        self._pending: dict[int, list[Buffer]] = {}
        self._pending_at: dict[int, int] = {}
        self._unsynced: set[int] = set()
        self._is_new = False

    def file(self, number: int) -> File:
        """The open file of that number. Raises KeyError for a file that is gone."""
        return self._open[number]

    def stage(self, buffers: list[bytes | memoryview], size: int) -> tuple[int, int]:
        """Take a part, which :meth:`write` will write. Returns the number of its file and its offset."""
        if self._end >= self._file_bytes:
            self._current += 1
            self._open[self._current] = self._files.create(self._path(self._current))
            self._end, self._is_new = 0, True
        number, offset = self._current, self._end
        self._pending.setdefault(number, []).extend(buffers)
        self._pending_at.setdefault(number, offset)
        self._end += size
        return number, offset

    def write(self) -> None:
        """Write what was staged: one write for each file."""
        for number, buffers in self._pending.items():
            self._open[number].write(buffers, self._pending_at[number])
            self._counters.classic_shared_bytes += sum(map(len, buffers))
            self._unsynced.add(number)
        self._pending.clear()
        self._pending_at.clear()

    def sync(self) -> None:
        """Everything written so far survives a loss of power when this returns."""
        for number in sorted(self._unsynced):
            self._counters.classic_sync_ns_total += sync_ns(self._open[number])
            self._counters.classic_shared_syncs += 1
        self._unsynced.clear()
        if self._is_new:
            self._files.sync_dir(self._directory)
            self._is_new = False

    def sweep(self) -> None:
        """Remove the files that nothing refers to. Their states in the index are written before."""
        for number in [number for number in self._open if not self.references[number]]:
            if number == self._current and self._end < self._file_bytes:
                continue
            self._open.pop(number).close()
            self._unsynced.discard(number)
            del self.references[number]
            with suppress(FileNotFoundError):
                self._files.remove(self._path(number))
        self._counters.classic_shared_files = len(self._open)

    def recovered(self) -> None:
        """All references are counted: what nobody refers to goes, durably, before its number is used again. What is
        left is synced."""
        self.sweep()
        self._unsynced.update(self._open)
        self.sync()
        self._files.sync_dir(self._directory)

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:08x}{_SUFFIX}"
