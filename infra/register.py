"""The changes of commands to this machine that are not undone yet, so that a later command can undo them.

A command that dies (power, SIGKILL, a bug) leaves mounts, loop devices, filled drives, processes and directories. Each
of them has an *entry*: a file of its own below ``<root>/.undo``, on disk before the thing is done, and removed after
the thing is undone. So the entries of a crashed command name everything that may be there, and perhaps something that
is not there yet; the code that undoes an entry (:mod:`infra.cleaning`) looks first.

An entry has an *owner*, the process that will undo it: a pid with its start time. While the owner runs, no other
process undoes the entry. An owner that could not undo the thing *releases* the entry, and goes on with other work. A
thing that stays on purpose after its command has no owner: it is *kept*.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from infra.mounts import mounts
from infra.node_process import start_time

FOLDER: Final = ".undo"
_NO_START: Final = -1
"""Start time that no process has."""
_DEPTH: Final = 4
"""Levels below the results directory: a series, its layout, a round, and the drives there."""


class UndoKind(StrEnum):
    """The kinds of things that can be undone. ``name`` of an entry is the path of the thing, or another identity."""

    DIRECTORY = "directory"
    """A directory that the command made, and that was not there before."""
    DRIVE = "drive"
    """A FUSE drive by its directory: program, loop device, mounts."""
    FILL = "fill"
    """A file that takes the space of a drive. ``token`` is the beginning of the file."""
    NAMESPACE = "namespace"
    """A network namespace of a lab, by its name."""
    PROCESSES = "processes"
    """All processes that carry this mark, or ``mark:part``, in their environment (:data:`infra.node_process.MARK`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoEntry:
    """One thing to undo. ``owner_pid`` 0 stands for a thing that is kept."""

    kind: UndoKind
    name: str
    token: str = ""
    owner_pid: int = 0
    owner_start_time: int = 0

    @property
    def file(self) -> str:
        """The name of the entry's file: one thing has one entry."""
        return f"{self.kind}-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}.json"

    @property
    def is_kept(self) -> bool:
        """Whether the thing stays on purpose after the command that made it."""
        return self.owner_pid == 0

    @property
    def is_owned(self) -> bool:
        """Whether the owner still runs. A pid that now belongs to another process is no owner."""
        return not self.is_kept and start_time(self.owner_pid) == self.owner_start_time


class Register:
    """The entries of one place: the directory that holds drives, clusters or runs."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._folder = self.root / FOLDER

    def note(self, kind: UndoKind, name: str, token: str = "") -> UndoEntry:
        """Write down what is about to be done. When this returns, the entry is on disk."""
        pid = os.getpid()
        entry = UndoEntry(kind=kind, name=name, token=token, owner_pid=pid, owner_start_time=start_time(pid) or 0)
        self._write(entry)
        return entry

    def keep(self, entry: UndoEntry) -> None:
        """The thing stays after this command: only an explicit wish undoes a kept thing."""
        self._write(replace(entry, owner_pid=0, owner_start_time=0))

    def release(self, kind: UndoKind, name: str) -> None:
        """Give up a thing that could not be undone: every later cleaning tries, also one of this process. Does nothing
        if there is no entry, or if the thing is kept."""
        for entry in self.entries()[0]:
            if (entry.kind, entry.name) == (kind, name) and not entry.is_kept:
                self._write(replace(entry, owner_start_time=_NO_START))

    def forget(self, kind: UndoKind, name: str) -> None:
        """Remove the entry of a thing that is undone. Does nothing if there is no entry."""
        (self._folder / UndoEntry(kind=kind, name=name).file).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other entries, or no folder
            self._folder.rmdir()

    def settle(self, kind: UndoKind, name: str, *, is_gone: bool) -> None:
        """Forget a thing that is gone. Release a thing that stays: the next cleaning says why if it stays again."""
        if is_gone:
            self.forget(kind, name)
        else:
            self.release(kind, name)

    def entries(self) -> tuple[list[UndoEntry], list[Path]]:
        """All entries, the newest first, because a thing may lie in an older one; and the files that are no entries."""
        found, unreadable = [], []
        for path in sorted(self._folder.glob("*.json"), key=_age):
            try:
                plain = json.loads(path.read_text(encoding="utf-8"))
                found.append(UndoEntry(**{**plain, "kind": UndoKind(plain["kind"])}))
            except FileNotFoundError:
                continue  # undone meanwhile
            except (OSError, ValueError, TypeError, KeyError):
                unreadable.append(path)
        return found, unreadable

    def _write(self, entry: UndoEntry) -> None:
        """Write an entry completely or not at all, and wait until it is on disk."""
        self._folder.mkdir(parents=True, exist_ok=True)
        beside = self._folder / f".{entry.file}.{os.getpid()}"
        plain = {name: getattr(entry, name) for name in UndoEntry.__slots__}
        with beside.open("w", encoding="utf-8") as file:
            json.dump(plain, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._folder / entry.file)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def registers_below(root: Path) -> list[Register]:
    """The registers of a directory and of the directories below it, the deepest first. Mounts are not looked into: what
    is mounted may hang."""
    mounted = {Path(mount.point) for mount in mounts()}
    levels = [[root.absolute()]]
    for _ in range(_DEPTH):
        levels.append([each for directory in levels[-1] for each in _directories_in(directory) if each not in mounted])
    return [Register(each) for level in reversed(levels) for each in level if (each / FOLDER).is_dir()]


def _directories_in(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return sorted(Path(each.path) for each in entries if each.is_dir(follow_symlinks=False))
    except OSError:  # it went away meanwhile, or is not ours to look at
        return []


def _age(path: Path) -> int:
    """For the order newest first. A file that went away meanwhile counts as the oldest."""
    try:
        return -path.stat().st_mtime_ns
    except OSError:
        return 0
