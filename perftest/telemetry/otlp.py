"""Metrics of a run for a collector of OpenTelemetry: OTLP over HTTP, every few seconds and once at the end.

The names are those of the semantic conventions for messaging, where these have a name. A confirm is the end of the
operation ``publish``, so its latency is ``messaging.client.operation.duration``. The conventions have no name for the
time from a publish to the delivery. That time is ``perftest.message.latency``, and the fates of messages are
``perftest.messages``.

The SDK's instruments take single values, and the run has counts of buckets. So the points are made here, and the SDK
encodes and sends them. Imported only when a collector was asked for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import perftest
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval
from perftest.telemetry.latency_buckets import BOUNDS_NS, bucket_counts
from perftest.telemetry.run_totals import OUTCOMES, LoadTotals, RunTotals
from perftest.tell import tell

PERIOD_S: Final = 10.0
"""Time between two exports."""
TIMEOUT_S: Final = 5
"""Longest wait for the collector's answer."""
PATH: Final = "/v1/metrics"
"""Path of the metrics below a collector's base address."""

_PUBLISH: Final = {"messaging.operation.name": "publish", "messaging.operation.type": "send"}
_DELIVER: Final = {"messaging.operation.name": "deliver", "messaging.operation.type": "receive"}
_Attributes = dict[str, Any]
_Points = list[tuple[_Attributes, LoadTotals]]


class OtlpSender:
    """Sends the totals of a run until :meth:`close`. A collector that does not answer costs the run nothing but a note
    at the end."""

    def __init__(self, url: str, label: str, *, period_s: float = PERIOD_S) -> None:
        """``label`` is the name of the run; ``url`` is the base address of a collector, or the whole address of its
        metrics."""
        logging.getLogger("opentelemetry").disabled = True  # its warnings would be lines on the live screen
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter").disabled = True
        self._url = address_of(url)
        self._exporter = OTLPMetricExporter(endpoint=self._url, timeout=TIMEOUT_S)
        facts = {"service.name": "perftest", "service.version": perftest.__version__, "service.instance.id": label}
        self._resource = Resource.create(facts)
        self._totals, self._lock = RunTotals(), threading.Lock()
        self._started_ns = time.time_ns()
        self._asked = self._failed = 0
        self._ended = threading.Event()
        self._period_s = period_s
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def interval(self, record: Interval) -> None:
        """Add an interval of one worker."""
        with self._lock:
            self._totals.add(record)

    def close(self) -> None:
        """Send the last totals, and say if the collector did not take all."""
        self._ended.set()
        self._thread.join()
        self._exporter.shutdown()
        if self._failed:
            tell(f"note: {self._failed} of {self._asked} exports of metrics did not reach {self._url}")

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            self._send()
        self._send()

    def _send(self) -> None:
        with self._lock:
            data = metrics_data(self._totals, self._resource, self._started_ns, time.time_ns())
        self._asked += 1
        self._failed += self._exporter.export(data) is not MetricExportResult.SUCCESS


def address_of(url: str) -> str:
    """The address of a collector's metrics: a base address gets the path that OTLP has."""
    return url.rstrip("/") + PATH if urlsplit(url).path in ("", "/") else url


def metrics_data(totals: RunTotals, resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """The totals as the SDK sends them; times are Unix nanoseconds."""
    times = (start_ns, now_ns)
    loads: _Points = [
        ({"messaging.system": "rabbitmq", "perftest.step": step} | ({"perftest.group": group} if group else {}), load)
        for (step, group), load in totals.loads.items()
    ]
    scope = ScopeMetrics(InstrumentationScope("perftest", perftest.__version__), list(_metrics(loads, times)), "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metrics(loads: _Points, times: tuple[int, int]) -> Iterator[Metric]:
    sent = [_number(attributes | _PUBLISH, load.counts["published"], times) for attributes, load in loads]
    yield _sum("messaging.client.sent.messages", "Number of messages that publishers sent", sent)
    taken = [_number(attributes | _DELIVER, load.counts["handled"], times) for attributes, load in loads]
    yield _sum("messaging.client.consumed.messages", "Number of messages that were delivered to consumers", taken)
    fates = [
        _number({**attributes, "perftest.outcome": outcome}, load.counts[outcome], times)
        for attributes, load in loads
        for outcome in OUTCOMES
    ]
    yield _sum("perftest.messages", "Number of messages by what became of them", fates)
    confirms = [_latency(attributes | _PUBLISH, load.confirm, times) for attributes, load in loads]
    yield _histogram("messaging.client.operation.duration", "Time from a publish to its confirm", confirms)
    latencies = [_latency(attributes, load.e2e, times) for attributes, load in loads]
    yield _histogram("perftest.message.latency", "Time from a publish to the delivery of the message", latencies)


def _number(attributes: _Attributes, value: int, times: tuple[int, int]) -> NumberDataPoint:
    return NumberDataPoint(dict(attributes), *times, value)


def _latency(attributes: _Attributes, found: Histogram, times: tuple[int, int]) -> HistogramDataPoint:
    """A point in seconds."""
    return HistogramDataPoint(
        dict(attributes),
        *times,
        count=found.total,
        sum=found.mean_ns * found.total / 1e9,
        bucket_counts=bucket_counts(found),
        explicit_bounds=[bound_ns / 1e9 for bound_ns in BOUNDS_NS],
        min=found.min_ns / 1e9,
        max=found.max_ns / 1e9,
    )


def _sum(name: str, about: str, points: Sequence[NumberDataPoint]) -> Metric:
    return Metric(name, about, "{message}", Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True))


def _histogram(name: str, about: str, points: Sequence[HistogramDataPoint]) -> Metric:
    known = [point for point in points if point.count]
    return Metric(name, about, "s", HistogramData(known, AggregationTemporality.CUMULATIVE))
