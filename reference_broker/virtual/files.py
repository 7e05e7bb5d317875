"""Files at virtual time: content in memory, and syncs that take as long as a modelled drive takes.

:mod:`reference_broker.storage.drives` says when a sync is over, and this module blocks the actor that asks until then.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

from reference_broker.storage.drives.journal import JournaledFile, JournalModel
from reference_broker.storage.drives.model import DriveModel, InstanceCap
from reference_broker.storage.drives.profiles import DriveProfile
from reference_broker.storage.files import Buffer, File, Note
from reference_broker.storage.modelled_drive import RESERVE
from reference_broker.virtual.costs import Costs
from reference_broker.virtual.world import Actor, VirtualWorld

_SYNC_STEP: Final = 8 << 20


class VirtualDrive:
    """A drive with a file system on it. ``cap`` is the bandwidth that it shares with other drives. ``syncs`` counts
    since the start.

    A drive can be slowed, filled and made to fail, as :class:`~reference_broker.storage.modelled_drive.ModelledDrive`
    on the wall clock can.
    """

    def __init__(self, profile: DriveProfile, cap: InstanceCap | None = None) -> None:
        self.syncs = 0
        self.journal = JournalModel(DriveModel(profile, cap))
        self._configured = self._bought = profile
        self._room: int | None = None
        self._is_failing = False
        self._now_ns = 0

    def now_ns(self, actor_ns: int) -> int:
        """The time of the next operation. An event loop that syncs by itself runs ahead of the world: a thread that
        asks for an earlier moment then comes after it."""
        self._now_ns = max(self._now_ns, actor_ns)
        return self._now_ns

    # What becomes of a drive

    @property
    def is_full(self) -> bool:
        """Whether the drive tells that it has no room."""
        return self._room is not None

    def use(self, profile: DriveProfile) -> None:
        """The drive is of this kind from now on."""
        self._bought = profile
        self.journal.drive.change(profile)

    def slow(self, factor: float) -> None:
        """Everything takes ``factor`` times as long; 1 ends that."""
        self.journal.drive.change(self._bought if factor == 1 else self._bought.slowed(factor))

    def fill(self) -> None:
        """No room is left, but for a reserve that the drive does not tell of."""
        self._room = RESERVE

    def free(self) -> None:
        """There is room again."""
        self._room = None

    def fail(self) -> None:
        """Every operation fails with EIO from now on."""
        self._is_failing = True

    def restore(self) -> None:
        """The drive is again what it was at the start: its profile, its speed, with room, and it works."""
        self.free()
        self._is_failing = False
        self.use(self._configured)

    def check(self, path: str) -> None:
        """Raises OSError if the drive fails."""
        if self._is_failing:
            raise _error(errno.EIO, path)

    def takes(self, file: JournaledFile, offset: int, octets: int, path: str) -> None:
        """A write is about to be done. Raises OSError: no space left, or the drive fails."""
        self.check(path)
        if self._room is not None:
            grows = self.journal.grows_by(file, offset, octets)
            if grows > self._room:
                raise _error(errno.ENOSPC, path)
            self._room -= grows

    def remove(self, now_ns: int, file: JournaledFile) -> None:
        """The room of a file is free again."""
        if self._room is not None:
            self._room += file.allocated
        self.journal.remove(self.now_ns(now_ns), file)


class _Content:
    """The octets of a file, and what its drive knows of it."""

    __slots__ = ("data", "drive", "modelled")

    def __init__(self, drive: VirtualDrive, now_ns: int) -> None:
        self.drive = drive
        self.data = bytearray()
        self.modelled = drive.journal.create(now_ns)


class VirtualFile:
    """An open file of :class:`VirtualFiles`."""

    __slots__ = ("_content", "_files", "_is_open", "_path")

    def __init__(self, files: VirtualFiles, path: str, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._is_open = True

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Into the page cache."""
        self._check_open()
        content, octets = self._content, b"".join(buffers)
        content.drive.takes(content.modelled, offset, len(octets), self._path)
        if offset > len(content.data):
            content.data.extend(bytes(offset - len(content.data)))
        content.data[offset : offset + len(octets)] = octets
        self._files.wrote(content.drive, content.modelled, offset, len(octets))

    def read(self, offset: int, size: int) -> bytes:
        """From the page cache, or the drive if the cache has forgotten."""
        self._check_open()
        self._content.drive.check(self._path)
        self._files.reads(self._content.drive, self._content.modelled, offset, size)
        return bytes(memoryview(self._content.data)[offset : offset + size])

    def datasync(self) -> None:
        """Block the calling actor until the drive is done."""
        self._check_open()
        drive = self._content.drive
        drive.check(self._path)
        self._files.syncs(drive, self._content.modelled)
        drive.check(self._path)

    def size(self) -> int:
        """Octets as written."""
        return len(self._content.data)

    def close(self) -> None:
        """Later reads and writes raise EBADF."""
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open or self._files.has_ended:
            raise _error(errno.EBADF, self._path)


