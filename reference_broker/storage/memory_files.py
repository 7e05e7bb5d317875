"""A file system in memory that loses power, tears writes, fills up and rots, on command.

It keeps two versions of everything: the version that the process sees, and the version on the platter. ``datasync``
copies a file's content to the platter, ``sync_dir`` a directory's names. :meth:`MemoryFiles.crash` throws the first
version away. Given a random generator, some unsynced changes survive, as on a real drive: a prefix of the unsynced
writes of each file, the last write torn at any octet, and a prefix of the unsynced changes of each directory.

Faults have names and happen at a numbered call, so that a test can try each of them:

* :meth:`MemoryFiles.fail_at`: the n-th changing call raises; a failing write leaves half of its octets. With
  ``sticky``, all later calls raise too, which is how a test stops a node at that instruction;
* :meth:`MemoryFiles.fill_up`: the drive has no room for more octets (ENOSPC);
* :meth:`MemoryFiles.flip`: one bit on the platter is another.

Names within a directory change in order (as a journalling file system does it), files independently of each other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from reference_broker.storage.files import Buffer, File, Note


class Chance(Protocol):
    """The part of ``random.Random`` that a crash needs."""

    def randint(self, a: int, b: int, /) -> int:
        """A number in a..b, both included."""


_NOTED: Final = 8
"""Number of the latest unsynced changes that a loss of power may each keep or drop."""


@dataclass(slots=True, eq=False)
class _Node:
    """A file's content: as seen, as on the platter, and the writes in between."""

    seen: bytearray = field(default_factory=bytearray)
    platter: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Directory:
    seen: dict[str, _Node | _Directory] = field(default_factory=dict)
    platter: dict[str, _Node | _Directory] = field(default_factory=dict)
    unsynced: list[Callable[[dict[str, _Node | _Directory]], object]] = field(default_factory=list)

    def change(self, action: Callable[[dict[str, _Node | _Directory]], object]) -> None:
        """Change the names now, and on the platter when the directory is synced."""
        action(self.seen)
        self.unsynced.append(action)


def _put(data: bytearray, offset: int, octets: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(octets)] = octets


