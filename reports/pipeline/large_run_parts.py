"""The work of Spark's Python workers on parts of large runs: ranges of files in, records and merged histograms out.

A split is a range of octets of a file; its lines are those that begin in it. The lines need not be read in order: the
meaning of a line depends on its own text, on the columns of intervals.csv, on the last base time in latency.hlog before
it, and, for the slot of a histogram, on the first intervals of steps and phases. These are a few numbers, which
:func:`survey` finds first.

No PySpark is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc as ipc

from perftest.results import hlog
from perftest.results import schema as files
from perftest.results.errors import LineError
from perftest.results.integrity import Sum
from perftest.results.intervals import cells_of, missing_columns
from reports.compute import histograms, intervals, manifests, parsing
from reports.compute.run import RunRecords, damaged, slotted, tables_of, usable
from reports.compute.run_files import RunHead
from reports.pipeline.tasks import Listed, PartTarget, RunsTask
from reports.store import schema
from reports.store.columns import Batches, Row
from reports.store.places import place_of

SURVEY: Final = pa.schema([("told", pa.string())])
"""The facts about a split (:class:`Surveyed`), as JSON."""

PIECES: Final = pa.schema(
    [
        *(("run", pa.string()), ("file", pa.string()), ("kind", pa.string())),
        *(("offset", pa.int64()), ("content", pa.binary())),
    ]
)
"""Records of a file of a run as an Arrow stream: kind GOOD, SLOTTED or DAMAGED. ``offset`` puts pieces of a file in
order."""

SPLIT_BYTES: Final = 32 * 1024**2
"""Octets of a split."""
CHUNK_BYTES: Final = 64 * 1024
"""Octets that are read at once to find the end of a line."""

_END: Final = b"\n"
GOOD, SLOTTED, DAMAGED = "good", "slotted", "damaged"
_DAMAGED: Final = schema.QUARANTINE.without("run_id")


class FileSplit(NamedTuple):
    """The octets from ``begin`` to ``end`` of a file of a run; ``run`` is its directory."""

    run: str
    file: str
    begin: int
    end: int

    @property
    def octets(self) -> int:
        """The length."""
        return self.end - self.begin


def splits_of(run: str, sizes: Mapping[str, int], names: Iterable[str], most: int) -> list[FileSplit]:
    """The splits, of ``most`` octets at most, of these files of a run, as far as it has them and they have an octet."""
    return [
        FileSplit(run, name, begin, min(begin + most, sizes[name]))
        for name in names
        for begin in range(0, sizes.get(name, 0), most)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The facts about one run for workers; ``base_ns`` is the base time of latency.hlog before each of its splits."""

    listed: Listed
    head: RunHead
    begins: intervals.Origins
    base_ns: Mapping[FileSplit, int]


# --- reading ---------------------------------------------------------------------------------------------------------


def octets_of_split(split: FileSplit) -> bytes:
    """The octets of a split. Raises OSError."""
    with place_of(split.run).open(split.file) as file:
        file.seek(split.begin)
        return file.read(split.octets)


def lines_of_split(split: FileSplit) -> Iterator[parsing.FileLine]:
    """The lines that begin in a split, the last of them to its end. Raises OSError."""
    with place_of(split.run).open(split.file) as file:
        before = min(split.begin, 1)
        file.seek(split.begin - before)
        content = file.read(split.octets + before)
        while content and not content.endswith(_END) and (more := file.read(CHUNK_BYTES)):
            rest, end, _ = more.partition(_END)
            content += rest + end
    # The octet before says whether the first line began before the split.
    skipped = content.find(_END) + 1 if before else 0
    if before and not skipped:
        return
    for line in parsing.lines_of(content[skipped:]):
        offset = line.offset + skipped + split.begin - before
        if offset >= split.end:
            return
        yield line._replace(offset=offset)


# --- survey ----------------------------------------------------------------------------------------------------------


class Surveyed(NamedTuple):
    """The facts about a split: the CRC-32 of its octets; of latency.hlog the base times that it states, each with the
    offset of its line; of intervals.csv the begins of the first slots of steps and phases."""

    split: FileSplit
    crc32: int
    base_times: list[tuple[int, int]]
    begins: list[tuple[int, str, int]]

    @classmethod
    def of(cls, row: Row) -> Surveyed:
        """The facts in a row of SURVEY."""
        split, crc32, base_times, begins = json.loads(row["told"])
        return cls(FileSplit(*split), crc32, base_times, begins)


def survey(splits: Iterable[FileSplit]) -> Batches:
    """The facts about splits (SURVEY)."""
    for split in splits:
        sum_ = Sum().plus(octets_of_split(split))
        base_times = list(_base_times(split)) if split.file == files.LATENCY_HLOG else []
        begins = list(_begins(split)) if split.file == files.INTERVALS_CSV else []
        told = json.dumps(Surveyed(split, sum_.crc32, base_times, begins))
        yield pa.RecordBatch.from_pylist([{"told": told}], SURVEY)


