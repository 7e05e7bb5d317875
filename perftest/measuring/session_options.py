"""Options of a measured run beside its plan: how the run is recorded, shown and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from infra.layout import PlacedLayout
from perftest.ci.job_outputs import JobOutputs
from perftest.spec.expected.slo import Objective
from perftest.spec.load_hosts import LoadHost

if TYPE_CHECKING:
    from perftest.actions.action_target import NodesElsewhere
    from perftest.actions.link_actions import HostFaults
    from perftest.engine.workers.remote_worker import StartWorker


class LoadFrom(Protocol):
    """The hosts that generate the load of a run, where this machine only coordinates them."""

    @property
    def start_worker(self) -> StartWorker:
        """Starts a worker on the host that its first message names."""

    def load_hosts(self, uris: Sequence[str]) -> tuple[LoadHost, ...]:
        """The hosts, for a plan with these URIs."""

    def addresses(self) -> dict[str, str]:
        """The addresses at which the hosts may be asked for the time, by their names."""

    def measure_round_trips(self, nodes: Mapping[str, tuple[str, int]]) -> None:
        """Measure how far each load host is from the nodes with these names, addresses and ports, for :meth:`facts`."""

    def facts(self) -> list[dict[str, Any]]:
        """A row for each host, for the manifest."""

    def samples(self) -> Iterable[dict[str, Any]]:
        """The samples of all hosts that came since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """The address at which Prometheus may scrape a run, and the names, labels and further gauges of its metrics."""

    host: str = "127.0.0.1"
    port: int = 8080
    path: str = "/metrics"
    prefix: str = "perftest_"
    labels: Mapping[str, str] = field(default_factory=dict)
    exposed: Mapping[str, float] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that ``run`` and ``sweep`` share, and some that only ``run`` has.

    ``cluster``
        directory of a local cluster that keeps running.
    ``layout``
        where the nodes of a cluster that is started for the run keep their files.
    ``rabbitmq_home``
        the RabbitMQ to start if one is started; None: the installed one.
    ``label``, ``metrics_format``, ``in_millis``
        name of the run in PerfTest's lines and CSV, format of the lines, and unit of their latencies.
    ``plain``
        whether progress without a terminal is PerfTest's lines.
    ``output_file``, ``hlog_file``
        files for copies of the intervals and of the histograms.
    ``objectives``
        objectives of the run; a missed objective makes the exit code 4.
    ``assert_findings``
        whether findings that are not all reproduced make the exit code 4.
    ``percentiles``, ``legacy_latency``
        further latencies to show below the table at the end.
    ``metrics``
        metrics endpoint for Prometheus; None: no endpoint.
    ``otlp``
        address of a collector of OpenTelemetry that is sent metrics; empty: none.
    ``again``, ``target``
        command that continues an interrupted run, and the option that names the broker in that command.
    ``resumed``
        run whose remaining steps this run measures.
    ``broker_metrics``
        addresses that tell the broker's own figures.
    ``command``
        command that makes this run again; empty: the command line as typed.
    ``actions``
        the actions of ``--at`` as typed, which are the last ones of the timeline.
    ``load_from``
        hosts that generate the load; None: this machine.
    ``faults``
        changes hosts and links for a timeline; None: everything is on this machine.
    ``nodes``
        the nodes of ``cluster``, if they run on other hosts.
    ``prepare``
        starts on other hosts what one run needs there, gives the options with ``load_from``, ``faults``, ``cluster``
        and ``nodes``, and ends everything with the run; None: all of the run is on this machine.
    ``job``
        files and lines with the verdicts for a build pipeline.
    ``is_round``
        whether this run is a round of a sweep, so that only the sweep names the next commands.
    """

    out: Path
    ui: str
    as_json: bool
    report: bool
    cluster: Path | None = None
    layout: PlacedLayout | None = None
    rabbitmq_home: Path | None = None
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
    otlp: str = ""
    again: str = "perftest sweep"
    target: str = ""
    resumed: Path | None = None
    job: JobOutputs = field(default_factory=JobOutputs)
    is_round: bool = False
    broker_metrics: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    assert_findings: bool = False
    load_from: LoadFrom | None = None
    faults: HostFaults | None = None
    nodes: NodesElsewhere | None = None
    prepare: Callable[[Options], AbstractContextManager[Options]] | None = None
