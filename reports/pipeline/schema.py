"""The tables a store publishes: names, columns, types, units.

Every column is declared once, here, with its unit; the Arrow schema, Spark's ``StructType`` and the columns of the
pandas frames that the pages read all derive from it, so they cannot drift apart.

Units: names that end in ``_ns`` are nanoseconds (``start_ns``, ``t_ns``, ``started_ns``, ``ended_ns``: Unix time, UTC),
``_s`` seconds, ``_per_s`` a rate, ``_bytes`` octets, ``_percent`` 0..100, ``_share`` a part of one core (1.0 is a whole
core). ``t_s`` is seconds since the run started, by the coordinator's clock.

In pandas, a column that may be null and holds integers arrives as ``float64`` with NaN; all others keep their type.
Unix times are never null, so they never lose digits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, NamedTuple

import pandas as pd
import pyarrow as pa

STORE_VERSION: Final = 2
"""Raised when a reader of the previous version would misread a store."""

SERIES: Final = ("e2e", "e2e_sched", "confirm", "confirm_sched", "lag", "ack")
"""The latencies of a run directory, as :class:`perftest.metrics.interval.Series` names them: ``e2e`` and ``confirm``
start at the actual send, ``*_sched`` at the intended time (open loop only), ``lag`` is the distance between the two."""

PERCENTILES: Final = {
    "p50": 50.0,
    "p75": 75.0,
    "p90": 90.0,
    "p95": 95.0,
    "p99": 99.0,
    "p999": 99.9,
    "p9999": 99.99,
}
"""Column prefix to percentile, in the order of the columns."""

SAMPLES_ABOVE: Final = 10
"""A percentile is supported when at least this many samples lie above it: p99 needs 1000 samples, p99.9 10 000."""

WHOLE_RUN: Final = 0
"""The ``step`` of a row of ``latency`` that covers every steady interval of the run; steps count from 1."""


class Type(StrEnum):
    """The few column types that are used, so that each has one obvious Arrow and one obvious Spark form."""

    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"


ARROW_TYPES: Final = {Type.TEXT: pa.string(), Type.INT: pa.int64(), Type.FLOAT: pa.float64(), Type.BOOL: pa.bool_()}


class Column(NamedTuple):
    """One column; ``nullable`` columns may have no value, and ``doc`` says when."""

    name: str
    type: Type
    doc: str
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: its grain in words and its columns. ``order`` sorts the rows a reader gets."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, column by column."""
        return pa.schema([pa.field(c.name, ARROW_TYPES[c.type], c.nullable) for c in self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(column.name for column in self.columns)


def _text(name: str, doc: str, nullable: bool = False) -> Column:
    return Column(name, Type.TEXT, doc, nullable)


def _int(name: str, doc: str, nullable: bool = False) -> Column:
    return Column(name, Type.INT, doc, nullable)


def _float(name: str, doc: str, nullable: bool = False) -> Column:
    return Column(name, Type.FLOAT, doc, nullable)


def _bool(name: str, doc: str, nullable: bool = False) -> Column:
    return Column(name, Type.BOOL, doc, nullable)


RUN_ID: Final = _text("run_id", "the run's id, as in its manifest")
STEP: Final = _int("step", "number of the step, from 1")
LABEL: Final = _text("label", "the step in words, for example in_flight=64")
SERIES_NAME: Final = _text("series", "one of SERIES")
PAYLOAD: Final = _text("payload", "HdrHistogram V2 compressed, base64: 1 ns .. 1 h, 3 significant figures")


def _percentiles(prefix: str, names: tuple[str, ...], nullable: bool) -> tuple[Column, ...]:
    """Columns ``{prefix}{p}_ns``; values are the highest equivalent value of the merged histogram."""
    return tuple(_int(f"{prefix}{name}_ns", "from the merged histogram", nullable) for name in names)


def _summary(prefix: str, nullable: bool) -> tuple[Column, ...]:
    """Count, mean, percentiles and maximum of one series."""
    return (
        _int(f"{prefix}count", "samples", nullable),
        _float(f"{prefix}mean_ns", "mean of the merged histogram; never a headline", nullable),
        *_percentiles(prefix, tuple(PERCENTILES), nullable),
        _int(f"{prefix}max_ns", "highest value, within 3 significant figures", nullable),
    )


RUNS: Final = Table(
    name="runs",
    grain="one row per run",
    order=("started_ns", "run_id"),
    columns=(
        RUN_ID,
        _text("name", "the plan's name, for example flow_control/in_flight"),
        _text("title", "the plan's title"),
        _text("source", "where the experiment was published; empty when it was not"),
        _text("state", "finished, interrupted, failed, or running: still running or killed"),
        _text("ended_reason", "why it ended", True),
        _int("exit_code", "of the command", True),
        _int("started_ns", "Unix time"),
        _int("ended_ns", "Unix time; of a killed run, the end of its last interval"),
        _float("length_s", "from start to end"),
        _text("loop", "open or closed"),
        _text("isolation", "live or isolated"),
        _text("swept", "JSON list of the settings that differ between steps, in the order to show"),
        _float("interval_s", "nominal length of an interval"),
        _int("steps_planned", "steps of the plan; the table `steps` has those that began"),
        _int("seed", "of the plan"),
        _text("queue_types", "distinct queue types, comma separated"),
        _text("product", "the broker's own name"),
        _text("broker_version", "the broker's own version"),
        _text("platform", "what the broker runs on, in its words"),
        _text("cluster", "local, remote, … as the run knew it"),
        _int("broker_nodes", "nodes the run knew of"),
        _text("durability", "what a confirm meant in this run, in words"),
        _bool("one_machine", "generator and every broker node it knew of shared one machine"),
        _int("host_count", "load hosts"),
        _int("clock_bound_ns", "largest error bound of a load host's clock offset; 0 on one host"),
        _text("command", "the command line, as JSON list"),
        _text("tool_version", "of the load generator"),
        _text("tool_commit", "of the load generator; empty when unknown"),
        _bool("tool_dirty", "the tool had uncommitted changes"),
        _text("plan_digest", "SHA-256 of the canonical plan"),
        _text("path", "the run directory as it was given"),
        _text("manifest", "the whole manifest.json"),
    ),
)

SETTINGS: Final = (
    _int("in_flight", "most unconfirmed messages per publisher; 0: no confirms", True),
    _int("prefetch", "basic.qos per consumer; 0: unlimited", True),
    _int("ack_interval", "deliveries per basic.ack; 0: automatic acknowledgement", True),
    _float("rate", "messages per second and publisher; null: closed loop", True),
    _int("size_bytes", "octets of body", True),
    _int("publishers", "publishers", True),
    _int("consumers", "consumers", True),
    _bool("persistent", "delivery mode 2", True),
    _bool("mandatory", "mandatory flag", True),
)
"""One column per setting, whether swept or not; `runs.swept` says which differ. Null where the run did not say."""

COUNTS: Final = (
    _int("intended", "messages the schedule asked for; closed loop: equal to published"),
    _int("published", "messages sent"),
    _int("confirmed", "positive confirms"),
    _int("nacked", "negative confirms"),
    _int("returned", "unroutable, returned"),
    _int("delivered", "deliveries"),
    _int("redelivered", "deliveries flagged redelivered"),
    _int("acked", "acknowledged deliveries"),
    _int("published_bytes", "octets of body sent"),
    _int("negative_latencies", "deliveries before their send: clocks disagree"),
)
RATES: Final = (
    _float("intended_per_s", "what the schedule asked for"),
    _float("published_per_s", "sent"),
    _float("confirmed_per_s", "confirmed"),
    _float("delivered_per_s", "delivered"),
)

STEPS: Final = Table(
    name="steps",
    grain="one row per step that began: its steady intervals only",
    order=("run_id", "step"),
    columns=(
        RUN_ID,
        STEP,
        LABEL,
        _text("settings", "the step's settings as JSON"),
        *SETTINGS,
        _float("duration_s", "planned length with warm-up", True),
        _float("warmup_s", "planned warm-up", True),
        _int("start_ns", "Unix time of the first steady interval; of the first interval when none was steady"),
        _float("t_s", "the same since the run's start"),
        _float("length_s", "measured steady time; 0 when the run ended in warm-up"),
        _int("workers", "workers that reported"),
        _int("intervals", "steady intervals, all workers"),
        *COUNTS,
        *RATES,
        _int("unconfirmed_max", "most unconfirmed messages of one worker"),
        _text("e2e_series", "the series to lead with: e2e_sched in an open loop, else e2e"),
        _text("confirm_series", "the series to lead with: confirm_sched in an open loop, else confirm"),
        *(column for series in SERIES for column in _summary(f"{series}_", nullable=True)),
        _float("worker_cpu_share", "CPU of the busiest worker", True),
        _float("worker_cpu_us_per_message", "CPU of all workers per delivered message (published, if none)", True),
        _float("worker_wait_share", "time that the most hindered worker waited for a core", True),
        _int("loop_lag_ns", "longest delay of a worker's event loop"),
        _int("gc_collections", "garbage collections of all workers"),
        _int("gc_pause_ns", "longest garbage collection of a worker"),
        _float("broker_cpu_us_per_message", "CPU of all known nodes per delivered message (published, if none)", True),
        _float("broker_cpu_share", "cores used by all known nodes together", True),
        _float("wal_syncs_per_s", "of all known nodes together", True),
        _float("wal_bytes_per_message", "of all known nodes together, per delivered message", True),
        _float("host_cpu_percent", "mean CPU of the busiest load host while steady", True),
        _float("host_steal_percent", "largest steal seen on a load host while steady", True),
    ),
)

LATENCY: Final = Table(
    name="latency",
    grain="one row per step and series over its steady intervals, and one per run and series (step 0)",
    order=("run_id", "step", "series"),
    columns=(
        RUN_ID,
        _int("step", "number of the step; 0 is the whole run"),
        SERIES_NAME,
        *_summary("", nullable=False),
        PAYLOAD,
    ),
)

SPECTRUM: Final = Table(
    name="spectrum",
    grain="one row per point of a percentile curve, evenly spaced in nines",
    order=("run_id", "step", "series", "percentile"),
    columns=(
        RUN_ID,
        STEP,
        LABEL,
        SERIES_NAME,
        _float("percentile", "0 .. below 100"),
        _float("nines", "-log10(1 - percentile / 100): 2 is p99"),
        _int("value_ns", "highest equivalent value"),
        _int("count_above", "samples above value_ns"),
        _bool("supported", f"at least {SAMPLES_ABOVE} samples lie beyond the percentile"),
    ),
)

STAGES: Final = Table(
    name="stages",
    grain="one row per step, chain and stage within the broker, over all nodes and the steady time; none for a broker "
    "that keeps no latency anatomy",
    order=("run_id", "step", "chain", "stage"),
    columns=(
        RUN_ID,
        STEP,
        LABEL,
        _text("chain", "what is followed: delivery, confirm, settle"),
        _text("stage", "between which two stamps: fsync, replicate, …; total is the whole chain"),
        *_summary("", nullable=False),
        PAYLOAD,
    ),
)

TIMELINE_SERIES: Final = SERIES[:5]
TIMELINE_PERCENTILES: Final = ("p50", "p95", "p99")

TIMELINE: Final = Table(
    name="timeline",
    grain="one row per step, phase and slot of one interval's length, over all workers",
    order=("run_id", "t_s", "step", "phase"),
    columns=(
        RUN_ID,
        STEP,
        LABEL,
        _text("phase", "warmup, steady or drain"),
        _int("slot", "number of the slot within step and phase, from 0"),
        _int("start_ns", "Unix time of the slot's first interval, by the coordinator's clock"),
        _float("t_s", "start of the slot"),
        _float("length_s", "measured time within the slot"),
        _int("workers", "workers with an interval in the slot"),
        *RATES,
        _float("acked_per_s", "acknowledged"),
        _int("unconfirmed", "at the end of the slot, all workers"),
        _int("redelivered", "deliveries flagged redelivered"),
        _int("nacked", "negative confirms"),
        _float("worker_cpu_share", "CPU of the busiest worker"),
        _int("loop_lag_ns", "longest delay of a worker's event loop"),
        *(
            column
            for series in TIMELINE_SERIES
            for column in (
                _int(f"{series}_count", "samples", True),
                *_percentiles(f"{series}_", (*TIMELINE_PERCENTILES, "max"), nullable=True),
            )
        ),
    ),
)

INTERVALS: Final = Table(
    name="intervals",
    grain="one row per interval and worker, as it was recorded, clock-corrected",
    order=("run_id", "start_ns", "worker"),
    columns=(
        RUN_ID,
        _text("host", "load host"),
        _text("worker", "worker"),
        STEP,
        _text("phase", "warmup, steady or drain"),
        _int("slot", "as in timeline"),
        _int("start_ns", "Unix time, by the coordinator's clock"),
        _float("t_s", "the same since the run's start"),
        _int("length_ns", "measured length"),
        *COUNTS,
        _int("unconfirmed", "at the end of the interval"),
        _int("worker_cpu_ns", "CPU time of the worker within the interval"),
        _int("loop_lag_ns", "longest delay of the worker's event loop"),
    ),
)

EVENTS: Final = Table(
    name="events",
    grain="one row per event",
    order=("run_id", "t_ns"),
    columns=(
        RUN_ID,
        _int("t_ns", "Unix time"),
        _float("t_s", "since the run's start"),
        _text("kind", "as in events.jsonl: step_started, steady, connection_lost, …"),
        _int("step", "number of the step, where there is one", True),
        _text("worker", "worker, where there is one", True),
        _text("text", "a sentence; empty when the kind says it all"),
        _text("event", "the whole record as JSON"),
    ),
)

HOSTS: Final = Table(
    name="hosts",
    grain="one row per load host",
    order=("run_id", "host"),
    columns=(
        RUN_ID,
        _text("host", "the host's name in this run"),
        _text("hostname", "its own name"),
        _int("cores", "logical processors", True),
        _text("cpu", "model"),
        _int("memory_bytes", "of memory", True),
        _text("kernel", "kernel"),
        _text("filesystem", "of the run directory"),
        _text("clock", "clock the latencies were taken from"),
        _int("clock_offset_ns", "its clock minus the coordinator's"),
        _int("clock_bound_ns", "error bound of that offset"),
    ),
)

HOST_SAMPLES: Final = Table(
    name="host_samples",
    grain="one row per sample of a load host",
    order=("run_id", "t_s", "host"),
    columns=(
        RUN_ID,
        _text("host", "the host's name in this run"),
        _int("t_ns", "Unix time"),
        _float("t_s", "since the run's start"),
        _float("cpu_percent", "of all processors", True),
        _float("load1", "load average over one minute", True),
        _float("steal_percent", "time taken by the hypervisor", True),
        _int("memory_available_bytes", "memory that could be had", True),
    ),
)

BROKERS: Final = Table(
    name="brokers",
    grain="one row per sample of a broker node; rates are differences to the node's previous sample",
    order=("run_id", "t_s", "node"),
    columns=(
        RUN_ID,
        _text("node", "name of the node"),
        _int("pid", "process id; a new one is a restart", True),
        _int("t_ns", "Unix time"),
        _float("t_s", "since the run's start"),
        _text("role", "leader, follower, …; empty when unknown"),
        _int("rss_bytes", "resident memory", True),
        _int("cpu_ns", "cumulative CPU time of the process", True),
        _float("length_s", "time since the previous sample; null for the first of a process", True),
        _float("cpu_share", "cores used since the previous sample", True),
        _float("wal_syncs_per_s", "WAL syncs", True),
        _float("wal_bytes_per_s", "octets written to the WAL", True),
        _text("metrics", "all cumulative metrics as JSON"),
    ),
)

LEDGER: Final = Table(
    name="ledger",
    grain="one row per run that wrote a ledger",
    order=("run_id",),
    columns=(
        RUN_ID,
        _bool("complete", "every worker's account is in it"),
        _bool("drained", "queues were emptied before the account was closed"),
        *(
            _int(name, "messages")
            for name in (
                "published",
                "confirmed",
                "nacked",
                "returned",
                "unconfirmed",
                "delivered",
                "redelivered",
                "unique",
                "republished",
                "undelivered",
                "lost",
                "duplicated",
                "reordered",
                "unexpected",
                "damaged",
            )
        ),
        _text("examples", "JSON list of examples"),
        _text("verdict", "ok, violated or unknown"),
    ),
)

QUARANTINE: Final = Table(
    name="quarantine",
    grain="one row per record that could not be used",
    order=("run_id", "file", "offset"),
    columns=(
        RUN_ID,
        _text("file", "file in the run directory"),
        _int("offset", "octets from the start of the file to the start of the line"),
        _text("reason", "why it was set aside"),
        _text("raw", "the first 200 characters of the line"),
    ),
)

TABLES: Final = (
    RUNS,
    STEPS,
    LATENCY,
    SPECTRUM,
    STAGES,
    TIMELINE,
    INTERVALS,
    EVENTS,
    HOSTS,
    HOST_SAMPLES,
    BROKERS,
    LEDGER,
    QUARANTINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """A store in memory: one frame per table, with the columns of :data:`TABLES`, sorted by each table's order.

    A table without rows still has its columns and types.
    """

    runs: pd.DataFrame
    steps: pd.DataFrame
    latency: pd.DataFrame
    spectrum: pd.DataFrame
    stages: pd.DataFrame
    timeline: pd.DataFrame
    intervals: pd.DataFrame
    events: pd.DataFrame
    hosts: pd.DataFrame
    host_samples: pd.DataFrame
    brokers: pd.DataFrame
    ledger: pd.DataFrame
    quarantine: pd.DataFrame

    def of(self, run_id: str) -> Tables:
        """The rows of one run, with fresh row numbers."""
        frames = {}
        for field in fields(self):
            frame: pd.DataFrame = getattr(self, field.name)
            frames[field.name] = frame[frame["run_id"] == run_id].reset_index(drop=True)
        return Tables(**frames)
