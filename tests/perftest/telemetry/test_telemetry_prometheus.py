"""The endpoint for Prometheus: PerfTest's names, figures that follow from the intervals."""

from __future__ import annotations

import math
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hdr_buckets import BUCKET_HIGHEST_NS
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Series
from perftest.telemetry.latency_buckets import BOUNDS_NS, bucket_counts
from perftest.telemetry.prometheus import Endpoint, RunCollector
from tests.perftest.results import records
from tests.perftest.testing.figures import figures

LABELS = {"type": "mine"}


@pytest.fixture
def collector() -> RunCollector:
    return RunCollector(labels=LABELS, command='perftest run -x 1 "quoted"')


@pytest.fixture
def endpoint(collector: RunCollector) -> Iterator[Endpoint]:
    made = Endpoint(collector, host="127.0.0.1", port=0)
    yield made
    made.close()


def scraped(endpoint: Endpoint) -> dict[tuple[str, str], float]:
    """Value by name and quantile."""
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["type"] == "mine"
            found[sample.name, sample.labels.get("quantile", sample.labels.get("le", ""))] = sample.value
    return found


def test_rates_are_those_of_the_last_interval_and_counters_those_of_the_run(
    collector: RunCollector, endpoint: Endpoint
) -> None:
    """Two workers: their rates add up; counters never go down."""
    for worker in ("0", "1"):
        for record in records.intervals(records.plan(steps=2), worker=worker):
            collector.interval(record)
    found = scraped(endpoint)
    assert found["perftest_published", ""] == found["perftest_consumed", ""] == found["perftest_confirmed", ""] == 800
    assert found["perftest_expected_published", ""] == 800
    assert found["perftest_nacked", ""] == 0
    assert found["perftest_published_messages_total", ""] == 2 * (4 * 200 + 4 * 400)


def test_latencies_are_summaries_in_seconds(collector: RunCollector, endpoint: Endpoint) -> None:
    """Quantiles of the last interval from its exact histogram; count and sum of the whole run."""
    last = None
    for last in records.intervals(records.plan(steps=1)):
        collector.interval(last)
    assert last is not None
    found = scraped(endpoint)
    series = {str(name): latency for name, latency in last.latencies.items()}
    assert found["perftest_latency_seconds", "0.99"] == pytest.approx(figures(series["e2e"]).p99_ns / 1e9)
    assert found["perftest_confirm_latency_seconds", "0.5"] == pytest.approx(figures(series["confirm"]).p50_ns / 1e9)
    assert found["perftest_latency_seconds_count", ""] == 4 * 200
    assert found["perftest_latency_seconds_sum", ""] == pytest.approx(4 * 200 * 2e-3, rel=0.2)
    assert found["perftest_latency_seconds_max", ""] >= series["e2e"].max_ns / 1e9


def test_latencies_are_histograms_that_can_be_added_up(collector: RunCollector, endpoint: Endpoint) -> None:
    """Of the whole run, with the very counts of the intervals, within the 0.1 % of their buckets."""
    whole = Histogram()
    for record in records.intervals(records.plan(steps=2)):
        collector.interval(record)
        whole.add_sparse(record.latencies[Series.E2E])
    found = scraped(endpoint)
    name = "perftest_latency_histogram_seconds"
    below = [found[f"{name}_bucket", f"{bound_ns / 1e9:g}"] for bound_ns in BOUNDS_NS]
    values = np.repeat(BUCKET_HIGHEST_NS[: len(whole.counts)], whole.counts)
    assert below == [np.count_nonzero(values <= bound_ns) for bound_ns in BOUNDS_NS]
    assert found[f"{name}_bucket", "+Inf"] == found[f"{name}_count", ""] == whole.total == 4 * 200 + 4 * 400
    assert found[f"{name}_sum", ""] == found["perftest_latency_seconds_sum", ""]
    assert sum(bucket_counts(whole)) == whole.total and bucket_counts(Histogram()) == [0] * (len(BOUNDS_NS) + 1)


def test_before_the_first_interval_there_is_an_answer(endpoint: Endpoint) -> None:
    """Zeros, not an error; the command line; and no latency."""
    found = scraped(endpoint)
    assert found["perftest_published", ""] == 0
    assert found["perftest_args", ""] == 1
    assert {name for name, value in found.items() if math.isnan(value)} == {
        (f"perftest_{name}", quantile)
        for name in ("latency_seconds", "confirm_latency_seconds")
        for quantile in ("0.5", "0.75", "0.95", "0.99", "0.999")
    }


def test_an_idle_interval_has_no_latency(collector: RunCollector, endpoint: Endpoint) -> None:
    """A zero would look perfect on every dashboard."""
    (*_, last) = records.intervals(records.plan(steps=1))
    collector.interval(last)
    collector.interval(replace(last, latencies={}, published=0, delivered=0))
    found = scraped(endpoint)
    assert math.isnan(found["perftest_latency_seconds", "0.99"])
    assert found["perftest_latency_seconds_count", ""] == 200 and found["perftest_latency_seconds_max", ""] > 0


def test_what_is_expected_of_consumers_is_the_schedule_times_the_copies() -> None:
    made = RunCollector(labels=LABELS, copies={("", 1): 3})
    served = Endpoint(made, host="127.0.0.1", port=0)
    (record, *_) = records.intervals(records.plan(steps=1))
    made.interval(record)
    found = scraped(served)
    served.close()
    assert found["perftest_expected_consumed", ""] == 3 * found["perftest_expected_published", ""] > 0


@pytest.mark.parametrize("path", ["metrics", "/metrics", "/metrics/", "metrics/"])
@pytest.mark.parametrize("asked", ["/metrics", "/metrics/"])
def test_slashes_around_the_endpoint_do_not_matter(path: str, asked: str, collector: RunCollector) -> None:
    served = Endpoint(collector, host="127.0.0.1", port=0, path=path)
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{asked}", timeout=10) as answer:
        assert answer.status == 200
    served.close()


def test_a_connection_that_says_nothing_holds_up_nobody(collector: RunCollector) -> None:
    served = Endpoint(collector, host="127.0.0.1", port=0)
    with socket.create_connection(("127.0.0.1", served.port)):
        assert scraped(served)
        closing = threading.Thread(target=served.close, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()


def test_another_path_is_told_the_right_one(endpoint: Endpoint) -> None:
    """And nobody is served the metrics by accident."""
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/", timeout=10)


def test_a_port_that_is_taken_raises(endpoint: Endpoint, collector: RunCollector) -> None:
    """The command says so before it measures."""
    with pytest.raises(OSError, match="in use"):
        Endpoint(collector, host="127.0.0.1", port=endpoint.port)
