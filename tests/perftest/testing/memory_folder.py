"""A folder in memory: what a store of objects is to a reader."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

from perftest.results.folder import FolderEntry


class MemoryFolder:
    """Files by their names."""

    def __init__(self, where: str = "memory") -> None:
        self.where = where
        self.files_by_name: dict[str, bytes] = {}

    @classmethod
    def copy_of(cls, path: Path) -> MemoryFolder:
        made = cls()
        made.files_by_name = {
            file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()
        }
        return made

    def names(self, below: str = "") -> list[str]:
        place = f"{below.rstrip('/')}/" if below else ""
        inside = (name.removeprefix(place) for name in self.files_by_name if name.startswith(place))
        return sorted({name.partition("/")[0] for name in inside})

    def open(self, name: str) -> BinaryIO:
        if name not in self.files_by_name:
            raise FileNotFoundError(2, "No such file or directory", name)
        return io.BytesIO(self.files_by_name[name])

    def files(self, below: str = "") -> list[FolderEntry]:
        place = f"{below.rstrip('/')}/" if below else ""
        inside = sorted(name for name in self.files_by_name if name.startswith(place))
        return [FolderEntry(name=name, octets=len(self.files_by_name[name]), modified_ns=0) for name in inside]
