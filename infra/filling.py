"""Fills a drive until it has no space left, and frees it: for how a broker behaves when its drive is full.

A drive is only filled if it is a mount of its own and has no more space than the limit: the drive of the machine must
never be filled by mistake. The space goes to one file, which begins with a random token, so that only a file of ours is
removed.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path
from typing import Final

from infra.mounts import mounted_at
from infra.register import Register, UndoKind
from perftest.errors import HelpfulError

FILE: Final = ".perftest-fill"
FILL_BYTES_MAX: Final = 4 << 30
"""The largest free space that is filled: that of the largest drive in memory."""
_CHUNK: Final = 64 << 20
_CHUNK_MIN: Final = 4096
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class FillError(HelpfulError):
    """A drive that may not be filled, or cannot. Exit code 3."""

    code = 3


def check(mount: Path) -> None:
    """Raise :class:`FillError` unless the directory is a mounted drive of its own with no more space than allowed."""
    device = mount.stat().st_dev
    if not os.path.ismount(mount) or device == mount.resolve().parent.stat().st_dev:
        raise FillError("this is no drive of its own, so it is not filled", str(mount), "name a mount point")
    if others := [place for place in mounted_at(device) if place != str(mount.resolve())]:
        what = f"the drive of this mount is also mounted at {others[0]}, so it is not filled"
        raise FillError(what, str(mount), "name a mount point whose drive nothing else uses")
    free = _free_bytes(mount)
    if free > FILL_BYTES_MAX:
        what = f"the drive has {free >> 20} MiB of free space; at most {FILL_BYTES_MAX >> 20} MiB are filled"
        raise FillError(what, str(mount), "use a smaller drive")


def fill(mount: Path, register: Register) -> int:
    """Take all free space of a drive; gives the number of octets taken. Raises :class:`FillError`.

    If a step fails for another reason than a full drive, what was taken is given back.
    """
    check(mount)
    path, token = mount.resolve() / FILE, secrets.token_hex(16)
    if path.exists():
        raise FillError("the drive is filled already", str(mount), "free it first")
    register.note(UndoKind.FILL, str(path), token)
    try:
        taken = _take(path, token)
    except BaseException as error:
        free(mount, register, token)
        if isinstance(error, OSError):
            raise FillError(f"the drive cannot be filled: {error.strerror}", str(mount), "see the drive") from error
        raise
    return taken


def free(mount: Path, register: Register, token: str = "") -> bool:
    """Give the space back that :func:`fill` took. Gives whether there was any. Raises :class:`FillError`."""
    path = mount.resolve() / FILE
    entries, _unreadable = register.entries()
    tokens = [entry.token for entry in entries if entry.kind is UndoKind.FILL and entry.name == str(path)]
    removed = bool(tokens or token) and remove(path, (tokens or [token])[0])
    register.forget(UndoKind.FILL, str(path))
    return removed


def keep(mount: Path, register: Register) -> None:
    """The drive stays full after this command, until :func:`free` or `perftest broker clean --kept`."""
    path = str(mount.resolve() / FILE)
    for entry in register.entries()[0]:
        if entry.kind is UndoKind.FILL and entry.name == path:
            register.keep(entry)


def remove(path: Path, token: str) -> bool:
    """Remove a file that begins with the token, or is empty because the crash came before the token. Gives whether
    there was one. Raises :class:`FillError` for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(len(token))
    except FileNotFoundError:
        return False
    if path.is_symlink() or head not in (b"", token.encode()):
        fix = "look at the file, and remove it by hand if nobody needs it"
        raise FillError("this file is not the one that was written there", str(path), fix)
    path.unlink()
    return True


def _take(path: Path, token: str) -> int:
    """Space is reserved and not written, which costs no time, in chunks that halve when the drive is nearly full."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        size, chunk = os.write(file, token.encode()), _CHUNK
        os.fsync(file)
        while chunk >= _CHUNK_MIN:
            try:
                os.posix_fallocate(file, size, chunk)
                size += chunk
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                chunk //= 2
        os.fsync(file)
        return size
    finally:
        os.close(file)


def _free_bytes(mount: Path) -> int:
    stats = os.statvfs(mount)
    return stats.f_bavail * stats.f_frsize
