"""Runs that are larger than one task should read (:mod:`reports.pipeline.spark_jobs` chooses them): their files are cut
into splits, which Spark spreads over the cores.

Two jobs for any number of such runs: one surveys the splits (checksums, base times, the first interval of each step and
phase), and one parses all lines, merges histograms within each split, and brings the rest of each run together in one
task, which writes the tables. The tables are the same as those of small runs, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pyspark.sql import SparkSession

from perftest.errors import HelpfulError
from perftest.results import schema as files
from perftest.results.integrity import Sum
from reports.compute.run_files import CHECKED, LINES, WHOLE, RunFiles, RunHead, open_run
from reports.errors import PlaceError
from reports.pipeline import large_run_parts as parts
from reports.pipeline.frames import spread, struct_of
from reports.pipeline.large_run_parts import FileSplit, Known, Surveyed
from reports.pipeline.lots import lots_of
from reports.pipeline.source import RunDirectory
from reports.pipeline.tasks import RESULT, PartTarget, RunsTask, listed
from reports.store.columns import Row
from reports.store.places import advice, cause_of, place_of


def runs_in_parts(spark: SparkSession, runs: Sequence[RunDirectory], target: PartTarget) -> Iterator[Row]:
    """The rows of RESULT of these runs."""
    told = _survey(spark, runs)
    unread, known = RunsTask(target), dict[str, Known]()
    for run in runs:
        of_run = told[run.source]
        facts = listed(run)
        try:
            head = _opened(run, of_run)
        except HelpfulError as error:
            unread.leave_out(facts, error)
            continue
        begins, base_ns = parts.begins_of(of_run), parts.base_times_of(of_run)
        known[run.source] = Known(listed=facts, head=head, begins=begins, base_ns=base_ns)
    yield from unread.result().to_pylist()
    if known:
        yield from _written(spark, [run for run in runs if run.source in known], known, target)


def _survey(spark: SparkSession, runs: Sequence[RunDirectory]) -> dict[str, list[Surveyed]]:
    """The facts about the splits of each run."""
    told: dict[str, list[Surveyed]] = {run.source: [] for run in runs}
    lots = _lots(spark, [split for run in runs for split in _splits(run, (*LINES, *CHECKED))])
    for row in spread(spark, lots, parts.survey, parts.SURVEY).toArrow().to_pylist():
        each = Surveyed.of(row)
        told[each.split.run].append(each)
    return told


def _opened(run: RunDirectory, told: Sequence[Surveyed]) -> RunHead:
    """The head of a run: manifest, ledger, and the first octets of its intervals are read here."""
    folder, contents = place_of(run.source), dict[str, bytes]()
    try:
        for name in WHOLE:
            if name in run.sizes:
                with folder.open(name) as file:
                    contents[name] = file.read()
        if files.INTERVALS_CSV in run.sizes:
            contents[files.INTERVALS_CSV] = parts.csv_head(run.source)
    except OSError as error:
        what = f"its files cannot be read: {cause_of(error)}"
        raise PlaceError(what, run.source, advice(run.source, error)) from error
    sums = dict.fromkeys(run.empty, Sum()) | parts.sums_of(told)
    sums |= {name: Sum().plus(contents[name]) for name in WHOLE if name in contents}
    return open_run(RunFiles(source=run.source, contents=contents), sums)


def _written(
    spark: SparkSession, runs: Sequence[RunDirectory], known: Mapping[str, Known], target: PartTarget
) -> list[Row]:
    """The rows of RESULT of runs that can be opened."""
    lots = _lots(spark, [split for run in runs for split in _splits(run, LINES)])
    pieces = spread(spark, lots, partial(parts.pieces, runs=known), parts.PIECES)
    together = pieces.repartition(len(runs), "run").sortWithinPartitions("run", "file", "offset")
    written = together.mapInArrow(partial(parts.assemble, runs=known, target=target), struct_of(RESULT))
    rows: list[Row] = written.toArrow().to_pylist()
    return rows


def _splits(run: RunDirectory, names: Sequence[str]) -> list[FileSplit]:
    return parts.splits_of(run.source, run.sizes, names, parts.SPLIT_BYTES)


def _lots(spark: SparkSession, splits: Sequence[FileSplit]) -> list[list[FileSplit]]:
    tasks = 2 * spark.sparkContext.defaultParallelism
    return lots_of(splits, lambda split: split.octets, parts.SPLIT_BYTES, tasks)
