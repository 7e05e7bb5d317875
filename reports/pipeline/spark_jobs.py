"""Runs by the jobs of a Spark: the only place that starts some.

Each task reads the files of whole runs, computes all tables of each run (:mod:`reports.compute`), and writes them to
Parquet files in the store; the driver gets the names of the files. So nothing of a run goes through the driver, and the
cost of a run is the cost of its own lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reports.errors import SparkError
from reports.pipeline import large_runs, source, tasks
from reports.pipeline.frames import spread
from reports.pipeline.lots import lots_of
from reports.pipeline.run import PipelineResult, Write, run_sources
from reports.pipeline.source import RunDirectory
from reports.store.locations import Place

SMALL_RUN_BYTES: Final = 64 * 1024**2
"""The largest input of a run that one task takes as a whole, in octets; a larger run is cut into parts."""
TASK_BYTES: Final = 128 * 1024**2
"""Input of one task, in octets; a task takes whole runs."""
LARGE_WAVE_BYTES: Final = 1024**3
"""Input of the jobs of large runs, in octets. Lines become a tenth of that before anything is brought together."""


def run(
    spark: SparkSession, paths: Sequence[Path], target: Place, small_run_bytes: int = SMALL_RUN_BYTES
) -> PipelineResult:
    """As :func:`reports.pipeline.run.run_sources`, of run directories of this machine, by a Spark.

    :raises NotARunError: no directory, or no manifest in it
    :raises RunChoiceError: no run
    """
    return run_sources(source.list_runs(paths), target, by_spark(spark, small_run_bytes))


def by_spark(spark: SparkSession, small_run_bytes: int = SMALL_RUN_BYTES) -> Write:
    """Writes runs by the jobs of a Spark. What is written raises SparkError if a job failed."""

    def write(runs: Sequence[RunDirectory], target: tasks.PartTarget) -> Iterator[tasks.TaskResult]:
        with _jobs(target.location.where):
            yield from _written(spark, runs, target, small_run_bytes)

    return write


def _written(
    spark: SparkSession, runs: Sequence[RunDirectory], target: tasks.PartTarget, small_run_bytes: int
) -> Iterator[tasks.TaskResult]:
    """First small runs, then large ones, wave by wave."""
    small = [tasks.listed(each) for each in runs if each.line_bytes <= small_run_bytes]
    if small:
        lots = lots_of(small, lambda each: each.octets, TASK_BYTES, 2 * spark.sparkContext.defaultParallelism)
        rows = spread(spark, lots, partial(tasks.write_runs, target=target), tasks.RESULT)
        yield from map(tasks.TaskResult.of, rows.toArrow().to_pylist())
    for wave in waves([each for each in runs if each.line_bytes > small_run_bytes], LARGE_WAVE_BYTES):
        yield from map(tasks.TaskResult.of, large_runs.runs_in_parts(spark, wave, target))


def waves(runs: Sequence[RunDirectory], most: int) -> Iterator[list[RunDirectory]]:
    """The runs in lots of at most ``most`` octets, or of one run."""
    lot: list[RunDirectory] = []
    octets = 0
    for run_ in runs:
        if lot and octets + run_.octets > most:
            yield lot
            lot, octets = [], 0
        lot.append(run_)
        octets += run_.octets
    if lot:
        yield lot


@contextmanager
def _jobs(where: str) -> Iterator[None]:
    """Translates the failures of Spark."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        raise SparkError(
            f"a Spark job failed: {_first_line(said)}",
            f"the pipeline into {where}",
            "is there space on the disk, do all executors see the run directories? add --conf spark.log.level=INFO",
        ) from error


def _first_line(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "it said nothing")
