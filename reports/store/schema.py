"""The tables a store publishes: names, columns, types, units.

Every column is declared once, here, with its unit; the Arrow schema, Spark's ``StructType`` and the columns of the
pandas frames that the pages read all derive from it, so they cannot drift apart.

Units: names that end in ``_ns`` are nanoseconds (``start_ns``, ``t_ns``, ``started_ns``, ``ended_ns``: Unix time, UTC),
``_s`` seconds, ``_per_s`` a rate, ``_bytes`` octets, ``_percent`` 0..100, ``_share`` a part of one core (1.0 is a whole
core; of ``steal_share`` all cores of the host). ``t_s`` is seconds since the run started, by the coordinator's clock.

In pandas, a column that may be null and holds integers arrives as ``float64`` with NaN; all others keep their type.
Unix times are never null, so they never lose digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from perftest.results import schema as files
from perftest.results.integrity import Damage, Damages
from perftest.results.trust import SAMPLES_ABOVE
from reports.store.columns import ColumnSpec, TableSpec, flag, integer, real, text

STORE_VERSION: Final = 7
"""Raised when a reader of the previous version would misread a store."""

SERIES: Final = ("e2e", "e2e_sched", "confirm", "confirm_sched", "lag", "ack")
"""The latencies of a run directory, as :class:`perftest.metrics.interval.Series` names them: ``e2e`` and ``confirm``
start at the actual send, ``*_sched`` at the intended time (open loop only), ``lag`` is the distance between the two."""

PERCENTILES: Final = {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "p9999": 99.99}
"""Column prefix to percentile, in the order of the columns."""

WHOLE_RUN: Final = 0
"""The ``step`` of a row of ``latency`` that covers every steady interval of the run; steps count from 1."""

RUN_ID: Final = text("run_id", "the run's id, as in its manifest")
STEP: Final = integer("step", "number of the step, from 1")
GROUP: Final = text("group", "name of the group of load, measured or background; empty in a run that measured only one")
LABEL: Final = text("label", "the step in words, for example in_flight=64")
SERIES_NAME: Final = text("series", f"{', '.join(SERIES)}; *_sched counts from the intended time")
PAYLOAD: Final = text("payload", "HdrHistogram V2 compressed, base64: 1 ns .. 1 h, 3 significant figures")


def _percentiles(prefix: str, names: tuple[str, ...], nullable: bool) -> tuple[ColumnSpec, ...]:
    """Columns ``{prefix}{p}_ns``; values are the highest equivalent value of the merged histogram."""
    return tuple(integer(f"{prefix}{name}_ns", "from the merged histogram", nullable) for name in names)


def _summary(prefix: str, nullable: bool) -> tuple[ColumnSpec, ...]:
    """Count, mean, percentiles and maximum of one series."""
    return (
        integer(f"{prefix}count", "samples", nullable),
        real(f"{prefix}mean_ns", "mean of the merged histogram; never a headline", nullable),
        *_percentiles(prefix, tuple(PERCENTILES), nullable),
        integer(f"{prefix}max_ns", "highest value; of stages within the broker, the top of its bucket", nullable),
    )


RUNS: Final = TableSpec(
    name="runs",
    grain="one row per run",
    order=("started_ns", "run_id"),
    columns=(
        RUN_ID,
        text("name", "the plan's name, for example flow_control/in_flight"),
        text("title", "the plan's title"),
        text("source", "where the experiment was published; empty when it was not"),
        text("state", "finished, interrupted, failed, or running: still running or killed"),
        text("ended_reason", "why it ended", True),
        integer("exit_code", "of the command", True),
        integer("started_ns", "Unix time"),
        integer("ended_ns", "Unix time; of a killed run, the end of its last interval"),
        real("length_s", "from start to end"),
        text("loop", "open, closed, or mixed: some steps are open; `steps.e2e_series` says which"),
        text("isolation", "live or isolated"),
        text("swept", "JSON list of the settings that differ between steps, in the order to show"),
        real("interval_s", "nominal length of an interval"),
        integer("steps_planned", "steps of the plan; the table `steps` has those that began"),
        integer("seed", "of the plan"),
        text("queue_types", "distinct queue types, comma separated"),
        text("product", "the broker's own name"),
        text("broker_version", "the broker's own version"),
        text("platform", "what the broker runs on, in its words"),
        text("cluster", "local, remote, … as the run knew it"),
        integer("broker_nodes", "nodes the run knew of"),
        text("durability", "what a confirm meant in this run, in words"),
        flag("one_machine", "generator and every broker node it knew of shared one machine"),
        integer("host_count", "load hosts"),
        integer("clock_bound_ns", "largest error bound of a load host's clock offset; 0 on one host"),
        text("command", "the command line, as JSON list"),
        text("tool_version", "of the load generator"),
        text("tool_commit", "of the load generator; empty when unknown"),
        flag("tool_dirty", "the tool had uncommitted changes"),
        text("plan_digest", "SHA-256 of the canonical plan"),
        text("path", "the run directory as it was given"),
        text("manifest", "the whole manifest.json"),
    ),
)

SETTINGS: Final = (
    integer("in_flight", "most unconfirmed messages per publisher; 0: no confirms", True),
    integer("prefetch", "basic.qos per consumer; 0: unlimited", True),
    integer("ack_interval", "deliveries per basic.ack; 0: automatic acknowledgement", True),
    real("rate", "messages per second and publisher; null: closed loop", True),
    integer("size_bytes", "octets of body", True),
    integer("publishers", "publishers", True),
    integer("consumers", "consumers", True),
    flag("persistent", "delivery mode 2", True),
    flag("mandatory", "mandatory flag", True),
)
"""One column per setting, whether swept or not; `runs.swept` says which differ. Null where the run did not say."""

SETTING_WORDS: Final = files.SETTING_WORDS
"""Values of settings that are no numbers to a person: in_flight 0 is no_confirms, as in a workload file."""

COUNTS: Final = (
    integer("intended", "messages the schedule asked for; closed loop: equal to published"),
    integer("published", "messages sent"),
    integer("confirmed", "positive confirms"),
    integer("nacked", "negative confirms"),
    integer("returned", "unroutable, returned"),
    integer("delivered", "deliveries"),
    integer("redelivered", "deliveries flagged redelivered"),
    integer("acked", "acknowledged deliveries"),
    integer("published_bytes", "octets of body sent"),
    integer("negative_latencies", "deliveries before their send: clocks disagree"),
)
RATES: Final = (
    real("intended_per_s", "what the schedule asked for"),
    real("published_per_s", "sent"),
    real("confirmed_per_s", "confirmed"),
    real("delivered_per_s", "delivered"),
)

STEPS: Final = TableSpec(
    name="steps",
    grain="one row per step that began and group of load: its steady intervals only",
    order=("run_id", "step", "group"),
    columns=(
        RUN_ID,
        STEP,
        GROUP,
        LABEL,
        text("settings", "the step's settings as JSON"),
        *SETTINGS,
        real("duration_s", "planned length with warm-up", True),
        real("warmup_s", "planned warm-up", True),
        integer("start_ns", "Unix time of the first steady interval; of the first interval when none was steady"),
        real("t_s", "the same since the run's start"),
        real("length_s", "measured steady time; 0 when the run ended in warm-up"),
        integer("workers", "workers that reported"),
        integer("intervals", "steady intervals, all workers"),
        *COUNTS,
        *RATES,
        integer("unconfirmed_max", "most unconfirmed messages of one worker"),
        text("e2e_series", "the series to lead with: e2e_sched in an open loop, else e2e"),
        text("confirm_series", "the series to lead with: confirm_sched in an open loop, else confirm"),
        *(column for series in SERIES for column in _summary(f"{series}_", nullable=True)),
        real("worker_cpu_share", "CPU of the busiest worker", True),
        real("worker_cpu_us_per_message", "CPU of all workers per delivered message (published, if none)", True),
        real("worker_wait_share", "time that the most hindered worker waited for a core", True),
        real("steal_share", "part of its CPU time that the hypervisor took from the load host that lost most", True),
        integer("loop_lag_ns", "longest delay of a worker's event loop"),
        integer("gc_collections", "garbage collections of all workers"),
        integer("gc_pause_ns", "longest garbage collection of a worker"),
        integer("clock_bound_ns", "most that two hosts' clocks leave open of a latency; null if none took two", True),
        integer("below_bound", "latencies between hosts that are below their bound; null likewise", True),
        integer("below_zero", "of these, those that came out negative and count as 0", True),
        integer("beyond_bound", "of these, those so negative that a clock must be wrong", True),
        real(
            "broker_cpu_us_per_message",
            "CPU of all known nodes per delivered message (published, if none); null beside another load",
            True,
        ),
        real("broker_cpu_share", "cores used by all known nodes together", True),
        real("wal_syncs_per_s", "of all known nodes together", True),
        real("wal_bytes_per_message", "of all known nodes together, per delivered message", True),
        real(
            "link_bodies",
            "octets that all nodes sent to each other per octet of body published; null if a node did not tell",
            True,
        ),
        real("host_cpu_percent", "mean CPU of the busiest load host while steady", True),
    ),
)

LATENCY: Final = TableSpec(
    name="latency",
    grain="one row per step, group of load and series over its steady intervals, and one per run, group and series "
    "(step 0)",
    order=("run_id", "step", "group", "series"),
    columns=(
        RUN_ID,
        integer("step", "number of the step; 0 is the whole run"),
        GROUP,
        SERIES_NAME,
        *_summary("", nullable=False),
        PAYLOAD,
    ),
)

SPECTRUM: Final = TableSpec(
    name="spectrum",
    grain="one row per point of a percentile curve, evenly spaced in nines",
    order=("run_id", "step", "group", "series", "percentile"),
    columns=(
        RUN_ID,
        STEP,
        GROUP,
        LABEL,
        SERIES_NAME,
        real("percentile", "0 .. below 100"),
        real("nines", "-log10(1 - percentile / 100): 2 is p99"),
        integer("value_ns", "highest equivalent value"),
        integer("count_above", "samples above value_ns"),
        flag("supported", f"at least {SAMPLES_ABOVE} samples lie beyond the percentile"),
    ),
)

STAGES: Final = TableSpec(
    name="stages",
    grain="one row per step, chain and stage within the broker, over all nodes and the steady time; none for a broker "
    "that keeps no latency anatomy",
    order=("run_id", "step", "chain", "stage"),
    columns=(
        RUN_ID,
        STEP,
        LABEL,
        text("chain", "what is followed: delivery, confirm, settle; fsync: no message, but all syncs of files"),
        text("stage", "between which two stamps: fsync, replicate, …; total is the whole chain; of fsync, the file"),
        *_summary("", nullable=False),
        PAYLOAD,
    ),
)

TIMELINE_SERIES: Final = SERIES[:5]
TIMELINE_PERCENTILES: Final = ("p50", "p95", "p99")

TIMELINE: Final = TableSpec(
    name="timeline",
    grain="one row per step, group of load, phase and slot of one interval's length, over all workers",
    order=("run_id", "t_s", "step", "group", "phase"),
    columns=(
        RUN_ID,
        STEP,
        GROUP,
        LABEL,
        text("phase", "warmup, steady or drain"),
        integer("slot", "number of the slot within step and phase, from 0"),
        integer("start_ns", "Unix time of the slot's first interval, by the coordinator's clock"),
        real("t_s", "start of the slot"),
        real("length_s", "measured time within the slot"),
        integer("workers", "workers with an interval in the slot"),
        *RATES,
        real("acked_per_s", "acknowledged"),
        integer("unconfirmed", "at the end of the slot, all workers"),
        integer("redelivered", "deliveries flagged redelivered"),
        integer("nacked", "negative confirms"),
        real("worker_cpu_share", "CPU of the busiest worker"),
        integer("loop_lag_ns", "longest delay of a worker's event loop"),
        *(
            column
            for series in TIMELINE_SERIES
            for column in (
                integer(f"{series}_count", "samples", True),
                *_percentiles(f"{series}_", (*TIMELINE_PERCENTILES, "max"), nullable=True),
            )
        ),
    ),
)

INTERVALS: Final = TableSpec(
    name="intervals",
    grain="one row per interval, worker and group of load, as it was recorded",
    order=("run_id", "start_ns", "worker", "group"),
    columns=(
        RUN_ID,
        text("host", "load host"),
        text("worker", "worker"),
        GROUP,
        STEP,
        text("phase", "warmup, steady or drain"),
        integer("slot", "as in timeline"),
        integer("start_ns", "Unix time, by the coordinator's clock"),
        real("t_s", "the same since the run's start"),
        integer("length_ns", "measured length"),
        *COUNTS,
        integer("unconfirmed", "at the end of the interval"),
        integer("worker_cpu_ns", "CPU time of the worker within the interval"),
        integer("loop_lag_ns", "longest delay of the worker's event loop"),
    ),
)

EVENTS: Final = TableSpec(
    name="events",
    grain="one row per event",
    order=("run_id", "t_ns"),
    columns=(
        RUN_ID,
        integer("t_ns", "Unix time"),
        real("t_s", "since the run's start"),
        text("kind", "as in events.jsonl: step_started, steady, connection_lost, …"),
        integer("step", "number of the step, where there is one", True),
        text("worker", "worker, where there is one", True),
        text("text", "a sentence; empty when the kind says it all"),
        text("event", "the whole record as JSON"),
    ),
)

HOSTS: Final = TableSpec(
    name="hosts",
    grain="one row per host that took part in the run: load hosts and hosts of broker nodes",
    order=("run_id", "host"),
    columns=(
        RUN_ID,
        text("host", "the host's name in this run"),
        text("hostname", "its own name"),
        integer("cores", "logical processors", True),
        text("cpu", "model"),
        integer("memory_bytes", "of memory", True),
        text("kernel", "kernel"),
        text("filesystem", "of the run directory"),
        text("clock", "clock the latencies were taken from"),
        integer("clock_offset_ns", "its clock minus the coordinator's"),
        integer("clock_bound_ns", "error bound of that offset"),
        text("roles", "load, broker, or both, comma separated", True),
        text("address", "under which the coordinator reached it; null for the coordinator's own host", True),
        text("python", "version of Python on it", True),
        text("tool_version", "of the load generator on it", True),
        real("clock_drift_ppm", "how fast its clock runs against the coordinator's", True),
        integer("round_trip_ns", "least time of a message from the coordinator and back", True),
        integer("link_bits_per_s", "speed of its fastest network interface, where its kernel tells", True),
        integer("start_skew_ns", "its first action after the moment that was set for all hosts", True),
        integer("stop_skew_ns", "its last action after the moment that was set for all hosts", True),
        real("lost_s", "since the run's start, when it was lost; null if it never was", True),
        text("lost_reason", "why it was lost", True),
    ),
)

HOST_SAMPLES: Final = TableSpec(
    name="host_samples",
    grain="one row per sample of a host; rates are differences to the host's previous sample",
    order=("run_id", "t_s", "host"),
    columns=(
        RUN_ID,
        text("host", "the host's name in this run"),
        integer("t_ns", "Unix time"),
        real("t_s", "since the run's start"),
        real("cpu_percent", "of all processors", True),
        real("load1", "load average over one minute", True),
        real("steal_percent", "time taken by the hypervisor", True),
        integer("memory_available_bytes", "memory that could be had", True),
        real("length_s", "time since the host's previous sample; null for its first", True),
        real("rx_bytes_per_s", "octets received, all network interfaces but the loopback", True),
        real("tx_bytes_per_s", "octets sent, all network interfaces but the loopback", True),
        real("disk_read_bytes_per_s", "octets read from all drives", True),
        real("disk_write_bytes_per_s", "octets written to all drives", True),
    ),
)

HOST_SERIES: Final = SERIES[:4]
"""The latencies of `host_steps`: end to end and of confirms."""

HOST_STEPS: Final = TableSpec(
    name="host_steps",
    grain="one row per step, group of load and host, over the step's steady time; none for a run on one host",
    order=("run_id", "step", "group", "host"),
    columns=(
        RUN_ID,
        STEP,
        GROUP,
        LABEL,
        text("host", "the host's name in this run"),
        real("length_s", "measured steady time on the host; 0 for a host without clients of the group"),
        integer("workers", "workers of the host that reported"),
        *COUNTS,
        *RATES,
        real("published_part", "of all that was published in the step, 0..1", True),
        real("delivered_part", "of all that was delivered in the step, 0..1", True),
        *(column for series in HOST_SERIES for column in _summary(f"{series}_", nullable=True)),
        real("worker_cpu_share", "CPU of the host's busiest worker", True),
        real("workers_cpu_percent", "CPU of all workers of the host, of all its cores", True),
        real("worker_wait_share", "time that the most hindered worker of the host waited for a core", True),
        real("steal_share", "part of its CPU time that the hypervisor took from the host", True),
        integer("loop_lag_ns", "longest delay of an event loop of the host's workers"),
        integer("gc_pause_ns", "longest garbage collection of a worker of the host"),
        real("host_cpu_percent", "mean CPU of the host, all its processes", True),
        real("rx_bytes_per_s", "octets received by the host", True),
        real("tx_bytes_per_s", "octets sent by the host", True),
        real("disk_read_bytes_per_s", "octets read from the host's drives", True),
        real("disk_write_bytes_per_s", "octets written to the host's drives", True),
    ),
)

CLOCKS: Final = TableSpec(
    name="clocks",
    grain="one row per exchange with a host's clock, and per model that was made of the exchanges; none for a run on "
    "one host",
    order=("run_id", "t_ns", "host", "kind"),
    columns=(
        RUN_ID,
        text("host", "the host's name in this run"),
        text("kind", "exchange: a message there and back; model: what all exchanges so far say"),
        text("phase", "before, during or after the run; empty for a model"),
        integer("t_ns", "Unix time, by the coordinator's clock"),
        real("t_s", "since the run's start"),
        integer("offset_ns", "the host's clock minus the coordinator's; of an exchange the middle of what is possible"),
        integer("bound_ns", "how far the true offset may be away from it"),
        integer("round_trip_ns", "time on the way, both ways together; null for a model", True),
    ),
)

LINKS: Final = TableSpec(
    name="links",
    grain="one row per step, node, peer and purpose: what the node sent to the peer in the step's steady time; none "
    "for a broker that does not tell",
    order=("run_id", "step", "node", "peer", "purpose"),
    columns=(
        RUN_ID,
        STEP,
        text("node", "the node that sent"),
        text("peer", "the node that received"),
        text("host", "host of the node that sent; empty when unknown"),
        text("peer_host", "host of the node that received; empty when unknown"),
        text(
            "purpose",
            "replication, consensus, snapshot, commands, deliveries, control, ring, mirror or sync; earlier: raft, "
            "proxied, other",
        ),
        real("bytes_per_s", "octets"),
        real("bytes_per_message", "octets per delivered message (published, if none) of all groups of load", True),
    ),
)

BROKERS: Final = TableSpec(
    name="brokers",
    grain="one row per sample of a broker node; rates are differences to the node's previous sample",
    order=("run_id", "t_s", "node"),
    columns=(
        RUN_ID,
        text("node", "name of the node"),
        integer("pid", "process id; a new one is a restart", True),
        integer("t_ns", "Unix time"),
        real("t_s", "since the run's start"),
        text("role", "leader, follower, …; empty when unknown"),
        text("host", "host of the node; null when unknown", True),
        integer("rss_bytes", "resident memory", True),
        integer("cpu_ns", "cumulative CPU time of the process", True),
        real("length_s", "time since the previous sample; null for the first of a process", True),
        real("cpu_share", "cores used since the previous sample", True),
        real("wal_syncs_per_s", "WAL syncs", True),
        real("wal_bytes_per_s", "octets written to the WAL", True),
        text("metrics", "all cumulative metrics as JSON"),
        text("queues", "where the node stands with each queue, as JSON: role, term, and indexes of its log", True),
    ),
)

WRITES: Final = TableSpec(
    name="writes",
    grain="one row per sample of a broker node and purpose of what it wrote since its previous sample; none for a "
    "broker that does not tell",
    order=("run_id", "t_s", "node", "purpose"),
    columns=(
        RUN_ID,
        text("node", "name of the node"),
        text("purpose", "wal, meta, snapshot, segment or classic"),
        integer("t_ns", "Unix time"),
        real("t_s", "since the run's start"),
        real("length_s", "time since the previous sample"),
        real("bytes_per_s", "octets written; null where the purpose counts none", True),
        real("syncs_per_s", "syncs"),
        real("sync_mean_ns", "mean length of these syncs; null where there was none", True),
    ),
)

LEDGER_COUNTS: Final = (
    integer("published", "sent by the publishers"),
    integer("republished", "sent again after a lost connection"),
    integer("confirmed", "positive publisher confirms"),
    integer("nacked", "negative publisher confirms"),
    integer("returned", "unroutable, handed back"),
    integer("unconfirmed", "neither confirmed nor nacked at the end"),
    integer("delivered", "deliveries, repeated ones included"),
    integer("redelivered", "deliveries flagged redelivered"),
    integer("unique", "different messages that arrived"),
    integer("undelivered", "confirmed, not delivered when the account was closed"),
    integer("lost", "confirmed, never delivered although the queues were drained"),
    integer("duplicated", "delivered again without the redelivered flag, and not published twice"),
    integer("reordered", "deliveries that broke the order that their queue promises"),
    integer("unexpected", "deliveries nobody published in this run"),
    integer("damaged", "bodies that failed their check"),
)
"""Numbers of messages; the page of a run shows them in this order, with these meanings."""

LEDGER: Final = TableSpec(
    name="ledger",
    grain="one row per run that wrote a ledger; a run with several groups of load has a row more for each of them",
    order=("run_id", "group"),
    columns=(
        RUN_ID,
        text("group", "name of the group of load; empty for all measured groups of the run together"),
        flag("complete", "every worker's account is in it"),
        flag("drained", "queues were emptied before the account was closed"),
        *LEDGER_COUNTS,
        text("examples", "JSON list of examples"),
        text("verdict", "ok, violated or unknown"),
    ),
)

WHOLE_FILE: Final = ""
"""``raw`` of a row of ``quarantine`` that is about a whole file: a damaged line always has text."""

QUARANTINE: Final = TableSpec(
    name="quarantine",
    grain="one row per record that could not be used, and per file that is not as the run left it",
    order=("run_id", "file", "offset"),
    columns=(
        RUN_ID,
        text("file", "file in the run directory"),
        integer("offset", "octets from the start of the file to the start of the line"),
        text("reason", "why it was set aside"),
        text("raw", "the first 200 characters of the line; empty for a whole file"),
    ),
)


def damages_of(quarantine: Iterable[Mapping[Any, Any]]) -> Damages:
    """The damage of one run, of its rows of the table ``quarantine``."""
    return Damages.of(
        Damage(file=str(row["file"]), line=None if row["raw"] == WHOLE_FILE else 0, reason=str(row["reason"]))
        for row in quarantine
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
    HOST_STEPS,
    CLOCKS,
    BROKERS,
    WRITES,
    LINKS,
    LEDGER,
    QUARANTINE,
)
