"""What Spark's Python workers do with a part of a large run: lines in, records and merged histograms out.

A split of a file tells its lines and where the split begins in units of Spark's. The offset of a line follows from the
lines of all earlier splits, which :func:`survey` counts first. Nobody has to see the lines in order: what a line means
depends on its own text, on the columns of intervals.csv, on the base time that latency.hlog stated last before it, and,
for the slot of a histogram, on the first intervals of steps and phases. All of these are a few numbers.

No PySpark is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa

from perftest.results import hlog
from perftest.results import schema as files
from perftest.results.errors import LineError
from reports.compute import histograms, intervals, parsing
from reports.compute.run import Records, damaged, slotted, tables_of, usable
from reports.compute.run_files import LINES, RunHead
from reports.pipeline.tasks import Listed, octets_of, result_of, table_of
from reports.store import schema
from reports.store.columns import Batches, Row

SPLIT_LINES: Final = pa.schema(
    [("path", pa.string()), ("block", pa.int64()), ("size", pa.int64()), ("line", pa.binary())]
)
"""A line of a file without its end, where its split begins, and the octets of the file."""

SURVEY: Final = pa.schema(
    [
        *(("file", pa.string()), ("block", pa.int64()), ("octets", pa.int64())),
        *(("at", pa.int64()), ("text", pa.binary())),
    ]
)
"""The octets of a split, ends of lines included; or, with ``text``, a line of it that later lines depend on, ``at``
octets after the first line of the split."""

ORIGINS: Final = pa.schema([("step", pa.int64()), ("phase", pa.string()), ("origin_ns", pa.int64())])

PIECES: Final = pa.schema(
    [("file", pa.string()), ("kind", pa.string()), ("offset", pa.int64()), ("content", pa.binary())]
)
"""Records of a file as an Arrow stream: kind GOOD, SLOTTED or DAMAGED; ``offset`` puts pieces of a file in order."""

GOOD, SLOTTED, DAMAGED = "good", "slotted", "damaged"
_DAMAGED: Final = schema.QUARANTINE.without("run_id")


class Block(NamedTuple):
    """A split of a file."""

    file: str
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What workers have to know of the whole of a run: where each split begins, and the base time before it."""

    offsets: Mapping[Block, int]
    base_ns: Mapping[Block, int]


# --- before parsing --------------------------------------------------------------------------------------------------


def survey(batches: Batches) -> Batches:
    """The octets of each split, and the lines that later lines depend on."""
    rows: list[Row] = []
    for block, lines in groupby(_rows(batches), _block_of):
        octets = 0
        for row in lines:
            line: bytes = row["line"]
            if (block == (files.INTERVALS_CSV, 0) and not octets) or _is_base_time(block.file, line):
                rows.append({**block._asdict(), "octets": 0, "at": octets, "text": line})
            octets += len(line) + 1
        rows.append({**block._asdict(), "octets": octets})
    yield pa.RecordBatch.from_pylist(rows, SURVEY)


def _is_base_time(file: str, line: bytes) -> bool:
    return file == files.LATENCY_HLOG and line.startswith(b"#[BaseTime:")


def surveyed(rows: Sequence[Row]) -> Survey:
    """The survey of a run, of all rows of SURVEY of the run."""
    octets: dict[Block, int] = {}
    for row in rows:
        block = Block(row["file"], row["block"])
        octets[block] = octets.get(block, 0) + row["octets"]
    offsets, ends = {}, dict.fromkeys(LINES, 0)
    for block in sorted(octets):
        offsets[block] = ends[block.file]
        ends[block.file] += octets[block]
    return Survey(offsets=offsets, base_ns=_base_times(rows, offsets))


def _base_times(rows: Sequence[Row], offsets: Mapping[Block, int]) -> dict[Block, int]:
    """The base time that holds at the begin of each split of latency.hlog."""
    stated = []
    for row in rows:
        if row["text"] is not None and row["file"] == files.LATENCY_HLOG:
            text = row["text"].rstrip(b"\r").decode("utf-8", errors="replace")
            try:
                base_ns = hlog.base_ns_of(text)
            except LineError:
                continue
            if base_ns is not None:
                stated.append((offsets[Block(row["file"], row["block"])] + row["at"], base_ns))
    stated.sort()
    return {
        block: next((base_ns for at, base_ns in reversed(stated) if at < offset), 0)
        for block, offset in offsets.items()
    }


