"""Writes a run directory as the run goes.

Invariants, so that a run that is killed at any instant can still be reported:

- the manifest exists before the first message is sent, and is only ever replaced whole (written beside, synced,
  renamed);
- a directory in which nothing was measured, because the run was interrupted before, does not stay;
- every line is handed to the operating system in one write as soon as it is known, with its line feed: a line without
  one was cut short;
- what is derived (``result.json``, ``intervals.parquet``) is written last and can be made again from the rest;
- at the end the manifest gets the checksum of every file, taken from what was written and not from what the drive has.

A drive that is full or read-only ends the run: a result with holes would be worse than a short one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from perftest.metrics.interval import LOCAL_HOST, Interval
from perftest.results import hlog, intervals, schema
from perftest.results.clock_records import ClockRecords, with_clocks
from perftest.results.course import CourseFollower
from perftest.results.errors import RunNotWritableError
from perftest.results.folder import LocalFolder
from perftest.results.integrity import FILES, Damages, Sum, sealed, sum_of, sums_to_json
from perftest.results.modelled_drives import DriveRecords
from perftest.results.provenance import host_facts, redact, redact_command, tool_facts
from perftest.results.run_checks import Disturbances
from perftest.results.summary import Tally, background_rows_of, happened_in, rows_of, run_loop, with_recoveries
from perftest.results.taken import TakenFromQueues
from perftest.results.trust import Check
from perftest.results.trust_list import TRUST, is_valid, result_of
from perftest.spec.codec import plan_digest, plan_to_json
from perftest.spec.expected.slo import Objective, Verdict, judge
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from perftest.results.legacy import LegacyLatency

_DRAWS: Final = 100
_SKEW_OF: Final = {"begun": "start_skew_ns", "quiesced": "stop_skew_ns"}
_STREAMS: Final = (schema.INTERVALS_CSV, schema.LATENCY_HLOG, schema.EVENTS, schema.HOST, schema.BROKER)


def run_id(name: str, now_ns: int) -> str:
    """``YYYYMMDD-HHMMSS-<name>-<4 hex digits>`` in UTC; the digits keep runs of the same second apart."""
    moment = datetime.fromtimestamp(now_ns / 1e9, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{name.rsplit('/', 1)[-1]}-{secrets.token_hex(2)}"


def _new_directory(root: Path, name: str, now_ns: int, identity: str) -> Path:
    """Make ``root/<id>``. Raises RunNotWritableError. An id with chance in it that a run of the same second has already
    is drawn again."""
    draws = 1 if identity else _DRAWS
    with writable(root):
        for draw in range(1, draws + 1):
            path = root / (identity or run_id(name, now_ns))
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                if draw == draws:
                    raise
            else:
                break
    return path


class _LinesFile:
    """A file of lines in the order of time, and the checksum of its octets. Methods may raise OSError."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self.sum = Sum()

    def write(self, text: str) -> None:
        """Add text, which :meth:`flush` hands to the operating system."""
        content = text.encode()
        self.sum = self.sum.plus(content)
        self._file.write(content)

    def flush(self) -> None:
        """Hand all text to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JudgedFindings(Protocol):
    """The verdicts on the findings of a plan."""

    @property
    def reproduced(self) -> bool:
        """Whether every finding is reproduced."""

    def lines(self) -> list[str]:
        """The verdicts for a terminal."""

    def to_json(self) -> dict[str, object]:
        """The verdicts for ``result.json``."""


class RunWriter:
    """One run directory being written: a sink of the engine, and of the samplers beside it.

    Every method may raise :class:`~perftest.results.errors.RunNotWritableError`; after that only :meth:`finish` is
    called, which then writes as much as it can.
    """

    def __init__(
        self,
        root: Path,
        plan: Plan,
        command: Sequence[str],
        now_ns: int | None = None,
        *,
        identity: str = "",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Create ``root/<id>`` with a manifest that says ``running``. Raises RunNotWritableError.

        ``identity`` is the id, which :func:`run_id` makes otherwise; ``clock`` gives Unix time in ns.
        ``objectives`` may be set before :meth:`finish`, which judges them into ``verdicts`` and ``result.json``;
        ``judge_findings`` likewise, which makes ``findings`` of the rows;
        ``legacy`` before the first interval, if PerfTest's figures are wanted in ``result.json``, too.
        """
        self._clock = clock
        self.started_ns = clock() if now_ns is None else now_ns
        facts = _manifest(plan, command, self.started_ns, root)  # takes longest: a signal meanwhile leaves nothing
        self.path = _new_directory(root, plan.name, self.started_ns, identity)
        self.id = self.path.name
        self.discarded = False
        """Whether the directory was removed, because the run ended before anything was measured."""
        self.plan = plan
        self.tally = Tally()
        self.rows: list[dict[str, Any]] = []
        self.background_rows: list[dict[str, Any]] = []
        self.trust: list[Check] = []
        """The trust list of the run."""
        self.ledger_record: dict[str, object] | None = None
        self.objectives: Sequence[Objective] = ()
        self.legacy: LegacyLatency | None = None
        self.verdicts: list[Verdict] = []
        self.judge_findings: Callable[[Sequence[Mapping[str, Any]]], JudgedFindings | None] | None = None
        self.findings: JudgedFindings | None = None
        self.disturbances = Disturbances()
        self.taken = TakenFromQueues()
        self.recoveries: list[Mapping[str, Any]] = []
        """The events that tell how the load recovered from actions."""
        self._drives = DriveRecords()
        self._clocks = ClockRecords()
        self._base_ns = self.started_ns - self.started_ns % 10**6
        self._files: dict[str, _LinesFile] = {}
        self._sums: dict[str, Sum] = {}
        self.manifest = facts | {"id": self.id}
        self._follower = CourseFollower(self.manifest["plan"])
        try:
            self._begin()
        except BaseException:
            self._discard()
            raise

    def _begin(self) -> None:
        with writable(self.path):
            self._write_manifest()
            for name in _STREAMS:
                self._files[name] = _LinesFile(self.path / name)
        self._append(schema.INTERVALS_CSV, intervals.HEADER)
        self._append(schema.LATENCY_HLOG, hlog.header(self._base_ns))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """The block in which the run takes place. An exception ends the run: Ctrl-C as an interruption, any other
        exception as a failure with its name."""
        try:
            yield
        except KeyboardInterrupt:
            self.finish("interrupted", "interrupted", 130)
            raise
        except BaseException as error:
            self.finish("failed", f"{type(error).__name__}: {error}", 1)
            raise

    def _discard(self) -> None:
        """Close and remove the directory."""
        with contextlib.suppress(OSError):
            self.close()
        shutil.rmtree(self.path, ignore_errors=True)
        self.discarded = True

    def interval(self, record: Interval) -> None:
        """Write a line of ``intervals.csv`` and the lines of ``latency.hlog``."""
        self._append(schema.LATENCY_HLOG, hlog.lines(record, self._base_ns))
        self._append(schema.INTERVALS_CSV, intervals.csv_line(record, record.latencies, self.id, self.started_ns))
        self.tally.add(record)
        self._follower.slots.add(record)
        if self.legacy is not None and record.measured:
            self.legacy.interval(record)

    def stages(self, lines: Iterable[hlog.HlogLine]) -> None:
        """Write lines of ``latency.hlog`` about the stages within the broker."""
        self._append(schema.LATENCY_HLOG, "".join(hlog.format_line(line, self._base_ns) for line in lines))

    def event(self, record: dict[str, object]) -> None:
        """Write a line of ``events.jsonl``; the end of a background load is kept in the manifest, too."""
        self._append(schema.EVENTS, _json_line(record))
        self.disturbances.event(record)
        self.taken.event(record)
        if record.get("kind") == "recovery":
            self.recoveries.append(record)
        self._describe_hosts_by(record)
        if record.get("kind") == "background_ended":
            told = {
                name: value for name, value in record.items() if name not in ("t_ns", "kind", "step", "text", "group")
            }
            self.manifest.setdefault("background", []).append(told)

    def _describe_hosts_by(self, record: Mapping[str, Any]) -> None:
        """Keep in the manifest which hosts were lost, and how long after a common moment each of them acted at most."""
        kind = record.get("kind")
        for row in self.manifest["hosts"]:
            if kind == "host_lost" and row["name"] == record["host"]:
                row["lost"] = {"t_ns": record["t_ns"], "reason": record["text"]}
            if kind in _SKEW_OF and row["name"] in record["skew_ns"]:
                name = _SKEW_OF[kind]
                row[name] = max(row.get(name, 0), record["skew_ns"][row["name"]])

    def host(self, record: dict[str, Any]) -> None:
        """Write a line of ``host.jsonl``."""
        self._append(schema.HOST, _json_line(record))
        self._follower.hosts.add(record)
        if clocks := self._files.get(schema.CLOCKS):  # its lines are many and short: they are passed on once a second
            with writable(self.path / schema.CLOCKS):
                clocks.flush()

    def broker(self, record: dict[str, Any]) -> None:
        """Write a line of ``broker.jsonl``."""
        self._append(schema.BROKER, _json_line(record))
        self._follower.nodes.add(record)
        self._drives.add(record)

    def clock(self, record: dict[str, Any]) -> None:
        """Write a line of ``clocks.jsonl``, which only a run on several hosts has."""
        if schema.CLOCKS not in self._files:
            with writable(self.path):
                self._files[schema.CLOCKS] = _LinesFile(self.path / schema.CLOCKS)
        with writable(self.path / schema.CLOCKS):
            self._files[schema.CLOCKS].write(json.dumps(record) + "\n")  # all of them finite numbers
        self._clocks.add(record)

    def ledger(self, record: dict[str, object]) -> None:
        """Write ``ledger.json``."""
        self.ledger_record = record
        with writable(self.path):
            self._replace(schema.LEDGER, _pretty(record))

    def describe_broker(self, **facts: Any) -> None:
        """Add facts about the broker to the manifest; URIs are redacted."""
        self.manifest["broker"].update(_redacted(facts))
        with writable(self.path):
            self._write_manifest()

    def describe_hosts(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The hosts of a run that this machine only coordinates, a row each; this machine becomes ``coordinator``."""
        self.manifest["coordinator"], self.manifest["hosts"] = self.manifest["hosts"][0], [dict(row) for row in rows]
        with writable(self.path):
            self._write_manifest()

    def describe_foreign(self, facts: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """Say that another tool measured this run: ``facts`` become ``foreign`` of the manifest, and ``plan`` has only
        what that tool told. This machine measured nothing, and nothing is known of the machines that did."""
        self.manifest["foreign"] = dict(facts)
        self.manifest["plan"] = dict(plan)
        self.manifest["hosts"] = [{"name": LOCAL_HOST, "clock_offset_ns": 0, "clock_bound_ns": 0}]
        with writable(self.path):
            self._write_manifest()

    def stated(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write ``stated.jsonl``, the percentiles that another tool states."""
        with writable(self.path):
            self._replace(schema.STATED, "".join(map(_json_line, records)))

    def close(self) -> None:
        """Close the streams, and leave the directory as if the run was killed; :meth:`finish` calls this first."""
        files, self._files = self._files, {}
        failures: list[OSError] = []
        for name, file in files.items():
            self._sums[name] = file.sum
            try:
                file.close()
            except OSError as failure:  # what is still buffered has no place: the others are closed all the same
                failures.append(failure)
        if failures:
            raise failures[0]

    def finish(self, state: str, reason: str, exit_code: int = 0, *, connected: bool = True) -> None:
        """Close the streams, derive the results, and say in the manifest how it ended.

        Each part is tried even when one before it failed, so that as much as possible is kept; the first failure is
        raised at the end. A run leaves no directory if it was interrupted before any interval, or if it failed before
        any client was ``connected``: its intervals are empty.
        """
        in_vain = (state == "interrupted" and self.tally.is_empty) or (state == "failed" and not connected)
        if in_vain and not (self.ledger_record or {}).get("published"):
            self.manifest["state"] = state
            self._discard()
            return
        parts: list[Callable[[], None]] = [
            self.close,
            lambda: self._derive(state, reason),
            self._write_parquet,
            lambda: self.end(state, reason, exit_code),
        ]
        failures: list[RunNotWritableError] = []
        for part in parts:
            try:
                with writable(self.path):
                    part()
            except RunNotWritableError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    @property
    def valid(self) -> bool:
        """Whether the run was judged, and no check failed."""
        return bool(self.trust) and is_valid(self.trust)

    def end(self, state: str, reason: str, exit_code: int) -> None:
        """Set (again) how the run ended: the exit code follows from results that :meth:`finish` derived."""
        if self.discarded:
            return
        self.manifest.update(state=state, finished_ns=self._clock())
        self.manifest["ended"] = {"reason": reason, "exit_code": exit_code}
        self.manifest[FILES] = sums_to_json(self._sums)
        with writable(self.path):
            self._write_manifest()

    def _derive(self, state: str, reason: str) -> None:
        self.manifest.update(state=state, ended={"reason": reason})
        if drives := self._drives.facts():
            self.manifest["broker"]["drives"] = drives
        self.manifest["hosts"] = with_clocks(self.manifest["hosts"], self._clocks.rows())
        rows = rows_of(self.manifest, self.tally, self._follower.nodes)
        rows = with_recoveries(rows, self.recoveries)
        rows = self._follower.with_noise(self._follower.with_host_cpu(rows, self.manifest, self.tally))
        course = self._follower.course(rows, self.manifest, self.tally, Damages())
        self.background_rows = background_rows_of(self.manifest, self.tally)
        result = result_of(self.manifest, rows, self.ledger_record, self.disturbances, course, self.background_rows)
        self.rows, self.trust = result["steps"], [Check.from_json(each) for each in result[TRUST]]
        self.manifest[TRUST] = result[TRUST]
        if happened := happened_in(rows):
            self.manifest["happened"] = happened
        if self.objectives:
            self.verdicts = judge(self.objectives, self.rows, self.ledger_record)
            result["objectives"] = [verdict.to_json() for verdict in self.verdicts]
        if self.judge_findings is not None and (found := self.judge_findings(self.rows)) is not None:
            self.findings = found
            result["findings"] = found.to_json()
        if taken := self.taken.to_json():
            result["taken"] = taken
        if self.legacy is not None:
            result["legacy_latency"] = self.legacy.to_json()
        self._replace(schema.RESULT, _pretty(result))

    def _write_parquet(self) -> None:
        if intervals.write_parquet(self.path):
            self._sums[schema.INTERVALS_PARQUET] = sum_of(LocalFolder(self.path), schema.INTERVALS_PARQUET)

    def _append(self, name: str, text: str) -> None:
        if not text:
            return
        with writable(self.path / name):
            file = self._files[name]
            file.write(text)
            file.flush()

    def _replace(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text)
        self._sums[name] = Sum().plus(text.encode())

    def _write_manifest(self) -> None:
        write_atomically(self.path / schema.MANIFEST, _pretty(sealed(_jsonable(self.manifest))))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file whole: a reader sees the old or the new content, also after a crash. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Translates the errors of the operating system, once, here."""
    try:
        yield
    except OSError as error:
        what = f"the run cannot be recorded: {error.strerror or error}"
        fix = "free space or choose another directory with --out; what was recorded so far is kept"
        raise RunNotWritableError(what, str(error.filename or path), fix) from error


def _manifest(plan: Plan, command: Sequence[str], now_ns: int, root: Path) -> dict[str, Any]:
    """The manifest of a run that begins; ``id`` is still empty."""
    plain = plan_to_json(plan)
    uris = [redact(uri) for uri in plain.pop("uris")]
    return {
        "schema": schema.SCHEMA_VERSION,
        "id": "",
        "state": "running",
        "started_ns": now_ns,
        "finished_ns": None,
        "command": redact_command(command),
        "tool": tool_facts(),
        "plan": {**plain, "digest": plan_digest(plan)},
        "broker": {"product": "", "version": "", "platform": "", "uris": uris, "nodes": [], "durability": ""},
        "hosts": [host_facts(root)],
        "loop": run_loop(plain),
        "ended": None,
    }


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: _redacted(item) for name, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list | tuple) else value


def _json_line(record: Mapping[str, Any]) -> str:
    return json.dumps(_jsonable(record), ensure_ascii=False, allow_nan=False) + "\n"


def _pretty(record: Mapping[str, Any]) -> str:
    return json.dumps(_jsonable(record), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _jsonable(value: Any) -> Any:
    """The value with null in place of numbers that JSON cannot hold, such as infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _jsonable(item) for name, item in value.items()}
    return [_jsonable(item) for item in value] if isinstance(value, list | tuple) else value