class VirtualNote:
    """Octets in the page cache."""

    def __init__(self, file: VirtualFile) -> None:
        self._file = file
        self.datasync, self.close = file.datasync, file.close

    def store(self, octets: bytes, offset: int) -> None:
        """Into the page cache."""
        self._file._content.data[offset : offset + len(octets)] = octets

    def read(self) -> bytes:
        """A copy."""
        return bytes(self._file._content.data)


class VirtualFiles:
    """The file system of one node, as one process of the node sees it. ``drives`` are the drives by the directory in
    which they are mounted; a path lies on the drive with the longest directory above it.

    ``parse_kib_ns`` is CPU time for each KiB that is read, beside that of the read itself: for whoever reads more than
    messages that are served.
    """

    def __init__(self, world: VirtualWorld, costs: Costs, drives: dict[str, VirtualDrive]) -> None:
        self.parse_kib_ns = 0
        self.has_ended = False
        """Whether the process has ended. Nothing that it leaves undone may change a file."""
        self._world = world
        self._costs = costs
        self._drives = sorted(drives.items(), key=lambda each: len(each[0]), reverse=True)
        self._files: dict[str, _Content] = {}
        self._directories: dict[str, set[str]] = {"/": set()}

    def next_process(self) -> VirtualFiles:
        """End the process, and give the next one the files as they are: what a process wrote survives its end, synced
        or not, because the machine goes on."""
        self.has_ended = True
        other = VirtualFiles(self._world, self._costs, dict(self._drives))
        other._files, other._directories = self._files, self._directories
        return other

    def drive(self, path: str) -> VirtualDrive:
        """The drive on which a path lies."""
        return next(drive for directory, drive in self._drives if f"{path}/".startswith(f"{directory}/"))

    # Time

    def wrote(self, drive: VirtualDrive, file: JournaledFile, offset: int, octets: int) -> None:
        """A write costs the calling actor CPU time."""
        drive.journal.write(drive.now_ns(self._world.clock()), file, offset, octets)
        if self._world.actor is not None:
            self._world.actor.spend(self._costs.file(octets))

    def reads(self, drive: VirtualDrive, file: JournaledFile, offset: int, octets: int) -> None:
        """Block the calling actor until octets are in the page cache."""
        if (actor := self._world.actor) is not None:
            actor.spend(self._costs.file(octets))
            if self.parse_kib_ns:
                actor.spend(octets * self.parse_kib_ns >> 10)
                actor.wait_until(actor.at_ns)  # others may ask the drive for something meanwhile
            actor.wait_until(drive.journal.read(drive.now_ns(actor.at_ns), file, offset, octets))

    def syncs(self, drive: VirtualDrive, file: JournaledFile) -> None:
        """Block the calling actor until a file is durable."""
        actor = self._asks(drive)
        actor.wait_until(drive.journal.datasync(drive.now_ns(actor.at_ns), file))

    def _asks(self, drive: VirtualDrive) -> Actor:
        """The calling actor, once all that others ask of the drive before its time has been asked."""
        actor = self._world.actor
        assert actor is not None
        actor.spend(self._costs.file(0))
        actor.wait_until(actor.at_ns)
        drive.syncs += 1
        return actor

    def _changing(self, path: str) -> VirtualDrive:
        """The drive of a path whose name is about to change. Raises OSError."""
        drive = self.drive(path)
        if self.has_ended:
            raise _error(errno.EIO, path)
        drive.check(path)
        return drive

    # storage.files.Files

    def create(self, path: str, size: int = 0) -> File:
        """A file of zeros, synced in steps as a real file is, so that no other sync waits behind all of them."""
        drive = self._changing(path)
        content = _Content(drive, drive.now_ns(self._world.clock()))
        self._enter(path)
        if (former := self._files.get(path)) is not None:
            self._free(former)
        self._files[path] = content
        for offset in range(0, size, _SYNC_STEP):
            step = min(_SYNC_STEP, size - offset)
            drive.takes(content.modelled, offset, step, path)
            content.data.extend(bytes(step))
            self.wrote(drive, content.modelled, offset, step)
            if step == _SYNC_STEP:
                self.syncs(drive, content.modelled)
        return VirtualFile(self, path, content)

    def open(self, path: str) -> File:
        """Open for reading and writing."""
        return VirtualFile(self, path, self._content(path))

    def note(self, path: str) -> Note:
        """A note costs neither time nor octets of the drive."""
        return VirtualNote(VirtualFile(self, path, self._content(path)))

    def names(self, directory: str) -> list[str]:
        """Sorted; empty if there is no such directory."""
        return sorted(self._directories.get(directory.rstrip("/") or "/", ()))

    def rename(self, old: str, new: str) -> None:
        """Within one directory."""
        content = self._content(old)
        self._changing(old)
        if (former := self._files.get(new)) is not None and old != new:
            self._free(former)
        self._leave(old)
        del self._files[old]
        self._enter(new)
        self._files[new] = content

    def remove(self, path: str) -> None:
        """The name goes; an open file stays readable."""
        content = self._content(path)
        self._changing(path)
        self._leave(path)
        del self._files[path]
        self._free(content)

    def make_dir(self, path: str) -> None:
        """With its parents."""
        path = path.rstrip("/")
        if path and path not in self._directories:
            self._changing(path)
            self.make_dir(os.path.dirname(path))  # noqa: PTH120 - the port speaks strings
            self._directories[path] = set()
            self._enter(path)

    def remove_dir(self, path: str) -> None:
        """Refuses a directory that holds names."""
        if self._directories[path]:
            raise _error(errno.ENOTEMPTY, path)
        del self._directories[path]
        self._leave(path)

    def sync_dir(self, path: str) -> None:
        """Block the calling actor until the journal has the names."""
        drive = self.drive(path)
        drive.check(path)
        actor = self._asks(drive)
        actor.wait_until(drive.journal.sync_dir(drive.now_ns(actor.at_ns)))

    def _free(self, content: _Content) -> None:
        content.drive.remove(self._world.clock(), content.modelled)

    def _content(self, path: str) -> _Content:
        try:
            return self._files[path]
        except KeyError:
            raise _error(errno.ENOENT, path) from None

    def _enter(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        try:
            self._directories[directory or "/"].add(name)
        except KeyError:
            raise _error(errno.ENOENT, directory) from None
        self._note_change(directory)

    def _note_change(self, directory: str) -> None:
        for mounted, drive in self._drives:
            if f"{directory}/".startswith(f"{mounted}/"):
                drive.journal.change_names(drive.now_ns(self._world.clock()))
                return

    def _leave(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self._directories[directory or "/"].discard(name)
        self._note_change(directory)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
