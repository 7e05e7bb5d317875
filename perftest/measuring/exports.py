"""Copies of a run's intervals for other programs: a CSV file (``-o``), metrics for Prometheus (``-mpr``) and
for OpenTelemetry (``--otlp``)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from perftest.engine.accounting.routing import copies_of as copies
from perftest.exits import explained
from perftest.measuring.session_options import MetricsOptions, Options
from perftest.metrics.interval import Interval
from perftest.screen.interval_merger import MergedInterval
from perftest.screen.perftest_lines import CsvFile
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from perftest.telemetry.otlp import OtlpSender


def copies_of(plan: Plan) -> dict[tuple[str, int], int]:
    """Number of deliveries of each message, by the names of the measured groups and the numbers of their steps."""
    return {
        (group.name, step.number): copies(plan.only(group), step.settings.consumers)
        for group in plan.measured
        for step in group.steps
    }


class MetricsServer:
    """A metrics endpoint that is open until :meth:`close`."""

    def __init__(self, metrics: MetricsOptions, plan: Plan) -> None:
        """Open the port. Raises CliError."""
        # prometheus-client is imported only if metrics are asked for.
        from perftest.telemetry.prometheus import Endpoint, RunCollector

        self._collector = RunCollector(
            prefix=metrics.prefix,
            labels=metrics.labels,
            command=metrics.command,
            exposed=metrics.exposed,
            copies=copies_of(plan),
        )
        fix = "choose another port with -mpp, another address with --metrics-host, or leave out -mpr"
        with explained("metrics cannot be served", f"{metrics.host}:{metrics.port}", fix):
            self._endpoint = Endpoint(self._collector, host=metrics.host, port=metrics.port, path=metrics.path)

    def interval(self, record: Interval) -> None:
        """Add an interval of one worker to the metrics."""
        self._collector.interval(record)

    def close(self) -> None:
        """Close the port."""
        self._endpoint.close()


class Exports:
    """The CSV file, the metrics endpoint and the sender of metrics of a run, where they are asked for; ``label`` is the
    run's name in them."""

    def __init__(self, options: Options, plan: Plan) -> None:
        """Open the file and the port. Raises CliError."""
        self.label = options.label or f"test-{datetime.now().astimezone():%H%M%S-%f}"[:-3]
        path = options.output_file
        self._csv = CsvFile(path, self.label, in_millis=options.in_millis) if path is not None else None
        self._metrics = MetricsServer(options.metrics, plan) if options.metrics is not None else None
        self._sender = _sender(options.otlp, self.label) if options.otlp else None

    def interval(self, record: Interval) -> None:
        """Add an interval of one worker to the metrics of the measured load."""
        if self._metrics is not None and record.measured:
            self._metrics.interval(record)
        if self._sender is not None and record.measured:
            self._sender.interval(record)

    def merged(self, merged: MergedInterval, started_ns: int) -> None:
        """Add an interval of the measured load to the CSV file."""
        if self._csv is not None and merged.record.measured:
            self._csv.interval(merged, started_ns)

    def close(self) -> None:
        """Close the metrics endpoint, and send the last metrics."""
        if self._metrics is not None:
            self._metrics.close()
        if self._sender is not None:
            self._sender.close()


def _sender(url: str, label: str) -> OtlpSender:
    # The SDK is an extra, and takes a third of a second to import.
    from perftest.telemetry.otlp import OtlpSender

    return OtlpSender(url, label)
