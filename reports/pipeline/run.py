"""Run the pipeline: run directories in, a published store out. The only place that starts Spark jobs.

One job reads the files of many runs with Spark's own readers, brings the files of each run together in one task, and
computes all tables of the run there (:mod:`reports.compute`). So the driver reads no file of a run, and the cost of a
run is the cost of its own lines. The driver gets the tables and hands them to the store. The tables of a run of seconds
are some 40 % of its files. Runs go in waves of WAVE_BYTES of input, which bounds the memory of the driver.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from perftest.errors import HelpfulError
from reports.errors import SparkError
from reports.pipeline import large_runs, source, tasks
from reports.pipeline.frames import escaped, struct_of
from reports.pipeline.source import RunDirectory
from reports.store.run_tables import LeftOut, RunTables
from reports.store.store import Place, Store

WAVE_BYTES: Final = 256 * 1024**2
"""Input of one job, in octets; the driver holds the tables of one job."""
LARGE_WAVE_BYTES: Final = 1024**3
"""Input of the jobs of large runs, in octets. Lines become a tenth of that before anything is brought together."""
SMALL_RUN_BYTES: Final = 64 * 1024**2
"""The largest input of a run that one task takes as a whole, in octets; a larger run is cut into parts."""
TASK_BYTES: Final = 32 * 1024**2
"""Input of one task, in octets; a task takes whole runs."""

ROWS_AT_ONCE: Final = 64
"""Tables of runs that the driver unpacks at once."""

Say = Callable[[str], None]
Found = RunTables | tuple[LeftOut, HelpfulError]
"""The tables of a run, or why it has none."""

READING: Final = {
    # A run has eight files at most, and most are small: the sizes decide how files are put together, not their number.
    "spark.sql.files.openCostInBytes": "65536",
    # Asking for the sizes of files in a job of its own pays off for very many files only.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "4096",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The result of a run of the pipeline: rows per table in the store, of these runs only."""

    store: str
    number: int
    """Of the publication in the store, from 1."""
    runs: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    rows: Mapping[str, int]
    seconds: float


def run(
    spark: SparkSession, paths: Sequence[Path], target: Place, small_run_bytes: int = SMALL_RUN_BYTES
) -> PipelineResult:
    """Read these run directories, compute every table and publish them in the store at ``target``.

    A run that the store already has is replaced; other runs of the store stay as they are. A damaged, empty or newer
    run is left out, unless no other is left.

    :raises RunDirectoryError: a directory is no run, or the only run is damaged or newer
    :raises RunChoiceError: no run, or two directories hold the same run
    :raises EmptyRunError: no run has a usable interval
    :raises StoreError: the store cannot be written or is of another version
    :raises SparkError: a job failed
    """
    return run_sources(spark, source.list_runs(paths), target, small_run_bytes)


def run_sources(
    spark: SparkSession,
    runs: Sequence[RunDirectory],
    target: Place,
    small_run_bytes: int = SMALL_RUN_BYTES,
    say: Say = lambda _: None,
    others: bool = False,
) -> PipelineResult:
    """As :func:`run`, of directories that were listed before Spark was started. ``say`` gets the next step.

    :param others: the store has other runs that were asked for, so it is no error if none of these can be used
    """
    began = time.monotonic()
    store = Store.open(target)
    with _jobs(store.folder.where):
        return publish(store, _telling(computed(spark, runs, small_run_bytes), say), began, others)


def _telling(found: Iterator[Found], say: Say) -> Iterator[Found]:
    """The same, and a word when the first run is there."""
    for at, each in enumerate(found):
        if not at:
            say("writing tables")
        yield each


def computed(
    spark: SparkSession, runs: Sequence[RunDirectory], small_run_bytes: int = SMALL_RUN_BYTES
) -> Iterator[Found]:
    """The tables of each run, or why it has none; lazily, first small runs, then large runs, wave by wave."""
    for name, value in READING.items():
        spark.conf.set(name, value)
    for wave in waves([each for each in runs if each.line_bytes <= small_run_bytes]):
        batches = whole_runs(spark, wave).toArrow().to_batches(max_chunksize=ROWS_AT_ONCE)
        yield from tasks.results(row for batch in batches for row in batch.to_pylist())
    for wave in waves([each for each in runs if each.line_bytes > small_run_bytes], LARGE_WAVE_BYTES):
        yield from tasks.results(large_runs.runs_in_parts(spark, wave))


def waves(runs: Sequence[RunDirectory], most: int = WAVE_BYTES) -> Iterator[list[RunDirectory]]:
    """The runs in lots of at most ``most`` octets, or of one run."""
    lot: list[RunDirectory] = []
    octets = 0
    for run_ in runs:
        size = source.input_bytes([run_])
        if lot and octets + size > most:
            yield lot
            lot, octets = [], 0
        lot.append(run_)
        octets += size
    if lot:
        yield lot


def whole_runs(spark: SparkSession, runs: Sequence[RunDirectory]) -> DataFrame:
    """The tables of these runs (RESULT); one task takes each run as a whole."""
    paths = [escaped(f"{run_.path}/{name}") for run_ in runs for name in run_.sizes]
    files = spark.read.format("binaryFile").load(paths).select("path", "content")
    directory = F.regexp_replace("path", "/[^/]*$", "")
    wanted = max(2 * spark.sparkContext.defaultParallelism, math.ceil(source.input_bytes(runs) / TASK_BYTES))
    if len(runs) == 1:
        together = files.coalesce(1)
    else:
        together = files.repartition(min(wanted, len(runs)), directory).sortWithinPartitions(directory)
    known = {tasks.directory_of(each.path): tasks.Listed(each.source, each.signature, each.empty) for each in runs}
    return together.mapInArrow(partial(tasks.compute_runs, runs=known), struct_of(tasks.RESULT))


_DENIED: Final = re.compile(r"\w+\.(?:AccessDeniedException|AccessControlException): (.*)")


@contextmanager
def _jobs(where: str) -> Iterator[None]:
    """Translates the failures of Spark."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        denied = _DENIED.search(said)
        if denied:
            what = f"a Spark job may not read a file: {denied[1]}"
            fix = "give Spark credentials that may read the runs: by the environment, or --spark-conf spark.hadoop.…"
            raise SparkError(what, f"the pipeline into {where}", fix) from error
        raise SparkError(
            f"a Spark job failed: {_first_line(said)}",
            f"the pipeline into {where}",
            "is there space on the disk, do all executors see the run directories? add --conf spark.log.level=INFO",
        ) from error


def _first_line(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "it said nothing")


def publish(store: Store, found: Iterable[Found], began: float, others: bool) -> PipelineResult:
    """Hand the runs to the store, and publish them at once.

    :param began: when the pipeline began, by the monotonic clock
    :param others: whether no usable run is no error
    """
    left_out: list[tuple[LeftOut, HelpfulError]] = []
    usable = False
    with store.writer() as writer:
        for each in found:
            if isinstance(each, RunTables):
                usable = True
                writer.add(each)
            else:
                left_out.append(each)
                writer.add(each[0])
        if not usable and not others:
            raise left_out[0][1]
        done = writer.publish()
    return PipelineResult(
        store=store.folder.where,
        number=done.number,
        runs=done.runs,
        left_out=done.left_out,
        rows=done.rows,
        seconds=time.monotonic() - began,
    )
