"""Run directories as the pipeline takes them in: the names, sizes and times of their files. The driver reads none.

Runs are listed before a JVM is asked for, so that a wrong path costs no start-up, and runs that a store has already
cost none at all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perftest.results import schema as files
from perftest.results.errors import NotARunError
from perftest.results.folder import Folder, LocalFolder
from perftest.results.reader import read_manifest, run_directories
from reports.compute.run_files import LINES, READ
from reports.errors import PlaceError, RunChoiceError
from reports.store.places import advice, cause_of, place_of

STORE: Final = ".store"
"""The store of many runs lies beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """A directory with a manifest. ``sizes`` are the octets of those files that the reports read; ``signature`` changes
    when one of them does."""

    source: str
    """The directory as the tables and the store name it: a path of this machine, or a URI."""
    sizes: Mapping[str, int]
    signature: str

    @property
    def empty(self) -> tuple[str, ...]:
        """The files without an octet."""
        return tuple(name for name, size in self.sizes.items() if not size)

    @property
    def octets(self) -> int:
        """Octets of all files."""
        return sum(self.sizes.values())

    @property
    def line_bytes(self) -> int:
        """Octets of the files whose lines are records."""
        return sum(size for name, size in self.sizes.items() if name in LINES)


def find_runs(places: Iterable[str]) -> list[RunDirectory]:
    """The runs at these paths and URIs, each once: a place is a run directory, or a directory that holds runs.

    :raises RunDirectoryError: a place is no run and holds none
    :raises RunChoiceError: no run
    :raises PlaceError: a place cannot be reached
    """
    return _once(run for place in places for run in _runs_at(place_of(place)))


def list_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """These run directories of this machine, each once.

    :raises NotARunError: no directory, or no manifest in it
    :raises RunChoiceError: no run
    """
    return _once(_listed(path.resolve()) for path in paths)


def unread(runs: Iterable[RunDirectory], known: Mapping[str, str]) -> list[RunDirectory]:
    """The runs that are not in a store as they are now.

    :param known: the signatures of the runs in the store, by their sources
    """
    return [run for run in runs if known.get(run.source) != run.signature]


def store_beside(runs: Sequence[RunDirectory]) -> str | None:
    """The store in the folder that holds all of these runs; None if they lie in several folders."""
    folders = {_folder_of(run.source) for run in runs}
    return f"{folders.pop()}/{STORE}" if len(folders) == 1 else None


def _folder_of(source: str) -> str:
    """The folder that holds a run; of a round of a sweep, the folder that holds the sweep."""
    if not source.startswith("/"):
        return source.rpartition("/")[0]
    folder = Path(source).parent
    if (folder.parent / files.LAYOUTS).is_file():
        folder = folder.parent
    while any((folder / name).is_file() for name in (files.ROUNDS, files.LAYOUTS)):
        folder = folder.parent
    return str(folder)


def _once(found: Iterable[RunDirectory]) -> list[RunDirectory]:
    runs = list({run.source: run for run in found}.values())
    if not runs:
        raise RunChoiceError("no run was given", "the list of run directories is empty", "name at least one")
    return runs


def _runs_at(folder: Folder) -> list[RunDirectory]:
    if isinstance(folder, LocalFolder):
        return [_listed(path.resolve()) for path in run_directories(folder.path)]
    return _runs_in(folder)


def _listed(path: Path) -> RunDirectory:
    stats = {name: (path / name).stat() for name in READ if (path / name).is_file()}
    if files.MANIFEST not in stats:
        read_manifest(path)  # which says what is wrong
    return _directory(str(path), {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()})


def _runs_in(folder: Folder) -> list[RunDirectory]:
    """The run that is this folder, or the runs right below it, of one listing of all files."""
    try:
        entries = folder.files()
    except OSError as error:
        what = f"the runs cannot be listed: {cause_of(error)}"
        raise PlaceError(what, folder.where, advice(folder.where, error)) from error
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for entry in entries:
        directory, _, name = entry.name.rpartition("/")
        if "/" not in directory and name in READ:
            found.setdefault(directory, {})[name] = entry.octets, entry.modified_ns
    runs = {name: told for name, told in sorted(found.items()) if files.MANIFEST in told}
    if not runs:
        fix = "check the URI: a run directory lies there, or a directory that holds runs"
        raise NotARunError("there is no run in it", folder.where, fix)
    where = re.sub("^s3:", "s3a:", folder.where)
    if "" in runs:
        return [_directory(where, runs[""])]
    return [_directory(f"{where}/{name}", told) for name, told in runs.items()]


def _directory(source: str, told: Mapping[str, tuple[int, int]]) -> RunDirectory:
    """:param told: octets and time of change of each file, by name"""
    lines = [f"{name} {told[name][0]} {told[name][1]}" for name in READ if name in told]
    # A run of a newer schema is left out until a program of that schema reads it.
    lines.append(f"schema {files.SCHEMA_VERSION}")
    return RunDirectory(
        source=source,
        sizes={name: told[name][0] for name in READ if name in told},
        signature=hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32],
    )
