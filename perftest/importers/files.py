"""Files that a source names, looked for where its tool has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ABOVE_MAX: Final = 4
"""How many directories above a playlist are looked into: it lies in orchestration/run/playlists/…"""


class Files:
    """What lies around a source."""

    def __init__(self, source: Path, topologies: Path | None) -> None:
        self._source = source
        self._topologies = topologies

    def path_of(self, name: str) -> str | None:
        """The path of a file, beside the source or above it; None if there is none."""
        for directory in [Path(), self._source.parent, *self._source.parents[1 : _ABOVE_MAX + 1]]:
            if (directory / name).is_file():
                return str(directory / name)
        return None

    def text_of(self, kind: str, name: str) -> tuple[str, str] | None:
        """Path and text of a topology or a policy; None if there is none, or it cannot be read."""
        for directory in self._directories(kind):
            path = directory / name
            if path.is_file():
                return _shown(path), path.read_text(encoding="utf-8-sig", errors="replace")
        return None

    def _directories(self, kind: str) -> Iterator[Path]:
        """Where files of a kind may lie: as the tool has it, ``topologies`` and ``policies`` are neighbours."""
        if self._topologies is not None:
            neighbour = self._topologies.resolve().parent / kind
            yield from (self._topologies,) if kind == "topologies" else (neighbour, self._topologies / kind)
            yield self._topologies
            return
        for parent in [*self._source.resolve().parents][: _ABOVE_MAX + 1]:
            yield from (parent / kind, parent / "benchmark" / kind)
        yield self._source.parent


def _shown(path: Path) -> str:
    """As a person would name it from here."""
    here = Path.cwd()
    return str(path.resolve().relative_to(here)) if path.resolve().is_relative_to(here) else str(path)
