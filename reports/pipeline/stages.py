"""The stages of the pipeline. Each stage takes and gives lazy DataFrames, and starts no job. The stages for brokers and
hosts are in :mod:`reports.pipeline.use`.

::

    splits -> parse ----> damaged lines -> quarantine
                |
                +-> intervals  -> clock -> slots -> intervals ---------> timeline
                |                   +-> origins -+                        |
                |                                 v                        |
                +-> histograms -> clock --------> slots -> merge(slot) -> percentiles
                |                                            |
                |                            +---------------+
                |                            +-> steady -> merge(step) -> merge(run) -> percentiles -> latency
                |                                             +-> spectrum
                +-> histograms of stages -> merge(step) -> percentiles -> stages
                +-> brokers, host samples -> differences, means over steady time -> steps

Every stage ends in an explicit select, so that its columns are the columns of its schema. Percentiles come from merged
histograms only; no percentile is averaged. The middle of its interval decides which slot a histogram belongs to: a
histogram cannot be split, and the intervals of different workers start a little apart.

Slots are counted from the first interval of their step and phase. This holds for histograms, too, because a series
whose first values come late has no histogram of the first interval. If slots were counted from the start of the run,
the intervals of a worker could straddle a boundary, and would fall into one slot and the next in turns. Logs have times
in whole milliseconds, so slots go by whole milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it
from pyspark.sql.types import StructType

from perftest.results import schema as files
from reports.pipeline import histograms, source
from reports.pipeline.frames import NS, conform, rows_frame, since_start, struct_of
from reports.store import schema
from reports.store.columns import Batches

SPLITS_UNSPREAD: Final = 8

Worker = Callable[[Batches], Batches]


# --- reading ---------------------------------------------------------------------------------------------------------


def split_frame(spark: SparkSession, splits: Sequence[dict[str, object]]) -> DataFrame:
    """One row per split. A few splits stay together; many splits are spread over the cores one by one, so that no split
    waits behind the share of one core."""
    frame = rows_frame(spark, splits, source.SPLIT_SCHEMA)
    return frame.repartition(len(splits)) if len(splits) > SPLITS_UNSPREAD else frame


def parse(splits: DataFrame, parser: Worker, parsed: pa.Schema) -> DataFrame:
    """The records of the lines of these splits, damaged ones included."""
    return splits.mapInArrow(parser, struct_of(parsed))


def good(parsed: DataFrame) -> DataFrame:
    """The records that can be used."""
    return parsed.where(F.col("problem").isNull()).drop("file", "offset", "problem", "raw")


def quarantine(parsed: Iterable[DataFrame], known: DataFrame) -> DataFrame:
    """The table ``quarantine``: lines of all files that cannot be used, and files that are damaged as a whole."""
    frame = known
    for records in parsed:
        damaged = records.where(F.col("problem").isNotNull())
        frame = frame.unionByName(damaged.select("run_id", "file", "offset", F.col("problem").alias("reason"), "raw"))
    return conform(frame, schema.QUARANTINE)


# --- time ------------------------------------------------------------------------------------------------------------


MS_NS: Final = 1_000_000
STEP: Final = ("run_id", "step", "group")
PHASE: Final = ("run_id", "step", "phase")
"""Slots are counted alike for all groups of load, so that their timelines lie on one axis."""


def in_time(records: DataFrame, hosts: DataFrame, runs: DataFrame) -> DataFrame:
    """Add ``t_s`` to intervals, and the contexts of run and host. ``from_ns`` and ``to_ns`` are the begin and the end
    of the interval in whole milliseconds. All hosts record the coordinator's time."""
    return (
        records.join(F.broadcast(hosts), ["run_id", "host"], "left")
        .join(F.broadcast(runs), "run_id")
        .withColumn("from_ns", F.col("start_ns") - F.col("start_ns") % MS_NS)
        .withColumn("to_ns", F.col("from_ns") + F.col("length_ns") - F.col("length_ns") % MS_NS)
        .withColumn("t_s", since_start("start_ns"))
    )