def csv_head(rows: Sequence[Row], size: int) -> bytes:
    """The first line of intervals.csv and, if any octet follows, one octet more: what a run is opened with."""
    first = next((row["text"] for row in rows if row["file"] == files.INTERVALS_CSV and row["text"] is not None), b"")
    end = b"\n" if size > len(first) else b""
    return bytes(first + end + (b"x" if size > len(first) + 1 else b""))


def part_origins(batches: Batches, columns: Sequence[str], known: Survey) -> Batches:
    """The begins of the first slots (ORIGINS) of a part of the lines of intervals.csv."""
    found: dict[tuple[int, str], int] = {}
    for _, records in _parsed(batches, columns, known):
        found = intervals.earliest([found, intervals.origins(usable(records))])
    rows = [{"step": step, "phase": phase, "origin_ns": ns} for (step, phase), ns in found.items()]
    yield pa.RecordBatch.from_pylist(rows, ORIGINS)


def earliest_origins(rows: Sequence[Row]) -> intervals.Origins:
    """The begins of the first slots of a run, of the rows of ORIGINS of all its parts."""
    return intervals.earliest({(row["step"], row["phase"]): row["origin_ns"]} for row in rows)


# --- parsing ---------------------------------------------------------------------------------------------------------


def pieces(
    batches: Batches, columns: Sequence[str], known: Survey, begins: intervals.Origins, interval_ns: int
) -> Batches:
    """The records of lines, histograms of equal places merged (PIECES)."""
    for file, records in _parsed(batches, columns, known):
        offset, bad = records.column("offset")[0].as_py(), damaged(records)
        if file == files.LATENCY_HLOG:
            merged, spoiled = histograms.merge_part(slotted(usable(records), begins, interval_ns))
            bad += [{"file": file, **each._asdict()} for each in spoiled]
            found = {SLOTTED: merged}
        else:
            found = {GOOD: usable(records)}
        if bad:
            found[DAMAGED] = pa.Table.from_pylist(bad, _DAMAGED)
        rows = [{"file": file, "kind": kind, "offset": offset, "content": octets_of(t)} for kind, t in found.items()]
        yield pa.RecordBatch.from_pylist(rows, PIECES)


def assemble(batches: Batches, known: Listed, head: RunHead) -> Batches:
    """The tables of a run (RESULT), of all its pieces."""
    found = sorted(
        (row for batch in batches for row in batch.to_pylist()), key=lambda row: (row["file"], row["offset"])
    )
    yield result_of(known, lambda: tables_of(head, _records(found)))


def _records(found: Sequence[Row]) -> Records:
    empty = {name: usable(parsed.empty_table()) for name, parsed in parsing.PARSED.items()}
    of_file = {name: _whole(found, GOOD, none, name) for name, none in empty.items()}
    recorded = _whole(found, SLOTTED, histograms.SLOTTED.empty_table())
    bad = _whole(found, DAMAGED, _DAMAGED.empty_table()).to_pylist()
    return Records(of_file=of_file, slotted=recorded, damaged=bad)


def _whole(found: Sequence[Row], kind: str, none: pa.Table, file: str | None = None) -> pa.Table:
    """The pieces of a kind, of one file or of all, one after the other."""
    wanted = (row for row in found if row["kind"] == kind and file in (None, row["file"]))
    tables = [table_of(row["content"]) for row in wanted]
    return pa.concat_tables([none, *tables])


def _parsed(batches: Batches, columns: Sequence[str], known: Survey) -> Iterator[tuple[str, pa.Table]]:
    """Files and records of lines, damaged ones included; never none."""
    for block, rows in groupby(_rows(batches), _block_of):
        lines = _lines(rows, known.offsets[block])
        for batch in parsing.parse(block.file, lines, columns, known.base_ns[block]):
            yield block.file, pa.Table.from_batches([batch])


def _lines(rows: Iterable[Row], offset: int) -> Iterator[parsing.FileLine]:
    for row in rows:
        end = offset + len(row["line"]) + 1
        yield parsing.FileLine(offset, row["line"], end <= row["size"])
        offset = end


def _rows(batches: Batches) -> Iterator[Row]:
    return (row for batch in batches for row in batch.to_pylist())


def _block_of(row: Row) -> Block:
    return Block(row["path"].rpartition("/")[2], row["block"])
