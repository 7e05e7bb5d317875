"""Run the pipeline: run directories in, a published store out. The only place that starts Spark jobs.

The tables are independent of each other once lines are parsed and slots are merged. So parsed lines and merged slots
are kept (persisted), and two threads write the tables, because a small write waits more than it works.
"""

from __future__ import annotations

import tempfile
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

from perftest.results import schema as files
from reports.errors import EmptyRunError, SparkError
from reports.pipeline import attempts, frames, manifests, parsing, source, stages, use
from reports.pipeline.session import SMALL_JOB_BYTES
from reports.store import schema, store
from reports.store.columns import Table
from reports.store.run_tables import LeftOut

WRITERS: Final = 2
"""Tables written at once. More would hold task slots while they wait for the same kept frames."""
NO_INTERVAL: Final = "every interval is damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a run of the pipeline put into the store: rows per table, of these runs only."""

    store: Path
    number: int
    runs: tuple[str, ...]
    left_out: tuple[source.LeftOut, ...]
    rows: Mapping[str, int]
    seconds: float


def run(spark: SparkSession, paths: Sequence[Path], target: Path) -> Published:
    """Read these run directories, compute every table and publish them in the store at ``target``.

    A run that the store already has is replaced; other runs of the store stay as they are. A damaged or empty run is
    left out, unless no other is left.

    :raises RunDirectoryError: a directory is no run, or the only run is damaged
    :raises EmptyRunError: no run has a usable interval
    :raises StoreError: the store cannot be written or is of another version
    :raises SparkError: a job failed
    """
    return run_sources(spark, source.open_runs(paths), target)


def run_sources(spark: SparkSession, opened: source.Sources, target: Path) -> Published:
    """As :func:`run`, of directories that were opened before Spark was started."""
    began = time.monotonic()
    with store.Store.open(target).writer() as writer, tempfile.TemporaryDirectory(dir=target) as scratch:
        attempt = Path(scratch)
        with _jobs(target):
            usable = _write_all(spark, opened.runs, attempt)
        for run in usable:
            writer.add(attempts.run_tables(attempt, run))
        damaged = [source.LeftOut(path=run.path, reason=NO_INTERVAL) for run in opened.runs if run not in usable]
        left_out = (*opened.left_out, *damaged)
        for each in left_out:
            writer.add(LeftOut(source=str(each.path), signature=source.signature(each.path), reason=each.reason))
        done = writer.publish()
    seconds = time.monotonic() - began
    return Published(
        store=target, number=done.number, runs=done.runs, left_out=left_out, rows=done.rows, seconds=seconds
    )


@contextmanager
def _jobs(target: Path) -> Iterator[None]:
    """Translates the failures of Spark."""
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


def _usable(attempt: Path, runs: Sequence[source.RunSource]) -> list[source.RunSource]:
    """The runs that have an interval that can be used."""
    usable = [run for run in runs if attempts.attempt_rows(attempt, schema.INTERVALS, run.run_id)]
    if not usable:
        raise EmptyRunError(
            f"the run {runs[0].run_id}: {NO_INTERVAL}",
            str(runs[0].path / files.INTERVALS_CSV),
            "copy the directory again from the host that made the run",
        )
    return usable


def _write_all(spark: SparkSession, runs: Sequence[source.RunSource], attempt: Path) -> list[source.RunSource]:
    """Write every table of every run; the runs that can be published."""
    tables = _SparkTables(spark, runs)
    try:
        # Intervals first: without any there is no report, and nothing else need be computed.
        tables.write("intervals", attempt)
        usable = _usable(attempt, runs)
        with ThreadPoolExecutor(WRITERS) as pool:
            write = inheritable_thread_target(spark)(tables.write)
            for done in [pool.submit(write, name, attempt) for name in tables.names if name != "intervals"]:
                done.result()
    finally:
        tables.release()
    _write_known(usable, attempt)
    return usable


def _write_known(runs: Sequence[source.RunSource], attempt: Path) -> None:
    """The tables that come from manifests and ledgers alone: rows that the driver has."""
    for run in runs:
        attempts.write_rows(attempt, schema.HOSTS, run.run_id, manifests.host_rows(run))
        attempts.write_rows(attempt, schema.LEDGER, run.run_id, manifests.ledger_rows(run))
        last_ns = attempts.last_interval_ns(attempt, run.run_id)
        attempts.write_rows(attempt, schema.RUNS, run.run_id, [manifests.run_row(run, last_ns)])


