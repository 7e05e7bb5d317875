"""Undoes the remains of crashed commands: only things that a register names, and only after a check that they are ours.

==========  ==========================================================================================================
kind        what shows that the thing is ours
==========  ==========================================================================================================
directory   its name was written down when it was not there; nothing is mounted below it any more
drive       its record ``drive.json``; a mount there must come from the drive's own program or its own loop device
namespace   its name, which nobody else makes, was written down when it was not there
fill        the file begins with the token of the entry
processes   the mark of the entry stands in the environment of the process
==========  ==========================================================================================================

A thing that is not there any more counts as undone, so that cleaning can be repeated. An entry that cannot be undone
stays for the next attempt.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from infra import drives, filling
from infra.lab import namespaces
from infra.mounts import mounts_below
from infra.node_process import STOP_GRACE_S, marked
from infra.register import Register, UndoEntry, UndoKind, registers_below
from perftest.errors import HelpfulError


class CleanupOutcome(StrEnum):
    """The outcome of an entry."""

    UNDONE = "undone"
    IN_USE = "in use"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """The outcome of one entry, in words for people. ``fix`` says what to do if it failed."""

    outcome: CleanupOutcome
    kind: str
    name: str
    text: str
    fix: str = ""


def clean(root: Path, *, kept: bool = False) -> list[Cleaned]:
    """Undo all entries below a directory whose owners have ended. Gives one line for each entry that there was.

    ``kept`` undoes also what stays on purpose after its command. No entry stops the others.
    """
    found: list[tuple[Register, UndoEntry]] = []
    lines = []
    for register in registers_below(root):
        entries, unreadable = register.entries()
        found += [(register, entry) for entry in entries]
        lines += [_unreadable(path) for path in unreadable]
    found.sort(key=lambda each: _ORDER.index(each[1].kind))  # stable: of one kind, the newest stays first
    return lines + [_undone(register, entry, kept) for register, entry in found]


def end_marked(mark: str, grace_s: float = STOP_GRACE_S) -> int:
    """End all processes with this mark or one of its parts (``mark:part``), paused or not; gives their number.

    They have ``grace_s`` to end in order; with 0 they are killed at once. Raises :class:`HelpfulError` if one does not
    end.
    """
    found = [process for process, _part in marked(mark)]
    for process in found:
        with contextlib.suppress(psutil.Error):  # psutil checks the start time before a signal
            if grace_s:
                process.terminate()
                process.resume()
    _ended, alive = psutil.wait_procs(found, timeout=grace_s)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    _ended, alive = psutil.wait_procs(alive, timeout=STOP_GRACE_S)
    if alive:
        raise HelpfulError("a process does not end", f"pid {alive[0].pid}", "its drive may hang; clean again later")
    return len(found)


def _unreadable(path: Path) -> Cleaned:
    fix = "see what is mounted or running there, undo it, and remove the file"
    return Cleaned(
        outcome=CleanupOutcome.FAILED, kind="entry", name=str(path), text="the entry cannot be read", fix=fix
    )


def _undone(register: Register, entry: UndoEntry, kept: bool) -> Cleaned:
    outcome, text, fix = CleanupOutcome.UNDONE, "", ""
    if entry.is_owned:
        outcome, text = CleanupOutcome.IN_USE, f"process {entry.owner_pid} uses it"
    elif entry.is_kept and not kept:
        outcome, text = CleanupOutcome.KEPT, "stays on purpose"
    else:
        try:
            text = _UNDO[entry.kind](entry)
            register.forget(entry.kind, entry.name)
        except HelpfulError as error:
            outcome, text, fix = CleanupOutcome.FAILED, f"{error.what} ({error.where})", error.fix
        except OSError as error:
            outcome, text, fix = CleanupOutcome.FAILED, str(error), "mend that, then clean again"
    return Cleaned(outcome=outcome, kind=entry.kind, name=entry.name, text=text, fix=fix)


def _directory(entry: UndoEntry) -> str:
    path = Path(entry.name)
    if not path.exists():
        return "was removed before"
    if mounts := mounts_below(path):
        fix = "unmount it, then clean again"
        raise HelpfulError("something is still mounted in the directory", mounts[0], fix)
    shutil.rmtree(path)
    return "removed with what was in it"


def _drive(entry: UndoEntry) -> str:
    drive = drives.BlockDrive(Path(entry.name))
    there = drives.is_drive(drive)
    drives.remove(drive)
    return "unmounted and removed" if there else "was removed before"


def _fill(entry: UndoEntry) -> str:
    return "freed" if filling.remove(Path(entry.name), entry.token) else "was free before"


def _namespace(entry: UndoEntry) -> str:
    return "removed" if namespaces.remove(entry.name) else "was removed before"


def _processes(entry: UndoEntry) -> str:
    count = end_marked(entry.name)
    return f"ended {count} of them" if count else "had ended before"


_UNDO: Final[dict[UndoKind, Callable[[UndoEntry], str]]] = {
    UndoKind.DIRECTORY: _directory,
    UndoKind.DRIVE: _drive,
    UndoKind.FILL: _fill,
    UndoKind.NAMESPACE: _namespace,
    UndoKind.PROCESSES: _processes,
}


_ORDER: Final = (UndoKind.PROCESSES, UndoKind.NAMESPACE, UndoKind.FILL, UndoKind.DRIVE, UndoKind.DIRECTORY)
"""Order in which remnants are undone: a process holds the drives and the namespace that it uses, and a directory holds
drives."""
