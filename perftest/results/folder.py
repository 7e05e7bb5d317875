"""The places of runs and stores: the few calls that readers and publishers need, so that a place need not be a local
disk.

A name is relative to its folder, with slashes. A run directory and a report store are folders; so is the directory that
holds several runs. The generator writes a run with appends and therefore writes to a local disk; readers of runs, and
readers and writers of stores, go through :class:`Folder`. A file appears whole under its name, or not at all, and its
content never changes afterwards.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

Content = bytes | Path
"""Content that is put under a name: octets, or a local file that holds the octets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEntry:
    """A file of a folder: its name, its size in octets, and when it was last changed (Unix time, by the clock of the
    place)."""

    name: str
    octets: int
    modified_ns: int


class ReadableFolder(Protocol):
    """A place whose files can be read. All calls may raise OSError."""

    @property
    def where(self) -> str:
        """The place as a person would name it."""

    def names(self, below: str = "") -> list[str]:
        """The names of the files and folders right below ``below``, sorted; none if there is nothing."""

    def open(self, name: str) -> BinaryIO:
        """A file for reading. Raises FileNotFoundError."""


class Folder(ReadableFolder, Protocol):
    """A place that holds files. All calls may raise OSError."""

    def files(self, below: str = "") -> list[FolderEntry]:
        """Every file below ``below``, at any depth, sorted by name; none if there is nothing."""

    def put_if_absent(self, name: str, content: Content) -> bool:
        """Write a whole file, on disk when the call returns; False, and nothing is changed, if the name is taken. Of
        several that put the same name at the same time, one gets True."""

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A directory of this machine."""

    path: Path

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    def names(self, below: str = "") -> list[str]:
        """As :meth:`Folder.names`."""
        place = self.path / below
        return sorted(path.name for path in place.iterdir()) if place.is_dir() else []

    def open(self, name: str) -> BinaryIO:
        """As :meth:`Folder.open`."""
        return (self.path / name).open("rb")

    def files(self, below: str = "") -> list[FolderEntry]:
        """As :meth:`Folder.files`. A file that vanishes meanwhile is not listed."""
        found = []
        for directory, _, names in os.walk(self.path / below):
            for path in (Path(directory) / name for name in names):
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                name = path.relative_to(self.path).as_posix()
                found.append(FolderEntry(name=name, octets=status.st_size, modified_ns=status.st_mtime_ns))
        return sorted(found, key=lambda entry: entry.name)

    def put_if_absent(self, name: str, content: Content) -> bool:
        """As :meth:`Folder.put_if_absent`: a hard link gives the name to a file that is already whole and synced."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with beside.open("xb") as file:
                _copy(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.link(beside, path)
        except FileExistsError:
            return False
        finally:
            beside.unlink(missing_ok=True)
        _sync_directory(path.parent)
        return True

    def delete(self, name: str) -> None:
        """As :meth:`Folder.delete`."""
        (self.path / name).unlink(missing_ok=True)


def _copy(content: Content, file: BinaryIO) -> None:
    if isinstance(content, bytes):
        file.write(content)
        return
    with content.open("rb") as source:
        shutil.copyfileobj(source, file, 1024 * 1024)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_of(place: Path | ReadableFolder) -> ReadableFolder:
    """The folder at a path."""
    return LocalFolder(place) if isinstance(place, Path) else place


def read_text(folder: ReadableFolder, name: str) -> str:
    """A file as text; octets that are no UTF-8 are replaced. Raises OSError."""
    with folder.open(name) as file:
        return file.read().decode("utf-8", errors="replace")


def read_object(folder: ReadableFolder, name: str) -> dict[str, Any]:
    """The JSON object that a file holds. Raises OSError, and ValueError if the file holds anything else."""
    with folder.open(name) as file:
        return json_object(file.read())


def json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object that a text holds. Raises ValueError if the text is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value
