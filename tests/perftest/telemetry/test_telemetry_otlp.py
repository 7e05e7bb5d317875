"""Metrics over OTLP, as a collector reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Series
from perftest.telemetry.latency_buckets import BOUNDS_NS, bucket_counts
from tests.perftest.results import records

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

import gzip

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from perftest.telemetry.otlp import OtlpSender, address_of


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent; ``status`` is its answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.got: list[tuple[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        octets = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            octets = gzip.decompress(octets)
        self.server.got.append((self.path, ExportMetricsServiceRequest.FromString(octets)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name is the library's
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def metrics(request: Any) -> dict[str, Any]:
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in of.attributes}


def test_the_totals_of_a_run_reach_the_collector(collector: Collector) -> None:
    """Counts and exact buckets by step, under the names of the conventions."""
    sender = OtlpSender(collector.url, "mine")
    whole = Histogram()
    for record in records.intervals(records.plan(steps=2)):
        sender.interval(record)
        if record.step == 2:
            whole.add_sparse(record.latencies[Series.CONFIRM])
    sender.close()
    path, request = collector.got[-1]
    assert path == "/v1/metrics"
    facts = attributes(request.resource_metrics[0].resource)
    assert (facts["service.name"], facts["service.instance.id"]) == ("perftest", "mine")
    found = metrics(request)
    sent = found["messaging.client.sent.messages"]
    assert sent.unit == "{message}" and sent.sum.is_monotonic
    assert {attributes(point)["perftest.step"]: point.as_int for point in sent.sum.data_points} == {1: 800, 2: 1600}
    (_, confirms) = found["messaging.client.operation.duration"].histogram.data_points
    assert attributes(confirms) == {
        "messaging.system": "rabbitmq", "messaging.operation.name": "publish", "messaging.operation.type": "send",
        "perftest.step": 2,
    }  # fmt: skip
    assert list(confirms.bucket_counts) == bucket_counts(whole) and confirms.count == whole.total
    assert list(confirms.explicit_bounds) == [bound_ns / 1e9 for bound_ns in BOUNDS_NS]
    assert confirms.max == whole.max_ns / 1e9 and confirms.sum == pytest.approx(whole.mean_ns * whole.total / 1e9)
    fates = {attributes(point)["perftest.outcome"] for point in found["perftest.messages"].sum.data_points}
    assert fates == {"confirmed", "nacked", "returned", "redelivered", "acked"}
    assert len(found["perftest.message.latency"].histogram.data_points) == 2


def test_a_collector_that_refuses_costs_a_note(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing on the live screen while the run lasts, and one line at its end."""
    collector.status = 400
    OtlpSender(collector.url, "mine").close()
    said = f"note: 1 of 1 exports of metrics did not reach {collector.url}/v1/metrics\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://host:4318", "http://host:4318/v1/metrics"),
        ("http://host:4318/", "http://host:4318/v1/metrics"),
        ("https://host/otlp/v1/metrics", "https://host/otlp/v1/metrics"),
    ],
)
def test_a_base_address_gets_the_path_of_metrics(url: str, address: str) -> None:
    assert address_of(url) == address