def origins(intervals: DataFrame) -> DataFrame:
    """The begin of the first slot of each step and phase: that of the first interval."""
    return intervals.groupBy(*PHASE).agg(F.min("from_ns").alias("origin_ns"))


def into_slots(records: DataFrame, begins: DataFrame) -> DataFrame:
    """Add ``slot``; ``begins`` are the :func:`origins`, the same for intervals and histograms."""
    # Differences first: Unix time in nanoseconds is beyond what a double tells apart.
    middle = F.col("from_ns") - F.coalesce("origin_ns", "from_ns") + (F.col("to_ns") - F.col("from_ns")) / 2
    return (
        records.join(F.broadcast(begins), list(PHASE), "left")
        .withColumn("slot", F.floor(middle / F.col("interval_ns")).cast("long"))
        .drop("from_ns", "to_ns", "origin_ns")
    )


# --- histograms ------------------------------------------------------------------------------------------------------


def merge_histograms(payloads: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Histograms of equal keys added up, exactly: first within partitions, then per key."""
    wanted = payloads.select(*keys, *histograms.RECORDED)
    partial = wanted.mapInArrow(histograms.merge_partial, wanted.schema)
    return partial.groupBy(*keys).applyInArrow(histograms.merge_group, wanted.schema).select(*wanted.columns)


def percentiles(payloads: DataFrame) -> DataFrame:
    """Count, mean and percentiles beside each histogram and its maximum."""
    summary = struct_of(histograms.SUMMARY)
    return payloads.mapInArrow(histograms.percentiles, StructType([*payloads.schema.fields, *summary.fields]))


def latency(step_payloads: DataFrame, run_payloads: DataFrame) -> DataFrame:
    """The table ``latency``: steps, and whole runs as step 0."""
    whole = run_payloads.withColumn("step", F.lit(schema.WHOLE_RUN).cast("long"))
    return conform(percentiles(step_payloads.unionByName(whole)), schema.LATENCY)


def spectrum(step_payloads: DataFrame, planned: DataFrame) -> DataFrame:
    """The table ``spectrum``."""
    recorded = step_payloads.select(*STEP, "series", *histograms.RECORDED)
    points = recorded.mapInArrow(histograms.spectrum, struct_of(histograms.POINTS))
    return conform(with_label(points, planned), schema.SPECTRUM)


def of_stages(histograms: DataFrame) -> DataFrame:
    """The histograms that nodes kept of stages within the broker, each over the whole steady time of a step."""
    return histograms.where(F.col("series").startswith(files.STAGE_PREFIX))


def of_clients(histograms: DataFrame) -> DataFrame:
    """The histograms of what the load generator measured."""
    return histograms.where(~F.col("series").startswith(files.STAGE_PREFIX))


def broker_stages(step_payloads: DataFrame, planned: DataFrame) -> DataFrame:
    """The table ``stages``; a series is ``stage.<chain>.<stage>``."""
    parts = F.split("series", r"\.", 3)
    frame = with_label(percentiles(step_payloads), planned.dropDuplicates(["run_id", "step"]), ["run_id", "step"])
    return conform(frame.withColumn("chain", parts[1]).withColumn("stage", parts[2]), schema.STAGES)


def with_label(frame: DataFrame, planned: DataFrame, keys: Sequence[str] = STEP) -> DataFrame:
    """Add the label of the step. A step that no plan knows gets its number as its label."""
    labels = F.broadcast(planned.select(*keys, F.col("label").alias("planned_label")))
    number = F.concat(F.lit("step "), F.col("step").cast("string"))
    joined = frame.join(labels, list(keys), "left")
    return joined.withColumn("label", F.coalesce(F.col("planned_label"), number)).drop("planned_label")


def one_column_per_series(summaries: DataFrame, keys: Sequence[str], series: Sequence[str]) -> DataFrame:
    """A row per key with ``{series}_{figure}`` columns, null for a series that was not recorded."""
    figures = histograms.FIGURES
    entry = F.struct(F.col("series"), F.struct(*figures))
    by_series = F.map_from_entries(F.collect_list(entry))
    wide = summaries.where(F.col("series").isin(*series)).groupBy(*keys).agg(by_series.alias("by_series"))
    columns = [F.col("by_series")[name][figure].alias(f"{name}_{figure}") for name in series for figure in figures]
    return wide.select(*keys, *columns)


# --- timeline --------------------------------------------------------------------------------------------------------

COUNTS: Final = tuple(column.name for column in schema.COUNTS)
LEFT_OPEN: Final = files.LEFT_OPEN
RATED: Final = ("intended", "published", "confirmed", "delivered")
SLOT: Final = ("run_id", "step", "group", "phase", "slot")


def rate(count: str) -> Column:
    """Messages per second of the measured time."""
    return F.when(F.col("length_s") > 0, F.col(count) / F.col("length_s")).otherwise(0.0)


def totals(intervals: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Counts, measured time and extremes per key over all workers.

    The worker that measured longest gives the measured time, because a worker that died early must not shorten it.
    """
    added = (*COUNTS, *LEFT_OPEN, "worker_cpu_ns", "gc_collections")
    highest = ("loop_lag_ns", "gc_pause_ns", "clock_bound_ns")
    per_worker = intervals.groupBy(*keys, "host", "worker").agg(
        *(F.sum(name).alias(name) for name in (*added, "length_ns", "worker_wait_ns")),
        *(F.max(name).alias(name) for name in highest),
        F.min("start_ns").alias("start_ns"),
        F.max(F.col("start_ns") + F.col("length_ns")).alias("end_ns"),
        F.count(F.lit(1)).alias("intervals"),
        F.sum(F.col("steal_ns") / F.coalesce("cores", F.lit(1))).alias("steal_ns"),
        F.max("unconfirmed").alias("unconfirmed_max"),
        F.max_by("unconfirmed", "start_ns").alias("unconfirmed"),
    )
    return per_worker.groupBy(*keys).agg(
        *(F.sum(name).alias(name) for name in (*added, "intervals", "unconfirmed")),
        *(F.max(name).alias(name) for name in (*highest, "end_ns", "unconfirmed_max")),
        F.min("start_ns").alias("start_ns"),
        (F.max("length_ns") / F.lit(NS)).alias("length_s"),
        F.count(F.lit(1)).alias("workers"),
        F.max(F.col("worker_cpu_ns") / F.col("length_ns")).alias("worker_cpu_share"),
        F.max(F.col("worker_wait_ns") / F.col("length_ns")).alias("worker_wait_share"),
        F.max(F.col("steal_ns") / F.col("length_ns")).alias("steal_share"),
    )


def timeline(intervals: DataFrame, slot_summaries: DataFrame, planned: DataFrame, runs: DataFrame) -> DataFrame:
    """The table ``timeline``: a row per slot, rates from counts, percentiles from merged histograms."""
    slots = totals(intervals, SLOT).join(F.broadcast(runs), "run_id")
    latencies = one_column_per_series(slot_summaries, SLOT, schema.TIMELINE_SERIES)
    frame = with_label(slots, planned).join(latencies, list(SLOT), "left")
    rates = {f"{name}_per_s": rate(name) for name in (*RATED, "acked")}
    return conform(frame.withColumns(rates).withColumn("t_s", since_start("start_ns")), schema.TIMELINE)


# --- steps -----------------------------------------------------------------------------------------------------------


def steady(records: DataFrame) -> DataFrame:
    """Steady intervals only: warm-up and drain count for no figure."""
    return records.where(F.col("phase") == "steady")


def step_starts(intervals: DataFrame) -> DataFrame:
    """Every step that began, with its first instant, also if the step ended in its warm-up."""
    return intervals.groupBy(*STEP).agg(F.min("start_ns").alias("began_ns"))


def steps(
    starts: DataFrame,
    step_totals: DataFrame,
    step_summaries: DataFrame,
    planned: DataFrame,
    use: tuple[DataFrame, DataFrame],
    runs: DataFrame,
) -> DataFrame:
    """The table ``steps``; ``use`` holds the figures of brokers and of hosts from :mod:`reports.pipeline.use`."""
    keys = list(STEP)
    frame = starts.join(step_totals, keys, "left").join(F.broadcast(planned.drop("label")), keys, "left")
    frame = frame.withColumn("groups", F.count(F.lit(1)).over(Window.partitionBy("run_id", "step")))
    frame = with_label(frame, planned).join(F.broadcast(runs), "run_id")
    frame = frame.join(one_column_per_series(step_summaries, keys, schema.SERIES), keys, "left")
    for figures in use:
        frame = frame.join(figures, keys, "left")
    filled = {name: F.coalesce(F.col(name), F.lit(0)) for name in (*COUNTS, *STEP_ZEROS)}
    filled |= {name: F.when(F.col("clock_bound_ns") > 0, F.col(name)) for name in ("clock_bound_ns", *LEFT_OPEN)}
    frame = frame.withColumns(filled | {"start_ns": F.coalesce("start_ns", "began_ns")})
    return conform(frame.withColumns(_step_figures()), schema.STEPS)


def host_steps(
    host_totals: DataFrame, host_summaries: DataFrame, use: DataFrame, hosts: DataFrame, planned: DataFrame
) -> DataFrame:
    """The table ``host_steps``. ``use`` has the figures of every host that was sampled, with or without load."""
    keys, cores = [*STEP, "host"], F.broadcast(hosts.select("run_id", "host", "cores"))
    latencies = one_column_per_series(host_summaries, keys, schema.HOST_SERIES)
    frame = host_totals.join(use, keys, "full").join(latencies, keys, "left")
    frame = with_label(frame, planned).join(cores, ["run_id", "host"], "left")
    zeros = (*COUNTS, "length_s", "workers", "loop_lag_ns", "gc_pause_ns")
    frame = frame.withColumns({name: F.coalesce(F.col(name), F.lit(0)) for name in zeros})
    whole = Window.partitionBy(*STEP)

    def part(name: str) -> Column:
        total = F.sum(name).over(whole)
        return F.when(total > 0, F.col(name) / total)

    busy = F.when((F.col("length_s") > 0) & (F.col("cores") > 0), 100 * F.col("worker_cpu_ns") / NS / F.col("cores"))
    figures = {f"{name}_per_s": rate(name) for name in RATED}
    figures |= {"published_part": part("published"), "delivered_part": part("delivered")}
    figures |= {"workers_cpu_percent": busy / F.col("length_s")}
    return conform(frame.withColumns(figures), schema.HOST_STEPS)


STEP_ZEROS: Final = (
    *("length_s", "workers", "intervals", "unconfirmed_max"),
    *("loop_lag_ns", "gc_collections", "gc_pause_ns"),
)


def _step_figures() -> dict[str, Column]:
    """The figures that follow from a step's totals."""
    messages = F.when(F.col("delivered") > 0, F.col("delivered")).otherwise(F.col("published"))

    def per_message(amount: Column) -> Column:
        return F.when(messages > 0, amount / messages)

    def of_broker(amount: Column) -> Column:
        # Beside a background load or another group, nobody can tell for which load the broker worked.
        return F.when(~F.col("background") & (F.col("groups") == 1), per_message(amount))

    def series(name: str) -> Column:
        return F.when(F.col("open_loop"), F.lit(f"{name}_sched")).otherwise(F.lit(name))

    figures = {f"{name}_per_s": rate(name) for name in RATED}
    return figures | {
        "settings": F.coalesce(F.col("settings"), F.lit("{}")),
        "t_s": since_start("start_ns"),
        "e2e_series": series("e2e"),
        "confirm_series": series("confirm"),
        "worker_cpu_us_per_message": per_message(F.col("worker_cpu_ns") / 1000),
        "broker_cpu_us_per_message": of_broker(F.col("broker_cpu_share") * F.col("length_s") * 1e6),
        "wal_bytes_per_message": of_broker(F.col("wal_bytes_per_s") * F.col("length_s")),
    }
