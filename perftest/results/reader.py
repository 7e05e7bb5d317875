"""Reads run directories: finished ones, killed ones, and ones whose last lines were cut short.

A last line without its line feed was cut short and is left out, because a number cut in two still looks like a number.
A line that cannot be read is left out, too. Both are listed in ``damaged``, and so are files that are not as the run
left them, by the checksums in its manifest (:mod:`perftest.results.integrity`). Only a directory that is no run, or a
run of a newer version, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hdr_buckets import PayloadError
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results import hlog, intervals, schema
from perftest.results.course import CourseFollower
from perftest.results.errors import DamagedRunError, LineError, NewerRunError, NotARunError
from perftest.results.folder import LocalFolder, ReadableFolder, folder_of, json_object, read_object, read_text
from perftest.results.integrity import Damage, Damages, changed_files
from perftest.results.modelled_drives import DriveRecords
from perftest.results.run_checks import Disturbances
from perftest.results.summary import Tally, background_loads_of, background_rows_of, rows_of
from perftest.results.trust import Check
from perftest.results.trust_list import TRUST, recorded_list, result_of

_EARLIER_MAX: Final = 20


@dataclass(slots=True, kw_only=True)
class Run:
    """A run as it was recorded. ``intervals`` carry no latencies; ``histograms`` has the latencies, in the same order.

    ``ledger`` and ``result`` are None when the run was killed; :func:`judged_run` derives the result.
    """

    path: Path
    manifest: dict[str, Any]
    intervals: list[Interval] = field(default_factory=list)
    histograms: list[hlog.HlogLine] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    host: list[dict[str, Any]] = field(default_factory=list)
    broker: list[dict[str, Any]] = field(default_factory=list)
    clocks: list[dict[str, Any]] = field(default_factory=list)
    ledger: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    damaged: list[Damage] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether the run was killed before it could record how it ended."""
        return bool(self.manifest["state"] == "running")

    @property
    def damages(self) -> Damages:
        """The unreadable parts, and the parts that changed since the run."""
        return Damages.of(self.damaged)


def read_manifest(place: Path | ReadableFolder) -> dict[str, Any]:
    """The manifest of a run directory. Its ``id`` may name a directory, ``started_ns`` is Unix time, and ``plan`` an
    object.

    Raises :class:`~perftest.results.errors.NotARunError`, also as its kind
    :class:`~perftest.results.errors.DamagedRunError`, or :class:`~perftest.results.errors.NewerRunError`.
    """
    folder = folder_of(place)
    file = f"{folder.where}/{schema.MANIFEST}"
    fix = "give a directory that `perftest run` or `perftest sweep` wrote below runs/"
    try:
        manifest = read_object(folder, schema.MANIFEST)
    except OSError as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise NotARunError(f"this is not a run: its {schema.MANIFEST} {reason}", folder.where, fix) from error
    except ValueError as error:
        what = f"this is not a run: its {schema.MANIFEST} cannot be read: {error}"
        raise DamagedRunError(what, file, _COPY_AGAIN) from error
    version = manifest.get("schema")
    if not isinstance(version, int):
        raise NotARunError(f"this is not a run: its {schema.MANIFEST} names no schema version", file, fix)
    if version > schema.SCHEMA_VERSION:
        what = f"this run has schema {version}; this version reads up to {schema.SCHEMA_VERSION}"
        raise NewerRunError(what, file, "update perftest, or read it with the version that wrote it")
    unusable = [name for name, is_usable in _NEEDED.items() if not is_usable(manifest.get(name))]
    if unusable:
        raise DamagedRunError(f"its {schema.MANIFEST} has no usable {', '.join(unusable)}", file, _COPY_AGAIN)
    return manifest


_COPY_AGAIN: Final = "the file was edited or damaged: copy the directory again from the host that made the run"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NEEDED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "id": lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None,
    "state": lambda value: isinstance(value, str),
    "started_ns": lambda value: isinstance(value, int) and 0 <= value < 2**63,
    "plan": lambda value: isinstance(value, dict),
}
"""Keys that a manifest must have, each with its form."""


def read_run(place: Path | ReadableFolder) -> Run:
    """Read everything a run directory holds. Raises as :func:`read_manifest` does."""
    folder = folder_of(place)
    run = Run(path=Path(folder.where), manifest=read_manifest(folder))
    run.damaged = changed_files(folder, run.manifest)
    run.intervals = list(_intervals(run, folder))
    run.histograms = list(_histograms(run, folder))
    lines = {schema.EVENTS: run.events, schema.HOST: run.host, schema.BROKER: run.broker, schema.CLOCKS: run.clocks}
    for name, records in lines.items():
        records.extend(_json_lines(run, folder, name))
    run.ledger = _json_file(run, folder, schema.LEDGER)
    run.result = _json_file(run, folder, schema.RESULT)
    return run


def run_directories(place: Path) -> list[Path]:
    """``place`` itself, or the runs right below it, sorted by name. Raises NotARunError if there is none."""
    folder = LocalFolder(place)
    if schema.MANIFEST in folder.names() or not place.is_dir():
        return [place]
    below = [place / name for name in folder.names() if schema.MANIFEST in folder.names(name)]
    if not below:
        raise NotARunError("there is no run in it", str(place), "give a run directory, or one that holds repetitions")
    return below


