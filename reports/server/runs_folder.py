"""The run directories of a folder, read into rows. The records of a run are read once, and again when they change.

Thousands of manifests take some seconds to read for the first time. So a look runs in a thread, the newest names first,
and the rows read so far can be had at any moment. Only rows are kept, not the records.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from perftest.errors import HelpfulError
from perftest.results.folder import LocalFolder, json_object, read_object
from perftest.results.integrity import Sum, file_fault, recorded_sums
from perftest.results.reader import read_manifest
from perftest.results.schema import INTERVALS_CSV, LEDGER, MANIFEST, RESULT
from perftest.results.trust_list import failed
from reports.catalogue.annotations import NOTHING, Annotation
from reports.server.listed_run import (
    KILLED,
    RUNNING,
    ListedRun,
    checks_of,
    listed_run,
    unreadable,
)

SILENT_S: Final = 30.0
"""Time without a change of its files after which a run that says it is running was killed."""
_Stamp = tuple[int, int]
"""When manifest and result were changed, Unix time in ns; 0 for a file that is not there."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A row, and the stamp of the files that it was read from."""

    stamp: _Stamp
    run: ListedRun


class RunsFolder:
    """The runs right below a directory. :meth:`look` reads; :meth:`runs` gives what was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, _Known] = {}
        self._listed = 0
        self._seen = 0
        self._stopped = False
        self.problem = ""
        """The reason why there are no runs; empty if the folder could be listed."""

    @property
    def unread(self) -> int:
        """Number of runs that the present look has not come to yet."""
        return max(0, self._listed - self._seen)

    def runs(self, annotations: Mapping[str, Annotation]) -> list[ListedRun]:
        """The rows read so far with their annotations (by run id), the newest first."""
        found = [_annotated(known.run, annotations) for known in list(self._known.values())]
        return sorted(found, key=lambda run: (-run.started_ns, run.name))

    def look(self) -> None:
        """Read what is new or has changed, and forget what is gone. A folder that cannot be listed has no runs, and is
        the ``problem``."""
        try:
            stamps, self.problem = self._stamps(), ""
        except OSError as error:
            stamps = {}
            self.problem = f"The directory of the runs cannot be read: {error.strerror or error} ({self.folder})."
        for name in self._known.keys() - stamps.keys():
            self._known.pop(name, None)
        new = [name for name, stamp in stamps.items() if self._must_be_read(name, stamp)]
        self._seen, self._listed = len(stamps) - len(new), len(stamps)
        for name in sorted(new, reverse=True):  # names begin with the time
            if self._stopped:
                return
            self._read(name, stamps[name])
            self._seen += 1

    def stop(self) -> None:
        """End the present look early."""
        self._stopped = True

    def run(self, name: str) -> ListedRun:
        """One run as it is now. Raises OSError if there is no such run."""
        stamp = _stamp(self.folder / name)
        known = self._known.get(name)
        if known is None or self._must_be_read(name, stamp):
            known = self._known[name] = _Known(stamp, _read_run(self.folder / name))
        return known.run

    def manifest(self, name: str) -> dict[str, Any]:
        """The manifest of a run. Raises as :func:`~perftest.results.reader.read_manifest`."""
        return read_manifest(self.folder / name)

    def _stamps(self) -> dict[str, _Stamp]:
        found = {}
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # no run
                found[path.name] = _stamp(path)
        return found

    def _must_be_read(self, name: str, stamp: _Stamp) -> bool:
        known = self._known.get(name)
        return known is None or known.stamp != stamp or known.run.state in (RUNNING, KILLED)

    def _read(self, name: str, stamp: _Stamp) -> None:
        try:
            run = _read_run(self.folder / name)
        except OSError:
            self._known.pop(name, None)  # it went away meanwhile
        else:
            self._known[name] = _Known(stamp, run)


def _stamp(path: Path) -> _Stamp:
    """Raises OSError for a directory without a manifest."""
    changed_ns = (path / MANIFEST).stat().st_mtime_ns
    try:
        return changed_ns, (path / RESULT).stat().st_mtime_ns
    except OSError:
        return changed_ns, 0


def _annotated(run: ListedRun, annotations: Mapping[str, Annotation]) -> ListedRun:
    found = annotations.get(run.run_id, NOTHING)
    return run if found is NOTHING else replace(run, tags=found.tags, note=found.note)


def _read_run(path: Path) -> ListedRun:
    """The row of a run directory. Raises OSError if there is none."""
    (path / MANIFEST).stat()
    try:
        manifest = read_manifest(path)
    except HelpfulError as error:
        return unreadable(path.name, error.what)
    result, damage = _result(path, manifest)
    checks = checks_of(manifest, result)
    doubtful = any(check.check == "ledger" for check in failed(checks or ()))
    return listed_run(
        path.name,
        manifest,
        result,
        checks,
        state=_state(path, manifest["state"]),
        violated=doubtful and _ledger_is_violated(path),
        damage=damage,
    )


def _result(path: Path, manifest: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The content of result.json, None without it, and what is wrong with the file, by its checksum."""
    try:
        octets = (path / RESULT).read_bytes()
    except FileNotFoundError:
        return None, f"{RESULT} is missing" if RESULT in recorded_sums(manifest) else ""
    except OSError as error:
        return None, f"{RESULT} cannot be read: {error.strerror or error}"
    fault = file_fault(manifest, RESULT, Sum().plus(octets))
    damage = f"{RESULT} {fault}" if fault else ""
    try:
        return json_object(octets), damage
    except ValueError as error:
        return None, damage or f"{RESULT} cannot be read: {error}"


def _ledger_is_violated(path: Path) -> bool:
    """Whether the ledger itself, or the ledger of a background load, says so."""
    try:
        ledger = read_object(LocalFolder(path), LEDGER)
    except (OSError, ValueError):
        return False
    beside = ledger.get("background")
    parts = [ledger, *(beside if isinstance(beside, list) else ())]
    return any(isinstance(each, dict) and each.get("verdict") == "violated" for each in parts)


def _state(path: Path, state: str) -> str:
    if state != RUNNING:
        return state
    changed_s = 0.0
    for name in (MANIFEST, INTERVALS_CSV):
        try:
            changed_s = max(changed_s, (path / name).stat().st_mtime)
        except FileNotFoundError:
            continue
    return RUNNING if time.time() - changed_s < SILENT_S else KILLED
