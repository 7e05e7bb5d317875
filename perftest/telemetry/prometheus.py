"""A running load for Prometheus: PerfTest's metric names, and proper counters beside them.

PerfTest's own figures are gauges of the last interval's rate, and summaries of latencies in seconds; a dashboard that
was made for it works. A gauge that is scraped less often than it changes misses values in between, so every count is
there as a counter too (``_total``), which gives any rate. Quantiles are read from the exact histogram of the last
interval over all workers, sums and counts go on for the whole run. Quantiles of several runs cannot be added up, so the
latencies of the whole run are there as a histogram, too.

Imported only when an endpoint was asked for.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Series
from perftest.telemetry.latency_buckets import BOUNDS_NS, bucket_counts

DEFAULT_PORT: Final = 8080
DEFAULT_PATH: Final = "/metrics"
SILENCE_S: Final = 30
"""Time without a request after which a connection is closed."""
DEFAULT_PREFIX: Final = "perftest_"
QUANTILES: Final = (0.5, 0.75, 0.95, 0.99)
"""PerfTest's quantiles, and 0.999."""
OWN_QUANTILES: Final = (0.999,)

_COUNTS: Final = {
    "published": "published",
    "confirmed": "confirmed",
    "nacked": "nacked",
    "returned": "returned",
    "consumed": "handled",
    "redelivered": "redelivered",
    "acked": "acked",
}
"""PerfTest's names of counters, each with the counter of an interval."""
_RATES: Final = ("published", "confirmed", "nacked", "returned", "consumed")
_LATENCIES: Final = {
    "latency_seconds": (Series.E2E_SCHED, Series.E2E),
    "confirm_latency_seconds": (Series.CONFIRM_SCHED, Series.CONFIRM),
}
"""Series of latencies, from the intended time if there is a schedule."""
_HISTOGRAMS: Final = {
    "latency_seconds": "latency_histogram_seconds",
    "confirm_latency_seconds": "confirm_latency_histogram_seconds",
}
"""The name of the histogram of each summary; two kinds of metric cannot share a name."""


