"""The shared store: large messages of all queues of a node, in append-only files of 16 MiB.

Each message that is still in a queue is one *reference* to the file that holds it, and so is an appender that may still
write there. A file goes when nothing refers to it. Files are never rewritten.

A loss of power may bring back the records of gone messages but not their removed file, because neither change is
synced. So a removed file leaves a name that says so (:class:`_Removed`): a missing file without that name is damage.

Every writer has a :class:`SharedAppender` with a file of its own, so writers never wait for each other's drive. They
share the :class:`SharedStore`, which has a lock that is never held during an operation on a file. The owner reads only
parts that it has not given up (:meth:`SharedStore.file`), so no file goes while the owner reads it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final

import numpy as np

from reference_broker.classic.counters import StoreCounters
from reference_broker.classic.damage import keep_copy, own_names
from reference_broker.classic.index_codec import SEGMENT_MESSAGES
from reference_broker.classic.part_codec import PLACED, PlacedHeaders, headers
from reference_broker.storage.files import Buffer, File, Files, sync_ns
from reference_broker.storage.findings import StartFinding

SHARED_FILE_BYTES: Final = 16 << 20
_SUFFIX: Final = ".rdq"
_REMOVED: Final = ".gone"
_NAME: Final = re.compile(rf"[0-9a-f]{{8}}{re.escape(_SUFFIX)}|[0-9a-f]{{8}}-[0-9a-f]{{8}}{re.escape(_REMOVED)}")


class SharedStore:
    """The files of one node's large messages."""

    def __init__(self, files: Files, directory: str, file_bytes: int, findings: list[StartFinding]) -> None:
        """Files that are not the store's are added to ``findings``."""
        self.files, self.directory, self.file_bytes = files, directory, file_bytes
        files.make_dir(directory)
        self._lock = Lock()
        self._open: dict[int, File] = {}
        self._references: Counter[int] = Counter()
        self._copies: dict[int, str] = {}
        """The copies that the start has kept of damaged files."""
        names = list(own_names(files, directory, _NAME, findings))
        for name in names:
            if name.endswith(_SUFFIX):
                self._open[int(name.removesuffix(_SUFFIX), 16)] = files.open(f"{directory}/{name}")
        self._removed = _Removed(files, directory, [name for name in names if name.endswith(_REMOVED)])
        self._last = max(self._open, default=0)
        """After a start nothing is appended to files that were there before: their ends may be torn."""

    def __len__(self) -> int:
        """Number of files."""
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
        file = self._open[number] = self.files.create(self.path(number))
        return number, file

    def refer(self, number: int, count: int) -> None:
        """Add ``count`` references to a file."""
        with self._lock:
            self._references[number] += count

    def release(self, counts: Mapping[int, int]) -> None:
        """Take references off each file; the records of the messages say so already. A file without references is
        removed."""
        if not counts:
            return
        with self._lock:
            self._references.subtract(counts)
            unused = [number for number in counts if self._references[number] <= 0]
            gone = [(number, self._open.pop(number)) for number in unused if number in self._open]
            for number in unused:
                del self._references[number]
        for number, file in gone:
            self._removed.add(number)
            self._remove(number, file)

    def was_removed(self, number: int) -> bool:
        """Whether the file was removed as unneeded before the start."""
        return self._removed.was_there(number)

    def path(self, number: int) -> str:
        """The path of the file of that number."""
        return f"{self.directory}/{_name(number)}"

    def keep_copy(self, number: int) -> str:
        """Keep a copy of a damaged file, and return the path."""
        if number not in self._copies:
            self._copies[number] = keep_copy(self.files, self.directory, _name(number))
        return self._copies[number]

    def recover(self) -> dict[tuple[int, int], PlacedHeaders]:
        """The headers of all parts, by queue and segment. The parts are synced before any record says of them that they
        are."""
        found: dict[tuple[int, int], bytearray] = {}
        for number, file in sorted(self._open.items()):
            file.datasync()
            for octets in headers(file, number):
                at = np.frombuffer(octets, PLACED)[0]
                found.setdefault((int(at["group"]), int(at["seq"]) // SEGMENT_MESSAGES), bytearray()).extend(octets)
        self.files.sync_dir(self.directory)
        return {key: np.frombuffer(bytes(octets), PLACED) for key, octets in found.items()}

    def recovered(self) -> None:
        """All references are counted, and no record on the drive refers to any other file: remove files without
        references, durably, before their numbers are used again."""
        for number in [number for number in self._open if not self._references[number]]:
            self._remove(number, self._open.pop(number))
        self._removed.forget()
        self.files.sync_dir(self.directory)

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()

    def _remove(self, number: int, file: File) -> None:
        file.close()
        with suppress(FileNotFoundError):
            self.files.remove(self.path(number))


def _name(number: int) -> str:
    return f"{number:08x}{_SUFFIX}"


class _Removed:
    """The numbers of the files that were removed, as names of empty files: ``first-last.gone``.

    Neighbours share a name, so there are no more names than files. A writer does not wait for another writer that has
    yet to make the name before: a name too many does no harm, because every name is true.
    """

    def __init__(self, files: Files, directory: str, names: Sequence[str]) -> None:
        """``names`` are the names from before the start."""
        self._files, self._directory = files, directory
        self._before = [(int(name[:8], 16), int(name[9:17], 16)) for name in names]
        self._lock = Lock()
        self._last_of: dict[int, int] = {}
        self._first_of: dict[int, int] = {}

    def was_there(self, number: int) -> bool:
        """Whether a name from before the start has the number."""
        return any(first <= number <= last for first, last in self._before)

    def add(self, number: int) -> None:
        """A file is about to be removed."""
        with self._lock:
            first, last = self._first_of.pop(number - 1, number), self._last_of.pop(number + 1, number)
            self._last_of[first], self._first_of[last] = last, first
        former = [self._path(*each) for each in ((first, number - 1), (number + 1, last)) if each[0] <= each[1]]
        try:
            self._files.rename(former.pop(), self._path(first, last))  # takes no room on a drive that is full
        except (IndexError, FileNotFoundError):
            self._files.create(self._path(first, last)).close()
        for path in former:
            with suppress(FileNotFoundError):
                self._files.remove(path)

    def forget(self) -> None:
        """Remove the names of before the start."""
        for first, last in self._before:
            with suppress(FileNotFoundError):
                self._files.remove(self._path(first, last))
        self._before.clear()

    def _path(self, first: int, last: int) -> str:
        return f"{self._directory}/{first:08x}-{last:08x}{_REMOVED}"


class SharedAppender:
    """Appends large messages of one writer to files of the shared store."""

    def __init__(self, store: SharedStore, counters: StoreCounters) -> None:
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
        """Write the staged messages: one write for each file."""
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
        """Messages are gone: take their references off each file."""
        self.store.release(counts)

    def leave(self) -> None:
        """Append nothing more to the current file."""
        if self._current:
            number, self._current = self._current, 0
            self.store.release({number: 1})
