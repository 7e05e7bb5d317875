"""Fetches logs, and the remains of runs, from a host. Fetched again, only new octets come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from infra.remote import transfer
from infra.remote.host import RemoteError
from infra.remote.ssh import SshConnection

FOLDERS: Final = ("logs", "runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The number of files of a host, and the octets that were fetched: none for files that were here already."""

    files: int
    octets: int


def collect(connection: SshConnection, target: Path) -> Collected:
    """Fetch the files of a host's :data:`FOLDERS` into a directory of this machine, each checked by its SHA-256 and
    resumed where it was cut. Raises RemoteError."""
    directory = PurePosixPath(connection.host.directory)
    files = octets = 0
    for folder in _existing(connection, directory):
        for name in transfer.files_below(connection, directory / folder):
            if ".." in name.parts or name.is_absolute():
                what = f"the host names a file outside its folder: {str(name)!r}"
                raise RemoteError(what, f"host {connection.host.name}", "do not trust this host")
            place = target / folder / name
            try:
                place.parent.mkdir(parents=True, exist_ok=True, mode=transfer.PRIVATE_DIRECTORY)
            except OSError as error:
                what = f"the files cannot be kept here: {error.strerror}"
                raise RemoteError(what, str(place.parent), "make room, or choose another directory (--out)") from error
            octets += transfer.get(connection, directory / folder / name, place)
            files += 1
    return Collected(files=files, octets=octets)


def _existing(connection: SshConnection, directory: PurePosixPath) -> list[str]:
    with connection.files() as sftp:
        try:
            there = set(sftp.listdir(str(directory)))
        except FileNotFoundError:
            return []
    return [folder for folder in FOLDERS if folder in there]
