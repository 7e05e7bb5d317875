"""The files of one run as octets, and the facts in its manifest and ledger.

All checks that decide whether a run can be reported at all are here. Nothing here knows where the octets came from.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from perftest.errors import HelpfulError
from perftest.results import schema as files
from perftest.results.errors import DamagedRunError, LineError
from perftest.results.folder import read_object
from perftest.results.integrity import Damage, Sum, changed_files, changes
from perftest.results.intervals import cells_of, missing_columns
from perftest.results.reader import read_manifest
from reports.errors import EmptyRunError

LINES: Final = (files.INTERVALS_CSV, files.LATENCY_HLOG, files.EVENTS, files.HOST, files.BROKER, files.CLOCKS)
"""The files of a run whose lines are records."""
WHOLE: Final = (files.MANIFEST, files.LEDGER)
"""The files of a run that are one record each."""
CHECKED: Final = (files.RESULT, files.STATED, files.INTERVALS_PARQUET)
"""The files of a run that are only compared with their checksums."""
READ: Final = (*WHOLE, *LINES, *CHECKED)
"""The files that the reports read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The octets of the files of one run, by name: the files of READ that the run has. ``source`` is the run directory,
    in words for a person."""

    source: str
    contents: Mapping[str, bytes]

    @property
    def where(self) -> str:
        """As :attr:`perftest.results.folder.ReadableFolder.where`."""
        return self.source

    def names(self, below: str = "") -> list[str]:
        """As :meth:`perftest.results.folder.ReadableFolder.names`."""
        return [] if below else sorted(self.contents)

    def open(self, name: str) -> BinaryIO:
        """As :meth:`perftest.results.folder.ReadableFolder.open`."""
        if name not in self.contents:
            raise FileNotFoundError(2, "No such file", f"{self.source}/{name}")
        return io.BytesIO(self.contents[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """The facts about a run before its lines are read: its manifest, its ledger, the columns of its intervals."""

    run_id: str
    source: str
    manifest: dict[str, Any]
    ledger: dict[str, Any] | None
    ledger_problem: str | None
    columns: tuple[str, ...]
    changed: tuple[Damage, ...]
    """The files that are not as the run left them."""

    @property
    def started_ns(self) -> int:
        """Unix time."""
        return int(self.manifest["started_ns"])


def open_run(run: RunFiles, sums: Mapping[str, Sum] | None = None) -> RunHead:
    """The head of a run.

    :param sums: of every file of the run, where ``run`` has of intervals.csv only the first line, and one octet more
        if anything follows; without ``sums``, ``run`` has the whole run
    :raises NotARunError: no manifest, or a damaged one
    :raises NewerRunError: a version that is not known here
    :raises EmptyRunError: the run has no interval
    """
    manifest = read_manifest(run)
    changed = changed_files(run, manifest) if sums is None else changes(manifest, sums)
    named = {each.file: each for each in changed}
    columns = _interval_columns(run, named.get(files.INTERVALS_CSV))
    ledger, problem = _ledger(run)
    return RunHead(
        run_id=manifest["id"],
        source=run.source,
        manifest=manifest,
        ledger=ledger,
        ledger_problem=problem,
        columns=tuple(columns),
        changed=tuple(named.values()),
    )


def _no_intervals(source: str, what: str, change: Damage | None) -> HelpfulError:
    """The error for a run in which nothing was measured, or whose intervals were lost since."""
    if change is not None:
        return DamagedRunError(
            f"its {change.file} {change.reason}",
            f"{source}/{change.file}",
            "copy the directory again from the host that made the run",
        )
    return EmptyRunError(
        f"the run {what}: nothing was measured",
        f"{source}/{files.INTERVALS_CSV}",
        "see events.jsonl beside it for the reason, and run the load again",
    )


def _interval_columns(run: RunFiles, change: Damage | None) -> list[str]:
    """The header of the intervals: it names our columns, and something follows.

    :param change: the damage to the file since the end of the run
    """
    if files.INTERVALS_CSV not in run.contents:
        raise _no_intervals(run.source, "has no intervals.csv", change)
    first, _, rest = run.contents[files.INTERVALS_CSV].partition(b"\n")
    try:
        header = cells_of(first.rstrip(b"\r").decode("utf-8", errors="replace"))
    except LineError:
        header = [""]
    missing = missing_columns(header)
    if header and missing:
        raise DamagedRunError(
            f"columns are missing: {', '.join(missing)}",
            f"{run.source}/{files.INTERVALS_CSV}: line 1",
            "the file is of another tool or was edited; give the directory as perftest wrote it",
        )
    if not rest:
        raise _no_intervals(run.source, "has no interval", change)
    return header


def _ledger(run: RunFiles) -> tuple[dict[str, Any] | None, str | None]:
    """The ledger, or why it cannot be used; a killed run has neither."""
    try:
        value = read_object(run, files.LEDGER)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, f"cannot be read: {error}"
    if value.get("schema") != files.SCHEMA_VERSION:
        return None, "is no ledger of a version known here"
    return value, None