class RunCollector:
    """Takes the intervals of a run and gives metrics; ``labels`` stand on every sample, ``exposed`` are further gauges
    that never change. ``copies`` tells, by group and step, how many consumers or queues a message is delivered to; one
    where it does not tell. Two threads may use it."""

    def __init__(
        self,
        *,
        prefix: str = DEFAULT_PREFIX,
        labels: Mapping[str, str] | None = None,
        command: str = "",
        exposed: Mapping[str, float] | None = None,
        copies: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self._prefix = prefix
        self._labels = dict(labels or {})
        self._command = command
        self._exposed = dict(exposed or {})
        self._copies = dict(copies or {})
        self._lock = threading.Lock()
        self._last: dict[tuple[str, ...], Interval] = {}
        self._totals: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._whole = {name: Histogram() for name in _LATENCIES}
        self._latency_sums_s: dict[str, float] = dict.fromkeys(_LATENCIES, 0.0)

    def interval(self, record: Interval) -> None:
        """Take an interval of one worker."""
        with self._lock:
            self._last[*record.source, record.group] = record
            for name, counter in _COUNTS.items():
                self._totals[name] += getattr(record, counter)
            for name in _LATENCIES:
                merged = _merged([record], name)
                self._whole[name].add(merged)
                self._latency_sums_s[name] += merged.mean_ns * merged.total / 1e9

    def collect(self) -> Iterator[Metric]:
        """As prometheus-client asks for it."""
        with self._lock:
            yield from list(self._metrics())

    def _metrics(self) -> Iterator[Metric]:
        records = list(self._last.values())
        for name in _RATES:
            yield self._gauge(name, "messages per second in the last interval", _per_s(records, _COUNTS[name]))
        if "expected_published" not in self._exposed:
            asked = _per_s(records, "intended")
            yield self._gauge("expected_published", "what the schedule asked for, per second", asked)
        if "expected_consumed" not in self._exposed:
            about = "what consumers would get of the schedule, per second"
            yield self._gauge("expected_consumed", about, sum(self._expected(record) for record in records))
        for name, value in self._exposed.items():
            yield self._gauge(name, "as --exposed-metrics has it", value)
        yield self._gauge("unconfirmed", "messages in flight", sum(record.unconfirmed for record in records))
        lag_s = max((record.loop_lag_ns for record in records), default=0) / 1e9
        yield self._gauge("loop_lag_seconds", "longest delay of a worker's event loop in the last interval", lag_s)
        for name, total in self._totals.items():
            yield self._counter(f"{name}_messages", f"messages {name} since the start", total)
        for name in _LATENCIES:
            yield self._summary(name, _merged(records, name))
            yield self._histogram(name)
        if self._command:
            args = GaugeMetricFamily(f"{self._prefix}args", "command line", labels=["command_line", *self._labels])
            args.add_metric([self._command, *self._labels.values()], 1)
            yield args

    def _expected(self, record: Interval) -> float:
        return _per_s([record], "intended") * self._copies.get((record.group, record.step), 1)

    def _gauge(self, name: str, about: str, value: float) -> Metric:
        return self._labelled(GaugeMetricFamily(f"{self._prefix}{name}", about, labels=list(self._labels)), value)

    def _counter(self, name: str, about: str, value: float) -> Metric:
        return self._labelled(CounterMetricFamily(f"{self._prefix}{name}", about, labels=list(self._labels)), value)

    def _labelled(self, family: GaugeMetricFamily | CounterMetricFamily, value: float) -> Metric:
        family.add_metric(list(self._labels.values()), value)
        return family

    def _summary(self, name: str, merged: Histogram) -> Metric:
        """Quantiles of the last interval; count, sum and maximum of the run. An interval without any value has no
        quantiles (NaN, as summaries of Prometheus' own clients): a zero would be a perfect latency."""
        full = f"{self._prefix}{name}"
        metric = Metric(full, "latency, from the intended time where there is a schedule", "summary")
        quantiles = (*QUANTILES, *OWN_QUANTILES)
        values_ns = merged.percentiles_ns([100 * quantile for quantile in quantiles])
        for quantile, value_ns in zip(quantiles, values_ns, strict=True):
            metric.add_sample(
                full, {**self._labels, "quantile": f"{quantile:g}"}, value_ns / 1e9 if merged.total else math.nan
            )
        metric.add_sample(f"{full}_count", self._labels, self._whole[name].total)
        metric.add_sample(f"{full}_sum", self._labels, self._latency_sums_s[name])
        metric.add_sample(f"{full}_max", self._labels, self._whole[name].max_ns / 1e9)
        return metric

    def _histogram(self, name: str) -> Metric:
        """The latencies of the whole run in buckets, whose sums over runs and hosts give quantiles."""
        about = "latency of the whole run, from the intended time where there is a schedule"
        family = HistogramMetricFamily(f"{self._prefix}{_HISTOGRAMS[name]}", about, labels=list(self._labels))
        bounds = (*(f"{bound_ns / 1e9:g}" for bound_ns in BOUNDS_NS), "+Inf")
        below = accumulate(bucket_counts(self._whole[name]))
        buckets = [(bound, float(count)) for bound, count in zip(bounds, below, strict=True)]
        family.add_metric(list(self._labels.values()), buckets, self._latency_sums_s[name])
        return family


class Endpoint:
    """The collector over HTTP, in a thread of its own. Raises OSError if the port cannot be had."""

    def __init__(
        self, collector: RunCollector, *, host: str, port: int = DEFAULT_PORT, path: str = DEFAULT_PATH
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        self._server = make_server(host, port, _application(registry, path), _Server, _Silent)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """Each connection has a thread, so that one which says nothing holds up neither a scrape nor the end of the run."""

    daemon_threads = True
    block_on_close = False


class _Silent(WSGIRequestHandler):
    """A request handler that logs nothing, and leaves a client that says nothing."""

    timeout = SILENCE_S

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name is the library's
        """Say nothing."""


def _application(registry: CollectorRegistry, path: str) -> Callable[[dict[str, Any], Any], list[bytes]]:
    """Answers at ``path``, with or without a slash before and behind it."""
    place = path.strip("/")

    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if str(environ.get("PATH_INFO")).strip("/") != place:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"metrics are at /{place}\n".encode()]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
        return [generate_latest(registry)]

    return answer


def _per_s(records: list[Interval], counter: str) -> float:
    """The sum of the workers' rates."""
    rates = (int(getattr(record, counter)) * 1e9 / record.length_ns for record in records if record.length_ns)
    return sum(rates)


def _merged(records: list[Interval], name: str) -> Histogram:
    """The histogram of the union, of the first series that has values."""
    for series in _LATENCIES[name]:
        merged = Histogram()
        for record in records:
            if (counts := record.latencies.get(series)) is not None:
                merged.add_sparse(counts)
        if merged.total:
            return merged
    return Histogram()