def _base_times(split: FileSplit) -> Iterator[tuple[int, int]]:
    for line in lines_of_split(split):
        if line.octets.startswith(b"#[BaseTime:"):
            try:
                base_ns = hlog.base_ns_of(line.octets.rstrip(b"\r").decode("utf-8", errors="replace"))
            except LineError:
                continue
            if base_ns is not None:
                yield line.offset, base_ns


def _begins(split: FileSplit) -> Iterator[tuple[int, str, int]]:
    """The begins of the first slots; none if the header is damaged, for then the run is not read."""
    columns = _columns(csv_head(split.run))
    if columns:
        parts = parsing.parse(split.file, lines_of_split(split), columns, 0)
        found = intervals.earliest(intervals.origins(usable(pa.Table.from_batches([part]))) for part in parts)
        yield from ((step, phase, origin_ns) for (step, phase), origin_ns in found.items())


def _columns(head: bytes) -> tuple[str, ...]:
    try:
        names = cells_of(head.partition(_END)[0].rstrip(b"\r").decode("utf-8", errors="replace"))
    except LineError:
        return ()
    return () if missing_columns(names) else tuple(names)


def csv_head(run: str) -> bytes:
    """The first line of a run's intervals.csv and, if any octet follows, one octet more, to open a run with. Raises
    OSError."""
    with place_of(run).open(files.INTERVALS_CSV) as file:
        content = b""
        while _END not in content[:-1] and (more := file.read(CHUNK_BYTES)):
            content += more
    return content[: content.find(_END) + 2] if _END in content else content


def sums_of(told: Iterable[Surveyed]) -> dict[str, Sum]:
    """The sum of each file of a run, of the facts about all its splits."""
    found: dict[str, Sum] = {}
    for each in sorted(told, key=lambda each: each.split):
        found[each.split.file] = found.get(each.split.file, Sum()).joined(Sum(each.split.octets, each.crc32))
    return found


def base_times_of(told: Iterable[Surveyed]) -> dict[FileSplit, int]:
    """The base time that holds at the begin of each split of latency.hlog."""
    of_file = [each for each in told if each.split.file == files.LATENCY_HLOG]
    stated = [(offset, base_ns) for each in of_file for offset, base_ns in each.base_times]
    return {each.split: max((at for at in stated if at[0] < each.split.begin), default=(0, 0))[1] for each in of_file}


def begins_of(told: Iterable[Surveyed]) -> intervals.Origins:
    """The begins of the first slots of each step and phase of a run."""
    return intervals.earliest({(step, phase): at} for each in told for step, phase, at in each.begins)


# --- parsing ---------------------------------------------------------------------------------------------------------


def pieces(splits: Iterable[FileSplit], runs: Mapping[str, Known]) -> Batches:
    """The records of the lines of splits, histograms of equal places merged (PIECES)."""
    for split in splits:
        known = runs[split.run]
        for batch in parsing.parse(split.file, lines_of_split(split), known.head.columns, known.base_ns.get(split, 0)):
            yield pa.RecordBatch.from_pylist(_pieces(split, known, pa.Table.from_batches([batch])), PIECES)


def _pieces(split: FileSplit, known: Known, records: pa.Table) -> list[Row]:
    """The pieces of records, damaged ones included, never none."""
    offset, bad = records.column("offset")[0].as_py(), damaged(records)
    if split.file == files.LATENCY_HLOG:
        recorded = slotted(usable(records), known.begins, manifests.interval_ns(known.head))
        merged, spoiled = histograms.merge_part(recorded)
        bad += [{"file": split.file, **each._asdict()} for each in spoiled]
        found = {SLOTTED: merged}
    else:
        found = {GOOD: usable(records)}
    if bad:
        found[DAMAGED] = pa.Table.from_pylist(bad, _DAMAGED)
    place = {"run": split.run, "file": split.file, "offset": offset}
    return [{**place, "kind": kind, "content": octets_of(table)} for kind, table in found.items()]


def assemble(batches: Batches, runs: Mapping[str, Known], target: PartTarget) -> Batches:
    """Write the tables of runs, of all their pieces; a row of :data:`reports.pipeline.tasks.RESULT`.

    :param batches: PIECES, each run's one after the other in the order of its lines
    """
    task = RunsTask(target)
    rows = (row for batch in batches for row in batch.to_pylist())
    for run, of_run in groupby(rows, itemgetter("run")):
        task.take(runs[run].listed, partial(_tables, runs[run].head, list(of_run)))
    yield task.result()


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


def octets_of(table: pa.Table) -> bytes:
    """The table as a compressed Arrow stream."""
    octets = pa.BufferOutputStream()
    # As a whole: most tables have many columns and few rows, which hardly shrink column by column.
    with pa.CompressedOutputStream(octets, "zstd") as packed, ipc.new_stream(packed, table.schema) as stream:
        stream.write_table(table)
    return octets.getvalue().to_pybytes()  # type: ignore[no-any-return]


def table_of(octets: bytes) -> pa.Table:
    """The table of a compressed Arrow stream."""
    with pa.CompressedInputStream(pa.BufferReader(octets), "zstd") as packed, ipc.open_stream(packed) as stream:
        return stream.read_all()
