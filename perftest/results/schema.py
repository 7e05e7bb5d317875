"""The run directory: the only contract between the generator, the reports and the multi-host runner.

Files are written as the run goes, so that a killed run can still be reported; docs/internals/run-directory.md shows an
example of each. Times are Unix nanoseconds (UTC), durations nanoseconds, sizes octets, rates per second.

===================  ======================================================  ===============================
file                 one record is                                           written
===================  ======================================================  ===============================
manifest.json        the run: provenance and the resolved plan                at the start, again at the end
intervals.csv        one interval of one worker (PerfTest's columns first)   a line per interval
latency.hlog         one histogram of one series of one interval             a line each per interval
events.jsonl         something that happened                                  as it happens
host.jsonl           the state of the load host                              a line per interval
broker.jsonl         the state of one broker node, where it can be had       a line per interval and node
clocks.jsonl         an exchange with the clock of another host, or a model   as it happens, on several hosts only
stated.jsonl         percentiles that another tool states, no histogram       at the import, of foreign results only
ledger.json          what became of every message                            at the end (and at interruption)
result.json          a row per step                                          at the end, derived from the others
intervals.parquet    intervals.csv, typed                                    at the end, if pyarrow is there
===================  ======================================================  ===============================

A reader must cope with the files "at the end" being absent and with a last line that was cut short.
"""

from __future__ import annotations

from typing import Final

from perftest.spec.units import WORDS

SCHEMA_VERSION: Final = 1
"""Version of the run directory, raised when a reader of the previous version would misread one. Readers refuse a newer
version."""

MANIFEST: Final = "manifest.json"
INTERVALS_CSV: Final = "intervals.csv"
INTERVALS_PARQUET: Final = "intervals.parquet"
LATENCY_HLOG: Final = "latency.hlog"
EVENTS: Final = "events.jsonl"
HOST: Final = "host.jsonl"
BROKER: Final = "broker.jsonl"
CLOCKS: Final = "clocks.jsonl"
STATED: Final = "stated.jsonl"
LEDGER: Final = "ledger.json"
RESULT: Final = "result.json"

BESIDE_MANIFEST: Final = (
    *(INTERVALS_CSV, INTERVALS_PARQUET, LATENCY_HLOG, EVENTS, HOST, BROKER),
    *(CLOCKS, STATED, LEDGER, RESULT),
)
"""The files of a run that the manifest has checksums of, as soon as the run has ended."""

ROUNDS: Final = "sweep.json"
"""File of a sweep in rounds. It lies in the directory that holds the rounds, which are run directories."""
LAYOUTS: Final = "layouts.json"
"""File of a sweep over layouts. It lies in the directory that has a directory of rounds for each layout."""

PERFTEST_COLUMNS: Final = (
    "id",
    "time (s)",
    "published (msg/s)",
    "returned (msg/s)",
    "confirmed (msg/s)",
    "nacked (msg/s)",
    "received (msg/s)",
    "min consumer latency (µs)",
    "median consumer latency (µs)",
    "75th p. consumer latency (µs)",
    "95th p. consumer latency (µs)",
    "99th p. consumer latency (µs)",
    "min confirm latency (µs)",
    "median confirm latency (µs)",
    "75th p. confirm latency (µs)",
    "95th p. confirm latency (µs)",
    "99th p. confirm latency (µs)",
)
"""The columns of PerfTest's ``--output-file``, in its order; ours follow."""

COUNTS: Final = (
    *("intended", "published", "confirmed", "nacked", "returned"),
    *("delivered", "redelivered", "acked", "published_bytes"),
)
"""Columns that count events within an interval."""

HARM: Final = ("reordered", "duplicated", "unexpected", "damaged")
"""Columns that count what must not happen."""

LEFT_OPEN: Final = ("below_bound", "below_zero", "beyond_bound")
"""Columns that count latencies too short for the uncertainty of two clocks."""

LATER_COLUMNS: Final = (
    *("worker_wait_ns", "gc_collections", "gc_pause_ns", "steal_ns", *HARM, "group"),
    *("clock_bound_ns", *LEFT_OPEN),
)
"""Columns that runs of earlier versions do not have: 0 there, and empty for the group."""

TEXT_COLUMNS: Final = ("worker", "host", "phase", "group")
"""Our columns that hold text; all others hold whole numbers."""

OWN_COLUMNS: Final = (
    *("worker", "host", "step", "phase", "start_ns", "length_ns"),
    *COUNTS,
    *("unconfirmed", "negative_latencies", "worker_cpu_ns", "loop_lag_ns"),
    *LATER_COLUMNS,
)

HLOG_TAG: Final = "{series};step={step};phase={phase};host={host};worker={worker}"
HLOG_GROUP: Final = ";group={group}"
"""The tag of a line of latency.hlog. A line about a named group of load has the group at the end of its tag; a line
without a group is about the only load of its run.

Values are nanoseconds. The log's own time columns are seconds since its ``#[BaseTime: ...]`` header, and its maximum is
in milliseconds, as HdrHistogram's tools expect. ``series`` is one of :class:`perftest.metrics.interval.Series`, or
``stage.<chain>.<stage>``: the time that messages spent in one stage within a broker node (the node is the worker) over
the whole steady time of a step; see :mod:`perftest.results.stages`."""

SETTING_WORDS: Final = WORDS
"""Values of a step's ``settings`` that are no numbers to a person, by setting: ``in_flight`` 0 is ``no_confirms``, 2^30
``unlimited``; ``prefetch`` 0 ``unlimited``; ``ack_interval`` 0 ``automatic``."""

STAGE_PREFIX: Final = "stage."
