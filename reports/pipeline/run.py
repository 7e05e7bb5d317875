"""Run the pipeline: run directories in, a published store out. The only place that starts Spark jobs.

The tables are independent of each other once lines are parsed and slots are merged, so these are kept (persisted) and
the tables are written by a few threads at once: each small write waits more than it works.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it
from pyspark.sql.types import StructType

from perftest.results import schema as files
from reports.pipeline import manifests, schema, source, stages, store, workers
from reports.pipeline.errors import EmptyRunError, SparkError

WRITERS: Final = 2
"""Tables written at once. More would hold task slots while they wait for the same kept frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a run of the pipeline put into the store: rows per table, of these runs only."""

    store: Path
    attempt: str
    runs: tuple[str, ...]
    rows: Mapping[str, int]
    seconds: float


def run(spark: SparkSession, paths: Sequence[Path], target: Path) -> Published:
    """Read these run directories, compute every table and publish them in the store at ``target``.

    A run that the store already has is replaced; other runs of the store stay as they are.

    :raises RunDirectoryError: a directory cannot be read as a run
    :raises EmptyRunError: a run has no usable interval
    :raises StoreError: the store cannot be written or is of another version
    :raises SparkError: a job failed
    """
    return run_sources(spark, source.open_runs(paths), target)


def run_sources(spark: SparkSession, runs: Sequence[source.RunSource], target: Path) -> Published:
    """As :func:`run`, of directories that were opened before Spark was started."""
    began = time.monotonic()
    if (target / store.MANIFEST).exists():
        store.read_manifest(target)
    ids = tuple(run.run_id for run in runs)
    with store.new_attempt(target) as attempt:
        with _jobs(target):
            _write_all(spark, runs, attempt)
        rows = {
            table.name: sum(store.attempt_rows(attempt, table, run_id) for run_id in ids) for table in schema.TABLES
        }
        for one in runs:
            _check_not_empty(attempt, one)
        store.publish(target, attempt, ids)
    return Published(store=target, attempt=attempt.name, runs=ids, rows=rows, seconds=time.monotonic() - began)


@contextmanager
def _jobs(target: Path) -> Iterator[None]:
    """Spark's own failures as ours."""
    try:
        yield
    except PySparkException as error:
        raise SparkError(
            f"a Spark job failed: {_first_line(error)}",
            f"the pipeline into {target}",
            "is there space on the disk, do all executors see the run directories? add --conf spark.log.level=INFO",
        ) from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _check_not_empty(attempt: Path, run: source.RunSource) -> None:
    if store.attempt_rows(attempt, schema.INTERVALS, run.run_id) == 0:
        raise EmptyRunError(
            f"no interval of the run {run.run_id} can be used",
            str(run.path / files.INTERVALS_CSV),
            "every line is damaged: copy the directory again from the host that made the run",
        )


def _write_all(spark: SparkSession, runs: Sequence[source.RunSource], attempt: Path) -> None:
    frames, kept = _tables(spark, runs)
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            write = inheritable_thread_target(spark)(_write)
            # The longest first, so that no thread is left alone with one at the end.
            for done in [pool.submit(write, frames[name], attempt / name) for name in sorted(frames, key=_cost)]:
                done.result()
    finally:
        for frame in kept:
            frame.unpersist()


_LONGEST_FIRST: Final = ("timeline", "latency", "steps", "spectrum", "intervals", "brokers")


def _cost(name: str) -> int:
    return _LONGEST_FIRST.index(name) if name in _LONGEST_FIRST else len(_LONGEST_FIRST)


def _write(frame: DataFrame, path: Path) -> None:
    """One file per run: the tables are small, and many small files are slow to read."""
    frame.repartition(F.col("run_id")).write.partitionBy("run_id").parquet(str(path), compression="zstd")


