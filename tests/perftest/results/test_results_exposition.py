"""The endpoint for Prometheus: PerfTest's names, figures that follow from the intervals."""

from __future__ import annotations

import math
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perftest.results.exposition import Endpoint, RunCollector
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
            found[sample.name, sample.labels.get("quantile", "")] = sample.value
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


def test_before_the_first_interval_there_is_an_answer(endpoint: Endpoint) -> None:
    """Zeros, not an error; and the command line."""
    found = scraped(endpoint)
    assert found["perftest_published", ""] == 0
    assert found["perftest_args", ""] == 1
    assert not any(math.isnan(value) for value in found.values())


def test_another_path_is_told_the_right_one(endpoint: Endpoint) -> None:
    """And nobody is served the metrics by accident."""
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/", timeout=10)


def test_a_port_that_is_taken_raises(endpoint: Endpoint, collector: RunCollector) -> None:
    """The command says so before it measures."""
    with pytest.raises(OSError, match="in use"):
        Endpoint(collector, host="127.0.0.1", port=endpoint.port)
