"""The work of Spark's Python workers on parts of large runs: lines in, records and merged histograms out.

A split of a file tells its lines and where the split begins in units of Spark's. The offset of a line follows from the
lines of all earlier splits, which :func:`survey` counts first. The lines need not be read in order: the meaning of a
line depends on its own text, on the columns of intervals.csv, on the last base time in latency.hlog before it, and, for
the slot of a histogram, on the first intervals of steps and phases. These are a few numbers.

No PySpark is imported here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from perftest.results import hlog
from perftest.results import schema as files
from perftest.results.errors import LineError
from perftest.results.integrity import Sum
from reports.compute import histograms, intervals, manifests, parsing
from reports.compute.run import RunRecords, damaged, slotted, tables_of, usable
from reports.compute.run_files import RunHead
from reports.pipeline.tasks import Listed, directory_of, octets_of, result_of, table_of
from reports.store import schema
from reports.store.columns import Batches, Row

SPLIT_LINES: Final = pa.schema(
    [("path", pa.string()), ("block", pa.int64()), ("size", pa.int64()), ("line", pa.binary())]
)
"""A line of a file without its end, where its split begins, and the octets of the file."""

SURVEY: Final = pa.schema(
    [
        *(("run", pa.string()), ("file", pa.string()), ("block", pa.int64()), ("octets", pa.int64())),
        *(("crc32", pa.int64()), ("size", pa.int64()), ("at", pa.int64()), ("text", pa.binary())),
    ]
)
"""The octets of a split, ends of lines included, with the CRC-32 of all but the last end of line, and the octets of the
whole file; or, with ``text``, a line of it that later lines depend on, ``at`` octets after the first line of the
split."""

SUMS: Final = pa.schema([("path", pa.string()), ("octets", pa.int64()), ("crc32", pa.int64())])
"""The sum of a whole file."""

ORIGINS: Final = pa.schema(
    [("run", pa.string()), ("step", pa.int64()), ("phase", pa.string()), ("origin_ns", pa.int64())]
)

PIECES: Final = pa.schema(
    [
        *(("run", pa.string()), ("file", pa.string()), ("kind", pa.string())),
        *(("offset", pa.int64()), ("content", pa.binary())),
    ]
)
"""Records of a file of a run as an Arrow stream: kind GOOD, SLOTTED or DAMAGED. ``offset`` puts pieces of a file in
order."""

_END: Final = b"\n"
GOOD, SLOTTED, DAMAGED = "good", "slotted", "damaged"
_DAMAGED: Final = schema.QUARANTINE.without("run_id")


class Block(NamedTuple):
    """A split of a file of a run; ``run`` is its directory (:func:`reports.pipeline.tasks.directory_of`)."""

    run: str
    file: str
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The facts about each whole run for workers: the begin of each split, and the base time before it."""

    offsets: Mapping[Block, int]
    base_ns: Mapping[Block, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The facts about one run for workers; ``begins`` are not known before intervals.csv was read."""

    listed: Listed
    head: RunHead
    begins: intervals.Origins


# --- before parsing --------------------------------------------------------------------------------------------------


def survey(batches: Batches) -> Batches:
    """The octets of each split, and the lines that later lines depend on."""
    rows: list[Row] = []
    for block, lines in groupby(_rows(batches), _block_of):
        octets = crc32 = size = 0
        for row in lines:
            line: bytes = row["line"]
            if (block[1:] == (files.INTERVALS_CSV, 0) and not octets) or _is_base_time(block.file, line):
                rows.append({**block._asdict(), "octets": 0, "at": octets, "text": line})
            crc32 = zlib.crc32(line, zlib.crc32(_END, crc32) if octets else 0)
            octets += len(line) + len(_END)
            size = row["size"]
        rows.append({**block._asdict(), "octets": octets, "crc32": crc32, "size": size})
    yield pa.RecordBatch.from_pylist(rows, SURVEY)


def sums_of_lines(rows: Iterable[Row]) -> dict[str, dict[str, Sum]]:
    """The sum of each file of each run, by run and name, of all rows of SURVEY."""
    found: dict[str, dict[str, Sum]] = {}
    for row in sorted((row for row in rows if row["crc32"] is not None), key=_block):
        of_run = found.setdefault(row["run"], {})
        whole = of_run.get(row["file"], Sum()).joined(Sum(row["octets"] - len(_END), row["crc32"]))
        # Only the last line of a file may have no end.
        of_run[row["file"]] = whole if whole.octets == row["size"] else whole.plus(_END)
    return found


def sums(batches: Batches) -> Batches:
    """The sums (SUMS) of whole files (:data:`reports.pipeline.tasks.CONTENTS`)."""
    for batch in batches:
        found = [(path, Sum().plus(content.as_py())) for path, content in zip(*batch.columns, strict=True)]
        yield pa.RecordBatch.from_pylist([{"path": path.as_py(), **of_file._asdict()} for path, of_file in found], SUMS)


def _is_base_time(file: str, line: bytes) -> bool:
    return file == files.LATENCY_HLOG and line.startswith(b"#[BaseTime:")


def surveyed(rows: Sequence[Row]) -> Survey:
    """The survey of runs, of all their rows of SURVEY."""
    octets: dict[Block, int] = {}
    for row in rows:
        octets[_block(row)] = octets.get(_block(row), 0) + row["octets"]
    offsets: dict[Block, int] = {}
    ends: dict[tuple[str, str], int] = {}
    for block in sorted(octets):
        offsets[block] = ends.get(block[:2], 0)
        ends[block[:2]] = offsets[block] + octets[block]
    return Survey(offsets=offsets, base_ns=_base_times(rows, offsets))


def _base_times(rows: Sequence[Row], offsets: Mapping[Block, int]) -> dict[Block, int]:
    """The base time that holds at the begin of each split of latency.hlog."""
    stated: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row["text"] is not None and row["file"] == files.LATENCY_HLOG:
            text = row["text"].rstrip(b"\r").decode("utf-8", errors="replace")
            try:
                base_ns = hlog.base_ns_of(text)
            except LineError:
                continue
            if base_ns is not None:
                stated.setdefault(row["run"], []).append((offsets[_block(row)] + row["at"], base_ns))
    return {block: _last_before(stated.get(block.run, ()), offset) for block, offset in offsets.items()}


def _last_before(stated: Sequence[tuple[int, int]], offset: int) -> int:
    """The base time that was stated last before an offset."""
    return max((each for each in stated if each[0] < offset), default=(0, 0))[1]


def csv_head(rows: Sequence[Row], size: int) -> bytes:
    """The first line of a run's intervals.csv and, if any octet follows, one octet more, to open a run with.

    :param rows: the rows of SURVEY of the run
    """
    first = next((row["text"] for row in rows if row["file"] == files.INTERVALS_CSV and row["text"] is not None), b"")
    end = b"\n" if size > len(first) else b""
    return bytes(first + end + (b"x" if size > len(first) + 1 else b""))


def part_origins(batches: Batches, heads: Mapping[str, RunHead], known: Survey) -> Batches:
    """The begins of the first slots (ORIGINS) of parts of intervals.csv."""
    found: dict[str, intervals.Origins] = {}
    for block, records in _parsed(batches, heads, known):
        found[block.run] = intervals.earliest([found.get(block.run, {}), intervals.origins(usable(records))])
    rows = [
        {"run": run, "step": step, "phase": phase, "origin_ns": ns}
        for run, of_run in found.items()
        for (step, phase), ns in of_run.items()
    ]
    yield pa.RecordBatch.from_pylist(rows, ORIGINS)


def earliest_origins(rows: Iterable[Row]) -> dict[str, intervals.Origins]:
    """The begins of the first slots of each run, of the rows of ORIGINS of all parts."""
    told: dict[str, list[intervals.Origins]] = {}
    for row in rows:
        told.setdefault(row["run"], []).append({(row["step"], row["phase"]): row["origin_ns"]})
    return {run: intervals.earliest(of_run) for run, of_run in told.items()}


# --- parsing ---------------------------------------------------------------------------------------------------------


def pieces(batches: Batches, runs: Mapping[str, Known], known: Survey) -> Batches:
    """The records of lines, histograms of equal places merged (PIECES)."""
    heads = {run: each.head for run, each in runs.items()}
    for block, records in _parsed(batches, heads, known):
        of_run = runs[block.run]
        offset, bad = records.column("offset")[0].as_py(), damaged(records)
        if block.file == files.LATENCY_HLOG:
            recorded = slotted(usable(records), of_run.begins, manifests.interval_ns(of_run.head))
            merged, spoiled = histograms.merge_part(recorded)
            bad += [{"file": block.file, **each._asdict()} for each in spoiled]
            found = {SLOTTED: merged}
        else:
            found = {GOOD: usable(records)}
        if bad:
            found[DAMAGED] = pa.Table.from_pylist(bad, _DAMAGED)
        place = {"run": block.run, "file": block.file, "offset": offset}
        rows = [{**place, "kind": kind, "content": octets_of(table)} for kind, table in found.items()]
        yield pa.RecordBatch.from_pylist(rows, PIECES)


def assemble(batches: Batches, runs: Mapping[str, Known]) -> Batches:
    """The tables of runs (RESULT), of all their pieces.

    :param batches: PIECES, each run's one after the other in the order of its lines
    """
    for run, of_run in groupby(_rows(batches), itemgetter("run")):
        found, known = list(of_run), runs[run]
        yield result_of(known.listed, partial(_tables, known.head, found))


def _tables(head: RunHead, found: Sequence[Row]) -> dict[str, pa.Table]:
    return tables_of(head, _records(found))


def _records(found: Sequence[Row]) -> RunRecords:
    empty = {name: usable(parsed.empty_table()) for name, parsed in parsing.PARSED.items()}
    of_file = {name: _whole(found, GOOD, none, name) for name, none in empty.items()}
    recorded = _whole(found, SLOTTED, histograms.SLOTTED.empty_table())
    bad = _whole(found, DAMAGED, _DAMAGED.empty_table()).to_pylist()
    return RunRecords(of_file=of_file, slotted=recorded, damaged=bad)


def _whole(found: Sequence[Row], kind: str, none: pa.Table, file: str | None = None) -> pa.Table:
    """The pieces of a kind, of one file or of all, one after the other."""
    wanted = (row for row in found if row["kind"] == kind and file in (None, row["file"]))
    tables = [table_of(row["content"]) for row in wanted]
    return pa.concat_tables([none, *tables])


def _parsed(batches: Batches, heads: Mapping[str, RunHead], known: Survey) -> Iterator[tuple[Block, pa.Table]]:
    """Records of lines, damaged ones included, never none, with the split of the lines; of runs with a head."""
    for block, rows in groupby(_rows(batches), _block_of):
        if block.run not in heads:
            continue
        lines = _lines(rows, known.offsets[block])
        for batch in parsing.parse(block.file, lines, heads[block.run].columns, known.base_ns[block]):
            yield block, pa.Table.from_batches([batch])


def _lines(rows: Iterable[Row], offset: int) -> Iterator[parsing.FileLine]:
    for row in rows:
        end = offset + len(row["line"]) + 1
        yield parsing.FileLine(offset, row["line"], end <= row["size"])
        offset = end


def _rows(batches: Batches) -> Iterator[Row]:
    return (row for batch in batches for row in batch.to_pylist())


def _block_of(row: Row) -> Block:
    directory, _, file = row["path"].rpartition("/")
    # Spark names files of lines by URIs, and files that are read as a whole by paths.
    return Block(directory_of(unquote(directory)), file, row["block"])


def _block(row: Row) -> Block:
    return Block(row["run"], row["file"], row["block"])