class _SparkTables:
    """The tables that need Spark, by name, lazily; frames that several of them read are kept until released."""

    def __init__(self, spark: SparkSession, runs: Sequence[source.RunSource]) -> None:
        self._spark = spark
        self._sources = runs
        self._kept: list[DataFrame] = []
        self._small = source.input_bytes(runs) <= SMALL_JOB_BYTES
        self._runs = frames.rows_frame(spark, [manifests.context_row(run) for run in runs], frames.RUN_CONTEXT)
        hosts = [row for run in runs for row in manifests.host_context_rows(run)]
        self._hosts = frames.rows_frame(spark, hosts, frames.HOST_CONTEXT)
        planned = [row for run in runs for row in manifests.planned_rows(run)]
        self._planned = frames.rows_frame(spark, planned, frames.PLANNED_STEPS)
        self._frames = self._build()

    @property
    def names(self) -> tuple[str, ...]:
        """The tables, in the best order for writing: the tables that others wait for come first."""
        return tuple(self._frames)

    def write(self, name: str, attempt: Path) -> None:
        """One file per run and table: the tables are small, and many small files are slow to read."""
        frame = self._frames[name]
        # A small table fits one task; bringing a large one together by run costs a shuffle and is worth it.
        whole = frame.coalesce(1) if self._small else frame.repartition("run_id")
        whole.write.partitionBy("run_id").parquet(str(attempt / name), compression="zstd")

    def release(self) -> None:
        """Let go of the kept frames."""
        for frame in self._kept:
            frame.unpersist()

    def _build(self) -> dict[str, DataFrame]:
        raw_intervals = self._parse(files.INTERVALS_CSV, parsing.parse_intervals, parsing.PARSED_INTERVALS)
        raw_histograms = self._parse(files.LATENCY_HLOG, parsing.parse_histograms, parsing.PARSED_HISTOGRAMS)
        raw_events = self._parse(files.EVENTS, parsing.parse_events, parsing.PARSED_EVENTS)
        raw_samples = self._parse(files.HOST, parsing.parse_host_samples, parsing.PARSED_HOST_SAMPLES)
        raw_brokers = self._parse(files.BROKER, parsing.parse_brokers, parsing.PARSED_BROKERS)
        known = frames.rows_frame(self._spark, manifests.quarantine_rows(self._sources), schema.QUARANTINE.arrow)

        good_histograms = stages.good(raw_histograms)
        timed = stages.in_time(stages.good(raw_intervals), self._hosts, self._runs)
        begins = stages.origins(timed)
        intervals = self._keep(stages.into_slots(timed, begins))
        clocked = stages.in_time(stages.of_clients(good_histograms), self._hosts, self._runs)
        histograms = stages.into_slots(clocked, begins)
        staged = stages.merge_histograms(stages.steady(stages.of_stages(good_histograms)), ["run_id", "step", "series"])
        by_slot = self._keep(stages.merge_histograms(histograms, [*stages.SLOT, "series"]))
        by_step = self._keep(stages.merge_histograms(stages.steady(by_slot), [*stages.STEP, "series"]))
        latency = self._keep(stages.latency(by_step, stages.merge_histograms(by_step, ["run_id", "group", "series"])))
        brokers = self._keep(use.differences(stages.good(raw_brokers), self._runs))
        samples = use.host_rates(stages.good(raw_samples))
        spread, raw_clocks = self._of_several_hosts(intervals, good_histograms, brokers, samples)
        return {
            "intervals": frames.conform(intervals, schema.INTERVALS),
            "timeline": stages.timeline(intervals, stages.percentiles(by_slot), self._planned, self._runs),
            "latency": latency,
            "brokers": frames.conform(brokers, schema.BROKERS),
            "writes": frames.conform(use.writes(brokers), schema.WRITES),
            "steps": self._steps(intervals, latency, brokers, samples),
            "spectrum": stages.spectrum(by_step, self._planned),
            "stages": stages.broker_stages(staged, self._planned),
            "events": self._timed(stages.good(raw_events), schema.EVENTS),
            "host_samples": self._timed(samples, schema.HOST_SAMPLES),
            **spread,
            "quarantine": stages.quarantine(
                (raw_intervals, raw_histograms, raw_events, raw_samples, raw_brokers, *raw_clocks), known
            ),
        }

    def _of_several_hosts(
        self, intervals: DataFrame, histograms: DataFrame, brokers: DataFrame, samples: DataFrame
    ) -> tuple[dict[str, DataFrame], list[DataFrame]]:
        """The tables of runs on several hosts, and the parsed lines of files that only such runs have. Without such a
        run there are no tables, and nothing is computed."""
        runs = [run.run_id for run in self._sources if manifests.is_spread(run)]
        if not runs:
            return {}, []

        def of_them(frame: DataFrame) -> DataFrame:
            return frame.where(F.col("run_id").isin(runs))

        keys, steady = [*stages.STEP, "host"], stages.steady(of_them(intervals))
        steps, by_host = stages.totals(steady, stages.STEP), stages.totals(steady, keys)
        recorded = stages.of_clients(stages.steady(of_them(histograms)))
        merged = stages.merge_histograms(recorded.where(F.col("series").isin(*schema.HOST_SERIES)), [*keys, "series"])
        used = use.of_each_host(of_them(samples), steps)
        raw_clocks = self._parse(files.CLOCKS, parsing.parse_clocks, parsing.PARSED_CLOCKS)
        tables = {
            "host_steps": stages.host_steps(by_host, stages.percentiles(merged), used, self._hosts, self._planned),
            "links": frames.conform(use.links(of_them(brokers), steps), schema.LINKS),
            "clocks": self._timed(stages.good(raw_clocks), schema.CLOCKS),
        }
        return tables, [raw_clocks]

    def _steps(self, intervals: DataFrame, latency: DataFrame, brokers: DataFrame, samples: DataFrame) -> DataFrame:
        totals = self._keep(stages.totals(stages.steady(intervals), stages.STEP))
        used = (use.of_brokers(brokers, totals), use.of_hosts(samples, totals, self._hosts))
        return stages.steps(stages.step_starts(intervals), totals, latency, self._planned, used, self._runs)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return self._kept[-1]

    def _parse(self, file: str, parser: stages.Worker, parsed: pa.Schema) -> DataFrame:
        """The records of one file of every run; kept, because the quarantine reads them once more."""
        splits = stages.split_frame(self._spark, source.splits(self._sources, file))
        return self._keep(stages.parse(splits, parser, parsed))

    def _timed(self, records: DataFrame, table: Table) -> DataFrame:
        """Records with ``t_s`` from ``t_ns``."""
        frame = records.join(F.broadcast(self._runs), "run_id").withColumn("t_s", frames.since_start("t_ns"))
        return frames.conform(frame, table)
