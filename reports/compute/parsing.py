"""Lines of the files of one run to records.

A line that cannot be used gives a row whose ``problem`` says why and whose ``raw`` shows it, and no data: damage is set
aside and counted, never skipped in silence. A last line without its end is damage, too: half a number looks like a
number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa

from perftest.metrics.clock_model import ClockModel
from perftest.metrics.host_clock import ClockExchange
from perftest.results import hlog
from perftest.results import schema as files
from perftest.results.errors import LineError
from perftest.results.folder import json_object
from perftest.results.intervals import COUNT_COLUMNS
from perftest.results.intervals import parser as interval_parser
from reports.store import schema
from reports.store.columns import Batches, Row, TableSpec, table_of_rows

RAW_MAX: Final = 200
ROWS_PER_BATCH: Final = 4096

_PROBLEM: Final = pa.schema(
    [("file", pa.string()), ("offset", pa.int64()), ("problem", pa.string()), ("raw", pa.string())]
)


def _parsed(columns: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """A schema of parsed lines: every column of data may be null, because a damaged line has none of them."""
    return pa.schema([*columns, *_PROBLEM])


def _of_table(table: TableSpec, *computed: str, more: Iterable[tuple[str, pa.DataType]] = ()) -> pa.Schema:
    """The schema of lines that have the columns of a table, except the computed ones, and a few more."""
    return _parsed([*((field.name, field.type) for field in table.without("run_id", *computed)), *more])


def _recorded(name: str, is_text: bool) -> tuple[str, pa.DataType]:
    return name, pa.string() if is_text else pa.int64()


PARSED_INTERVALS: Final = _parsed(
    _recorded(name, name in files.TEXT_COLUMNS) for name in (*files.TEXT_COLUMNS, *COUNT_COLUMNS)
)
PARSED_HISTOGRAMS: Final = _parsed(_recorded(each.name, each.type != "int") for each in fields(hlog.HlogLine))
_HISTOGRAM_NAMES: Final = tuple(each.name for each in fields(hlog.HlogLine))
_histogram_values: Final = attrgetter(*_HISTOGRAM_NAMES)
PARSED_EVENTS: Final = _of_table(schema.EVENTS, "t_s")
HOST_OCTETS: Final = ("rx_bytes", "tx_bytes", "disk_read_bytes", "disk_write_bytes")
"""Counters of a host since its start."""
PARSED_HOST_SAMPLES: Final = _of_table(
    schema.HOST_SAMPLES,
    *("t_s", "length_s", *(f"{name}_per_s" for name in HOST_OCTETS)),
    more=[(name, pa.int64()) for name in HOST_OCTETS],
)
PARSED_CLOCKS: Final = _of_table(schema.CLOCKS, "t_s")
PARSED_BROKERS: Final = _of_table(
    schema.BROKERS,
    *("t_s", "length_s", "cpu_share", "wal_syncs_per_s", "wal_bytes_per_s"),
    more=[("wal_syncs", pa.float64()), ("wal_bytes", pa.float64()), ("links", pa.string())],
)


PARSED: Final = {
    files.INTERVALS_CSV: PARSED_INTERVALS,
    files.LATENCY_HLOG: PARSED_HISTOGRAMS,
    files.EVENTS: PARSED_EVENTS,
    files.HOST: PARSED_HOST_SAMPLES,
    files.BROKER: PARSED_BROKERS,
    files.CLOCKS: PARSED_CLOCKS,
}
"""The records of each file."""


class FileLine(NamedTuple):
    """A line of a file: where it begins, its octets without the end of line, and whether it had one."""

    offset: int
    octets: bytes
    whole: bool


# --- lines -----------------------------------------------------------------------------------------------------------


def lines_of(content: bytes) -> Iterator[FileLine]:
    """The lines of a whole file."""
    offset = 0
    while offset < len(content):
        end = content.find(b"\n", offset)
        if end < 0:
            yield FileLine(offset, content[offset:], False)
            return
        yield FileLine(offset, content[offset:end], True)
        offset = end + 1


Parser = Callable[[str], Row | None]
"""Text of a line to its record, or None for a line without one (headers, comments); raises LineError."""


def _parse(file: str, lines: Iterable[FileLine], parsed: pa.Schema, parser: Parser) -> Batches:
    rows: list[Row] = []
    for line in lines:
        row = _record(file, line, parser)
        if row is not None:
            rows.append(row)
        if len(rows) >= ROWS_PER_BATCH:
            yield _batch(rows, parsed)
            rows = []
    if rows:
        yield _batch(rows, parsed)


def _batch(rows: Sequence[Row], parsed: pa.Schema) -> pa.RecordBatch:
    (batch,) = table_of_rows(rows, parsed).to_batches()
    return batch


def _record(file: str, line: FileLine, parser: Parser) -> Row | None:
    text = line.octets.rstrip(b"\r").decode("utf-8", errors="replace")
    if not text.strip():
        return None
    place = {"file": file, "offset": line.offset}
    try:
        if not line.whole:
            raise LineError("cut short: the line has no end")
        data = parser(text)
    except LineError as error:
        return place | {"problem": str(error), "raw": text[:RAW_MAX]}
    return None if data is None else data | place


def parse(file: str, lines: Iterable[FileLine], columns: Sequence[str] = (), base_ns: int = 0) -> Batches:
    """The records of lines of one file of a run, damaged ones included; the lines need not be all lines of the file.

    :param columns: the header, for lines of intervals.csv
    :param base_ns: what times count from before the first of these lines, for lines of latency.hlog
    """
    parsers: dict[str, Callable[[], Parser]] = {
        files.INTERVALS_CSV: lambda: _interval_parser(columns),
        files.LATENCY_HLOG: lambda: _histogram_parser(base_ns),
        files.EVENTS: lambda: _event,
        files.HOST: lambda: _host_sample,
        files.BROKER: lambda: _broker_sample,
        files.CLOCKS: lambda: _clock,
    }
    return _parse(file, lines, PARSED[file], parsers[file]())


# --- intervals.csv ---------------------------------------------------------------------------------------------------


AMOUNT_MAX: Final = 2**50
"""Largest amount of an interval, in messages, octets or nanoseconds: sums of thousands stay within 64 bits."""
TIME_MAX_NS: Final = 2**62


def _interval_parser(columns: Sequence[str]) -> Parser:
    """Our own columns; PerfTest's are derived and are not read back."""
    parse_line = interval_parser(list(columns))

    def parse(text: str) -> Row | None:
        row = parse_line(text)
        for name in COUNT_COLUMNS if row is not None else ():
            if row is not None and row[name] > (TIME_MAX_NS if name == "start_ns" else AMOUNT_MAX):
                raise LineError(f"{name} is {row[name]}, more than an interval can have")
        return row

    return parse