def _tables(spark: SparkSession, runs: Sequence[source.RunSource]) -> tuple[dict[str, DataFrame], list[DataFrame]]:
    """The tables by name, lazily, and the frames that are kept while they are written."""
    context = _Context(spark, runs)
    parsed_intervals = context.parse(files.INTERVALS_CSV, workers.parse_intervals, stages.PARSED_INTERVALS).persist()
    parsed_histograms = context.parse(files.LATENCY_HLOG, workers.parse_histograms, stages.PARSED_HISTOGRAMS).persist()
    parsed_events = context.parse(files.EVENTS, workers.parse_events, stages.PARSED_EVENTS)
    parsed_hosts = context.parse(files.HOST, workers.parse_host_samples, stages.PARSED_HOST_SAMPLES)
    parsed_brokers = context.parse(files.BROKER, workers.parse_brokers, stages.PARSED_BROKERS)

    intervals = stages.align(stages.good(parsed_intervals), context.hosts, context.runs)
    histograms = stages.align(stages.good(parsed_histograms), context.hosts, context.runs)
    by_slot = stages.merge_histograms(histograms, [*stages.SLOT, "series"]).persist()
    by_step = stages.merge_histograms(stages.steady(by_slot), ["run_id", "step", "series"]).persist()
    by_run = stages.merge_histograms(by_step, ["run_id", "series"])
    latency = stages.latency(by_step, by_run).persist()

    totals = stages.totals(stages.steady(intervals), ["run_id", "step"])
    brokers = stages.differences(stages.good(parsed_brokers), context.runs)
    samples = stages.good(parsed_hosts)
    use = (stages.broker_use(brokers, totals), stages.host_use(samples, totals))
    parsed = (parsed_intervals, parsed_histograms, parsed_events, parsed_hosts, parsed_brokers)
    frames = context.known() | {
        "runs": context.ended(intervals),
        "steps": stages.steps(stages.step_starts(intervals), totals, latency, context.planned, use, context.runs),
        "latency": latency,
        "spectrum": stages.spectrum(by_step, context.planned),
        "timeline": stages.timeline(intervals, stages.percentiles(by_slot), context.planned, context.runs),
        "intervals": stages.conform(intervals, schema.INTERVALS),
        "events": context.timed(stages.good(parsed_events), schema.EVENTS),
        "host_samples": context.timed(samples, schema.HOST_SAMPLES),
        "brokers": stages.conform(brokers, schema.BROKERS),
        "quarantine": stages.quarantine(parsed, context.frame(manifests.quarantine_rows(runs), schema.QUARANTINE)),
    }
    return frames, [parsed_intervals, parsed_histograms, by_slot, by_step, latency]


class _Context:
    """The runs of one pipeline as frames: what is known before any line is read."""

    def __init__(self, spark: SparkSession, runs: Sequence[source.RunSource]) -> None:
        self._spark = spark
        self._sources = runs
        self.runs = stages.rows_frame(spark, [manifests.context_row(run) for run in runs], stages.RUN_CONTEXT)
        offsets = [row for run in runs for row in manifests.offset_rows(run)]
        self.hosts = stages.rows_frame(spark, offsets, stages.HOST_CONTEXT)
        planned = [row for run in runs for row in manifests.planned_rows(run)]
        self.planned = stages.rows_frame(spark, planned, stages.PLANNED_STEPS)

    def parse(self, file: str, parser: stages.Worker, parsed: StructType) -> DataFrame:
        """The records of one file of every run."""
        splits = stages.split_frame(self._spark, source.splits(self._sources, file))
        return stages.parse(splits, parser, parsed)

    def frame(self, rows: Sequence[manifests.Row], table: schema.Table) -> DataFrame:
        """Rows of a table that the driver knows."""
        return stages.rows_frame(self._spark, rows, table.arrow)

    def known(self) -> dict[str, DataFrame]:
        """The tables that need no line."""
        hosts = [row for run in self._sources for row in manifests.host_rows(run)]
        ledgers = [row for run in self._sources if (row := manifests.ledger_row(run)) is not None]
        return {"hosts": self.frame(hosts, schema.HOSTS), "ledger": self.frame(ledgers, schema.LEDGER)}

    def ended(self, intervals: DataFrame) -> DataFrame:
        """The table ``runs``: a run that did not end itself ended with its last interval."""
        rows = [manifests.run_row(run) for run in self._sources]
        known = pa.schema([field.with_nullable(True) for field in schema.RUNS.arrow if field.name != "length_s"])
        last = intervals.groupBy("run_id").agg(F.max(F.col("start_ns") + F.col("length_ns")).alias("last_ns"))
        ended = F.coalesce(F.col("ended_ns"), F.col("last_ns"), F.col("started_ns"))
        frame = stages.rows_frame(self._spark, rows, known).join(last, "run_id", "left")
        frame = frame.withColumn("ended_ns", ended)
        length_s = (F.col("ended_ns") - F.col("started_ns")) / stages.NS
        return stages.conform(frame.withColumn("length_s", length_s), schema.RUNS)

    def timed(self, records: DataFrame, table: schema.Table) -> DataFrame:
        """Records with ``t_s`` from ``t_ns``."""
        frame = records.join(F.broadcast(self.runs), "run_id").withColumn("t_s", stages.since_start("t_ns"))
        return stages.conform(frame, table)
