"""The drive of a node: files in memory, with loss of power at any operation, and errors.

Everything that :class:`~reference_broker.storage.memory_files.MemoryFiles` can do to unsynced octets and names happens
here by chance. Synced octets come back, but for damage to the drive of one node at a time (:mod:`~reference_broker.sim.
damage`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from reference_broker.sim.loop import Scheduler
from reference_broker.storage.memory_files import MemoryFile, MemoryFiles

_ERRORS: Final = (errno.EIO, errno.ENOSPC)
CLASSIC: Final = "data/classic"
"""The directory of the store of classic queues on each drive."""


class PowerLossError(BaseException):
    """The machine loses power in the middle of an operation. This is not an Exception, because no code may handle
    it."""


class UnsyncedFile(NamedTuple):
    """A file of which the platter lacks something: the name, or writes at offsets."""

    path: str
    is_named: bool
    writes: Sequence[tuple[int, bytes]]
    platter: bytearray


class SimFiles(MemoryFiles):
    """The drive of one node."""

    def __init__(self, scheduler: Scheduler, host: str) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._host = host
        self._power_until: int | None = None
        self._error_at: int | None = None
        self._store_fault: tuple[int, bool] | None = None
        """At which operation of the store of classic queues from now on a fault is due, and whether power goes."""
        self.injected = False
        """Whether the drive has raised an error since the node started."""
        self.is_full = False

    def lose_power_after(self, operations: int) -> None:
        """Stop the node at the n-th changing operation from now on."""
        self._power_until = self.calls + operations

    def fail_after(self, operations: int) -> None:
        """Let the n-th changing operation from now on fail."""
        self._error_at = self.calls + operations

    def fail_in_store(self, operations: int, *, power: bool) -> None:
        """Let the n-th changing operation of the store of classic queues fail, or take power away there."""
        self._store_fault = operations, power

    def repair(self) -> None:
        """Cancel the faults that are planned."""
        self._power_until = self._error_at = self._store_fault = None

    def changing(self, name: str, path: str, growth: int = 0, partly: Callable[[], object] | None = None) -> None:
        """Note a changing operation as an event of the world, and let it fail if a fault is due."""
        self.calls += 1
        scheduler = self._scheduler
        scheduler.trace.note(scheduler.now, self._host, name, path)
        if self._store_fault is not None and path.startswith(CLASSIC):
            self._count_down()
        if self._power_until is not None and self.calls >= self._power_until:
            self._power_until = None
            if partly is not None and scheduler.chance.random() < 0.5:
                partly()
            raise PowerLossError(path)
        if self.is_full and growth:
            self.injected = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self._error_at is not None and self.calls >= self._error_at:
            self._error_at = None
            self.injected = True
            if partly is not None:
                partly()
            error = scheduler.chance.choice(_ERRORS)
            raise OSError(error, os.strerror(error), path)

    def _count_down(self) -> None:
        assert self._store_fault is not None
        left, power = self._store_fault
        if left > 1:
            self._store_fault = left - 1, power
            return
        self._store_fault = None
        if power:
            self._power_until = self.calls
        else:
            self._error_at = self.calls

    def lose(self, path: str, kept: int | None, *, zeros: bool) -> None:
        """Lose the octets of a file from ``kept`` on, for zeros or at all; or the file itself (None)."""
        directory, name = self._parent(path)
        if kept is None:
            del directory.seen[name], directory.platter[name]
            return
        node = self._file(path)
        for version in (node.seen, node.platter):
            version[kept:] = bytes(max(0, len(version) - kept)) if zeros else b""

    def octets(self, directory: str) -> int:
        """The octets of all files in a directory."""
        return sum(self.open(f"{directory}/{name}").size() for name in self.names(directory))

    def unsynced(self, directory: str) -> Iterator[UnsyncedFile]:
        """The files of a directory that would not survive a loss of power as they are."""
        known = self._directory(directory)
        for name in known.seen:
            path = f"{directory}/{name}"
            file = self.open(path)
            assert isinstance(file, MemoryFile)
            node, is_named = file._node, known.platter.get(name) is file._node
            if node.unsynced or not is_named:
                yield UnsyncedFile(path, is_named, node.unsynced, node.platter)
