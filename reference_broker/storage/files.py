"""The port through which stores touch a file system, and its real implementation.

The port is small, so that three implementations can stand behind it: the real file system below, the file system in
memory that can lose power (:mod:`reference_broker.storage.memory_files`), and a modelled drive. Durability is explicit:
content is safe after ``datasync``, a name (created, renamed, removed) after ``sync_dir``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final, Protocol

BUFFERS_PER_WRITE: Final = 1024
"""Linux's IOV_MAX: the most buffers that one pwritev takes."""
_FILL_STEP: Final = 1 << 20
_SYNC_STEP: Final = 8 << 20
_ZEROS: Final = bytes(_FILL_STEP)
_datasync = getattr(os, "fdatasync", os.fsync)

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. One thread writes; any thread may read."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers back to back at ``offset``; raises :class:`OSError` if not all of it went in."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` octets; fewer only at the end of the file."""

    def datasync(self) -> None:
        """Everything written so far survives a loss of power when this returns."""

    def size(self) -> int:
        """Octets in the file."""

    def close(self) -> None:
        """Release the file. Closing twice is harmless; reading afterwards raises :class:`OSError`."""


class Note(Protocol):
    """A small file that is written often and costs no system call: a word to the next process of this machine."""

    def store(self, octets: bytes, offset: int) -> None:
        """Write ``octets``. They outlive the process at once, and a loss of power after :meth:`datasync`."""

    def read(self) -> bytes:
        """All octets of the file."""

    def datasync(self) -> None:
        """Everything stored so far survives a loss of power when this returns."""

    def close(self) -> None:
        """Release the file. Closing twice is harmless."""


class Files(Protocol):
    """The part of a file system that stores need. Paths are strings with ``/``; every failure is an OSError."""

    def create(self, path: str, size: int = 0) -> File:
        """A new file of ``size`` zeros (allocated, not sparse); replaces an existing file."""

    def open(self, path: str) -> File:
        """An existing file, to be read and written."""

    def note(self, path: str) -> Note:
        """An existing file of a few KiB, as a note."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""

    def rename(self, old: str, new: str) -> None:
        """Within one directory, atomically; replaces ``new``."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def make_dir(self, path: str) -> None:
        """Make a directory, with its parents, durably; harmless if it exists."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None:
        """Names created, renamed and removed in this directory survive a loss of power when this returns."""


def sync_ns(file: File, clock: Callable[[], int] = monotonic_ns) -> int:
    """Sync a file, and say how long that took in ns of the clock."""
    start = clock()
    file.datasync()
    return clock() - start


def read_whole(files: Files, path: str) -> bytes:
    """All octets of a file."""
    file = files.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_whole(files: Files, path: str, octets: bytes) -> None:
    """Write a file that gets its name only once all of it is on the drive; replaces an existing file. Content and name
    survive a loss of power when this returns."""
    temporary = f"{path}.tmp"
    file = files.create(temporary)
    try:
        file.write([octets], 0)
        file.datasync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(os.path.dirname(path))  # noqa: PTH120 - the port speaks strings


class RealFile:
    """A file descriptor. Errors name the path."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """One ``pwritev`` per 1024 buffers, and further writes for octets that the kernel left over."""
        for start in range(0, len(buffers), BUFFERS_PER_WRITE):
            part = buffers[start : start + BUFFERS_PER_WRITE]
            size = sum(map(len, part))
            try:
                done = os.pwritev(self._fd, part, offset)
                if done < size:
                    self._write_rest(b"".join(part), done, offset)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._path) from error
            offset += size

    def _write_rest(self, data: bytes, done: int, offset: int) -> None:
        while done < len(data):
            done += os.pwrite(self._fd, memoryview(data)[done:], offset + done)

    def read(self, offset: int, size: int) -> bytes:
        """``pread``, repeated until ``size`` octets or the end of the file."""
        data = os.pread(self._fd, size, offset)
        if len(data) == size:
            return data
        parts = [data]
        while data:
            offset += len(data)
            size -= len(data)
            data = os.pread(self._fd, size, offset) if size else b""
            parts.append(data)
        return b"".join(parts)

    def datasync(self) -> None:
        """``fdatasync`` (``fsync`` where there is none)."""
        try:
            _datasync(self._fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error

    def size(self) -> int:
        """``fstat``."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give the descriptor back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealNote:
    """A file in memory that the kernel writes to the drive in its own time (``mmap``). To store takes no system call,
    so the interpreter is not handed to another thread in between."""

    __slots__ = ("_fd", "_map")

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(self._fd, 0)
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            os.close(self._fd)
            raise OSError(getattr(error, "errno", None), str(error), path) from error

    def store(self, octets: bytes, offset: int) -> None:
        """Into the page cache."""
        self._map[offset : offset + len(octets)] = octets

    def read(self) -> bytes:
        """A copy."""
        return self._map[:]

    def datasync(self) -> None:
        """``fdatasync`` covers pages that were written through a mapping, and other threads run meanwhile."""
        _datasync(self._fd)

    def close(self) -> None:
        """Give mapping and descriptor back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._map.close()
            os.close(fd)


def filled(file: File, size: int) -> File:
    """The file with ``size`` zeros, which are synced in steps. A file that cannot be filled is closed."""
    try:
        for offset in range(0, size, _FILL_STEP):
            file.write([_ZEROS[: size - offset]], offset)
            if (offset + _FILL_STEP) % _SYNC_STEP == 0:
                file.datasync()
    except OSError:
        file.close()
        raise
    return file


class RealFiles:
    """The file system of this machine."""

    def create(self, path: str, size: int = 0) -> File:
        """Allocate and fill with zeros, so that later syncs within ``size`` write no metadata.

        Allocation alone would leave "unwritten" extents, whose conversion is a metadata write with each sync. The zeros
        are synced in steps: a sync of the WAL next door never has to wait behind all of them.
        """
        return filled(RealFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640), path), size)

    def open(self, path: str) -> File:
        """Open for reading and writing."""
        return RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def note(self, path: str) -> Note:
        """Map a file."""
        return RealNote(path)

    def names(self, directory: str) -> list[str]:
        """A sorted ``listdir``."""
        try:
            return sorted(os.listdir(directory))  # noqa: PTH208 - the port speaks strings
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        """``rename(2)``."""
        os.rename(old, new)  # noqa: PTH104

    def remove(self, path: str) -> None:
        """``unlink(2)``."""
        os.unlink(path)  # noqa: PTH108

    def make_dir(self, path: str) -> None:
        """Each level is synced into its parent."""
        if os.path.isdir(path):  # noqa: PTH112
            return
        parent = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120
        self.make_dir(parent)
        os.makedirs(path, 0o750, exist_ok=True)  # noqa: PTH103
        self.sync_dir(parent)

    def remove_dir(self, path: str) -> None:
        """``rmdir(2)``."""
        os.rmdir(path)  # noqa: PTH106

    def sync_dir(self, path: str) -> None:
        """``fsync`` of the directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