# --- latency.hlog ----------------------------------------------------------------------------------------------------


def _histogram_parser(base_ns: int) -> Parser:
    """The place, the time and the payload of a line. :func:`reports.compute.histograms.decoded` looks into the payload,
    once, when histograms are merged."""

    def parse(text: str) -> Row | None:
        nonlocal base_ns
        stated_ns = hlog.base_ns_of(text)
        base_ns = base_ns if stated_ns is None else stated_ns
        line = hlog.parse_line(text, base_ns)
        if line is None:
            return None
        # The quarantine shows this if the payload is damaged.
        return dict(zip(_HISTOGRAM_NAMES, _histogram_values(line), strict=True)) | {"raw": text[:RAW_MAX]}

    return parse


# --- *.jsonl ---------------------------------------------------------------------------------------------------------


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
        **{name: _optional_whole(record, name) for name in ("memory_available_bytes", *HOST_OCTETS)},
    }


def _clock(text: str) -> Row:
    record = _object(text)
    t_ns = _whole(record, "t_ns")
    place = {"t_ns": t_ns, "host": _word(record, "host"), "phase": str(record.get("phase") or "")}
    if "model" not in record:
        exchange = ClockExchange(*(_whole(record, name) for name in ClockExchange._fields))
        least_ns, greatest_ns = exchange.offsets_ns
        figures = {"offset_ns": -(least_ns + greatest_ns) // 2, "bound_ns": (greatest_ns - least_ns + 1) // 2}
        return place | figures | {"kind": "exchange", "round_trip_ns": exchange.round_trip_ns}
    try:
        model = ClockModel.from_json(record["model"])
        host_ns = model.to_host(t_ns)
        figures = {"offset_ns": host_ns - t_ns, "bound_ns": model.bound_at(host_ns)}
    except (KeyError, TypeError, ValueError) as error:
        raise LineError(f"model: {error}") from error
    return place | figures | {"kind": "model", "round_trip_ns": None}


def _broker_sample(text: str) -> Row:
    record = _object(text)
    metrics = record.get("metrics") or {}
    if not isinstance(metrics, dict):
        raise LineError("metrics is not an object")
    links = record.get("links")
    if not isinstance(links, dict | None):
        raise LineError("links is not an object")
    queues = record.get("queues")
    if not isinstance(queues, list | None) or not all(isinstance(each, dict) for each in queues or ()):
        raise LineError("queues is not a list of objects")
    return {
        "t_ns": _whole(record, "t_ns"),
        "node": _word(record, "node"),
        "pid": _optional_whole(record, "pid"),
        "role": str(record.get("role") or ""),
        "host": str(record["host"]) if record.get("host") else None,
        "links": json.dumps(links) if links else None,
        "rss_bytes": _optional_whole(record, "rss_bytes"),
        "cpu_ns": _optional_whole(record, "cpu_ns"),
        "wal_syncs": _number(metrics, "wal_syncs"),
        "wal_bytes": _number(metrics, "wal_bytes"),
        "metrics": json.dumps(metrics, sort_keys=True),
        "queues": json.dumps(queues) if queues else None,
    }


def _object(text: str) -> Row:
    try:
        record = json_object(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise LineError("a text in it has half a character") from error
    except ValueError as error:
        raise LineError(str(error)) from error
    return record


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
