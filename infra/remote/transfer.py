"""Files to and from a host: resumed where they were cut, checked by their SHA-256, never seen half.

A file grows under the name ``NAME.part`` and gets its name once its digest is right. A transfer that was cut goes on
behind what is there already. If the digest is wrong then, because the other end changed meanwhile, the file is
transferred again from its beginning, once.
"""

from __future__ import annotations

import contextlib
import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import paramiko

from infra.remote.host import RemoteError
from infra.remote.ssh import SshConnection

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
_CHUNK: Final = 1 << 18
_DIGEST: Final = """
import hashlib, sys
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    for chunk in iter(lambda: file.read(1 << 20), b""):
        digest.update(chunk)
print(digest.hexdigest())
"""


def put(connection: SshConnection, source: Path, target: PurePosixPath, *, mode: int = PRIVATE_FILE) -> int:
    """Send a file; returns the octets that were sent. A target that has these octets already is left alone. Raises
    RemoteError."""
    wanted, size = file_digest(source), source.stat().st_size
    with connection.files() as sftp:
        if _size(sftp, target) == size and _remote_digest(connection, target) == wanted:
            return 0
        part = target.with_name(target.name + ".part")
        sent = 0
        for attempt in range(2):
            begin = min(_size(sftp, part) or 0, size) if not attempt else 0
            sent += _send(sftp, source, part, begin, mode)
            if _remote_digest(connection, part) == wanted:
                sftp.posix_rename(str(part), str(target))
                return sent
        sftp.remove(str(part))
    raise _spoiled(connection, target)


def put_octets(connection: SshConnection, octets: bytes, target: PurePosixPath, *, mode: int = PRIVATE_FILE) -> None:
    """Write a small file. Raises RemoteError."""
    part = target.with_name(target.name + ".part")
    with connection.files() as sftp:
        with sftp.open(str(part), "wb") as file:
            sftp.chmod(str(part), mode)
            file.write(octets)
        sftp.posix_rename(str(part), str(target))


def get(connection: SshConnection, source: PurePosixPath, target: Path) -> int:
    """Fetch a file; returns the octets that were fetched. A target that has these octets already is left alone. Raises
    RemoteError."""
    with connection.files() as sftp:
        wanted, size = _remote_digest(connection, source), _size(sftp, source)
        if target.exists() and target.stat().st_size == size and file_digest(target) == wanted:
            return 0
        part = target.with_name(target.name + ".part")
        fetched = 0
        for attempt in range(2):
            if attempt:
                part.unlink()
            fetched += _fetch(connection, source, part)
            if file_digest(part) == wanted:
                part.replace(target)
                return fetched
        part.unlink()
    raise _spoiled(connection, source)


def make_directory(connection: SshConnection, path: PurePosixPath, *, mode: int = PRIVATE_DIRECTORY) -> None:
    """Make a directory and its parents, which only the user can enter; existing directories stay as they are. Raises
    RemoteError."""
    with connection.files() as sftp:
        for each in reversed([path, *path.parents]):
            if str(each) not in (".", "/") and not _is_directory(sftp, each):
                with contextlib.suppress(FileExistsError):
                    sftp.mkdir(str(each), mode)


def files_below(connection: SshConnection, directory: PurePosixPath) -> list[PurePosixPath]:
    """All files below a directory, relative to it, in order of their names. Links are not followed. Raises
    RemoteError."""
    with connection.files() as sftp:
        return sorted(_walk(sftp, directory, PurePosixPath()))


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _send(sftp: paramiko.SFTPClient, source: Path, part: PurePosixPath, begin: int, mode: int) -> int:
    with source.open("rb") as ours, sftp.open(str(part), "r+b" if begin else "wb") as theirs:
        sftp.chmod(str(part), mode)
        theirs.set_pipelined(True)
        theirs.truncate(begin)
        theirs.seek(begin)
        ours.seek(begin)
        while chunk := ours.read(_CHUNK):
            theirs.write(chunk)
        return ours.tell() - begin


def _fetch(connection: SshConnection, source: PurePosixPath, part: Path) -> int:
    """Append what lies behind the part. Reading ahead over SFTP needs a thread of paramiko, whose failure cannot be
    caught; ``tail`` needs none."""
    with part.open("ab") as ours:
        begin = ours.tell()
        for chunk in connection.octets(tail_command(source, begin)):
            ours.write(chunk)
        return ours.tell() - begin


def digest_command(python: str, path: PurePosixPath) -> list[str]:
    """The command that tells the SHA-256 of a file on the host."""
    return [python, "-c", _DIGEST, str(path)]


def tail_command(path: PurePosixPath, begin: int) -> list[str]:
    """The command that sends a file from the octet ``begin`` on."""
    return ["tail", "-c", f"+{begin + 1}", str(path)]


def _remote_digest(connection: SshConnection, path: PurePosixPath) -> str:
    words = digest_command(connection.host.python, path)
    return connection.run(words, timeout_s=600.0).stdout.decode().strip()


def _size(sftp: paramiko.SFTPClient, path: PurePosixPath) -> int | None:
    try:
        return sftp.stat(str(path)).st_size
    except FileNotFoundError:
        return None


def _is_directory(sftp: paramiko.SFTPClient, path: PurePosixPath) -> bool:
    try:
        return stat.S_ISDIR(sftp.stat(str(path)).st_mode or 0)
    except FileNotFoundError:
        return False


def _walk(sftp: paramiko.SFTPClient, top: PurePosixPath, below: PurePosixPath) -> Iterator[PurePosixPath]:
    for entry in sftp.listdir_attr(str(top / below)):
        mode = entry.st_mode or 0
        if stat.S_ISDIR(mode):
            yield from _walk(sftp, top, below / entry.filename)
        elif stat.S_ISREG(mode):
            yield below / entry.filename


def _spoiled(connection: SshConnection, path: PurePosixPath) -> RemoteError:
    what = f"{path} arrives changed, twice"
    return RemoteError(what, f"host {connection.host.name}", "see whether somebody writes it, and whether drives fail")
