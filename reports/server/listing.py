"""The run directories of a folder as rows of a list. Manifests are read once, and again when they change."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from perftest.errors import HelpfulError
from perftest.results.reader import read_manifest
from perftest.results.schema import INTERVALS_CSV, MANIFEST

SILENT_S: Final = 30.0
"""Time without a change of its files after which a run that says it is running was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run directory. ``state`` is the manifest's, or ``killed``, or ``damaged``."""

    name: str
    workload: str
    title: str
    started_ns: int
    state: str
    broker: str
    exit_code: int | None

    @property
    def started(self) -> str:
        """To the second, UTC."""
        return f"{datetime.fromtimestamp(self.started_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}" if self.started_ns else ""

    @property
    def running(self) -> bool:
        """Whether the run is in progress."""
        return self.state == "running"


class Listing:
    """The runs right below a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[int, dict[str, Any] | str]] = {}
        """By name: when the manifest was changed, and the manifest, or why it cannot be read."""

    def runs(self) -> list[ListedRun]:
        """All runs, the newest first."""
        paths = [path for path in self.folder.iterdir() if (path / MANIFEST).is_file()] if self.folder.is_dir() else []
        return sorted((self.run(path.name) for path in paths), key=lambda run: (-run.started_ns, run.name))

    def run(self, name: str) -> ListedRun:
        """One run. Raises OSError."""
        manifest = self.manifest(name)
        if isinstance(manifest, str):
            return ListedRun(
                name=name, workload="", title=manifest, started_ns=0, state="damaged", broker="", exit_code=None
            )
        plan, broker, ended = (_object(manifest, part) for part in ("plan", "broker", "ended"))
        code = ended.get("exit_code")
        return ListedRun(
            name=name,
            workload=str(plan.get("name", "")),
            title=str(plan.get("title", "")),
            started_ns=manifest["started_ns"],
            state=self._state(name, manifest["state"]),
            broker=f"{broker.get('product', '')} {broker.get('version', '')}".strip(),
            exit_code=code if isinstance(code, int) else None,
        )

    def manifest(self, name: str) -> dict[str, Any] | str:
        """The manifest of a run, or why it cannot be used. Raises OSError."""
        path = self.folder / name
        changed_ns = (path / MANIFEST).stat().st_mtime_ns
        known = self._known.get(name)
        if known is None or known[0] != changed_ns:
            try:
                found: dict[str, Any] | str = read_manifest(path)
            except HelpfulError as error:
                found = error.what
            known = self._known[name] = (changed_ns, found)
        return known[1]

    def _state(self, name: str, state: str) -> str:
        if state != "running":
            return state
        files = [self.folder / name / each for each in (MANIFEST, INTERVALS_CSV)]
        changed_s = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
        return "running" if time.time() - changed_s < SILENT_S else "killed"


def _object(manifest: dict[str, Any], part: str) -> dict[str, Any]:
    value = manifest.get(part)
    return value if isinstance(value, dict) else {}
