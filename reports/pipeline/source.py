"""Run directories as the pipeline takes them in: the names, sizes and times of their files. The driver reads none.

All of this happens before a JVM is asked for, so that a wrong path costs no start-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perftest.results import schema as files
from perftest.results.reader import read_manifest
from reports.compute.run_files import LINES, READ
from reports.errors import RunChoiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """A directory with a manifest. ``sizes`` are the octets of those files that the reports read; ``signature`` changes
    when one of them does."""

    path: Path
    sizes: Mapping[str, int]
    signature: str

    @property
    def source(self) -> str:
        """The directory as the tables and the store name it."""
        return str(self.path)

    @property
    def line_bytes(self) -> int:
        """Octets of the files whose lines are records."""
        return sum(size for name, size in self.sizes.items() if name in LINES)


def list_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """These run directories, each once.

    :raises NotARunError: no directory, or no manifest in it
    :raises RunChoiceError: no run
    """
    found = [_listed(path) for path in dict.fromkeys(path.resolve() for path in paths)]
    if not found:
        raise RunChoiceError("no run was given", "the list of run directories is empty", "name at least one")
    return found


def unread(runs: Iterable[RunDirectory], known: Mapping[str, str]) -> list[RunDirectory]:
    """The runs that are not in a store as they are now.

    :param known: the signatures of the runs in the store, by their sources
    """
    return [run for run in runs if known.get(run.source) != run.signature]


def input_bytes(runs: Iterable[RunDirectory]) -> int:
    """Octets that the workers will read."""
    return sum(sum(run.sizes.values()) for run in runs)


def _listed(path: Path) -> RunDirectory:
    stats = {name: (path / name).stat() for name in READ if (path / name).is_file()}
    if files.MANIFEST not in stats:
        read_manifest(path)  # which says what is wrong
    told = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats.items()]
    return RunDirectory(
        path=path,
        sizes={name: stat.st_size for name, stat in stats.items()},
        signature=hashlib.sha256("\n".join(told).encode()).hexdigest()[:32],
    )
