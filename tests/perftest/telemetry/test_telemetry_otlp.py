"""Metrics over OTLP, as a collector reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Series
from perftest.telemetry.latency_buckets import BOUNDS_NS, bucket_counts
from tests.perftest.results import records

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics

from perftest.telemetry.otlp import OtlpSender, address_of
from tests.perftest.testing.otlp_collector import Collector, attributes, collecting


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


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
    found = collector.metrics()
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


def test_names_are_those_of_the_conventions(collector: Collector) -> None:
    """Dashboards for messaging find them; only what the conventions lack has names of its own."""
    sender = OtlpSender(collector.url, "mine")
    for record in records.intervals(records.plan(steps=1)):
        sender.interval(record)
    sender.close()
    found = collector.metrics()
    own = {name for name in found if name.startswith("perftest.")}
    conventions = {value for name, value in vars(messaging_metrics).items() if name.startswith("MESSAGING_")}
    assert set(found) - own <= conventions and len(set(found) - own) == 3
    (point,) = found["messaging.client.operation.duration"].histogram.data_points
    known = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    assert {key for key in attributes(point) if not key.startswith("perftest.")} <= known


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
