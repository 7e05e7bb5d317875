"""Where the files of runs and stores lie: the three calls that readers need, so that a place need not be a local disk.

A name is relative to its folder, with slashes. A run directory and a report store are folders; so is the directory that
holds several runs. The generator writes a run with appends and therefore writes to a local disk; whoever reads a run or
a store goes through :class:`Folder`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol


class Folder(Protocol):
    """A place that holds files. All calls may raise OSError."""

    @property
    def where(self) -> str:
        """The place as a person would name it."""

    def names(self, below: str = "") -> list[str]:
        """The names of the files and folders right below ``below``, sorted; none if there is nothing."""

    def open(self, name: str) -> BinaryIO:
        """A file for reading. Raises FileNotFoundError."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Write a whole file; False, and nothing is changed, if the name is taken."""


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

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """As :meth:`Folder.put_if_absent`."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True


def folder_of(place: Path | Folder) -> Folder:
    """The folder at a path."""
    return LocalFolder(place) if isinstance(place, Path) else place


def read_text(folder: Folder, name: str) -> str:
    """A file as text; octets that are no UTF-8 are replaced. Raises OSError."""
    with folder.open(name) as file:
        return file.read().decode("utf-8", errors="replace")


def read_object(folder: Folder, name: str) -> dict[str, Any]:
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
