"""Lines of a run directory's files to records, in Spark's Python workers.

Functions ``parse_*`` take splits (:data:`reports.pipeline.source.SPLIT_SCHEMA`) and give the records of their lines. A
line that cannot be used gives a row whose ``problem`` says why and whose ``raw`` shows it, and no data: damage is set
aside and counted, never skipped in silence. A last line without its end is damage, too: half a number looks like a
number.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from perftest.metrics.histogram import DamagedHistogramError, Histogram
from perftest.results import schema as files
from reports.pipeline.batches import Batches, Row
from reports.pipeline.source import seconds_to_ns

RAW_MAX: Final = 200
ROWS_PER_BATCH: Final = 4096
MS_PER_S: Final = 1000
"""A log's times are in seconds, its maxima in milliseconds."""
PHASES: Final = ("warmup", "steady", "drain")

_PROBLEM: Final = [
    pa.field("file", pa.string()),
    pa.field("offset", pa.int64()),
    pa.field("problem", pa.string()),
    pa.field("raw", pa.string()),
]


def _parsed(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    """A schema of parsed lines: every data column may be null, because a damaged line has none of them."""
    return pa.schema([pa.field("run_id", pa.string()), *(pa.field(*field) for field in fields), *_PROBLEM])


_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()

INTERVAL_TEXTS: Final = ("worker", "host", "phase", "group")
INTERVAL_INTS: Final = tuple(name for name in files.OWN_COLUMNS if name not in INTERVAL_TEXTS)

PARSED_INTERVALS: Final = _parsed(*((n, _TEXT) for n in INTERVAL_TEXTS), *((n, _INT) for n in INTERVAL_INTS))
PARSED_HISTOGRAMS: Final = _parsed(
    ("series", _TEXT),
    ("step", _INT),
    ("phase", _TEXT),
    ("host", _TEXT),
    ("worker", _TEXT),
    ("start_ns", _INT),
    ("length_ns", _INT),
    ("max_ns", _INT),
    ("payload", _TEXT),
)
PARSED_EVENTS: Final = _parsed(
    ("t_ns", _INT), ("kind", _TEXT), ("step", _INT), ("worker", _TEXT), ("text", _TEXT), ("event", _TEXT)
)
PARSED_HOST_SAMPLES: Final = _parsed(
    ("t_ns", _INT),
    ("host", _TEXT),
    ("cpu_percent", _FLOAT),
    ("load1", _FLOAT),
    ("steal_percent", _FLOAT),
    ("memory_available_bytes", _INT),
)
PARSED_BROKERS: Final = _parsed(
    ("t_ns", _INT),
    ("node", _TEXT),
    ("pid", _INT),
    ("role", _TEXT),
    ("rss_bytes", _INT),
    ("cpu_ns", _INT),
    ("wal_syncs", _FLOAT),
    ("wal_bytes", _FLOAT),
    ("metrics", _TEXT),
)


class Line(NamedTuple):
    """A line of a file: where it begins, its text without the end of line, and whether it had one."""

    offset: int
    text: str
    whole: bool


class LineError(ValueError):
    """A line that cannot be used; the text says why."""


# --- lines -----------------------------------------------------------------------------------------------------------


def read_lines(path: Path, begin: int, end: int) -> Iterator[Line]:
    """The lines that begin in ``[begin, end)``; a line that began before is the previous split's."""
    with path.open("rb") as file:
        if begin:
            file.seek(begin - 1)
            file.readline()
        offset = file.tell()
        while offset < end:
            octets = file.readline()
            if not octets:
                return
            whole = octets.endswith(b"\n")
            text = octets.rstrip(b"\r\n").decode("utf-8", errors="replace")
            yield Line(offset, text, whole)
            offset += len(octets)


Parser = Callable[[str], Row | None]
"""Text of a line to its record, or None for a line without one (headers, comments); raises LineError."""


def _parse(batches: Batches, schema: pa.Schema, parser_of: Callable[[Row], Parser]) -> Batches:
    rows: list[Row] = []
    for batch in batches:
        for split in batch.to_pylist():
            parser = parser_of(split)
            for line in read_lines(Path(split["path"]), split["begin"], split["end"]):
                row = _record(split, line, parser)
                if row is not None:
                    rows.append(row)
                if len(rows) >= ROWS_PER_BATCH:
                    yield pa.RecordBatch.from_pylist(rows, schema)
                    rows = []
    yield pa.RecordBatch.from_pylist(rows, schema)


def _record(split: Row, line: Line, parser: Parser) -> Row | None:
    if not line.text.strip():
        return None
    place = {"run_id": split["run_id"], "file": split["file"], "offset": line.offset}
    try:
        if not line.whole:
            raise LineError("cut short: the line has no end")
        data = parser(line.text)
    except LineError as error:
        return place | {"problem": str(error), "raw": line.text[:RAW_MAX]}
    return None if data is None else data | place


# --- intervals.csv ---------------------------------------------------------------------------------------------------


def parse_intervals(batches: Batches) -> Batches:
    """Lines of intervals.csv: our own columns; PerfTest's are derived and are not read back."""
    return _parse(batches, PARSED_INTERVALS, _interval_parser)


def _interval_parser(split: Row) -> Parser:
    header: list[str] = json.loads(split["context"])
    index = {name: header.index(name) for name in files.OWN_COLUMNS if name in header}

    def parse(text: str) -> Row | None:
        cells = _cells(text)
        if cells == header:
            return None
        if len(cells) != len(header):
            raise LineError(f"{len(cells)} cells under {len(header)} columns")
        row: Row = {name: cells[index[name]] if name in index else "" for name in INTERVAL_TEXTS}
        row |= {name: _integer(name, cells[index[name]]) if name in index else 0 for name in INTERVAL_INTS}
        return _checked_interval(row)

    return parse


def _cells(text: str) -> list[str]:
    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise LineError(f"not CSV: {error}") from error


def _checked_interval(row: Row) -> Row:
    _check_phase(row["phase"])
    if row["step"] < 1:
        raise LineError(f"step is {row['step']}, steps count from 1")
    if row["length_ns"] <= 0:
        raise LineError(f"length_ns is {row['length_ns']}")
    negative = [name for name in INTERVAL_INTS if row[name] < 0]
    if negative:
        raise LineError(f"{negative[0]} is negative: {row[negative[0]]}")
    return row


def _check_phase(phase: str) -> None:
    if phase not in PHASES:
        raise LineError(f"phase is {phase!r}, not one of {', '.join(PHASES)}")


def _integer(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise LineError(f"{name} is {text!r}, not a whole number") from None
    if not -(2**63) <= value < 2**63:
        raise LineError(f"{name} is {text}, beyond 64 bits")
    return value


# --- latency.hlog ----------------------------------------------------------------------------------------------------

_BASE_TIME = re.compile(r"#\[BaseTime: *([^ \]]*)")
_SERIES = re.compile(r"[a-z][a-z0-9_.]*")


def parse_histograms(batches: Batches) -> Batches:
    """Lines of latency.hlog; every payload is decoded once here, so that later stages may trust it."""
    return _parse(batches, PARSED_HISTOGRAMS, _histogram_parser)


def _histogram_parser(split: Row) -> Parser:
    base_ns = seconds_to_ns(split["context"] or "0")

    def parse(text: str) -> Row | None:
        nonlocal base_ns
        if text.startswith("#"):
            stated = _BASE_TIME.match(text)
            base_ns = _seconds("base time", stated[1]) if stated else base_ns
            return None
        if text.startswith('"'):
            return None
        tag, start, length, maximum, payload = _histogram_cells(text)
        row = _tag(tag) | {
            "start_ns": base_ns + _seconds("start", start),
            "length_ns": _seconds("length", length),
            "max_ns": _seconds("maximum", maximum) // MS_PER_S,
            "payload": payload,
        }
        try:
            histogram = Histogram()
            histogram.add_payload(payload, row["max_ns"])
            histogram.check_maximum()
        except DamagedHistogramError as error:
            raise LineError(f"payload: {error}") from error
        return row

    return parse


def _histogram_cells(text: str) -> tuple[str, str, str, str, str]:
    cells = text.split(",")
    if len(cells) != 5 or not cells[0].startswith("Tag="):
        raise LineError(f"{len(cells)} cells where a tag, start, length, maximum and payload belong")
    tag, start, length, maximum, payload = cells
    return tag.removeprefix("Tag="), start, length, maximum, payload


def _seconds(name: str, text: str) -> int:
    try:
        value = seconds_to_ns(text)
    except ValueError:
        raise LineError(f"{name} is {text!r}, not seconds") from None
    if not 0 <= value < 2**62:
        raise LineError(f"{name} is {text} s")
    return value


def _tag(tag: str) -> Row:
    series, *pairs = tag.split(";")
    values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    missing = [name for name in ("step", "phase", "host", "worker") if name not in values]
    if series.startswith(files.STAGE_PREFIX) and series.count(".") != 2:
        raise LineError(f"series {series!r} is not {files.STAGE_PREFIX}<chain>.<stage>")
    if missing or not _SERIES.fullmatch(series):
        raise LineError(f"tag {tag!r} is not {files.HLOG_TAG}")
    _check_phase(values["phase"])
    step = _integer("step", values["step"])
    if step < 1:
        raise LineError(f"step is {step}, steps count from 1")
    return {
        "series": series,
        "step": step,
        "phase": values["phase"],
        "host": values["host"],
        "worker": values["worker"],
    }


# --- *.jsonl ---------------------------------------------------------------------------------------------------------


def parse_events(batches: Batches) -> Batches:
    """Lines of events.jsonl."""
    return _parse(batches, PARSED_EVENTS, lambda _: _event)


def parse_host_samples(batches: Batches) -> Batches:
    """Lines of host.jsonl."""
    return _parse(batches, PARSED_HOST_SAMPLES, lambda _: _host_sample)


def parse_brokers(batches: Batches) -> Batches:
    """Lines of broker.jsonl."""
    return _parse(batches, PARSED_BROKERS, lambda _: _broker_sample)


def _event(text: str) -> Row:
    record = _object(text)
    worker = record.get("worker")
    return {
        "t_ns": _whole(record, "t_ns"),
        "kind": _word(record, "kind"),
        "step": _optional_whole(record, "step"),
        "worker": None if worker is None else str(worker),
        "text": str(record.get("text") or ""),
        "event": text,
    }


def _host_sample(text: str) -> Row:
    record = _object(text)
    return {
        "t_ns": _whole(record, "t_ns"),
        "host": _word(record, "host"),
        "cpu_percent": _number(record, "cpu_percent"),
        "load1": _number(record, "load1"),
        "steal_percent": _number(record, "steal_percent"),
        "memory_available_bytes": _optional_whole(record, "memory_available_bytes"),
    }


def _broker_sample(text: str) -> Row:
    record = _object(text)
    metrics = record.get("metrics") or {}
    if not isinstance(metrics, dict):
        raise LineError("metrics is not an object")
    return {
        "t_ns": _whole(record, "t_ns"),
        "node": _word(record, "node"),
        "pid": _optional_whole(record, "pid"),
        "role": str(record.get("role") or ""),
        "rss_bytes": _optional_whole(record, "rss_bytes"),
        "cpu_ns": _optional_whole(record, "cpu_ns"),
        "wal_syncs": _number(metrics, "wal_syncs"),
        "wal_bytes": _number(metrics, "wal_bytes"),
        "metrics": json.dumps(metrics, sort_keys=True),
    }


def _object(text: str) -> Row:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise LineError("not a JSON object")
    return value


def _whole(record: Row, key: str) -> int:
    value = _optional_whole(record, key)
    if value is None:
        raise LineError(f"{key} is missing")
    return value


def _optional_whole(record: Row, key: str) -> int | None:
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise LineError(f"{key} is {value!r}, not a whole number")
    return value


def _number(record: Row, key: str) -> float | None:
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LineError(f"{key} is {value!r}, not a number")
    if not abs(value) <= sys.float_info.max:
        raise LineError(f"{key} is {value!r:.20}, beyond what a double holds")
    return float(value)


def _word(record: Row, key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise LineError(f"{key} is {value!r}, not a name")
    return value