def earlier_run(path: Path, digest: str) -> Path | None:
    """The last earlier run in the same directory that finished the same plan, if it is among the newest few."""
    started_ns = read_manifest(path)["started_ns"]
    # A name tells the second only; runs of the same second are put in order by their manifests.
    newest = reversed(LocalFolder(path.parent).names())
    found: list[tuple[int, Path]] = []
    for name in [name for name in newest if _second(name) <= _second(path.name)][:_EARLIER_MAX]:
        try:
            manifest = read_manifest(path.parent / name)
        except (NotARunError, NewerRunError):
            continue
        same = manifest["state"] == "finished" and manifest["plan"].get("digest") == digest
        if same and manifest["started_ns"] < started_ns:
            found.append((manifest["started_ns"], path.parent / name))
    return max(found)[1] if found else None


def _second(name: str) -> str:
    """The time in the name of a run's directory, which :func:`~perftest.results.writer.run_id` made."""
    return name[: len("20261121-101502")]


def summarise(run: Run) -> dict[str, Any]:
    """The content of ``result.json``, computed again from the records of the run."""
    tally, follower = Tally(), CourseFollower(run.manifest["plan"], complete=True)
    for record in run.intervals:
        tally.totals(record).add(record)
        follower.slots.add(record)
    for line in run.histograms:
        _add_histogram(run, line, tally, follower)
    disturbances, drives = Disturbances(), DriveRecords()
    for event in run.events:
        disturbances.event(event)
    for sample in run.broker:
        drives.add(sample)
        follower.nodes.add(sample)
    for sample in run.host:
        follower.hosts.add(sample)
    manifest = {**run.manifest, "broker": {**(run.manifest.get("broker") or {}), "drives": drives.facts()}}
    rows = follower.with_noise(follower.with_host_cpu(rows_of(manifest, tally, follower.nodes), manifest, tally))
    course = follower.course(rows, manifest, tally, run.damages)
    return result_of(manifest, rows, run.ledger, disturbances, course, background_rows_of(manifest, tally))


def _add_histogram(run: Run, line: hlog.HlogLine, tally: Tally, follower: CourseFollower) -> None:
    totals = tally.steady.get((line.step, line.group)) if line.phase is Phase.STEADY else None
    if totals is None or line.series not in _SERIES:
        return
    found = Histogram()
    try:
        found.add_payload(line.payload, line.max_ns)
    except PayloadError as error:
        run.damaged.append(Damage(file=schema.LATENCY_HLOG, line=0, reason=str(error)))
        return
    totals.latency(Series(line.series)).add(found)
    if follower.slots.wants(line.step, line.group, line.series):
        follower.slots.latency(line.step, line.group, line.start_ns, line.length_ns, found)


_SERIES: Final = frozenset(each.value for each in Series)


def judged_run(run: Run) -> Run:
    """The run with a result whose trust list is whole: the recorded list, with the present damage. The list is derived
    for a run that was killed, and for a run of an earlier version, which recorded less. A result that has changed is
    derived again, if its sources have not changed."""
    changed = run.damages.files
    if schema.RESULT in changed and not any(name in changed for name in _SOURCES):
        run.result = None
    recorded = recorded_list(run.manifest, run.damages)
    derived = summarise(run) if run.result is None or recorded is None else {}
    run.result = run.result or derived
    run.result[TRUST] = derived[TRUST] if recorded is None else [check.to_list_json() for check in recorded]
    return run


_SOURCES: Final = (schema.INTERVALS_CSV, schema.LATENCY_HLOG)
"""Files from which the figures of a result come."""


def trust_of(run: Run) -> list[Check]:
    """The trust list in the result of a run; empty without a result."""
    return [Check.from_json(each) for each in (run.result or {}).get(TRUST, ())]


def _lines(run: Run, folder: ReadableFolder, name: str) -> Iterator[tuple[int, str]]:
    """The whole lines of a file, numbered from 1; a missing file has none."""
    try:
        text = read_text(folder, name)
    except FileNotFoundError:
        return
    except OSError as error:
        run.damaged.append(Damage(file=name, line=None, reason=f"cannot be read: {error.strerror or error}"))
        return
    *whole, rest = text.split("\n")
    yield from enumerate(whole, start=1)
    if rest:
        run.damaged.append(Damage(file=name, line=len(whole) + 1, reason="cut short"))


def _intervals(run: Run, folder: ReadableFolder) -> Iterator[Interval]:
    lines = _lines(run, folder, schema.INTERVALS_CSV)
    parse = intervals.parser(intervals.cells_of(next(lines, (0, ""))[1]))
    beside = background_loads_of(run.manifest["plan"])
    for number, line in lines:
        try:
            columns = parse(line)
        except LineError as error:
            run.damaged.append(Damage(file=schema.INTERVALS_CSV, line=number, reason=f"not an interval: {error}"))
        else:
            if columns is not None:
                measured = columns["group"] not in beside
                yield Interval(**columns | {"phase": Phase(columns["phase"]), "measured": measured})


def _histograms(run: Run, folder: ReadableFolder) -> Iterator[hlog.HlogLine]:
    base_ns = 0
    for number, text in _lines(run, folder, schema.LATENCY_HLOG):
        try:
            stated_ns = hlog.base_ns_of(text)
            base_ns = base_ns if stated_ns is None else stated_ns
            line = hlog.parse_line(text, base_ns)
        except LineError as error:
            run.damaged.append(Damage(file=schema.LATENCY_HLOG, line=number, reason=str(error)))
        else:
            if line is not None:
                yield line


def _json_lines(run: Run, folder: ReadableFolder, name: str) -> Iterator[dict[str, Any]]:
    for number, line in _lines(run, folder, name):
        try:
            yield json_object(line)
        except ValueError:
            run.damaged.append(Damage(file=name, line=number, reason="not a JSON object"))


def _json_file(run: Run, folder: ReadableFolder, name: str) -> dict[str, Any] | None:
    try:
        return read_object(folder, name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        run.damaged.append(Damage(file=name, line=None, reason=f"cannot be read: {error}"))
        return None
