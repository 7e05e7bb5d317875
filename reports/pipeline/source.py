"""Run directories as the pipeline takes them in: manifests read and checked, files cut into splits.

All of this happens in the driver, before a JVM is asked for, so that a wrong path costs no start-up. A split is a
byte range of one file; the workers read the lines that *begin* in it, so a file of any size spreads over all cores
and every line is read exactly once.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from perftest.results import schema as files
from perftest.results.errors import DamagedRunError, LineError
from perftest.results.folder import LocalFolder, read_object
from perftest.results.intervals import cells_of, missing_columns
from perftest.results.reader import read_manifest
from reports.errors import EmptyRunError, RunChoiceError

SPLIT_BYTES: Final = 8 * 1024 * 1024
"""Large enough that a split costs seconds of work at most, small enough that one long run keeps every core busy."""

SPLIT_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("run_id", "path", "file")),
        *(("begin", pa.int64()), ("end", pa.int64()), ("context", pa.string())),
    ]
)
"""A byte range of a file. ``context`` is what a reader has to know from before it: the CSV header, or the base time of
a histogram log in seconds."""

_BASE_TIME = re.compile(rb"#\[BaseTime: *([0-9]{1,12}(?:\.[0-9]{1,18})?)[ \]]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """One run directory with a manifest of a known version."""

    run_id: str
    path: Path
    manifest: dict[str, Any]
    ledger: dict[str, Any] | None
    ledger_problem: str | None

    @property
    def started_ns(self) -> int:
        """Unix time."""
        return int(self.manifest["started_ns"])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A run directory that cannot be reported beside others that can, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The runs to report, one at least, and the runs that had to be left out."""

    runs: tuple[RunSource, ...]
    left_out: tuple[LeftOut, ...] = ()


def open_runs(paths: Iterable[Path]) -> Sources:
    """Read the manifests of these run directories. A damaged or empty run is left out, unless no other is left.

    :raises NotARunError: no directory, no manifest; or damage in the only run
    :raises NewerRunError: a version that is not known here
    :raises RunChoiceError: no run, or the same run twice
    :raises EmptyRunError: the only run has no interval
    """
    found: dict[str, RunSource] = {}
    problems: dict[Path, DamagedRunError | EmptyRunError] = {}
    for path in dict.fromkeys(path.resolve() for path in paths):
        try:
            run = _open_run(path)
        except (DamagedRunError, EmptyRunError) as error:
            problems[path] = error
            continue
        other = found.get(run.run_id)
        if other is not None:
            raise RunChoiceError(
                f"two directories hold the run {run.run_id}", f"{other.path} and {path}", "give one of them"
            )
        found[run.run_id] = run
    if not found and problems:
        raise next(iter(problems.values()))
    if not found:
        raise RunChoiceError("no run was given", "the list of run directories is empty", "name at least one")
    left_out = (LeftOut(path=path, reason=error.what) for path, error in problems.items())
    return Sources(runs=tuple(found.values()), left_out=tuple(left_out))


def splits(runs: Iterable[RunSource], file: str, size: int = SPLIT_BYTES) -> list[dict[str, object]]:
    """The splits of one file of each run, as rows of :data:`SPLIT_SCHEMA`; a run without the file has none."""
    rows: list[dict[str, object]] = []
    for run in runs:
        path = run.path / file
        octets = path.stat().st_size if path.is_file() else 0
        contexts = _contexts(path, file) if octets else []
        for begin in range(0, octets, size):
            known = [context for offset, context in contexts if offset <= begin]
            rows.append(
                {
                    "run_id": run.run_id,
                    "path": str(path),
                    "file": file,
                    "begin": begin,
                    "end": min(begin + size, octets),
                    "context": known[-1] if known else "",
                }
            )
    return rows


def input_bytes(runs: Iterable[RunSource]) -> int:
    """Octets that the workers will read."""
    names = (files.INTERVALS_CSV, files.LATENCY_HLOG, files.EVENTS, files.HOST, files.BROKER)
    present = (run.path / name for run in runs for name in names)
    return sum(path.stat().st_size for path in present if path.is_file())


def signature(path: Path) -> str:
    """Names, sizes and modification times of the files of a run directory, as a digest: another one when a file has
    changed."""
    files_there = LocalFolder(path).files()
    states = "\n".join(f"{each.name} {each.octets} {each.modified_ns}" for each in files_there if "/" not in each.name)
    return sha256(states.encode()).hexdigest()[:16]


def _open_run(path: Path) -> RunSource:
    manifest = read_manifest(path)
    _check_intervals(path)
    ledger, problem = _read_ledger(path)
    return RunSource(run_id=manifest["id"], path=path, manifest=manifest, ledger=ledger, ledger_problem=problem)


def _check_intervals(path: Path) -> None:
    """There is a header that names our columns, and something after it."""
    file = path / files.INTERVALS_CSV
    if not file.is_file():
        raise _empty(file, "has no intervals.csv")
    header, rest = _csv_header(file)
    missing = missing_columns(header)
    if header and missing:
        raise DamagedRunError(
            f"columns are missing: {', '.join(missing)}",
            f"{file}: line 1",
            "the file is of another tool or was edited; give the directory as perftest wrote it",
        )
    if not rest:
        raise _empty(file, "has no interval")


def _empty(file: Path, what: str) -> EmptyRunError:
    return EmptyRunError(
        f"the run {what}: nothing was measured",
        str(file),
        "see events.jsonl beside it for the reason, and run the load again",
    )


def _csv_header(file: Path) -> tuple[list[str], bool]:
    """Column names, and whether anything follows them; of a line that is no CSV, no name that anybody knows."""
    with file.open(encoding="utf-8", newline="", errors="replace") as lines:
        try:
            header = cells_of(lines.readline())
        except LineError:
            header = [""]
        return header, bool(lines.readline())


def _read_ledger(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The ledger, or why it cannot be used; a killed run has neither."""
    try:
        value = read_object(LocalFolder(path), files.LEDGER)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, f"not readable: {error}"
    if value.get("schema") != files.SCHEMA_VERSION:
        return None, "not a ledger of a version known here"
    return value, None


def _contexts(path: Path, file: str) -> list[tuple[int, str]]:
    """The contexts of splits, each with the offset from which it holds."""
    if file == files.INTERVALS_CSV:
        return [(0, json.dumps(_csv_header(path)[0], ensure_ascii=False))]
    if file == files.LATENCY_HLOG:
        return list(_base_times(path))
    return []


def _base_times(path: Path) -> Iterator[tuple[int, str]]:
    """Base times of a histogram log: logs that were appended to each other state several."""
    with path.open("rb") as log, mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(b"#[BaseTime:")
        while at >= 0:
            begins_line = at == 0 or content[at - 1 : at] == b"\n"
            match = _BASE_TIME.match(content[at : at + 80])
            if begins_line and match:
                yield at, match[1].decode("ascii")
            at = content.find(b"#[BaseTime:", at + 1)
