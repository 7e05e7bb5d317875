"""The places of runs: the few calls that readers need, so that a place need not be a local disk.

A name is relative to its folder, with slashes. A run directory is a folder; so is the directory that holds several
runs. The generator writes a run with appends and therefore writes to a local disk; readers of runs go through
:class:`Folder`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol


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
