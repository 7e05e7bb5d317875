"""Runs that are larger than one task should read (:func:`reports.pipeline.run.computed` chooses them): their files are
cut into splits, which Spark spreads over the cores.

Three jobs for any number of such runs: one counts the octets of the splits, one finds the first interval of each step
and phase, and one parses all lines, merges histograms within each split, and brings the rest of each run together in
one task, which makes the tables. The tables are the same as those of small runs, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from perftest.errors import HelpfulError
from perftest.results import schema as files
from perftest.results.integrity import Sum
from reports.compute.run_files import CHECKED, LINES, WHOLE, RunFiles, RunHead, open_run
from reports.pipeline import large_run_parts, tasks
from reports.pipeline.frames import escaped, struct_of
from reports.pipeline.source import RunDirectory
from reports.store.columns import Row


def runs_in_parts(spark: SparkSession, runs: Sequence[RunDirectory]) -> Iterator[Row]:
    """The rows of RESULT of these runs."""
    by_directory = {tasks.directory_of(str(run.path)): run for run in runs}
    told = _rows(_lines(spark, runs, LINES).mapInArrow(large_run_parts.survey, struct_of(large_run_parts.SURVEY)))
    contents = _opening(spark, by_directory, told)
    sums = _sums(spark, by_directory, told, contents)
    heads: dict[str, RunHead] = {}
    for directory, run in by_directory.items():
        try:
            heads[directory] = open_run(RunFiles(source=run.source, contents=contents[directory]), sums[directory])
        except HelpfulError as error:
            yield from tasks.problem_of(tasks.Listed(run.source, run.signature), error).to_pylist()
    if heads:
        yield from _computed(spark, {each: by_directory[each] for each in heads}, heads, large_run_parts.surveyed(told))


def _computed(
    spark: SparkSession, runs: Mapping[str, RunDirectory], heads: Mapping[str, RunHead], survey: large_run_parts.Survey
) -> Iterator[Row]:
    """The rows of RESULT of runs that can be opened."""
    origins = partial(large_run_parts.part_origins, heads=heads, known=survey)
    lines = _lines(spark, runs.values(), [files.INTERVALS_CSV])
    begins = large_run_parts.earliest_origins(_rows(lines.mapInArrow(origins, struct_of(large_run_parts.ORIGINS))))
    known = {
        each: large_run_parts.Known(
            listed=tasks.Listed(run.source, run.signature), head=heads[each], begins=begins.get(each, {})
        )
        for each, run in runs.items()
    }
    parse = partial(large_run_parts.pieces, runs=known, known=survey)
    pieces = _lines(spark, runs.values(), LINES).mapInArrow(parse, struct_of(large_run_parts.PIECES))
    together = pieces.repartition(len(runs), "run").sortWithinPartitions("run", "file", "offset")
    return iter(_rows(together.mapInArrow(partial(large_run_parts.assemble, runs=known), struct_of(tasks.RESULT))))


def _lines(spark: SparkSession, runs: Iterable[RunDirectory], names: Sequence[str]) -> DataFrame:
    """The lines of these files of runs (SPLIT_LINES)."""
    paths = [escaped(f"{run.path}/{name}") for run in runs for name in names if run.sizes.get(name)]
    if not paths:
        return spark.createDataFrame([], struct_of(large_run_parts.SPLIT_LINES))
    return (
        spark.read.option("lineSep", "\n")
        .text(paths)
        .select(
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_block_start").alias("block"),
            F.col("_metadata.file_size").alias("size"),
            F.col("value").cast("binary").alias("line"),
        )
    )


def _opening(spark: SparkSession, runs: Mapping[str, RunDirectory], told: Sequence[Row]) -> dict[str, dict[str, bytes]]:
    """The first files of each run: manifest, ledger, and the first octets of its intervals."""
    paths = [escaped(f"{run.path}/{name}") for run in runs.values() for name in WHOLE if name in run.sizes]
    found: dict[str, dict[str, bytes]] = {directory: dict.fromkeys(run.empty, b"") for directory, run in runs.items()}
    for row in _rows(spark.read.format("binaryFile").load(paths).select("path", "content")):
        directory, _, name = row["path"].rpartition("/")
        found[tasks.directory_of(directory)][name] = row["content"]
    for directory, run in runs.items():
        if files.INTERVALS_CSV in run.sizes:
            of_run = [row for row in told if row["run"] == directory]
            found[directory][files.INTERVALS_CSV] = large_run_parts.csv_head(of_run, run.sizes[files.INTERVALS_CSV])
    return found


def _sums(
    spark: SparkSession,
    runs: Mapping[str, RunDirectory],
    told: Sequence[Row],
    contents: Mapping[str, Mapping[str, bytes]],
) -> dict[str, dict[str, Sum]]:
    """The sums of all files of each run, by name."""
    paths = [escaped(f"{run.path}/{name}") for run in runs.values() for name in CHECKED if name in run.sizes]
    found = {directory: dict.fromkeys(run.empty, Sum()) for directory, run in runs.items()}
    for directory, of_lines in large_run_parts.sums_of_lines(told).items():
        found[directory] |= of_lines
    for directory, of_run in contents.items():
        found[directory] |= {name: Sum().plus(of_run[name]) for name in WHOLE if name in of_run}
    if paths:
        files_read = spark.read.format("binaryFile").load(paths).select("path", "content")
        for row in _rows(files_read.mapInArrow(large_run_parts.sums, struct_of(large_run_parts.SUMS))):
            directory, _, name = row["path"].rpartition("/")
            found[tasks.directory_of(directory)][name] = Sum(row["octets"], row["crc32"])
    return found


def _rows(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows
