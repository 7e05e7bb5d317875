"""A run that is larger than one task should read: its files are cut into splits, which Spark spreads over the cores.

Three jobs: one counts the octets of the splits, one finds the first interval of each step and phase, and one parses all
lines, merges histograms within each split, and brings what is left together in one task, which makes the tables. The
tables are those of the way for small runs, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from perftest.errors import HelpfulError
from perftest.results import schema as files
from reports.compute import manifests
from reports.compute.run_files import LINES, WHOLE, RunFiles, open_run
from reports.pipeline import parts, tasks
from reports.pipeline.frames import escaped, struct_of
from reports.pipeline.source import RunDirectory
from reports.store.columns import Row


def run_in_parts(spark: SparkSession, run: RunDirectory) -> Iterator[Row]:
    """The rows of RESULT of one run."""
    known = tasks.Listed(run.source, run.signature)
    told = _rows(_lines(spark, run, LINES).mapInArrow(parts.survey, struct_of(parts.SURVEY)))
    survey = parts.surveyed(told)
    contents = _whole_files(spark, run)
    if files.INTERVALS_CSV in run.sizes:
        contents[files.INTERVALS_CSV] = parts.csv_head(told, run.sizes[files.INTERVALS_CSV])
    try:
        head = open_run(RunFiles(source=run.source, contents=contents))
    except HelpfulError as error:
        return iter(tasks.problem_of(known, error).to_pylist())
    origins = partial(parts.part_origins, columns=head.columns, known=survey)
    first = _rows(_lines(spark, run, [files.INTERVALS_CSV]).mapInArrow(origins, struct_of(parts.ORIGINS)))
    parse = partial(
        parts.pieces,
        columns=head.columns,
        known=survey,
        begins=parts.earliest_origins(first),
        interval_ns=manifests.interval_ns(head),
    )
    pieces = _lines(spark, run, LINES).mapInArrow(parse, struct_of(parts.PIECES))
    assemble = partial(parts.assemble, known=known, head=head)
    return iter(_rows(pieces.repartition(1).mapInArrow(assemble, struct_of(tasks.RESULT))))


def _lines(spark: SparkSession, run: RunDirectory, names: Iterable[str]) -> DataFrame:
    """The lines of these files of a run (SPLIT_LINES)."""
    paths = [escaped(f"{run.path}/{name}") for name in names if run.sizes.get(name)]
    if not paths:
        return spark.createDataFrame([], struct_of(parts.SPLIT_LINES))
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


def _whole_files(spark: SparkSession, run: RunDirectory) -> dict[str, bytes]:
    """The manifest and the ledger."""
    paths = [escaped(f"{run.path}/{name}") for name in WHOLE if name in run.sizes]
    rows = _rows(spark.read.format("binaryFile").load(paths).select("path", "content"))
    return {row["path"].rpartition("/")[2]: row["content"] for row in rows}


def _rows(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows
