"""A folder in memory: what a store of objects is to a reader."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO


class MemoryFolder:
    """Files by their names."""

    def __init__(self, where: str = "memory") -> None:
        self.where = where
        self.files: dict[str, bytes] = {}

    @classmethod
    def copy_of(cls, path: Path) -> MemoryFolder:
        made = cls()
        made.files = {
            file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()
        }
        return made

    def names(self, below: str = "") -> list[str]:
        place = f"{below.rstrip('/')}/" if below else ""
        inside = (name.removeprefix(place) for name in self.files if name.startswith(place))
        return sorted({name.partition("/")[0] for name in inside})

    def open(self, name: str) -> BinaryIO:
        if name not in self.files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return io.BytesIO(self.files[name])

    def put_if_absent(self, name: str, content: bytes) -> bool:
        if name in self.files:
            return False
        self.files[name] = content
        return True
