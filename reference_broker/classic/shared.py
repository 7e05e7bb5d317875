"""The shared store: large messages of all queues of a node, in append-only files of 16 MiB.

Each message that is still in a queue is one *reference* to the file that holds it, and so is an appender that may still
write there. A file goes when nothing refers to it. Files are never rewritten.

Every writer has a :class:`SharedAppender` with a file of its own, so writers never wait for each other's drive. What
they have in common, :class:`SharedStore`, has a lock, which is never held during an operation on a file. The owner
reads parts through :meth:`SharedStore.file`, and only parts that it has not given up, so no file goes that it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Final

from reference_broker.classic.counters import Counters
from reference_broker.storage.files import Buffer, File, Files, sync_ns

SHARED_FILE_BYTES: Final = 16 << 20
_SUFFIX: Final = ".rdq"


class SharedStore:
    """The files of one node's large messages."""

    def __init__(self, files: Files, directory: str, file_bytes: int = SHARED_FILE_BYTES) -> None:
        self.files, self.directory, self.file_bytes = files, directory, file_bytes
        files.make_dir(directory)
        self._lock = Lock()
        self._open: dict[int, File] = {}
        self._references: Counter[int] = Counter()
        for name in files.names(directory):
            if name.endswith(_SUFFIX):
                self._open[int(name.removesuffix(_SUFFIX), 16)] = files.open(f"{directory}/{name}")
        self._last = max(self._open, default=0)
        """After a start nothing is appended to files that were there before: their ends may be torn."""

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._open)

    def __contains__(self, number: int) -> bool:
        """Whether the file is still there."""
        return number in self._open

    def file(self, number: int) -> File:
        """The open file of that number. Raises KeyError for a file that is gone."""
        return self._open[number]

    def create(self) -> tuple[int, File]:
        """A new file, to which the caller has one reference, and its number."""
        with self._lock:
            self._last += 1
            number = self._last
            self._references[number] = 1
        file = self._open[number] = self.files.create(self._path(number))
        return number, file

    def refer(self, number: int, count: int) -> None:
        """So many more references to a file."""
        with self._lock:
            self._references[number] += count

    def release(self, counts: Mapping[int, int]) -> None:
        """So many references fewer to each file. The records of the messages say so already. What nothing refers to any
        more is removed."""
        if not counts:
            return
        with self._lock:
            self._references.subtract(counts)
            unused = [number for number in counts if self._references[number] <= 0]
            gone = [(number, self._open.pop(number)) for number in unused if number in self._open]
            for number in unused:
                del self._references[number]
        for number, file in gone:
            self._remove(number, file)

    def recovered(self) -> None:
        """All references are counted: what nobody refers to goes, durably, before its number is used again. What is
        left is synced."""
        for number in [number for number in self._open if not self._references[number]]:
            self._remove(number, self._open.pop(number))
        for file in self._open.values():
            file.datasync()
        self.files.sync_dir(self.directory)

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()

    def _remove(self, number: int, file: File) -> None:
        file.close()
        with suppress(FileNotFoundError):
            self.files.remove(self._path(number))

    def _path(self, number: int) -> str:
        return f"{self.directory}/{number:08x}{_SUFFIX}"


class SharedAppender:
    """Appends large messages of one writer to files of the shared store."""

    def __init__(self, store: SharedStore, counters: Counters) -> None:
        self.store = store
        self._counters = counters
        self._current = 0
        """The number of the file that is written; 0: none."""
        self._file: File
        self._end = 0
        self._pending: list[tuple[int, File, int, list[Buffer]]] = []
        """Number, file, offset and octets of what :meth:`write` will write, at most once for each file."""
        self._unsynced: dict[int, File] = {}
        self._is_new = False

    def stage(self, buffers: list[bytes | memoryview], size: int, count: int) -> tuple[int, int]:
        """Take a part of ``count`` messages, which :meth:`write` will write. Returns the number of its file and its
        offset. The messages are references to the file from now on."""
        if not self._current:
            self._current, self._file = self.store.create()
            self._end, self._is_new = 0, True
        number, offset = self._current, self._end
        if not self._pending or self._pending[-1][0] != number:
            self._pending.append((number, self._file, offset, []))
        self._pending[-1][3].extend(buffers)
        self._end += size
        self.store.refer(number, count)
        if self._end >= self.store.file_bytes:
            self.leave()
        return number, offset

    def write(self) -> None:
        """Write what was staged: one write for each file."""
        for number, file, offset, buffers in self._pending:
            file.write(buffers, offset)
            self._counters.classic_shared_bytes += sum(map(len, buffers))
            self._unsynced[number] = file
        self._pending.clear()

    def sync(self) -> None:
        """Everything written so far survives a loss of power when this returns."""
        for file in [file for number, file in self._unsynced.items() if number in self.store]:
            self._counters.classic_sync_ns_total += sync_ns(file, self._counters.clock)
            self._counters.classic_shared_syncs += 1
        self._unsynced.clear()
        if self._is_new:
            self.store.files.sync_dir(self.store.directory)
            self._is_new = False

    def release(self, counts: Mapping[int, int]) -> None:
        """Messages are gone: so many references fewer to each file."""
        self.store.release(counts)

    def leave(self) -> None:
        """Append nothing more to the current file."""
        if self._current:
            number, self._current = self._current, 0
            self.store.release({number: 1})