class MemoryFile:
    """An open file of :class:`MemoryFiles`."""

    __slots__ = ("_files", "_node", "_open", "_path")

    def __init__(self, files: MemoryFiles, path: str, node: _Node) -> None:
        self._files = files
        self._path = path
        self._node = node
        self._open = True

    def _check_open(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Seen at once; on the platter after ``datasync``."""
        self._check_open()
        octets = b"".join(buffers)
        node = self._node

        def put(part: bytes) -> None:
            _put(node.seen, offset, part)
            node.unsynced.append((offset, part))

        growth = max(0, offset + len(octets) - len(node.seen))
        self._files.changing("write", self._path, growth, partly=lambda: put(octets[: len(octets) // 2]))
        put(octets)

    def read(self, offset: int, size: int) -> bytes:
        """A slice."""
        self._check_open()
        return bytes(self._node.seen[offset : offset + size])

    def datasync(self) -> None:
        """Bring the platter up to date with the version that the process sees."""
        self._check_open()
        self._files.changing("datasync", self._path)
        for offset, octets in self._node.unsynced:
            _put(self._node.platter, offset, octets)
        self._node.unsynced.clear()

    def size(self) -> int:
        """Octets as seen."""
        return len(self._node.seen)

    def close(self) -> None:
        """Later reads and writes raise EBADF."""
        self._open = False


class MemoryNote:
    """A note in memory: what was stored last, or what was synced last, or anything in between, is on the platter after
    a loss of power. To store is no call to the file system, and cannot fail."""

    __slots__ = ("_file", "_node")

    def __init__(self, file: MemoryFile) -> None:
        self._file = file
        self._node = file._node

    def store(self, octets: bytes, offset: int) -> None:
        """Seen at once."""
        node = self._node
        _put(node.seen, offset, octets)
        node.unsynced = [*node.unsynced[-_NOTED:], (offset, octets)]

    def read(self) -> bytes:
        """A copy."""
        return bytes(self._node.seen)

    def datasync(self) -> None:
        """Bring the platter up to date."""
        self._file.datasync()

    def close(self) -> None:
        """Nothing is to be given back."""


class MemoryFiles:
    """The file system. Use from one thread, or with the log's threads; crash only when they stand still."""

    def __init__(self) -> None:
        self._root = _Directory()
        self.calls = 0
        """Changing calls so far: write, datasync, create, rename, remove, make_dir, remove_dir, sync_dir."""
        self.trace: list[tuple[str, str]] = []
        """Name and path of each changing call."""
        self._fail_at = 0
        self._error = 0
        self._sticky = False
        self._room: int | None = None

    # Faults

    def fail_at(self, call: int, error: int = errno.EIO, *, sticky: bool = False) -> None:
        """Let changing call number ``call`` (from now on, counted from 1) raise; ``sticky``: all later calls too."""
        self._fail_at, self._error, self._sticky = self.calls + call, error, sticky

    def fill_up(self, room: int = 0) -> None:
        """Let files grow by ``room`` octets more in total."""
        self._room = room

    def heal(self) -> None:
        """No more faults."""
        self._fail_at, self._room = 0, None

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Flip bits of one octet, as seen and on the platter."""
        node = self._file(path)
        node.seen[offset] ^= mask
        node.platter[offset] ^= mask

    def crash(self, chance: Chance | None = None) -> None:
        """Lose power: only synced changes are left, and, with ``chance``, some unsynced changes."""
        self.heal()
        self._crash_directory(self._root, chance)

    def _crash_directory(self, directory: _Directory, chance: Chance | None) -> None:
        for action in directory.unsynced[: chance.randint(0, len(directory.unsynced)) if chance else 0]:
            action(directory.platter)
        directory.unsynced.clear()
        directory.seen = dict(directory.platter)
        for node in directory.seen.values():
            if isinstance(node, _Directory):
                self._crash_directory(node, chance)
            else:
                _crash_file(node, chance)

    def changing(self, name: str, path: str, growth: int = 0, partly: Callable[[], object] | None = None) -> None:
        """Count a changing call and raise if it is to fail; ``partly`` does half of it then."""
        self.calls += 1
        self.trace.append((name, path))
        error = 0
        if self._fail_at and (self.calls == self._fail_at or (self._sticky and self.calls > self._fail_at)):
            error = self._error
        if self._room is not None:
            self._room -= growth
            if self._room < 0:
                error = errno.ENOSPC
        if error:
            if partly is not None and not (self._sticky and self.calls > self._fail_at):
                partly()
            raise OSError(error, os.strerror(error), path)

    # The port

    def create(self, path: str, size: int = 0) -> File:
        """A new file under this name; a process that has the old file open keeps it."""
        self.changing("create", path, size)
        directory, name = self._parent(path)
        node = _Node(bytearray(size), unsynced=[(0, bytes(size))] if size else [])
        directory.change(lambda names: names.__setitem__(name, node))
        return MemoryFile(self, path, node)

    def open(self, path: str) -> File:
        """Open the file that has the name now."""
        return MemoryFile(self, path, self._file(path))

    def note(self, path: str) -> Note:
        """A file as a note."""
        return MemoryNote(MemoryFile(self, path, self._file(path)))

    def names(self, directory: str) -> list[str]:
        """Names as seen."""
        try:
            return sorted(self._directory(directory).seen)
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        """Within one directory."""
        self.changing("rename", f"{old} {new}")
        directory, old_name = self._parent(old)
        other, new_name = self._parent(new)
        if old_name not in directory.seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        if directory is not other:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), old)
        directory.change(lambda names: names.__setitem__(new_name, names.pop(old_name)))

    def remove(self, path: str) -> None:
        """The name goes; an open file stays readable."""
        self.changing("remove", path)
        self._file(path)
        directory, name = self._parent(path)
        directory.change(lambda names: names.pop(name))

    def make_dir(self, path: str) -> None:
        """Durable at once, parents included."""
        at = self._root
        for name in _parts(path):
            if name not in at.seen:
                self.changing("make_dir", path)
                made = _Directory()
                at.change(lambda names, name=name, made=made: names.__setitem__(name, made))  # type: ignore[misc]
                _sync(at)
            at = _expect_directory(at.seen[name], path)

    def remove_dir(self, path: str) -> None:
        """Refuses one that holds names."""
        self.changing("remove_dir", path)
        if self._directory(path).seen:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        directory, name = self._parent(path)
        directory.change(lambda names: names.pop(name))

    def sync_dir(self, path: str) -> None:
        """Bring the names on the platter up to date with the names that the process sees."""
        directory = self._directory(path)
        self.changing("sync_dir", path)
        _sync(directory)

    def _directory(self, path: str) -> _Directory:
        at = self._root
        for name in _parts(path):
            if name not in at.seen:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            at = _expect_directory(at.seen[name], path)
        return at

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *parents, name = _parts(path)
        return self._directory("/".join(parents)), name

    def _file(self, path: str) -> _Node:
        directory, name = self._parent(path)
        node = directory.seen.get(name)
        if not isinstance(node, _Node):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _expect_directory(node: _Node | _Directory, path: str) -> _Directory:
    if isinstance(node, _Directory):
        return node
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def _sync(directory: _Directory) -> None:
    for action in directory.unsynced:
        action(directory.platter)
    directory.unsynced.clear()


def _crash_file(node: _Node, chance: Chance | None) -> None:
    if chance is not None and node.unsynced:
        kept = chance.randint(0, len(node.unsynced))
        for offset, octets in node.unsynced[:kept]:
            _put(node.platter, offset, octets)
        if kept < len(node.unsynced):
            offset, octets = node.unsynced[kept]
            _put(node.platter, offset, octets[: chance.randint(0, len(octets))])
    node.unsynced.clear()
    node.seen = bytearray(node.platter)
