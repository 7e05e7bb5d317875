"""How a measured run is kept and shown: what its command line says beside the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perftest.spec.slo import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """Where Prometheus may scrape a run, and the names, labels and further gauges of its metrics."""

    host: str = "127.0.0.1"
    port: int = 8080
    path: str = "/metrics"
    prefix: str = "perftest_"
    labels: Mapping[str, str] = field(default_factory=dict)
    exposed: Mapping[str, float] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``run`` and ``sweep`` have in common, and what only ``run`` has.

    ``cluster``
        the directory of a cluster that is kept.
    ``label``, ``metrics_format``, ``in_millis``
        the name of the run in PerfTest's lines and CSV, the format of the lines, and the unit of their latencies.
    ``plain``
        whether those lines are the progress where there is no terminal.
    ``output_file``, ``hlog_file``
        copies of the intervals and of the histograms, for those who want them in one place.
    ``objectives``
        what has to be reached, else the exit code is 4.
    ``percentiles``, ``legacy_latency``
        what is shown at the end beside the table.
    ``metrics``
        where Prometheus may scrape the run, if it may.
    ``target``
        the flag that names the broker in a command to copy.
    ``resumed``
        the run whose steps this one takes up.
    ``broker_metrics``
        addresses that tell the broker's own figures.
    ``command``
        the command that makes this run again; empty: what was typed.
    ``is_round``
        whether this run is one of several, after which it is said what to do next.
    """

    out: Path
    ui: str
    as_json: bool
    report: bool
    cluster: Path | None = None
    label: str = ""
    metrics_format: str = "default"
    plain: bool = False
    in_millis: bool = False
    output_file: Path | None = None
    hlog_file: Path | None = None
    objectives: tuple[Objective, ...] = ()
    percentiles: tuple[float, ...] = ()
    legacy_latency: bool = False
    metrics: MetricsOptions | None = None
    target: str = ""
    resumed: Path | None = None
    is_round: bool = False
    broker_metrics: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
